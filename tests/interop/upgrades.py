"""
Programs that are replaced again and again, while users work at consoles through all of them.

``UPGRADES`` is the number of hand-overs (12 without it; none begins after ``UPGRADE_SECONDS``),
``SESSIONS`` that of the sessions (20 without it; half of them are of stock kubectls, of the oldest and the newest version), and ``PROGRAMS``
names the programs if not all of ``api poollet runtime`` are to be replaced; ``spacemanager`` may be among
them, and then manages a Space.  Each machine has ten sessions, of which one types.  A kubectl leaves after each hand-over, and another one comes, so
that several old processes have sessions at once.  The output of each session is compared with what
the machine has printed, what the machine has got with what was typed, and no machine was started
twice.  :class:`NeighbourTests` has the same beside sessions that are blocked, half open or just killed.
"""

from __future__ import annotations

import base64
import os
import random
import re
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults
from twisted.internet.task import LoopingCall
from twisted.trial.unittest import TestCase

from tests import needs, procfs
from tests.flows import busy_machine, kubectls
from tests.flows.busy_machine import LINE_BYTES
from tests.flows.cables import Cable
from tests.flows.deployment import Deployment, pause
from tests.flows.programs import Program, terminal, twistd
from tests.flows.resuming import Typist
from twisted_exec.api.kinds import SECRETS, SPACES
from twisted_exec.api.spaces import KUBECONFIG_KEY
from twisted_exec.kube.interfaces import Object

from .numbered import END, Output

reactor: Any = _reactor

UPGRADES = int(os.environ.get("UPGRADES", "12"))
UPGRADE_SECONDS = float(os.environ.get("UPGRADE_SECONDS", "inf"))
SESSIONS = int(os.environ.get("SESSIONS", "20"))
SEED = int(os.environ.get("SEED", str(random.getrandbits(32))))

_AT_A_MACHINE = 10
_BYTES_PER_SECOND = min(2000, 12_800 // SESSIONS)
_CALM_BYTES = 2 * LINE_BYTES
_TYPING_SECONDS = 0.1
_PATIENCE_SECONDS = 100.0
_COMPARE_SECONDS = 240.0
_TOLD_BYTES = 30_000
_REFUSAL_BYTES = 300
OPENED_AT_ONCE = 20
_PROGRAMS = tuple(os.environ.get("PROGRAMS", "api poollet runtime").split())
_CREDENTIALS = "credentials"
_STOPPED = ("spacemanager", "poollet", "api", "runtime")
_FIRST_LINE = re.compile(rb"(?:^|\n)(\d{%d}\n)" % (LINE_BYTES - 1))

_FLOOD = "flood"
_FLOOD_BYTES_PER_SECOND = 20_000_000
_BLOCKED_LOOKS = 200
"""A machine that writes nothing meanwhile waits for its reader."""

_CLASS = """\
- name: {name}
  driver: pty
  command: [{python}, {program}, {directory}, "{speed}"]
  same_user: true
  capabilities: {{cpu: "1", memory: 64Mi}}
"""


def _object(kind: str, version: str, name: str) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}


