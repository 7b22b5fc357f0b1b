"""
Programs that are stopped or killed and started again, again and again, below sessions in which users type and read.

``RESTARTS`` is how often each program gets each signal (2 without it), ``SESSIONS`` the number of sessions (20
without it), and ``SEED`` repeats a run.  Half of the sessions are of our client, the others of stock kubectls over
SPDY and over a WebSocket.  Each machine has ten of them, of which one types.  What each session gets is compared with
what its machine has printed, and what each machine gets with what was typed, byte for byte, as it arrives.

Our sessions continue; those of kubectl end with the reason, unless a hop before the program rejoins them, and are
opened again.  Some clients do not read while a program ends, and the connection of one delivers nothing.
Everything that the API server has acknowledged is there afterwards, and no machine was started again.

The next start after a runtime that was killed just while it read from a machine does not know whether output was lost:
that is counted, and no byte may be missing nevertheless.
"""

from __future__ import annotations

import os
import random
import re
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults
from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows import kubectls
from tests.flows.cables import Cable
from tests.flows.deployment import Deployment, StandaloneDeployment, pause
from tests.flows.programs import Program, script
from tests.flows.resuming import Typist
from twisted_exec.api.kinds import SECRETS
from twisted_exec.api.status import APIError
from twisted_exec.wire.stream_options import CONSOLE

from .loaded_clients import BusyMachine, LoadedClient
from .numbered import Output, WrongBytesError, typed_line

reactor: Any = _reactor

RESTARTS = int(os.environ.get("RESTARTS", "2"))
SESSIONS = int(os.environ.get("SESSIONS", "20"))
SEED = int(os.environ.get("SEED", str(random.getrandbits(32))))

