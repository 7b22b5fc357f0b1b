"""
Delay of a quiet user beside a user at full speed.

A quiet user types through API server, poollet and runtime, three processes over TLS.  Beside it a
second such chain runs.  Each row attacks first the second chain, which is the *control*: the
attacker and three hops work equally hard, but not for the quiet user's chain.  Then it attacks the
quiet user's own.  So the ratio says what the attack does beyond the load that it puts on the
processors.  Rounds are interleaved; percentiles are medians of the rounds, and a turn of the
reactor is the largest of all rounds.  The last lines name the rows that are above the goals: keys at
most 2.0 times as long as in controls at the 99th percentile, openings at most 3.0 times at the median and
the 90th.

``python -m tests.benchmarks fairness [ROW ...]``; ``FAIRNESS_SECONDS`` and ``FAIRNESS_ROUNDS`` set
the length of a run and the number of rounds, and ``FAIRNESS_NICE`` the priority of the attackers: with 19 they take
little from the chains, as if they ran elsewhere.  Behind the CPU time of the hops each row has how long they
waited for a processor.  Some rows are left out unless they are named: those with a
disk that fails need root, and have the journals of each chain on an ext4 in a file; those with
4 000 further machines; those with ``ssh``, in which the quiet user types with OpenSSH through an ssh door, beside strangers and
users of that door (only these rows together); ``agents``, in which 500 agents call a tool of an ``exec-mcp`` in front of
the chain again and again; and ``bmc``, in which each runtime has 32 servers beside the other machines, and their BMCs
begin to misbehave, each in one way: answers of 100 MB and of endless depth, 503, no answer to the login, to the first
and to a later document, and at the console, and consoles that print without end.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread

from tests import procfs
from tests.benchmarks.agent_door import AgentAccess, AgentDoor
from tests.benchmarks.chain import run
from tests.benchmarks.console import Console, connect, user_context
from tests.benchmarks.ironcore import CHECKOUT
from tests.flows import programs
from tests.flows.deployment import CLASSES, Deployment, run_reactor
from tests.flows.test_three_programs import binding
from tests.runtimes.bmc.server import HOST, PASSWORD, USER
from twisted_exec.api import kinds
from twisted_exec.api.agents import agent_name

from .agents import AGENTS
from .attacks import (
    BMC,
    COPIED_KEYS,
    CROWD_OF_AGENTS,
    CROWD_SIZE,
    CROWDED,
    DISK_FAULTS,
    EDITOR,
    FROZEN,
    HANDSHAKES,
    IMAGES,
    LOUD,
    OPENS,
    ORDINARY,
    ROWS,
    SINK,
    SLOW,
    SSH,
    STRANGER,
    TARGET,
    crowd_machine,
)
from .doors import Door, role
from .quiet import Trips, Typist, median, percentile
from .work import Access

SECONDS = float(os.environ.get("FAIRNESS_SECONDS", "3"))
ROUNDS = int(os.environ.get("FAIRNESS_ROUNDS", "3"))
NICE = os.environ.get("FAIRNESS_NICE", "0")
KEY_GOAL, OPEN_GOAL = 2.0, 3.0
"""The largest ratios to controls that a row should have."""
_PLUGINS = {"api": "apiserver", "poollet": "poollet", "runtime": "runtime"}
HOPS = tuple(_PLUGINS)
DOOR = "door"
QUIET = "quiet"
"""A user and a machine."""
_PATIENCE_SECONDS = 60.0
_SETTLE_SECONDS = 300.0
_IDLE_SAMPLES = 20
_OPENING_SECONDS = 0.1
"""Pause of the quiet user between two openings."""
_DISK_BYTES = 256 << 20
_METAL = "metal"
_PRINT_OFTEN = b"timeout %d sh -c 'while sleep 0.02; do seq 500; done'" % (SECONDS + 2)
"""About 80 KB/s."""
_PRINT_LETTERS = (
    b"timeout %d sh -c 'while sleep .02;do od -An -b -N500 /dev/urandom"
    b'|tr "0-7 \\n" aaaabbbbaa;echo;echo end;done\''
) % (SECONDS + 2)
"""About 80 KB/s of a and b in any order."""
_PRINT_IMAGES = (
    b'timeout %d sh -c \'while sleep .1;do printf "\\033_G";yes ,i=|head -22000|tr -d "\\n";'
    b"echo;echo end;done'"
) % (SECONDS + 2)
"""Up to 660 KB/s."""


class MeasuredDeployment(Deployment):
    """
    A chain whose programs report their reactors' turns; see :mod:`twisted_exec.nodeserver.kubelet_api.routes`.

    :ivar disk: where the journals' own disk is mounted; empty without one.
    :ivar rack: the servers of the runtime, if it has some.
    :ivar door: the ssh door, if it has one.
    """

    disk = ""
    rack: Rack | None = None
    door: Door | None = None
    agent_door: AgentDoor | None = None
    agent_access: AgentAccess | None = None

    def twistd(self, plugin: str, *options: str) -> programs.Program:
        figures = self.path(f"{plugin}.turns")
        wrapped = [sys.executable, "-m", "tests.benchmarks.fairness.hop", figures, plugin]
        path = os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")])
        return programs.start([*wrapped, *options], env={"PYTHONPATH": path.rstrip(os.pathsep)})

    async def prepare(self) -> None:
        """Start the programs; make users, machines, and the Secret that is patched."""
        await self.start()
        users = kinds.ROLEBINDINGS.resource
        for user in (QUIET, EDITOR):
            await self.client.create(users, binding(user, "edit"), namespace="default")
        for user in (QUIET, EDITOR, STRANGER):
            self.pki.issue_user(user, [])
        for machine in (QUIET, SINK, LOUD):
            await self.create_machine(machine, "shell")
        if self.rack is not None:
            await self.create_class(_METAL, "1Gi")
            servers = [self.create_machine(name, _METAL) for name in self.rack.lines]
            await gatherResults([Deferred.fromCoroutine(each) for each in servers])
        data = {f"key-{number}": "" for number in range(COPIED_KEYS)}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": TARGET}, "data": data}
        await self.client.create(kinds.SECRETS.resource, secret, namespace="default")

    async def use_agent_door(self) -> None:
        """Start a door for agents."""
        agents = [agent_name("crowd", f"a{number}") for number in range(AGENTS)]
        self.agent_door = AgentDoor(self, agents)
        self.agent_access = await self.agent_door.start()

    async def use_door(self) -> None:
        """Start an ssh door."""
        await self.client.create(kinds.CLUSTERROLES.resource, yaml.safe_load(role()))
        bound = {**binding("exec-sshd", "exec-sshd"), "kind": "ClusterRoleBinding"}
        await self.client.create(kinds.CLUSTERROLEBINDINGS.resource, bound)
        self.door = Door(self, (QUIET, EDITOR))
        await self.door.start()

    async def crowd(self) -> None:
        """Create the machines whose pool does not exist; an editor may list all namespaces."""
        everywhere = {**binding(EDITOR, "view"), "kind": "ClusterRoleBinding"}
        await self.client.create(kinds.CLUSTERROLEBINDINGS.resource, everywhere)
        resource = kinds.MACHINES.resource
        for first in range(0, CROWD_SIZE, 50):
            machines = [crowd_machine(f"crowd-{at}", at=str(at)) for at in range(first, first + 50)]
            await gatherResults(
                [self.client.create(resource, each, "default") for each in machines]
            )

    def pid(self, hop: str) -> int:
        program = self.door.program if hop == DOOR and self.door is not None else getattr(self, hop)
        pid = program.transport.pid
        assert isinstance(pid, int)
        return pid

    def access(self, seconds: float) -> Access:
        """The attackers' way to this chain."""
        pairs = {user: self.pki.pair(f"user-{user}") for user in (EDITOR, STRANGER)}
        users = {user: (pair.certificate, pair.key) for user, pair in pairs.items()}
        agents = {} if self.agent_access is None else asdict(self.agent_access)
        access = Access(self.port, self.pki.serving_ca, users, seconds, agents=agents)
        if self.door is None:
            return access
        return replace(access, ssh_port=self.door.port, ssh_key=self.door.path(EDITOR))

    def console(self, user: str, machine: str) -> tuple[ssl.SSLSocket, Console]:
        """Open a console of a machine."""
        line = connect(self.port, user_context(self.pki, user))
        path = kinds.MACHINES.resource.path("default", machine, "exec")
        return line, Console(line, f"localhost:{self.port}", path)

    def opened(self, user: str, machine: str) -> tuple[ssl.SSLSocket, Console]:
        """As soon as the role binding and the machine are known to every hop."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return self.console(user, machine)
            except ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def run(self, machine: str, command: bytes) -> None:
        """Run a command in a machine's shell, its terminal made transparent, and leave."""
        _, console = self.opened(EDITOR, machine)
        run(console, command)
        console.close()

    def turns(self) -> dict[str, Turns]:
        """The turns of each hop since this was called last."""
        plugins = _PLUGINS if self.door is None else _PLUGINS | {DOOR: "sshd"}
        files = {hop: Path(self.path(f"exec-{name}.turns")) for hop, name in plugins.items()}
        for hop, file in files.items():
            file.unlink(missing_ok=True)
            os.kill(self.pid(hop), signal.SIGUSR1)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not all(file.exists() for file in files.values()):
            if time.monotonic() > deadline:
                raise TimeoutError("a hop does not report its turns")
            time.sleep(0.01)
        return {hop: Turns(**json.loads(file.read_text())) for hop, file in files.items()}

    def settle(self) -> None:
        """Wait until the hops have nothing to do."""
        # A machine that reads slowly makes its hops wait, too.
        pids = [self.pid(hop) for hop in HOPS] + procfs.descendants(self.pid("runtime"))
        deadline, idle = time.monotonic() + _SETTLE_SECONDS, 0
        while idle < _IDLE_SAMPLES and time.monotonic() < deadline:
            time.sleep(0.01)
            # Not by CPU time: on a busy machine a hop with much to do gets little of it.
            idle = 0 if any(procfs.is_running(pid) for pid in pids) else idle + 1

    def use_rack(self) -> None:
        """Give the runtime servers; before it starts."""
        self.rack = Rack()
        password = Path(self.path("bmc-password"))
        password.write_text(PASSWORD)
        password.chmod(0o600)
        metal = {
            "name": _METAL,
            "driver": "redfish",
            "capabilities": {"cpu": "1", "memory": "1Gi"},
            "user": USER,
            "password_file": str(password),
            "pin": self.rack.pin,
            "lines": self.rack.lines,
        }
        config = yaml.safe_load(CLASSES)
        config["classes"].append(metal)
        Path(self.path("runtime.yaml")).write_text(yaml.dump(config))

    def use_disk(self) -> None:
        """Give the journals a disk of their own; before the runtime starts."""
        directory, image = self.path("runtime-state/consoles"), self.path("disk")
        os.makedirs(directory, 0o700)
        os.chmod(self.path("runtime-state"), 0o700)
        with open(image, "wb") as file:
            file.truncate(_DISK_BYTES)
        for command in (
            ("mkfs.ext4", "-q", image),
            ("mount", "-o", "loop,errors=remount-ro", image, directory),
        ):
            subprocess.run(command, check=True)
        os.chmod(directory, 0o700)
        self.disk = directory

    def remove_disk(self) -> None:
        """Unmount the disk, if there is one; after the runtime has ended."""
        if self.disk:
            subprocess.run(("umount", "--lazy", self.disk), check=True)

    def freeze_disk(self, seconds: float) -> threading.Timer:
        """Let writes to the disk wait for a time; the timer ends when that is over."""
        subprocess.run(("fsfreeze", "--freeze", self.disk), check=True)
        command = ("fsfreeze", "--unfreeze", self.disk)
        timer = threading.Timer(seconds, partial(subprocess.run, command, check=True))
        timer.start()
        return timer

    def fail_disk(self) -> None:
        """Make the disk read-only, as an error of the file system does; it remains so."""
        number = os.stat(self.disk).st_dev
        device = os.readlink(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
        Path("/sys/fs/ext4", os.path.basename(device), "trigger_fs_error").write_text("benchmark")
        try:
            Path(self.disk, "probe").touch()
        except OSError as error:
            if error.errno == errno.EROFS:
                return
            raise
        raise RuntimeError(f"{self.disk} is not read-only")

    def print_lines(self, command: bytes, printed: bytes) -> None:
        """
        Let the loud machine run a command.

        :param printed: what it prints again and again.
        """
        _, console = self.opened(EDITOR, LOUD)
        # The scrollback may show an earlier run.
        console.type(b"echo be''gin; %s\n" % command)
        console.until(printed, console.until(b"begin\r\n"))
        console.close()

    def silence(self) -> None:
        """End every ``yes`` of this chain's machines."""
        for pid in procfs.descendants(self.pid("runtime")):
            if procfs.name(pid) == "yes":
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


class Rack:
    """
    Servers with their BMCs, which are a process; see :mod:`.bmcs`.

    :ivar pin: of all BMCs.
    :ivar lines: of the servers' class.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.fairness.bmcs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=CHECKOUT,
        )
        said = self._says()
        self.pin: str = said["pin"]
        self.lines = {f"server-{port}": {"host": HOST, "port": port} for port in said["ports"]}

    def tell(self, what: str) -> dict[str, Any]:
        """Tell the BMCs something; return what they have done since."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n".encode())
        self._process.stdin.flush()
        return self._says()

    def wait(self) -> None:
        """Wait until all consoles are open."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while self.tell("count")["open"] < len(self.lines):
            if time.monotonic() > deadline:
                raise TimeoutError("consoles of servers do not open")
            time.sleep(0.1)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _says(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        said: dict[str, Any] = json.loads(self._process.stdout.readline())
        return said


@dataclass(frozen=True)
class Turns:
    """The reactor turns of a hop during a run; thread CPU time."""

    turns: int
    largest_ms: float
    p99_ms: float


@dataclass
class Run:
    """One run of an attacker against one chain, while the quiet user types into another or the same."""

    trips: Trips
    turns: dict[str, Turns]
    cpu: dict[str, float]
    waited: dict[str, float]
    done: dict[str, Any]
    opens: list[float]


class Openings:
    """
    Consoles that the quiet user opens, one after the other, beside the one they type into.

    :ivar times: from the connection to the 101, in milliseconds.
    """

    def __init__(self, chain: MeasuredDeployment) -> None:
        self._chain = chain
        self.times: list[float] = []
        self._thread: threading.Thread | None = None

    def begin(self, seconds: float) -> None:
        """Open consoles in a thread, for some seconds."""
        self._thread = threading.Thread(target=self._open, args=(time.monotonic() + seconds,))
        self._thread.start()

    def wait(self) -> list[float]:
        """Wait for the last opening; return the times."""
        if self._thread is not None:
            self._thread.join()
        return self.times

    def _open(self, until: float) -> None:
        while time.monotonic() < until:
            begun = time.perf_counter()
            try:
                _, console = self._chain.console(QUIET, SINK)
            except ConnectionError:
                self.times.append(float("inf"))
                continue
            self.times.append((time.perf_counter() - begun) * 1e3)
            console.close()
            time.sleep(_OPENING_SECONDS)


class Bench:
    """
    Two chains, and the quiet user of the first.

    :param chains: the quiet user's, and the one that is attacked in controls.
    """

    def __init__(self, chain: MeasuredDeployment, other: MeasuredDeployment) -> None:
        self._chain, self._other = chain, other
        for each in (chain, other):
            each.run(SINK, b"cat >/dev/null")
        chain.run(QUIET, b"cat")
        self._typist = self._sit_down()
        self._attacker = subprocess.Popen(
            ["nice", "-n", NICE, sys.executable, "-m", "tests.benchmarks.fairness.attacks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=CHECKOUT,
        )

    def close(self) -> None:
        """End the attacker's process."""
        self._attacker.communicate()

    def _tell_attacker(self, row: str, attacked: MeasuredDeployment) -> None:
        """Let an attack begin."""
        assert self._attacker.stdin is not None
        self._attacker.stdin.write(
            json.dumps([row, asdict(attacked.access(SECONDS))]).encode() + b"\n"
        )
        self._attacker.stdin.flush()
        self._attacker_says()

    def _attacker_says(self) -> bytes:
        assert self._attacker.stdout is not None
        return self._attacker.stdout.readline()

    def _sit_down(self) -> Typist:
        line: Any
        console: Any
        if self._chain.door is not None:
            line = console = self._chain.door.console(QUIET, QUIET)
            console.until(b"Connected to")
        else:
            line, console = self._chain.opened(QUIET, QUIET)
        mark = os.urandom(8).hex().encode()
        console.type(mark)
        console.until(mark)
        return Typist(line, console)

    def run(self, row: str, attacked: MeasuredDeployment) -> Run:
        """One run."""
        if row.startswith("yes"):
            attacked.print_lines(b"yes", b"y\r\ny\r\n")
        elif row in DISK_FAULTS:
            attacked.print_lines(_PRINT_OFTEN, b"499\r\n500\r\n")
        elif row == IMAGES:
            attacked.print_lines(_PRINT_IMAGES, b"end\r\n")
        elif row == SLOW:
            attacked.print_lines(_PRINT_LETTERS, b"end\r\n")
        rack = attacked.rack if row == BMC else None
        if rack is not None:
            rack.wait()
        self._typist.type_for(0.1)
        hops = HOPS if attacked.door is None else (*HOPS, DOOR)
        before = {hop: procfs.cpu_seconds(attacked.pid(hop)) for hop in hops}
        waited = {hop: procfs.waited_seconds(attacked.pid(hop)) for hop in hops}
        self._chain.turns()
        self._tell_attacker(row, attacked)
        frozen = attacked.freeze_disk(SECONDS * 0.75) if row == FROZEN else None
        if row in DISK_FAULTS and frozen is None:
            attacked.fail_disk()
        if rack is not None:
            rack.tell("misbehave")
        openings = Openings(self._chain)
        if row in (OPENS, HANDSHAKES):
            openings.begin(SECONDS)
        trips = self._typist.type_for(SECONDS)
        opens = openings.wait()
        if frozen is not None:
            frozen.join()
        turns = self._chain.turns()
        cpu = {hop: procfs.cpu_seconds(attacked.pid(hop)) - before[hop] for hop in hops}
        waited = {hop: procfs.waited_seconds(attacked.pid(hop)) - waited[hop] for hop in hops}
        report = json.loads(self._attacker_says())
        if rack is not None:
            done = rack.tell("behave")
            report |= {"sent": done["printed"], "answers": done["requests"]}
        attacked.silence()
        attacked.settle()
        if trips.lost:
            self._typist = self._sit_down()
        return Run(trips, turns, cpu, waited, report, opens)

    def row(self, row: str) -> Row:
        """All rounds of a row."""
        controls, attacks = [], []
        for _ in range(ROUNDS):
            controls.append(self.run(row, self._other))
            attacks.append(self.run(row, self._chain))
        return Row(row, controls, attacks)