class UpgradedDeployment(Deployment):
    """
    Three programs with pidfiles, and busy machines.

    :param machines: number of busy machines, each of a class of its own.
    :param floods: there is one more machine, which prints as fast as its user reads.
    """

    def __init__(self, directory: str, machines: int, *, floods: bool = False) -> None:
        super().__init__(directory)
        self.machines, self.floods = machines, floods
        self._replaced: list[int] = []
        classes = ["classes:\n"]
        for number in range(machines):
            classes.append(self._class(f"busy-{number}", self.load(number), _BYTES_PER_SECOND))
        if floods:
            classes.append(self._class(_FLOOD, self.flood, _FLOOD_BYTES_PER_SECOND))
        (self.directory / "runtime.yaml").write_text("".join(classes))

    def _class(self, name: str, directory: Path, speed: int) -> str:
        directory.mkdir()
        return _CLASS.format(
            name=name,
            python=sys.executable,
            program=busy_machine.__file__,
            directory=directory.resolve(),
            speed=speed,
        )

    def load(self, number: int) -> Path:
        """Return the directory of a busy machine."""
        return self.directory / f"load-{number}"

    @property
    def flood(self) -> Path:
        """The directory of the machine that prints as fast as its user reads."""
        return self.directory / _FLOOD

    def twistd(self, plugin: str, *options: str) -> Program:
        name = plugin.removeprefix("exec-").removesuffix("server")
        # A busy host may take long to start a program.
        patience = f"--handover-seconds={_PATIENCE_SECONDS:g}"
        return twistd(plugin, *options, patience, pidfile=self.path(f"{name}.pid"), fork=False)

    def pid(self, name: str) -> int:
        """Return the pid of a program's newest process; 0 while the file is written."""
        return int(Path(self.path(f"{name}.pid")).read_text() or 0)

    async def start(self) -> None:
        await self.start_api()
        await self.start_runtime(f"--rejoin-seconds={_PATIENCE_SECONDS:g}")
        await self.start_poollet()
        if "spacemanager" in _PROGRAMS:
            await self.start_spacemanager()
        for number in range(self.machines):
            await self.create_class(f"busy-{number}", "64Mi")
            await self.create_machine(f"m{number}", f"busy-{number}")
        if self.floods:
            await self.create_class(_FLOOD, "64Mi")
            await self.create_machine(_FLOOD, _FLOOD)

    async def start_spacemanager(self) -> None:
        """Start a space manager, and let it manage this API server as an imported Space."""
        self.spacemanager = self.twistd(
            "exec-spacemanager",
            f"--kubeconfig={self.admin}",
            f"--state-dir={self.path('spaces')}",
        )
        await self.spacemanager.until(rb"managing Spaces")
        secret = _object("Secret", "v1", _CREDENTIALS)
        content = base64.b64encode(Path(self.admin).read_bytes()).decode()
        secret["data"] = {KUBECONFIG_KEY: content}
        await self.client.create(SECRETS.resource, secret, "default")
        await self.import_space()

    async def import_space(self) -> None:
        """Create one more Space; fires once all Spaces are Ready."""
        space = _object("Space", SPACES.resource.api_version, f"space-{len(self._replaced)}")
        space["spec"] = {"Type": "imported", "externalSecretRef": {"name": _CREDENTIALS}}
        await self.client.create(SPACES.resource, space, "default")
        while True:
            spaces = (await self.client.list(SPACES.resource))["items"]
            if all(each.get("status", {}).get("Phase") == "Ready" for each in spaces):
                return
            await pause()

    async def upgrade(self, name: str) -> float:
        """Replace a program; return how long it took."""
        before, began = self.pid(name), reactor.seconds()
        program: Program = getattr(self, name)
        start = len(program.output)
        os.kill(before, signal.SIGUSR2)
        while self.pid(name) in (0, before):
            failed = b"no hand-over" in program.output[start:]
            if failed or reactor.seconds() > began + 2 * _PATIENCE_SECONDS:
                raise AssertionError(f"{name} was not replaced: {program.output[-4000:].decode()}")
            await pause()
        self._replaced.append(before)
        if name == "spacemanager":
            await self.import_space()
        return float(reactor.seconds() - began)

    def last_output(self) -> str:
        """Return the end of the programs' output."""
        programs = {name: getattr(self, name) for name in _STOPPED if hasattr(self, name)}
        return "\n".join(
            f"{name}:\n{program.output[-_TOLD_BYTES:].decode(errors='replace')}"
            for name, program in programs.items()
        )

    @property
    def lingering(self) -> int:
        """The number of replaced processes that still serve sessions."""
        return sum(map(procfs.is_alive, self._replaced))

    async def stop(self) -> None:
        """Stop the newest process of each program, and those before it."""
        for number in range(self.machines):
            (self.load(number) / "stop").touch()
        if self.floods:
            (self.flood / "stop").touch()
        await self._close_client()
        newest = [self.pid(name) for name in _STOPPED if hasattr(self, name)]
        for pid in [*newest, *self._replaced]:
            if procfs.is_alive(pid):
                os.kill(pid, signal.SIGTERM)
            while procfs.is_alive(pid):
                await pause()
        for name in _STOPPED:
            if hasattr(self, name):
                await getattr(self, name).stop()


