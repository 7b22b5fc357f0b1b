"""
Programs that are replaced again and again, while users work at consoles through all of them.

``UPGRADES`` is the number of hand-overs (12 without it), ``SESSIONS`` that of the sessions (20
without it; half of them are of stock kubectls, of the oldest and the newest version), and ``PROGRAMS``
names the programs if not all of ``api poollet runtime`` are to be replaced.  Each machine
has ten sessions, of which one types.  At the end the output of each session is compared with what the
machine has printed, what the machine has got with what was typed, and no machine was started twice.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.task import LoopingCall
from twisted.trial.unittest import TestCase

from tests import needs, procfs
from tests.flows import busy_machine, kubectls
from tests.flows.busy_machine import LINE_BYTES, printed
from tests.flows.deployment import Deployment, pause
from tests.flows.programs import Program, terminal, twistd
from tests.flows.resuming import Typist

reactor: Any = _reactor

UPGRADES = int(os.environ.get("UPGRADES", "12"))
SESSIONS = int(os.environ.get("SESSIONS", "20"))
SEED = int(os.environ.get("SEED", str(random.getrandbits(32))))

_AT_A_MACHINE = 10
_BYTES_PER_SECOND = 2000
_PATIENCE_SECONDS = 60.0
_PROGRAMS = tuple(os.environ.get("PROGRAMS", "api poollet runtime").split())
_NOTICE = re.compile(rb"\r\n\[twisted-exec: [^\r\n]*\]\r\n")
_END = b"END\n"

_CLASS = """\
- name: busy-{number}
  driver: pty
  command: [{python}, {program}, {directory}, "{speed}"]
  same_user: true
  capabilities: {{cpu: "1", memory: 64Mi}}
"""


class UpgradedDeployment(Deployment):
    """
    Three programs with pidfiles, and busy machines.

    :param machines: number of busy machines, each of a class of its own.
    """

    def __init__(self, directory: str, machines: int) -> None:
        super().__init__(directory)
        self.machines = machines
        classes = ["classes:\n"]
        for number in range(machines):
            self.load(number).mkdir()
            classes.append(
                _CLASS.format(
                    number=number,
                    python=sys.executable,
                    program=busy_machine.__file__,
                    directory=self.load(number).resolve(),
                    speed=_BYTES_PER_SECOND,
                )
            )
        (self.directory / "runtime.yaml").write_text("".join(classes))

    def load(self, number: int) -> Path:
        """Return the directory of a busy machine."""
        return self.directory / f"load-{number}"

    def twistd(self, plugin: str, *options: str) -> Program:
        name = plugin.removeprefix("exec-").removesuffix("server")
        # A busy host may take long to start a program.
        patience = f"--handover-seconds={_PATIENCE_SECONDS:g}"
        return twistd(plugin, *options, patience, pidfile=self.path(f"{name}.pid"))

    def pid(self, name: str) -> int:
        """Return the pid of a program's newest process; 0 while the file is written."""
        return int(Path(self.path(f"{name}.pid")).read_text() or 0)

    async def start(self) -> None:
        await self.start_api()
        await self.start_runtime()
        await self.start_poollet()
        for number in range(self.machines):
            await self.create_class(f"busy-{number}", "64Mi")
            await self.create_machine(f"m{number}", f"busy-{number}")

    async def upgrade(self, name: str) -> float:
        """Replace a program; return how long it took."""
        before, began = self.pid(name), reactor.seconds()
        os.kill(before, signal.SIGUSR2)
        while self.pid(name) in (0, before):
            if reactor.seconds() > began + _PATIENCE_SECONDS:
                output = getattr(self, name).output
                raise AssertionError(f"{name} was not replaced: {output[-4000:].decode()}")
            await pause()
        return float(reactor.seconds() - began)

    async def stop(self) -> None:
        """Stop the newest process of each program, which stops those before it."""
        for number in range(self.machines):
            (self.load(number) / "stop").touch()
        await self._close_client()
        for name in ("poollet", "api", "runtime"):
            if hasattr(self, name) and procfs.is_alive(pid := self.pid(name)):
                os.kill(pid, signal.SIGTERM)
                while procfs.is_alive(pid):
                    await pause()


class StockUser:
    """A kubectl in a terminal, at a machine's console."""

    def __init__(self, kubectl: str, machine: str, env: dict[str, str]) -> None:
        self.program = terminal([kubectl, "attach", "-it", machine], **env)
        self.sent = b""
        self._typing = LoopingCall(self._type)

    def type_on(self) -> None:
        """Type a numbered line ten times a second."""
        self._typing.start(0.1)

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
        """What the machine has printed, without notices."""
        return _NOTICE.sub(b"", self.program.stdout)

    def failure(self) -> str:
        """Return how the session has ended, if it has."""
        code = self.program.exit_code
        return "" if code is None else f"kubectl has ended with {code}: {self.shown[-500:]!r}"

    async def leave(self) -> None:
        self.stop_typing()
        await self.program.stop(signal.SIGKILL)