DRAIN_SECONDS = 1.5
_AT_A_MACHINE = 10
_MACHINES = max(1, SESSIONS // _AT_A_MACHINE)
_BYTES_PER_SECOND = min(2000, 60_000 // SESSIONS)
_CALM_BYTES = 64
_TYPING_SECONDS = 0.1
_OPENED_AT_ONCE = 10
_PATIENCE_SECONDS = 120.0
_FLOOD = "flood"
_FLOOD_BYTES_PER_SECOND = 20_000_000
_FLOOD_BYTES = 64 << 20
"""More than everything before a blocked client holds."""
_BLOCKED_LOOKS = 60
"""A machine that writes nothing meanwhile waits for its reader."""
_PAUSED = 0.2
"""Part of our clients that do not read while a program ends."""
_OVER_SPDY = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false"}


class Programs(Deployment):
    """Three programs, whose machines outlive the runtime."""

    drain = f"--drain-seconds={DRAIN_SECONDS}"
    names: tuple[str, ...] = ("api", "poollet", "runtime")

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.machines = [
            BusyMachine(f"m{number}", self.directory, bytes_per_second=_BYTES_PER_SECOND)
            for number in range(_MACHINES)
        ]
        self.flood = BusyMachine(_FLOOD, self.directory, bytes_per_second=_FLOOD_BYTES_PER_SECOND)
        classes = "".join(each.definition() for each in (*self.machines, self.flood))
        (self.directory / "runtime.yaml").write_text(f"classes:\n{classes}")

    async def start(self) -> None:
        """Start everything, with the busy machines."""
        await super().start_api()
        await self.start_runtime()
        await self.start_poollet()
        for each in (*self.machines, self.flood):
            await self.create_class(each.name, "64Mi")
            await self.create_machine(each.name, each.name)

    async def start_runtime(self, *options: str) -> None:
        await super().start_runtime("--keep-machines", "--resume-seconds=600", *options)

    def printed(self) -> str:
        """Return the end of what the programs have printed."""
        return "\n".join(
            f"{name}:\n{getattr(self, name).output[-10_000:].decode(errors='replace')}"
            for name in self.names
        )


class Standalone(StandaloneDeployment, Programs):
    """All parts in one process."""

    names = ("standalone",)

    async def start(self) -> None:
        await super().start()
        for each in (*self.machines, self.flood):
            await self.create_machine(each.name, each.name)


class OurSession(Typist):
    """
    A session of our client.

    After a loss of keys, which only a killed runtime may bring about, it begins another numbering.
    """

    machine: BusyMachine
    types = False

    def __init__(self) -> None:
        super().__init__()
        self.output = Output()
        self._problem = ""
        self._lines = 0

    def data_received(self, data: bytes) -> None:
        try:
            self.output.add(data)
        except WrongBytesError as problem:
            self._problem = self._problem or str(problem)

    def begin(self, machine: BusyMachine) -> None:
        """Begin to type, or to type another numbering."""
        self.machine, self.typist, self._lines = machine, machine.typed.typists, 0
        self.types = True
        machine.typed.typists += 1

    def _type(self) -> None:
        if not self._paused:
            self.stream.write(typed_line(self.typist, self._lines))
            self._lines += 1

    def resumed(self, seconds: float, uncertain: int, unsent: int) -> None:
        super().resumed(seconds, uncertain, unsent)
        if uncertain:
            if self.missing > uncertain:
                self._problem = f"{self.missing} keys missing, {uncertain} uncertain"
            self.begin(self.machine)

    @property
    def sent_bytes(self) -> int:
        return 16 * self._lines

    @property
    def arrived(self) -> int:
        """How many keys of the present numbering the machine has got."""
        self.machine.check_typed()
        return self.machine.typed.arrived(self.typist)

    @property
    def missing(self) -> int:
        """How many keys of the present numbering the machine has not got yet."""
        return self.sent_bytes - self.arrived

    @property
    def problem(self) -> str:
        """How the session has failed, if it has."""
        if self.detached_with is not None:
            return f"ours ended: {self.detached_with}, {self.ending}"
        return self._problem or (f"gaps {self.gaps}" if any(self.gaps) else "")


class Client(LoadedClient):
    """A client as a process."""

    typing_seconds = _TYPING_SECONDS

    @property
    def problem(self) -> str:
        """How the session has failed, if it has."""
        return f"{self.failure}; {self.messages!r}" if self.failure else ""


Session = OurSession | Client


class RestartTests(TestCase):
    """Busy machines with ten sessions each."""

    timeout = 600 + RESTARTS * (600 + 6 * SESSIONS)
    skip = needs.kubectl()

    def setUp(self) -> None:
        self.choice = random.Random(SEED)
        self.opening = DeferredSemaphore(_OPENED_AT_ONCE)
        self.home = str(Path(self.mktemp()).resolve())  # one cache of discovery
        self.pauses: defaultdict[str, list[float]] = defaultdict(list)
        self.stops: defaultdict[str, list[float]] = defaultdict(list)
        self.codes: defaultdict[str, set[int]] = defaultdict(set)
        self.unannounced: Counter[str] = Counter()
        self.acknowledged: list[str] = []
        self.compared = self.ended = self.uncertain = self.gaps = 0

    async def test_each(self) -> None:
        """API server, poollet and runtime, one after the other."""
        await self.restart_all(Programs, [(name,) for name in Programs.names])

    async def test_at_once(self) -> None:
        """All three in the same moment."""
        await self.restart_all(Programs, [Programs.names])

    async def test_standalone(self) -> None:
        """``exec-standalone``."""
        await self.restart_all(Standalone, [Standalone.names])

    async def restart_all(self, place: type[Programs], choices: Sequence[tuple[str, ...]]) -> None:
        """Open the sessions, restart each choice of programs as often as ``RESTARTS`` says, and compare."""
        self.place = place(self.mktemp())
        self.addCleanup(self.place.stop)
        await self.place.start()
        print(f"\nSEED={SEED}")
        await self.open_all()
        for turn in range(RESTARTS):
            events = [(names, kill) for names in choices for kill in (False, True)]
            self.choice.shuffle(events)
            beside_blocked = self.choice.choice(events)
            for event in events:
                names, kill = event
                blocked = await self.blocked() if event == beside_blocked else None
                await self.lose(names, kill=kill)
                if blocked is not None:
                    await self.continued(blocked)
            print(f"{turn + 1} of {RESTARTS} turns", flush=True)
        await self.compare()
        self.report()

    # Sessions.

    async def open_all(self) -> None:
        """Open all sessions, and three clients as processes: one is paused now and then, one is at a cable."""
        opened = [
            self.opening.run(self.open, number, place)
            for number in range(_MACHINES)
            for place in range(_AT_A_MACHINE)
        ]
        sessions = await gatherResults(opened, consumeErrors=True)
        self.ours = [each for each in sessions if isinstance(each, OurSession)]
        self.stock = [each for each in sessions if isinstance(each, Client)]
        self.cable = Cable()
        await self.cable.listen()
        self.addCleanup(self.cable.stop)
        self.cable.target = self.place.port
        config = Path(self.place.admin).read_text()
        cabled = self.place.path("cabled.kubeconfig")
        Path(cabled).write_text(config.replace(f":{self.place.port}", f":{self.cable.port}"))
        argv = [script("kubectl-console"), "m0", "--read-only"]
        self.stopped, self.half_open = [
            await self.client(argv, {"KUBECONFIG": kubeconfig}, self.place.machines[0])
            for kubeconfig in (self.admin, cabled)
        ]

    @property
    def admin(self) -> str:
        return str(Path(self.place.admin).resolve())

    @property
    def sessions(self) -> Sequence[Session]:
        return [*self.ours, *self.stock, self.stopped, self.half_open]

    @property
    def typing(self) -> Sequence[Session]:
        """The writers of the machines."""
        return [each for each in self.sessions if each.types]

    def open(self, number: int, place: int) -> Deferred[Session]:
        """Open a session; the first one of a machine types, of each kind in turn."""
        busy, types = self.place.machines[number], place == 0
        if (place + number) % 2:
            return Deferred.fromCoroutine(self.open_stock(busy, types, place // 2 % 2 == 0))
        return Deferred.fromCoroutine(self.open_ours(busy, types))

    async def open_ours(self, busy: BusyMachine, types: bool) -> OurSession:
        # A runtime that was restarted does not know who the writer was.
        options = CONSOLE if types else replace(CONSOLE, read_only=True)
        user: Any = await OurSession.at(self.admin, busy.name, options=options)
        self.addCleanup(user.leave)
        user.machine = busy
        await self.until([user], lambda user: user.output.size)
        if types:
            user.begin(busy)
            user.type_on(_TYPING_SECONDS)
        return user  # type: ignore[no-any-return]

    async def open_stock(self, busy: BusyMachine, types: bool, over_spdy: bool) -> Client:
        argv = [kubectls.found()[kubectls.some()[-1]], "attach", *(["-i"] if types else [])]
        env = {"KUBECONFIG": self.admin, "HOME": self.home, **(_OVER_SPDY if over_spdy else {})}
        while True:
            client = await self.client([*argv, busy.name], env, busy, types=types)
            if client.exit_code is None:
                return client
            # The machine's pool may not be there yet: users then try again.
            self.assertEqual((client.exit_code, client.output.size), (1, 0), client.problem)

    async def client(
        self, argv: Sequence[str], env: dict[str, str], busy: BusyMachine, *, types: bool = False
    ) -> Client:
        """Start a client; fires when it has printed something, or has ended."""
        client = Client(busy, argv, env, types=types)
        self.addCleanup(client.stop)
        client.start()
        while not client.output.size and client.exit_code is None:
            await pause()
        return client

    # Restarts.

    async def lose(self, names: tuple[str, ...], *, kill: bool) -> None:
        """Let programs end, and start again; fires when every session goes on, or has ended as it should."""
        what = f"{'kill' if kill else 'stop'} {', '.join(names)}"
        before = {each: len(each.seconds) for each in self.ours}
        gaps = sum(len(each.gaps) for each in self.ours)
        paused = {each for each in self.ours if self.choice.random() < _PAUSED}
        for each in paused:
            each.stream.pause_output()
        self.stopped.signal(signal.SIGSTOP)
        self.cable.silence()
        writing = Deferred.fromCoroutine(self.write())
        began = reactor.seconds()
        for name in names:
            program: Program = getattr(self.place, name)
            program.ended.addCallback(self.note_stop, what, began)
        await self.place.restart(*names, kill=kill)
        self.stopped.signal(signal.SIGCONT)
        self.cable.cut()
        self.cable.mend()
        for each in paused:
            each.stream.resume_output()
        await writing
        if names != ("poollet",):
            await self.end_stock(what, kill=kill, has_reason=not kill or names == ("runtime",))
        await self.calm(before)
        gaps = sum(len(each.gaps) for each in self.ours) - gaps
        self.assertTrue(not gaps or (kill and {"runtime", "standalone"} & {*names}), what)
        self.gaps += gaps
        for user in self.ours:
            self.pauses[what] += user.seconds[before[user] :]
            uncertain = sum(user.uncertain[before[user] :])
            self.uncertain += uncertain
            if not kill and user not in paused:
                if "is restarting" in user.outages[before[user]]:
                    self.assertEqual(uncertain, 0, what)
                else:
                    self.assertGreaterEqual(self.stops[what][-1], DRAIN_SECONDS, what)
                    self.unannounced[what] += 1  # it has not read the announcement within the limit

    def note_stop(self, code: int, what: str, began: float) -> int:
        self.stops[what].append(reactor.seconds() - began)
        return code

    async def write(self) -> None:
        """Create objects until the API server does not answer, or has answered some."""
        for _ in range(20):
            name = f"object-{len(self.acknowledged)}"
            try:
                body = {"metadata": {"name": name}, "stringData": {"x": name}}
                await self.place.client.create(SECRETS.resource, body, "default")
            except APIError:
                return
            self.acknowledged.append(name)

    async def end_stock(self, what: str, *, kill: bool, has_reason: bool) -> None:
        """Wait until each kubectl has ended, and open others."""
        await self.until(self.stock, lambda each: each.exit_code is not None, may_fail=True)
        for client in self.stock:
            self.codes[what].add(client.exit_code or 0)
            told = (what, client.exit_code, client.messages)
            self.assertTrue((client.failure or "").startswith("ended"), client.failure)
            if has_reason:
                pattern = rb"the connection behind this hop was lost" if kill else rb"is restarting"
                self.assertEqual(client.exit_code, 1, told)
                self.assertRegex(client.messages, pattern, told)
            else:  # over SPDY it takes the end of the connection for that of the session
                self.assertIn(client.exit_code, (0, 1), told)
            self.compared += client.output.size
        self.ended += len(self.stock)
        opened = [self.opening.run(self.reopened, client) for client in self.stock]
        self.stock = list(await gatherResults(opened, consumeErrors=True))

    def reopened(self, client: Client) -> Deferred[Client]:
        """Open a session like an earlier one."""
        over_spdy = _OVER_SPDY.keys() <= client.env.keys()
        return Deferred.fromCoroutine(self.open_stock(client.machine, client.types, over_spdy))

    async def calm(self, before: dict[OurSession, int]) -> None:
        """Fires when each of our sessions was resumed, if need be, and bytes pass in each session, both ways."""
        await self.until(self.ours, lambda user: len(user.seconds) == len(user.outages))
        sizes = {each: each.output.size for each in self.sessions}
        await self.until(self.sessions, lambda each: each.output.size > sizes[each] + _CALM_BYTES)
        typing = self.typing
        arrived = {each: each.arrived for each in typing}
        await self.until(typing, lambda each: each.arrived > arrived[each] + 16)

    async def until(
        self,
        sessions: Sequence[Any],
        condition: Callable[[Any], object],
        *,
        may_fail: bool = False,
    ) -> None:
        """Fires once a condition is true for all sessions; fails if one hangs, or fails before."""
        deadline, waiting = reactor.seconds() + _PATIENCE_SECONDS, list(sessions)
        while waiting := [each for each in waiting if not condition(each)]:
            problems = [] if may_fail else [each.problem for each in waiting if each.problem]
            if not problems and reactor.seconds() > deadline:
                kinds = [f"{type(each).__name__} {each.machine.name}" for each in waiting]
                problems = [f"{len(waiting)} sessions hang: {kinds[:5]}"]
            if problems:
                self.fail("\n".join([*problems[:5], self.place.printed()]))
            await pause()

    # A client that reads nothing.

    async def blocked(self) -> Client:
        """Return a kubectl that does not read, so that everything before it is full."""
        flood = self.place.flood
        argv = [kubectls.found()[self.choice.choice(kubectls.some())], "attach", flood.name]
        client = await self.client(argv, {"KUBECONFIG": self.admin, "HOME": self.home}, flood)
        client.signal(signal.SIGSTOP)
        looks, before = 0, -1
        while looks < _BLOCKED_LOOKS:
            written = _written(flood.processes[-1])
            looks, before = looks + 1 if written == before else 0, written
            await pause()
        return client

    async def continued(self, client: Client) -> None:
        """Let it read again: its session ends, or goes on."""
        size = client.output.size
        client.signal(signal.SIGCONT)
        await self.until(
            [client],
            lambda each: each.exit_code is not None or each.output.size > size + _FLOOD_BYTES,
            may_fail=True,
        )
        self.assertTrue((client.failure or "ended").startswith("ended"), client.failure)
        await client.stop()

    # The end.

    async def compare(self) -> None:
        """Compare all bytes, and look for what was acknowledged."""
        typing = self.typing
        for each in typing:
            each.stop_typing()
        await self.until(typing, lambda each: each.arrived == each.sent_bytes)
        for busy in self.place.machines:
            busy.stop_printing()
        await self.until(self.sessions, lambda each: each.output.has_ended, may_fail=True)
        self.compared += sum(each.output.size for each in self.sessions)
        for busy in self.place.machines:
            self.assertEqual(len(busy.processes), 1, f"{busy.name} was started again")
            self.compared += sum(each.size for each in busy.typed.streams.values())
        listed = (await self.place.client.list(SECRETS.resource, "default"))["items"]
        missing = set(self.acknowledged) - {each["metadata"]["name"] for each in listed}
        self.assertEqual(missing, set(), "acknowledged objects")

    def report(self) -> None:
        """Print the figures."""
        for what, seconds in sorted(self.pauses.items()):
            stops, codes = self.stops[what], sorted(self.codes[what])
            print(
                f"{what:28} pause of our sessions: {_figures(seconds)} s; programs had ended after"
                f" {_figures(stops)} s; exit codes of kubectl: {codes or 'none has ended'};"
                f" {self.unannounced[what]} cut before they had read that it restarts"
            )
        print(
            f"{len(self.sessions)} sessions at once, {self.ended} of kubectl ended with their program;"
            f" {self.compared} bytes compared, {self.uncertain} keys uncertain"
            f" and {self.gaps} times output that may be missing, after kills of runtimes;"
            f" {len(self.acknowledged)} acknowledged objects"
        )


def _written(pid: int) -> int:
    """Return how many bytes a process has written."""
    counts = Path(f"/proc/{pid}/io").read_text()
    return int(re.search(r"wchar: (\d+)", counts)[1])  # type: ignore[index]


def _figures(values: Sequence[float]) -> str:
    ordered = sorted(values) or [0.0]
    return f"median {ordered[len(ordered) // 2]:.2f}, at most {ordered[-1]:.2f}"