class StockUser:
    """A kubectl in a terminal, at a machine's console."""

    def __init__(self, kubectl: str, machine: str, env: dict[str, str]) -> None:
        self.program = terminal([kubectl, "attach", "-it", machine], **env)
        self.sent = b""
        self._typing = LoopingCall(self._type)

    def type_on(self, interval_seconds: float) -> None:
        """Type a numbered line now and then."""
        self._typing.start(interval_seconds)

    def stop_typing(self) -> None:
        if self._typing.running:
            self._typing.stop()

    def _type(self) -> None:
        line = b"%07d\n" % (len(self.sent) // 8)
        self.sent += line
        self.program.type(line)

    @property
    def size(self) -> int:
        """Bytes of output so far, with notices."""
        return self.program.stdout_bytes

    @property
    def shown(self) -> bytes:
        """The output, with notices."""
        return self.program.stdout

    @property
    def has_begun(self) -> bool:
        """Whether the machine's output has come, behind kubectl's own hint."""
        return _FIRST_LINE.search(self.shown) is not None

    @property
    def was_refused(self) -> bool:
        """Whether the session was not opened in time."""
        return self.program.exit_code is not None and b"(Timeout)" in self.shown[:_REFUSAL_BYTES]

    def failure(self) -> str:
        """Return how the session has ended, if it has."""
        code = self.program.exit_code
        return "" if code is None else f"kubectl has ended with {code}: {self.shown[-500:]!r}"

    async def leave(self) -> None:
        self.stop_typing()
        await self.program.stop(signal.SIGKILL)


class OurUser(Typist):
    """A session of our client."""

    was_refused = False  # opening it again is part of the client

    @property
    def has_begun(self) -> bool:
        """Whether there has been output."""
        return self.size > _CALM_BYTES

    @property
    def size(self) -> int:
        """Bytes of output so far."""
        return self.printed_bytes

    @property
    def shown(self) -> bytes:
        """The output, without notices."""
        return self.printed

    def failure(self) -> str:
        """Return how the session has ended, or what it has lost."""
        if self.detached_with is not None:
            return f"{self.detached_with}, {self.ending}"
        uncertain = sum(self.uncertain)
        return f"gaps {self.gaps}, {uncertain} uncertain keys" if self.gaps or uncertain else ""


User = OurUser | StockUser


class UpgradeCase(TestCase):
    """Busy machines with ten sessions each."""

    timeout = min(600 + 60 * UPGRADES + 10 * SESSIONS, UPGRADE_SECONDS + _COMPARE_SECONDS)
    skip = needs.kubectl()

    def setUp(self) -> None:
        self.began = reactor.seconds()
        self.choice = random.Random(SEED)
        self.opening = DeferredSemaphore(OPENED_AT_ONCE)
        self.home = str(Path(self.mktemp()).resolve())  # one cache of discovery
        self.compared = self.refused = 0
        self.opened = {OurUser: 0, StockUser: 0}

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return float(reactor.seconds() - self.began)

    async def users(self, number: int) -> list[User]:
        """Open the sessions of one machine; the first one types, of each kind in turn."""
        first = await self.open(number, 0)
        others = range(1, _AT_A_MACHINE)
        rest = [Deferred.fromCoroutine(self.open(number, each)) for each in others]
        users = [first, *await gatherResults(rest, consumeErrors=True)]
        first.type_on(_TYPING_SECONDS)
        return users

    async def open(self, number: int, place: int) -> User:
        """Open a session when few others are being opened; fires when it has shown something."""
        await self.opening.acquire()
        try:
            return await self._open(number, place)
        finally:
            self.opening.release()

    async def _open(self, number: int, place: int) -> User:
        """A busy hop refuses new sessions that it does not answer in time; users then try again."""
        while True:
            user = await self._opened(number, place)
            if not user.was_refused:
                return user
            self.refused += 1

    async def _opened(self, number: int, place: int) -> User:
        user: User
        if (place + number) % 2 == 0:
            user = await OurUser.at(self.deployment.admin, f"m{number}")
        else:
            names = [kubectls.some()[0], kubectls.some()[-1]]
            kubectl = kubectls.found()[names[place // 2 % 2]]
            admin = str(Path(self.deployment.admin).resolve())
            user = StockUser(kubectl, f"m{number}", {"KUBECONFIG": admin, "HOME": self.home})
        self.addCleanup(user.leave)
        self.opened[type(user)] += 1
        await self.until([user], lambda user: user.was_refused or user.has_begun)
        return user

    async def renew(self, users: Sequence[list[User]]) -> None:
        """Let a kubectl leave, and another one come."""
        number = self.choice.randrange(len(users))
        places = [place for place in range(1, _AT_A_MACHINE) if (place + number) % 2]
        place = self.choice.choice(places)
        await users[number][place].leave()
        self.check(users[number][place])
        users[number][place] = await self.open(number, place)

    async def until(self, users: Sequence[User], condition: Any) -> None:
        """Fires once a condition is true for all users; fails if a session ends before."""
        deadline = reactor.seconds() + _PATIENCE_SECONDS
        waiting = list(users)
        while waiting := [user for user in waiting if not condition(user)]:
            if failures := list(filter(None, (user.failure() for user in users))):
                self.fail("\n".join([*failures, self.deployment.last_output()]))
            if reactor.seconds() > deadline:
                kinds = Counter(type(user).__name__ for user in waiting)
                shown = waiting[0].shown[-200:]
                self.fail(f"{kinds} wait: {shown!r}\n{self.deployment.last_output()}")
            await pause()

    async def calm(self, users: Sequence[User]) -> None:
        """Fires when each session has got more output."""
        before = {user: user.size for user in users}
        await self.until(users, lambda user: user.size > before[user] + _CALM_BYTES)

    async def compare(self, number: int, users: Sequence[User]) -> None:
        """Compare the output of each session, and what was typed."""
        load, writer = self.deployment.load(number), users[0]
        writer.stop_typing()
        typed = load / "typed"
        await self.until([writer], lambda user: typed.stat().st_size >= len(user.sent))
        self.assertEqual(typed.read_bytes(), writer.sent)
        self.compared += len(writer.sent)
        (load / "stop").touch()
        await self.until(users, lambda user: user.shown.endswith(END))
        for user in users:
            self.assertTrue(self.check(user).has_ended)
        starts = (load / "starts").read_text().split()
        self.assertEqual(len(starts), 1, f"m{number} was started again: {starts}")

    def check(self, user: User) -> Output:
        """Compare the output of a session with what the machine has printed."""
        shown, output = user.shown, Output()
        first = _FIRST_LINE.search(shown)  # kubectl begins with a hint of its own
        assert first is not None, shown
        output.add(shown[first.start(1) :])
        self.compared += output.size
        return output


class UpgradeTests(UpgradeCase):
    """Hand-overs of each program."""

    async def test_upgrades(self) -> None:
        """No session ends, no byte is missing, and no machine is started again."""
        machines = max(1, SESSIONS // _AT_A_MACHINE)
        self.deployment = deployment = UpgradedDeployment(self.mktemp(), machines)
        self.addCleanup(deployment.stop)
        await deployment.start()
        opened = [Deferred.fromCoroutine(self.users(number)) for number in range(machines)]
        users = await gatherResults(opened, consumeErrors=True)
        sessions = sum(map(len, users))
        print(f"\nSEED={SEED}, {sessions} sessions after {self.elapsed:.0f} s")
        times: defaultdict[str, list[float]] = defaultdict(list)
        upgrades, turn = 0, list[str]()
        while upgrades < UPGRADES and self.elapsed < UPGRADE_SECONDS:
            turn = turn or self.choice.sample(_PROGRAMS, len(_PROGRAMS))  # each equally often
            name = turn.pop()
            times[name].append(await deployment.upgrade(name))
            replaced = reactor.seconds()
            await self.calm([user for group in users for user in group])
            calm = reactor.seconds() - replaced
            await self.renew(users)
            upgrades += 1
            print(
                f"{self.elapsed:.0f} s: {name} replaced in {times[name][-1]:.1f} s, all sessions go on"
                f" {calm:.1f} s later",
                flush=True,
            )
        lingering = deployment.lingering
        for number, group in enumerate(users):
            await self.compare(number, group)
        for name, taken in sorted(times.items()):
            print(f"{name:8} {len(taken):4} times: {figures(taken)} s")
        ours = [user for group in users for user in group if isinstance(user, OurUser)]
        print(
            f"{upgrades} upgrades, {self.opened[OurUser]} sessions of ours and"
            f" {self.opened[StockUser]} of stock kubectls (at most {sessions} at once),"
            f" {self.refused} not answered in time and opened again, {lingering} old processes"
            f" at the end, {self.compared} bytes compared; pauses of"
            f" ours: {figures([each for user in ours for each in user.seconds])} s"
        )


class NeighbourTests(UpgradeCase):
    """Hand-overs beside sessions that are blocked, half open or just killed."""

    async def test_neighbours(self) -> None:
        """None of them stops a hand-over: each other session goes on, and no byte is missing."""
        self.deployment = deployment = UpgradedDeployment(self.mktemp(), 1, floods=True)
        self.addCleanup(deployment.stop)
        await deployment.start()
        cable = await self.cable()
        users = await self.users(0)
        for name in ("runtime", "poollet", "api", "runtime"):
            blocked, half_open = await self.blocked(), await self.half_open(cable)
            killed = await self.open(0, 1)
            os.kill(killed.program.pid, signal.SIGKILL)
            await deployment.upgrade(name)
            await self.calm(users)
            for each in (blocked, half_open, killed):
                await each.leave()
            cable.cut()
            cable.mend()
        # The hop is killed, and its sessions wait in the runtime that is replaced.
        os.kill(deployment.pid("poollet"), signal.SIGKILL)
        await deployment.upgrade("runtime")
        await deployment.start_poollet()
        await self.calm(users)
        await self.compare(0, users)
        print(f"{self.compared} bytes compared")

    async def cable(self) -> Cable:
        """Return a cable between clients and the API server."""
        cable = Cable()
        await cable.listen()
        self.addCleanup(cable.stop)
        config = Path(self.deployment.admin).read_text()
        port = re.search(r"https://[^\s:]+:(\d+)", config)[1]  # type: ignore[index]
        cable.target = int(port)
        self.cabled = str((self.deployment.directory / "cabled.kubeconfig").resolve())
        Path(self.cabled).write_text(config.replace(f":{port}", f":{cable.port}"))
        return cable

    async def half_open(self, cable: Cable) -> StockUser:
        """Return a session whose connection delivers nothing any more, and is not closed either."""
        user = await self.stock(self.cabled, "m0")
        cable.silence()
        return user

    async def blocked(self) -> StockUser:
        """Return a session whose client reads nothing, so that everything before it is full."""
        user = await self.stock(str(Path(self.deployment.admin).resolve()), _FLOOD)
        os.kill(user.program.pid, signal.SIGSTOP)
        pid = int((self.deployment.flood / "starts").read_text().split()[-1])
        looks, before = 0, -1
        while looks < _BLOCKED_LOOKS:
            written = _written(pid)
            looks, before = looks + 1 if written == before else 0, written
            await pause()
        return user

    async def stock(self, config: str, machine: str) -> StockUser:
        kubectl = kubectls.found()[kubectls.some()[0]]
        user = StockUser(kubectl, machine, {"KUBECONFIG": config, "HOME": self.home})
        self.addCleanup(user.leave)
        await self.until([user], lambda user: user.was_refused or user.has_begun)
        return user


def _written(pid: int) -> int:
    """Return how many bytes a process has written."""
    counts = Path(f"/proc/{pid}/io").read_text()
    return int(re.search(r"wchar: (\d+)", counts)[1])  # type: ignore[index]


def figures(values: Sequence[float]) -> str:
    """Return the median and the maximum of values."""
    ordered = sorted(values) or [0.0]
    return f"median {ordered[len(ordered) // 2]:.2f}, at most {ordered[-1]:.2f}"
