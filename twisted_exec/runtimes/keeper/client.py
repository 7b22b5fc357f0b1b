"""
The runtime's connection to the keeper of its state directory.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IReadWriteDescriptor
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.program.descriptors import inherited_descriptor_limits
from twisted_exec.runtimes.keeper.read_mark import ReadMark
from twisted_exec.runtimes.processes import Leader
from twisted_exec.streaming.interfaces import TerminalSize

from .protocol import MAX_BODY_BYTES, MAX_MESSAGE_BYTES, VERSION, BadMessage, Message

SOCKET = "keeper"
"""Name of the socket in the runtime's private directory."""
_MARK = "reading"
LOG = "keeper.log"
"""Name of the keeper's log in the state directory."""

_BACKLOG = 64
_ATTEMPTS = 3
_ANSWER_SECONDS = 20.0
_CLOSE_SECONDS = 1.0
_LAST_BYTES = 4096
# The directory comes last: its modules must not hide those of the standard library.
_BOOTSTRAP = (
    "import sys; sys.path.append(sys.argv[1]); from keeper.process import main; main(sys.argv[2])"
)


@dataclass(frozen=True)
class KeptCommand:
    """
    A command for the keeper to start in a new pseudo-terminal.

    :param path: of the executable.
    :param tty_group: group of the terminal if ``user`` is given; -1 for no change.
    """

    path: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    size: TerminalSize
    user: tuple[int, int, Sequence[int]] | None = None
    tty_group: int = -1
    raw: bool = False

    def fields(self) -> list[tuple[str, object]]:
        fields: list[tuple[str, object]] = [
            ("path", os.fsencode(self.path)),
            ("cwd", os.fsencode(self.directory)),
            ("rows", self.size.rows),
            ("columns", self.size.columns),
            ("raw", int(self.raw)),
        ]
        fields += [("arg", os.fsencode(each)) for each in self.arguments]
        fields += [
            ("env", os.fsencode(f"{name}={value}")) for name, value in self.environment.items()
        ]
        limits = inherited_descriptor_limits()
        if limits is not None:
            fields += [("soft", limits[0]), ("hard", limits[1])]
        if self.user is not None:
            uid, gid, groups = self.user
            fields += [("uid", uid), ("gid", gid), ("tty-gid", self.tty_group)]
            fields += [("group", each) for each in groups]
        return fields


@dataclass(frozen=True)
class Held:
    """
    A terminal that the keeper holds.

    :param descriptor: a duplicate, which belongs to the receiver.
    :param input: bytes that the terminal had not accepted when an earlier runtime released it.
    """

    descriptor: int
    command: Leader
    status: int | None = None
    input: bytes = b""