@dataclass
class Row:
    """The rounds of one attack."""

    name: str
    controls: list[Run]
    attacks: list[Run]

    @staticmethod
    def headings() -> str:
        hops = "".join(f"{hop:>16}" for hop in HOPS)
        return (
            f"{'':24}{'control, ms':>16}{'attacked, ms':>24}{'':9}   largest turn (p99), CPU ms\n"
            f"{'':24}{'p50':>8}{'p99':>8}{'p50':>8}{'p90':>8}{'p99':>8}{'p99':>9}{hops}  the attack"
        )

    def __str__(self) -> str:
        control, attacked = (
            [median([one.trips.percentile(percent) for one in runs]) for percent in (50, 90, 99)]
            for runs in (self.controls, self.attacks)
        )
        figures = f"{control[0]:8.1f}{control[2]:8.1f}" + "".join(f"{ms:8.1f}" for ms in attacked)
        turns = "".join(self._turn(hop) for hop in HOPS)
        lost = sum(one.trips.lost for one in self.attacks)
        return f"{self.name:24}{figures}{self.key_ratio:8.1f}x{turns}  {self._work()}" + (
            f"; {lost} keys lost" if lost else ""
        )

    @property
    def key_ratio(self) -> float:
        """The 99th percentile of keys, in multiples of that of controls."""
        attacked, control = (
            median([one.trips.percentile(99) for one in runs])
            for runs in (self.attacks, self.controls)
        )
        return attacked / control

    @property
    def open_ratio(self) -> float:
        """The same of openings, at the median or the 90th percentile; 0.0 if the row has none."""
        if not self.attacks[0].opens:
            return 0.0
        medians, slow = self._open_times()
        return max(medians[0] / medians[1], slow[0] / slow[1])

    def _turn(self, hop: str) -> str:
        largest = max(one.turns[hop].largest_ms for one in self.attacks)
        p99 = median([one.turns[hop].p99_ms for one in self.attacks])
        return f"{largest:8.1f} ({p99:5.1f})"

    def _work(self) -> str:
        """The attacker's rate against the quiet chain, then in parentheses that in controls."""
        attacked, control = self._rate(self.attacks), self._rate(self.controls)
        counts: Counter[str] = Counter()
        for one in self.attacks:
            counts.update(one.done["answers"])
            counts.update(one.done["refusals"])
        told = ", ".join(f"{what} x{count}" for what, count in counts.most_common(3))
        spent = ", ".join(self._spent(hop) for hop in HOPS)
        if DOOR in self.attacks[0].turns:
            spent += f", door {self._spent(DOOR)} (turn {self._turn(DOOR).strip()})"
        opens = self._opens() if self.attacks[0].opens else ""
        return f"{opens}{attacked:.2f} MB/s ({control:.2f}), CPU s + waits {spent}" + (
            told and f"; {told}"
        )

    def _spent(self, hop: str) -> str:
        """CPU time, and the time that it waited for a processor."""
        cpu = median([one.cpu[hop] for one in self.attacks])
        return f"{cpu:.1f}+{median([one.waited[hop] for one in self.attacks]):.1f}"

    def _opens(self) -> str:
        """The quiet user's openings, median and 90th percentile; in parentheses those in controls."""
        medians, slow = self._open_times()
        return (
            f"opens p50 {medians[0]:.0f} ms ({medians[1]:.0f}, {medians[0] / medians[1]:.1f}x),"
            f" p90 {slow[0]:.0f} ({slow[1]:.0f}, {slow[0] / slow[1]:.1f}x); "
        )

    def _open_times(self) -> tuple[list[float], list[float]]:
        """Median and 90th percentile of the openings, in ms: attacked, and control."""
        medians, slow = (
            [
                median([percentile(one.opens, at) for one in runs])
                for runs in (self.attacks, self.controls)
            ]
            for at in (50, 90)
        )
        return medians, slow

    @staticmethod
    def _rate(runs: Sequence[Run]) -> float:
        return median([one.done["sent"] for one in runs]) / SECONDS / 1e6