class OurUser(Typist):
    """A session of our client."""

    @property
    def size(self) -> int:
        """Bytes of output so far."""
        return self.printed_bytes

    @property
    def shown(self) -> bytes:
        """What the machine has printed."""
        return self.printed

    def failure(self) -> str:
        """Return how the session has ended, or what it has lost."""
        if self.detached_with is not None:
            return f"{self.detached_with}, {self.ending}"
        uncertain = sum(self.uncertain)
        return f"gaps {self.gaps}, {uncertain} uncertain keys" if self.gaps or uncertain else ""


class UpgradeTests(TestCase):
    """Busy machines with ten sessions each."""

    timeout = 600 + 20 * UPGRADES + 10 * SESSIONS
    skip = needs.kubectl()

    async def test_upgrades(self) -> None:
        """No session ends, no byte is missing, and no machine is started again."""
        choice = random.Random(SEED)
        machines = max(1, SESSIONS // _AT_A_MACHINE)
        deployment = UpgradedDeployment(self.mktemp(), machines)
        self.addCleanup(deployment.stop)
        await deployment.start()
        users = [await self.users(deployment, number) for number in range(machines)]
        everybody = [user for group in users for user in group]
        print(f"\n{UPGRADES} upgrades, {len(everybody)} sessions, SEED={SEED}")
        times: defaultdict[str, list[float]] = defaultdict(list)
        for _ in range(UPGRADES):
            name = choice.choice(_PROGRAMS)
            times[name].append(await deployment.upgrade(name))
            await self.calm(everybody)
        for name, taken in sorted(times.items()):
            print(
                f"{name:8} {len(taken):4} times: {sorted(taken)[len(taken) // 2]:.2f} s, at most {max(taken):.2f} s"
            )
        outages = sorted(
            seconds for user in everybody if isinstance(user, OurUser) for seconds in user.seconds
        )
        if outages:
            print(
                f"our sessions resumed {len(outages)} times: median"
                f" {outages[len(outages) // 2] * 1000:.0f} ms, at most {outages[-1] * 1000:.0f} ms"
            )
        for number, group in enumerate(users):
            await self.compare(deployment, number, group)

    async def users(self, deployment: UpgradedDeployment, number: int) -> list[OurUser | StockUser]:
        """Open the sessions of one machine; the first one types, of each kind in turn."""
        found = kubectls.found()
        names = [kubectls.some()[0], kubectls.some()[-1]]
        env = {"KUBECONFIG": str(Path(deployment.admin).resolve()), "HOME": self.mktemp()}
        users: list[OurUser | StockUser] = []
        for each in range(_AT_A_MACHINE):
            user: OurUser | StockUser
            if (each + number) % 2 == 0:
                user = await OurUser.at(deployment.admin, f"m{number}")
            else:
                user = StockUser(found[names[each // 2 % 2]], f"m{number}", env)
            self.addCleanup(user.leave)
            users.append(user)
            await self.until([user], lambda user: user.size > 10 * LINE_BYTES)
        users[0].type_on()
        return users

    async def until(self, users: list[Any], condition: Any) -> None:
        """Fires once a condition is true for all users; fails if a session ends before."""
        deadline = reactor.seconds() + _PATIENCE_SECONDS
        waiting = list(users)
        while waiting := [user for user in waiting if not condition(user)]:
            for user in users:
                self.assertEqual(user.failure(), "")
            late = reactor.seconds() > deadline
            self.assertFalse(late, f"{len(waiting)} sessions wait: {waiting[0].shown[-200:]!r}")
            await pause()

    async def calm(self, users: list[OurUser | StockUser]) -> None:
        """Fires when each session has got more output."""
        before = {user: user.size for user in users}
        await self.until(users, lambda user: user.size > before[user] + 10 * LINE_BYTES)

    async def compare(self, deployment: UpgradedDeployment, number: int, users: list[Any]) -> None:
        """Compare the output of each session, and what was typed."""
        load = deployment.load(number)
        writer = users[0]
        writer.stop_typing()
        await self.until([writer], lambda user: self.typed(load) >= len(user.sent))
        self.assertEqual(self.typed_text(load), writer.sent)
        (load / "stop").touch()
        await self.until(users, lambda user: user.shown.endswith(_END))
        for user in users:
            shown = user.shown.removesuffix(_END)
            start = shown.index(b"\n") + 1
            first = int(shown[start : start + LINE_BYTES])
            whole = printed((first + 1) * LINE_BYTES + len(shown))
            self.assertEqual(shown[start:], whole[first * LINE_BYTES :][: len(shown) - start])
        starts = (load / "starts").read_text().split()
        self.assertEqual(len(starts), 1, f"m{number} was started again: {starts}")

    def typed_text(self, load: Path) -> bytes:
        return (load / "typed").read_bytes()

    def typed(self, load: Path) -> int:
        return (load / "typed").stat().st_size
