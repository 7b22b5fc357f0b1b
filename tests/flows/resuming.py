"""
A deployment whose connections can be cut, with a busy machine and a user who types and reads.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.task import LoopingCall

from twisted_exec.kube.console import ConsoleOptions, open_console
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.streaming.remotecommand.stream import ConsoleUser
from twisted_exec.wire.endings import Ending
from twisted_exec.wire.marks import Notice
from twisted_exec.wire.stream_options import CONSOLE, StreamOptions

from . import busy_machine
from .cables import Cable
from .deployment import Deployment, pause
from .programs import Program

reactor: Any = _reactor

BUSY = "busy"
"""Class of the busy machine."""
ASKING = "asking"
"""Class of another one, of which each line asks the terminal for something."""

BYTES_PER_SECOND = 300_000

_ERROR = re.compile(rb".*(Traceback|Unhandled)")
_MOST_ERROR = 4000

_CLASSES = """
classes:
- name: {name}
  driver: pty
  command: [{python}, {program}, {directory}, "{speed}"]
  same_user: true
  capabilities: {{cpu: "1", memory: 64Mi}}
  quantity: 1000
- name: asking
  driver: pty
  command: [{python}, {program}, {directory}, "{speed}", asks]
  same_user: true
  capabilities: {{cpu: "1", memory: 64Mi}}
  quantity: 1000
- name: shell
  driver: pty
  command: [/bin/sh, -i]
  same_user: true
  capabilities: {{cpu: "1", memory: 64Mi}}
  quantity: 1000
"""


class CabledDeployment(Deployment):
    """
    Three programs and a user, with a cable between each two.

    Restarted programs listen on their former ports.

    :param runtime_options: of the runtime.
    :ivar near: between the user and the API server.
    :ivar middle: between API server and poollet.
    :ivar far: between poollet and runtime.
    :ivar load: the directory of the busy machine.
    :ivar started: all programs that were started.
    """

    pool_address = "127.0.0.2"
    poollet_seconds = 5  # a lost path must be found while the runtime keeps the session

    def __init__(self, directory: str, *, runtime_options: Sequence[str] = ()) -> None:
        super().__init__(directory)
        self.near, self.middle, self.far = Cable(), Cable(), Cable()
        self.started: list[Program] = []
        self.load = (self.directory / "load").resolve()
        self.load.mkdir()
        classes = _CLASSES.format(
            name=BUSY,
            python=sys.executable,
            program=busy_machine.__file__,
            directory=self.load,
            speed=BYTES_PER_SECOND,
        )
        (self.directory / "runtime.yaml").write_text(classes)
        self._runtime_options = runtime_options

    @property
    def cables(self) -> dict[str, Cable]:
        return {"near": self.near, "middle": self.middle, "far": self.far}

    def twistd(self, plugin: str, *options: str) -> Program:
        program = super().twistd(plugin, *options)
        self.started.append(program)
        return program

    def errors(self) -> list[str]:
        """Return the errors that the programs have logged."""
        return [
            each.output[match.start() :][:_MOST_ERROR].decode(errors="replace")
            for each in self.started
            if (match := _ERROR.search(each.output))
        ]

    async def start_programs(self) -> None:
        """Start cables and programs; fires when the pool is registered."""
        await self.near.listen()
        await self.far.listen()
        await self.start_api()
        await self.start_runtime()
        await self.start_poollet()

    async def start(self) -> None:
        await self.start_programs()
        for name in (BUSY, ASKING, "shell"):
            await self.create_class(name, "64Mi")

    async def start_api(self, *options: str) -> None:
        await super().start_api(*options)
        self.near.target = self.port

    async def start_runtime(self, *options: str) -> None:
        self.far.target = self.far.target or self.reserved.add()
        where = f"--base-url=https://127.0.0.1:{self.far.port}"
        listen = f"--streaming-listen=tcp:{self.far.target}:interface=127.0.0.1"
        await super().start_runtime(where, listen, *self._runtime_options, *options)

    async def start_poollet(self, *options: str) -> None:
        self.middle.target = self.middle.target or self.reserved.add()
        await super().start_poollet(
            f"--listen=tcp:{self.middle.target}:interface=127.0.0.1",
            *options,
        )
        if not self.middle.port:
            await self.middle.listen(self.middle.target, self.pool_address)

    def through_cable(self, user: str, groups: tuple[str, ...] = ("system:masters",)) -> str:
        """Return the path of a user's kubeconfig whose server is at the near cable."""
        url = f"https://127.0.0.1:{self.near.port}"
        return self.kubeconfig(user, groups, url=url, name=f"{user}-cabled")

    @property
    def typed(self) -> bytes:
        """What the busy machine has got."""
        record = self.load / "typed"
        return record.read_bytes() if record.exists() else b""

    @property
    def typed_bytes(self) -> int:
        """How many keys the busy machine has got."""
        record = self.load / "typed"
        return record.stat().st_size if record.exists() else 0

    def stop_printing(self) -> None:
        """Let the busy machine print ``END``."""
        (self.load / "stop").touch()

    async def stop(self) -> None:
        self.stop_printing()
        await super().stop()
        for cable in self.cables.values():
            await cable.stop()