def verdict(what: str, goal: float, ratios: dict[str, float]) -> str:
    """Return the line that says which rows are above a goal."""
    above = ", ".join(f"{row} {ratio:.1f}x" for row, ratio in ratios.items() if ratio > goal)
    largest = max(ratios.values(), default=0.0)
    return f"{what} above {goal:.1f}x: {above or f'none of {len(ratios)} rows, at most {largest:.1f}x'}"


def measure(chain: MeasuredDeployment, other: MeasuredDeployment, rows: Sequence[str]) -> None:
    """Print each row as soon as it is done."""
    bench = Bench(chain, other)
    print(Row.headings(), flush=True)
    done = []
    try:
        for name in rows:
            done.append(bench.row(name))
            print(done[-1], flush=True)
    finally:
        bench.close()
    print(verdict("keys", KEY_GOAL, {row.name: row.key_ratio for row in done}))
    opens = {row.name: row.open_ratio for row in done if row.open_ratio}
    if opens:
        print(verdict("openings", OPEN_GOAL, opens))


def main(directory: Path, *names: str) -> None:
    """Measure these rows, or all."""
    unknown = sorted(set(names) - set(ROWS))
    if unknown:
        sys.exit(f"fairness: no such row: {', '.join(unknown)}; there are {', '.join(ROWS)}")

    rows = names or ORDINARY

    async def measured() -> None:
        chains = [MeasuredDeployment(str(directory / name)) for name in ("attacked", "control")]
        try:
            for each in chains if BMC in rows else ():
                each.use_rack()
            for each in chains if set(rows) & set(DISK_FAULTS) else ():
                each.use_disk()
            await gatherResults([Deferred.fromCoroutine(each.prepare()) for each in chains])
            if set(rows) & set(SSH):
                await gatherResults([Deferred.fromCoroutine(each.use_door()) for each in chains])
            if CROWD_OF_AGENTS in rows:
                await gatherResults(
                    [Deferred.fromCoroutine(each.use_agent_door()) for each in chains]
                )
            if set(rows) & set(CROWDED):
                await gatherResults([Deferred.fromCoroutine(each.crowd()) for each in chains])
            await deferToThread(measure, *chains, rows)
        finally:
            for each in chains:
                if each.agent_door is not None:
                    await each.agent_door.stop()
                if each.door is not None:
                    await each.door.program.stop()
                await each.stop()
                each.remove_disk()
                if each.rack is not None:
                    each.rack.close()

    run_reactor(measured)