class Keeper:
    """The keeper of one state directory; ``directory`` is private, with a short path."""

    _log = Logger()

    def __init__(self, reactor: Any, directory: str, log: str) -> None:
        self._reactor = reactor
        self._path = os.path.join(directory, SOCKET)
        self._mark_path = os.path.join(directory, _MARK)
        self._log_path = log
        self._connection: KeeperConnection | None = None
        self._mark: ReadMark | None = None
        self._attempts = 0
        self._ended: dict[str, Callable[[int | None], None]] = {}

    @property
    def mark(self) -> ReadMark:
        if self._mark is None:
            self._mark = ReadMark(self._mark_path)
        return self._mark

    # Requests.

    async def holdings(self) -> dict[str, Leader]:
        """Return the names of all holdings, each with its command."""
        holdings: dict[str, Leader] = {}
        if self._connection is None and not self._connect():
            return holdings
        after = ""
        while True:
            answer, _ = await self._ask("list", [("after", after)])
            names = [os.fsdecode(name) for name in answer.all("name")]
            if not names:
                return holdings
            for name, pid, start in zip(names, answer.all("pid"), answer.all("start"), strict=True):
                if int(pid):
                    holdings[name] = Leader(int(pid), int(start))
                else:
                    self.forget(name)  # a device that a runtime of release 0.2.0 has left
            after = names[-1]

    async def spawn(
        self,
        name: str,
        command: KeptCommand,
        ended: Callable[[int | None], None],
        *,
        keep: bool,
    ) -> Held:
        """
        Start a command in a new pseudo-terminal.

        :param ended: called at most once, after this method has returned: with the status of the
            ended command, or with ``None`` if the keeper itself has ended.
        :param keep: hold the terminal when this runtime is killed.
        :raises ServiceUnavailable: the command cannot be started.
        """
        try:
            fields = [("name", name), ("keep", int(keep)), *command.fields()]
            answer, descriptor = await self._ask("spawn", fields)
        except ServiceUnavailable as error:
            raise ServiceUnavailable(f"the command cannot be started: {error.message}") from None
        return self._received(name, answer, descriptor, ended)

    async def take(self, name: str, ended: Callable[[int | None], None], *, keep: bool) -> Held:
        """Get the holding with a name; this runtime owns it from now on."""
        answer, descriptor = await self._ask("take", [("name", name), ("keep", int(keep))])
        return self._received(name, answer, descriptor, ended)

    def _received(
        self,
        name: str,
        answer: Message,
        descriptor: int | None,
        ended: Callable[[int | None], None],
    ) -> Held:
        if descriptor is None:
            raise ServiceUnavailable("the keeper has sent no descriptor")
        os.set_blocking(descriptor, False)
        command = Leader(answer.number("pid"), answer.number("start"))
        status = answer.number("status", -1)
        if status < 0:
            self._ended[name] = ended
        return Held(descriptor, command, None if status < 0 else status, answer.body)

    def release(self, name: str, input: bytes = b"") -> None:
        """
        Let the keeper hold a terminal for a later runtime, also without ``keep``.

        The caller closes its own descriptor.

        :param input: bytes that the terminal has not accepted; the next :meth:`take` returns the
            first 112 KiB.
        """
        self._ended.pop(name, None)
        if len(input) > MAX_BODY_BYTES:
            self._log.warn("{count} bytes of input are lost", count=len(input) - MAX_BODY_BYTES)
        self._tell("release", name, input[:MAX_BODY_BYTES])

    def forget(self, name: str) -> None:
        """Let the keeper close what it holds under a name, if anything."""
        self._ended.pop(name, None)
        if self._connection is not None:
            self._tell("forget", name)

    def _tell(self, kind: str, name: str, body: bytes = b"") -> None:
        telling = Deferred.fromCoroutine(self._ask(kind, [("name", name)], body=body))
        telling.addErrback(
            lambda failure: self._log.warn(
                "keeper: {kind} {name}: {why}", kind=kind, name=name, why=failure.value
            )
        )

    async def settled(self) -> None:
        if self._connection is not None:
            # Answers come in the order of the requests, so this answer is the last.
            await self._ask("list", [("after", "\x7f")])

    async def _ask(
        self,
        kind: str,
        fields: Sequence[tuple[str, object]] = (),
        *,
        body: bytes = b"",
    ) -> tuple[Message, int | None]:
        try:
            data = Message(
                kind,
                [
                    (key, value if isinstance(value, bytes) else os.fsencode(str(value)))
                    for key, value in fields
                ],
                body,
            ).encode()
        except ValueError as error:
            raise ServiceUnavailable(str(error)) from None
        request = KeeperRequest(data)
        if self._connection is None:
            self._attempts = 0
            if not self._connect():
                self._start()
        assert self._connection is not None
        self._connection.send(request)
        try:
            answer, received = await request.answered.addTimeout(_ANSWER_SECONDS, self._reactor)
        except TimeoutError:
            message = f"the keeper has not answered for {_ANSWER_SECONDS:g} s"
            if self._connection is not None:
                self._connection.connectionLost(Failure(ConnectionLost(message)))
            raise ServiceUnavailable(message) from None
        if answer.kind != "ok":
            why = os.fsdecode(answer.text("why", b"it refused the request"))
            raise ServiceUnavailable(why)
        return answer, received

    # The connection.

    def _connect(self) -> bool:
        kind = socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK
        try:
            handle = socket.socket(socket.AF_UNIX, kind)
        except OSError as error:
            raise ServiceUnavailable(f"the keeper cannot be reached: {error.strerror}") from None
        try:
            # See KeeperState._accept.
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MAX_MESSAGE_BYTES)
            handle.connect(self._path)
            credentials = handle.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        except (FileNotFoundError, ConnectionRefusedError):
            handle.close()
            return False
        except OSError as error:
            handle.close()
            raise ServiceUnavailable(f"{self._path}: {error.strerror}") from None
        if struct.unpack("3i", credentials)[1] not in (0, os.geteuid()):
            handle.close()
            raise ServiceUnavailable(f"{self._path} is a socket of another user")
        self._connection = KeeperConnection(handle, self._exited, self._lost, self._reactor)
        return True

    def _start(self) -> None:
        try:
            self._spawn_process()
        except OSError as error:
            raise ServiceUnavailable(
                f"the keeper of the machines' terminals cannot be started: {error.strerror}"
            ) from None
        if not self._connect():
            raise ServiceUnavailable(self._end())

    def _spawn_process(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            # Listening here means that no connection has to wait for the new process.
            os.fchmod(listener.fileno(), 0o600)
            try:
                os.unlink(self._path)  # of a keeper that was killed
            except FileNotFoundError:
                pass
            listener.bind(self._path)
            listener.listen(_BACKLOG)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW
            log = os.open(self._log_path, flags | os.O_CLOEXEC, 0o600)
            devnull = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            try:
                package = os.path.dirname(os.path.abspath(__file__))
                words = [sys.executable, "-I", "-S", "-c", _BOOTSTRAP]
                self._reactor.spawnProcess(
                    _Child(),
                    sys.executable,
                    [*words, os.path.dirname(package), self._path],
                    env={},  # secrets of the runtime's own stay there
                    path="/",
                    childFDs={0: listener.fileno(), 1: devnull, 2: log},
                )
            finally:
                os.close(log)
                os.close(devnull)

    def _end(self) -> str:
        """Return why the keeper has ended: the last line of its log, such as of a traceback, if there is one."""
        lines: list[str] = []
        with contextlib.suppress(OSError), open(self._log_path, "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LAST_BYTES))
            lines = log.read().decode(errors="replace").split("\n")
        cause = next((f": {line.strip()}" for line in reversed(lines) if line.strip()), "")
        return (
            f"the keeper of the machines' terminals has ended{cause}; its log is {self._log_path}"
        )

    async def close(self) -> None:
        """Disconnect, after all requests were answered; a keeper that holds nothing then ends."""
        if self._connection is not None:
            leaving = Deferred.fromCoroutine(self._ask("leave"))
            try:
                await leaving.addTimeout(_CLOSE_SECONDS, self._reactor)
            except (ServiceUnavailable, TimeoutError):
                pass  # it has ended, or reads the requests later
        self._ended.clear()
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()
        if self._mark is not None:
            self._mark.close()
            self._mark = None
        if not os.path.exists(self._path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._mark_path)

    # Called by the connection.

    def _exited(self, name: str, status: int) -> None:
        ended = self._ended.pop(name, None)
        if ended is not None:
            ended(status)

    def _lost(self, requests: Sequence[KeeperRequest], was_greeted: bool) -> None:
        self._connection = None
        self._attempts += 1
        if not was_greeted and self._attempts < _ATTEMPTS:
            # The keeper had nothing to hold, and ended when this runtime connected.
            try:
                if not self._connect():
                    self._start()
            except ServiceUnavailable as error:
                _fail(requests, error)
                return
            assert self._connection is not None
            for request in requests:
                self._connection.send(request)
            return
        ended, self._ended = self._ended, {}
        why = self._end()
        if ended:
            self._log.error("{why}", why=why)
        _fail(requests, ServiceUnavailable(why))
        for report in ended.values():
            report(None)


def _fail(requests: Sequence[KeeperRequest], error: ServiceUnavailable) -> None:
    for request in requests:
        if not request.answered.called:
            request.answered.errback(error)


class _Child(ProcessProtocol):
    """Does nothing; with it Twisted reaps the process."""


@dataclass
class KeeperRequest:
    """A message to the keeper."""

    data: bytes
    answered: Deferred[tuple[Message, int | None]] = field(default_factory=Deferred)


@implementer(IReadWriteDescriptor)
class KeeperConnection:
    """
    One connection to the keeper.

    :param exited: called with the name and status of each command that ended.
    :param lost: called after the connection was lost, with the requests that were not answered, and
        whether the keeper had greeted.
    """

    def __init__(
        self,
        handle: socket.socket,
        exited: Callable[[str, int], None],
        lost: Callable[[Sequence[KeeperRequest], bool], None],
        reactor: Any,
    ) -> None:
        self._handle = handle
        self._exited, self._lost = exited, lost
        self._reactor = reactor
        self._is_greeted = False
        self._unsent: deque[KeeperRequest] = deque()
        self._unanswered: deque[KeeperRequest] = deque()
        reactor.addReader(self)

    def fileno(self) -> int:
        return self._handle.fileno()

    def logPrefix(self) -> str:
        return "keeper"

    def send(self, request: KeeperRequest) -> None:
        self._unsent.append(request)
        if self._is_greeted and len(self._unsent) == 1:
            self._reactor.addWriter(self)

    def doWrite(self) -> Any:
        while self._unsent:
            try:
                self._handle.send(self._unsent[0].data)
            except BlockingIOError:
                return None
            except OSError:
                return ConnectionLost()
            self._unanswered.append(self._unsent.popleft())
        self._reactor.removeWriter(self)
        return None

    def doRead(self) -> Any:
        while self._handle.fileno() >= 0:
            try:
                data, descriptors, _, _ = socket.recv_fds(
                    self._handle, MAX_MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return None
            except OSError:
                return ConnectionLost()
            descriptor = descriptors[0] if descriptors else None
            try:
                if not data:
                    return ConnectionLost()
                self._received(Message.decode(data), descriptor)
            except BadMessage:
                return ConnectionLost()
        return None

    def _received(self, message: Message, descriptor: int | None) -> None:
        if message.kind == "hello":
            if message.number("version") < VERSION:
                raise BadMessage("it is too old")
            self._is_greeted = True
            if self._unsent:
                self._reactor.addWriter(self)
        elif message.kind == "exited":
            self._exited(os.fsdecode(message.text("name")), message.number("status"))
        elif self._unanswered:
            answered = self._unanswered.popleft().answered
            if not answered.called:
                answered.callback((message, descriptor))
            elif descriptor is not None:  # the request has timed out
                os.close(descriptor)

    def connectionLost(self, reason: Failure) -> None:
        requests = [*self._unanswered, *self._unsent]
        was_greeted = self._is_greeted
        self.close()
        self._lost(requests, was_greeted)

    def close(self) -> None:
        """Close the connection and report nothing."""
        if self._handle.fileno() >= 0:
            self._reactor.removeReader(self)
            self._reactor.removeWriter(self)
            self._handle.close()
