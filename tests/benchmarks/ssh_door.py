"""
A console by stock ssh through ``exec-sshd``, beside sshd and ``kubectl console``, all in one run.

Four ways lead to the same program: ``ssh`` through the door, ``ssh`` to an sshd that runs it, ``kubectl console``, and
``ssh NAME.console`` with the configuration of ``kubectl console --ssh-config``.  All but sshd's go through API server,
poollet and runtime.  They are measured in turn, round after round, each client in a terminal; medians are printed.

CPU is that of the processes at the user (``ssh``, or what takes its place) and of those at the door (``exec-sshd``, or
sshd without the program that it runs).  At the door an opening's has that of the end of the session, too, and at sshd
also that of the shell that it starts, since sshd's processes end with it.  ``SSH_DOOR_ROUNDS`` may name another number
of rounds.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from twisted.internet.threads import deferToThread

from tests import needs, procfs
from tests.flows.deployment import Deployment, run_reactor
from tests.flows.programs import script
from tests.flows.test_three_programs import binding
from tests.ports import ReservedPorts
from twisted_exec.api import kinds

from .chain import run
from .console import Console, user_context
from .fairness.doors import Door, command, role
from .interpreter import with_bytecode
from .one_hop import cpu_seconds, wait_until
from .terminal import Terminal

ROUNDS = int(os.environ.get("SSH_DOOR_ROUNDS", "3"))
OPENINGS, KEYS, BULK_BYTES, IDLE_SESSIONS = 3, 300, 20_000_000, 30
SHOWN_BYTES = 100_000_000
"""The output whose time and CPU are printed."""
DOOR, SSHD, CONSOLE, CONFIG = "exec-sshd", "sshd", "kubectl console", "ssh-config"

_ORDER = ("opening", "key", "100 MB", "idle connection")
_USER = "ada"
_BEGIN, _FLOOD, _END = b"BEGIN", b"F", b"THE-END"
_PIECE = b"x" * 3999 + b"\n"
_CAT = "stty raw -echo; echo BEGIN; exec cat"
_PRINTER = f"""\
import os, tty
tty.setraw(0)
os.write(1, {_BEGIN!r})
while data := os.read(0, 4096):
    if data[-1:] != {_FLOOD!r}:
        os.write(1, data)
        continue
    left = memoryview({_PIECE!r} * {BULK_BYTES // len(_PIECE)} + {_END!r})
    while left:
        left = left[os.write(1, left):]
"""
_SSHD_CONFIG = """\
ListenAddress 127.0.0.1:{port}
HostKey {directory}/host
AuthorizedKeysFile {directory}/{user}.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
MaxStartups 100
"""


@dataclass(frozen=True)
class Way:
    """
    A way to a program.

    :ivar client: returns the client's command line for a session with ``cat`` or, if true, with the printer.
    :ivar door: the processes between the client and the program, or the API server.
    """

    name: str
    client: Callable[[bool], Sequence[str]]
    door: Callable[[], Sequence[int]] = tuple


class Sshd:
    """
    An sshd, for the key of a user of :class:`Door`.

    :param directory: of the keys.
    """

    def __init__(self, directory: str, port: int) -> None:
        self.port = port
        config = Path(directory, "sshd_config")
        config.write_text(_SSHD_CONFIG.format(port=port, directory=directory, user=_USER))
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)  # which Debian makes when it boots
        program = shutil.which("sshd") or ""
        self._process = subprocess.Popen(
            [program, "-D", "-f", str(config), "-E", str(Path(directory, "sshd.log"))]
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def processes(self) -> Sequence[int]:
        """Return those of sshd, without the programs that it has started."""
        found = (self.pid, *procfs.descendants(self.pid))
        return [each for each in found if procfs.name(each).startswith("sshd")]

    def has_sessions(self) -> bool:
        return bool(procfs.descendants(self.pid))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


class Bench:
    """Measures the ways; :attr:`figures` has the values of all rounds."""

    def __init__(self, ways: Sequence[Way], sshd: Sshd, environment: dict[str, str]) -> None:
        self._ways, self._sshd, self._environment = ways, sshd, environment
        self.figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def run(self) -> None:
        """Measure all ways, in turn."""
        for way in self._ways:  # the first session of each writes bytecode, and fills caches
            self._open(way).hang_up()
        for _ in range(ROUNDS):
            for way in self._ways:
                self._openings(way)
        for way in self._ways:  # before output leaves free memory in the processes
            if way.door():
                self._idle(way)
        used = {way.name: self._open(way, True) for way in self._ways}
        for _ in range(ROUNDS):
            for way in self._ways:
                self._keys(way, used[way.name])
                self._output(way, used[way.name])
        for way in self._ways:
            size = sum(procfs.own_bytes(each) for each in used[way.name].pids)
            self._note("idle connection: MiB at the user", way, size / (1 << 20))
            used[way.name].hang_up()

    def _note(self, figure: str, way: Way, value: float) -> None:
        self.figures[figure][way.name].append(value)

    def _open(self, way: Way, prints: bool = False) -> Terminal:
        terminal = Terminal(way.client(prints), **self._environment)
        terminal.until(_BEGIN)
        return terminal

    def _openings(self, way: Way) -> None:
        wait_until(lambda: not self._sshd.has_sessions())
        before = self._door_cpu(way)
        for _ in range(OPENINGS):
            began = time.perf_counter()
            terminal = self._open(way)
            self._note("opening: ms", way, (time.perf_counter() - began) * 1e3)
            self._note("opening: CPU ms at the user", way, cpu_seconds([terminal.pid]) * 1e3)
            terminal.hang_up()
        wait_until(lambda: not self._sshd.has_sessions())
        if way.door():
            spent = self._door_cpu(way) - before
            self._note("opening: CPU ms at the door", way, spent / OPENINGS * 1e3)

    def _door_cpu(self, way: Way) -> float:
        """Return CPU seconds with those of processes that have ended."""
        if way.name != SSHD:
            return cpu_seconds(way.door())
        fields = Path(f"/proc/{self._sshd.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def _spent(self, way: Way, terminal: Terminal) -> tuple[float, float]:
        user = sum(procfs.exact_cpu_seconds(each) for each in terminal.pids)
        return user, sum(procfs.exact_cpu_seconds(each) for each in way.door())

    def _keys(self, way: Way, terminal: Terminal) -> None:
        times = []
        before = self._spent(way, terminal)
        for number in range(KEYS):
            key = b"abcdefghij"[number % 10 : number % 10 + 1]
            began = time.perf_counter()
            terminal.type(key)
            terminal.until(key)
            times.append(time.perf_counter() - began)
        self._note("key: ms", way, statistics.median(times) * 1e3)
        self._note_cpu("key: CPU us", way, terminal, before, 1e6 / KEYS)

    def _output(self, way: Way, terminal: Terminal) -> None:
        before, scale = self._spent(way, terminal), SHOWN_BYTES / BULK_BYTES
        began = time.perf_counter()
        terminal.type(_FLOOD)
        terminal.until(_END)
        self._note("100 MB: s", way, (time.perf_counter() - began) * scale)
        self._note_cpu("100 MB: CPU s", way, terminal, before, scale)

    def _note_cpu(
        self, figure: str, way: Way, terminal: Terminal, before: Sequence[float], scale: float
    ) -> None:
        user, door = (
            (now - then) * scale
            for now, then in zip(self._spent(way, terminal), before, strict=True)
        )
        self._note(f"{figure} at the user", way, user)
        if way.door():
            self._note(f"{figure} at the door", way, door)

    def _idle(self, way: Way) -> None:
        warm = [self._open(way) for _ in range(5)]
        before = sum(procfs.own_bytes(each) for each in way.door())
        opened = [self._open(way) for _ in range(IDLE_SESSIONS)]
        grown = sum(procfs.own_bytes(each) for each in way.door()) - before
        for each in warm + opened:
            each.hang_up()
        self._note("idle connection: KiB at the door", way, grown / IDLE_SESSIONS / 1024)


def table(figures: dict[str, dict[str, list[float]]]) -> Iterator[str]:
    """One line per figure: the median of each way, and the ratios of the door to the other ways."""
    names = (DOOR, SSHD, CONSOLE, CONFIG)
    yield f"{'':34}" + "".join(f"{name:>17}" for name in names) + "   exec-sshd / sshd, / console"
    for figure in sorted(figures, key=lambda each: (_ORDER.index(each.partition(":")[0]), each)):
        medians = {name: statistics.median(each) for name, each in figures[figure].items()}
        cells = "".join(
            f"{medians[name]:17.2f}" if name in medians else f"{'-':>17}" for name in names
        )
        ratios = ", ".join(
            f"{medians[DOOR] / medians[name]:.2f}" if medians.get(name) else "-"
            for name in (SSHD, CONSOLE)
        )
        yield f"{figure:34}{cells}   {ratios}"


def main(directory: Path) -> None:
    """Run the benchmark."""
    if missing := needs.ssh() or needs.sshd() or needs.kubectl():
        print(f"left out: {missing}")
        return
    printer = directory / "printer.py"
    printer.write_text(_PRINTER)

    async def measured() -> None:
        deployment, reserved = (
            Deployment(str(directory / "chain"), unix_streams=True),
            ReservedPorts(),
        )
        door: Door | None = None
        try:
            await deployment.start()
            create = deployment.client.create
            await create(kinds.CLUSTERROLES.resource, yaml.safe_load(role()))
            bound = {**binding("exec-sshd", "exec-sshd"), "kind": "ClusterRoleBinding"}
            await create(kinds.CLUSTERROLEBINDINGS.resource, bound)
            await create(kinds.ROLEBINDINGS.resource, binding(_USER, "edit"), namespace="default")
            kubeconfig = deployment.kubeconfig(_USER)
            door = Door(deployment, [_USER])
            await door.start()
            for way in (DOOR, CONSOLE, CONFIG):
                for prints in (False, True):
                    await deployment.create_machine(_machine(way, prints), "shell")
            figures = await deferToThread(
                _measure, deployment, door, kubeconfig, str(printer), reserved.add()
            )
            print(
                f"One run, {ROUNDS} rounds; medians, and the ratios of exec-sshd to sshd and to kubectl console"
            )
            for line in table(figures):
                print(line)
        finally:
            if door is not None:
                await door.program.stop()
            await deployment.stop()
            reserved.release()

    with with_bytecode(directory, DOOR):
        run_reactor(measured)


def _machine(way: str, prints: bool) -> str:
    return f"{way.replace(' ', '-')}-{'used' if prints else 'opened'}"


def _measure(
    deployment: Deployment, door: Door, kubeconfig: str, printer: str, port: int
) -> dict[str, dict[str, list[float]]]:
    """Measure all ways, in a thread."""
    state = deployment.path("state")
    environment = {
        "PATH": f"{Path(script('kubectl-console')).parent}:{os.environ['PATH']}",
        "KUBECONFIG": kubeconfig,
        "XDG_STATE_HOME": state,
    }
    printing = f"{sys.executable} {printer}"
    tls = user_context(deployment.pki)
    for way in (DOOR, CONSOLE, CONFIG):
        for prints in (False, True):
            console = Console.open(deployment.port, tls, _machine(way, prints))
            run(console, f"exec {printing}".encode() if prints else b"exec cat")
            console.close()
    config = deployment.path("ssh_config")
    words = ("kubectl", "console", "--ssh-config")
    Path(config).write_bytes(subprocess.check_output(words, env={**os.environ, **environment}))
    key = door.path(_USER)
    pid = door.program.pid

    def ssh(way: str, where: int, host: str, *more: str) -> Sequence[str]:
        return command(where, key, "-tt", f"{host}@127.0.0.1", *more)

    login = os.environ.get("USER") or "root"
    sshd = Sshd(str(Path(key).parent), port)
    try:
        ways = (
            Way(SSHD, lambda prints: ssh(SSHD, port, login, printing if prints else _CAT), sshd.processes),
            Way(DOOR, lambda prints: ssh(DOOR, door.port, _machine(DOOR, prints)), lambda: (pid,)),
            Way(CONSOLE, lambda prints: ("kubectl", "console", _machine(CONSOLE, prints))),
            Way(CONFIG, lambda prints: ("ssh", "-F", config, f"{_machine(CONFIG, prints)}.console")),
        )  # fmt: skip
        bench = Bench(ways, sshd, environment)
        bench.run()
        return bench.figures
    finally:
        sshd.stop()