class Typist(ConsoleUser):
    """
    The user of a resumable console, who may type without end.

    :ivar printed: all output.
    :ivar sent: all that was typed.
    :ivar outages: the reason of each loss.
    :ivar seconds: how long each outage took.
    :ivar uncertain: the number of uncertain pieces of input of each outage.
    :ivar notices: messages for the user.
    :ivar gaps: sizes of gaps in the output.
    :ivar ending: the status, if there was one.
    """

    stream: Any = None
    ending: Ending | None = None
    detached_with: str | None = None

    def __init__(self) -> None:
        self._printed = bytearray()
        self._sent = bytearray()
        self.outages: list[str] = []
        self.seconds: list[float] = []
        self.uncertain: list[int] = []
        self.notices: list[str] = []
        self.gaps: list[int | None] = []
        self._typing = LoopingCall(self._type)
        self._paused = False

    @classmethod
    async def at(cls, kubeconfig: str, machine: str, *, options: StreamOptions = CONSOLE) -> Typist:
        """Open the console of a machine."""
        user, config = cls(), load(kubeconfig)
        await open_console(
            config, config.namespace, machine, user, reactor, ConsoleOptions(stream=options)
        )
        return user

    @property
    def printed(self) -> bytes:
        return bytes(self._printed)

    @property
    def printed_bytes(self) -> int:
        return len(self._printed)

    @property
    def sent(self) -> bytes:
        return bytes(self._sent)

    @property
    def sent_bytes(self) -> int:
        return len(self._sent)

    def type_on(self, interval_seconds: float = 0.01) -> None:
        """Type a numbered line now and then, as fast as the stream takes it."""
        self.stream.registerProducer(self, True)
        self._typing.start(interval_seconds)

    def stop_typing(self) -> None:
        if self._typing.running:
            self._typing.stop()
            self.stream.unregisterProducer()

    def type(self, data: bytes) -> None:
        """Press keys."""
        self._sent += data
        self.stream.write(data)

    def _type(self) -> None:
        if not self._paused:
            self.type(b"%07d\n" % (len(self._sent) // 8))

    async def until(self, condition: Callable[[], object], seconds: float = 600) -> None:
        """Fires once a condition is true; fails if the session ends before."""
        late = reactor.seconds() + seconds
        while not condition():
            told = f"{self.detached_with}, {self.ending}, {self.outages[-5:]}, {self.notices[-5:]}, {self._printed[-200:]!r}"
            assert self.detached_with is None, told
            assert reactor.seconds() < late, told
            await pause()

    async def until_printed(self, pattern: bytes, start: int = 0) -> None:
        """Fires once the output matches a pattern."""
        expected = re.compile(pattern)
        await self.until(lambda: expected.search(self._printed, start))

    async def until_resumed(self, count: int) -> None:
        """Fires when the session was resumed this many times in all."""
        await self.until(lambda: len(self.seconds) >= count)

    async def leave(self) -> None:
        """Leave the console."""
        self.stop_typing()
        if self.detached_with is None:
            self.stream.leave()
        while self.detached_with is None:
            await pause()

    # IPushProducer

    def pauseProducing(self) -> None:
        self._paused = True

    def resumeProducing(self) -> None:
        self._paused = False

    def stopProducing(self) -> None:
        self.stop_typing()

    # ConsoleUser

    def attached(self, stream: Any) -> None:
        self.stream = stream

    def data_received(self, data: bytes) -> None:
        self._printed += data

    def ended(self, ending: Ending) -> None:
        self.ending = ending

    def detached(self, reason: str) -> None:
        if self._typing.running:
            self._typing.stop()
        self.detached_with = reason

    def outage(self, reason: str) -> None:
        self.outages.append(reason)

    def resumed(self, seconds: float, uncertain: int, unsent: int) -> None:
        self.seconds.append(seconds)
        self.uncertain.append(uncertain)

    def notice(self, notice: Notice) -> None:
        self.notices.append(notice.text)

    def skipped(self, count: int | None) -> None:
        self.gaps.append(count)
