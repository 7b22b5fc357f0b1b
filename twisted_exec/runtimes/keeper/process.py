"""
The keeper: a process that holds terminals, also while no runtime runs.

A *holding* is a terminal with its command, under a name. A holding that is not *kept* is dropped with the
connection of the client that started or took it.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import sys
import time

from .command import KeeperCommand
from .peer import Holding, Peer
from .protocol import (
    LISTED,
    MAX_BODY_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_NAME_BYTES,
    BadMessage,
    Message,
)

TYPE_CHECKING = False  # typing takes 1 MiB
if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_CLIENTS = 16
_SPARE_DESCRIPTORS = 64
_IDLE_SECONDS = 5
_CREDENTIALS_BYTES = 12
_LOG = 2  # standard error, a file in the state directory


class KeeperRefusal(Exception):
    """A request cannot be fulfilled; the text is for people."""


class KeeperState:
    """The holdings and the clients."""

    def __init__(self, listener: socket.socket, path: str) -> None:
        self._listener = listener
        self._path = path
        self._inode = _inode(path)
        self._poll = select.epoll()
        self._ready: dict[int, Callable[[int], None]] = {}
        self._clients: list[Peer] = []
        self._held: dict[bytes, Holding] = {}
        self._has_served = False
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._descriptor_limit = (
            1 << 20 if soft == resource.RLIM_INFINITY else soft
        ) - _SPARE_DESCRIPTORS
        self._watch(listener.fileno(), self._accept)

    def run(self) -> None:
        """Serve until no client is connected, and there is no holding that a client could take."""
        while True:
            events = self._poll.poll(_IDLE_SECONDS)
            for descriptor, event in events:
                ready = self._ready.get(descriptor)
                if ready is not None:
                    # The number may have been reused since poll: each of them tolerates that.
                    ready(event)
            if not self._clients:
                # Before its first client it waits: the runtime that has started it connects soon.
                if not self._held and (self._has_served or not events):
                    break
                if not events and not self._is_reachable():
                    break
        if _inode(self._path) == self._inode is not None:
            os.unlink(self._path)

    def _is_reachable(self) -> bool:
        if os.fstat(_LOG).st_nlink == 0:
            return False  # the state directory was deleted
        return self._inode is not None and _inode(self._path) == self._inode

    def _watch(
        self, descriptor: int, ready: Callable[[int], None], events: int = select.EPOLLIN
    ) -> None:
        self._ready[descriptor] = ready
        self._poll.register(descriptor, events)

    def _unwatch(self, descriptor: int) -> None:
        del self._ready[descriptor]
        self._poll.unregister(descriptor)

    # Clients.

    def _accept(self, _: int) -> None:
        try:
            handle, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:
            time.sleep(0.05)  # the host has no descriptors left: do not turn as fast as possible
            return
        handle.setblocking(False)
        # A message longer than the buffer fails with EMSGSIZE (unix(7)); the host sets the default.
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MAX_MESSAGE_BYTES)
        if len(self._clients) >= _MAX_CLIENTS or _peer_uid(handle) not in (0, os.geteuid()):
            handle.close()
            return
        client = Peer(handle)
        self._clients.append(client)
        self._has_served = True
        self._watch(handle.fileno(), lambda event: self._serve(client, event))
        self._serve(client)

    def _serve(self, client: Peer, event: int = 0) -> None:
        try:
            if client.is_busy and event & select.EPOLLHUP:
                raise EOFError  # poll would report it again and again
            client.send()
            # The answer to the last request goes first, so that a client that reads nothing costs
            # no memory.
            if not client.is_busy and not client.has_output:
                received = client.receive()
                if received is not None:
                    self._handle(client, received)
                    client.send()
        except (EOFError, OSError, BadMessage):
            self._drop(client)
            return
        except Exception:
            sys.excepthook(*sys.exc_info())  # a bug: the other clients go on
            self._drop(client)
            return
        self._poll.modify(client.handle.fileno(), _events(client))

    def _drop(self, client: Peer) -> None:
        if client not in self._clients:
            return
        self._clients.remove(client)
        self._unwatch(client.handle.fileno())
        client.handle.close()
        for name, holding in list(self._held.items()):
            if holding.owner is client:
                holding.owner = None
                if not holding.keep:
                    self._forget(name)

    # Requests.

    def _handle(self, client: Peer, message: Message) -> None:
        handlers = {
            "spawn": self._spawn,
            "take": self._take,
            "release": self._release,
            "forget": self._forget_request,
            "list": self._list,
            "leave": self._leave,
        }
        try:
            if message.kind not in handlers:
                raise KeeperRefusal(f"there is no request {message.kind[:40]}")
            handlers[message.kind](client, message)
        except KeeperRefusal as why:
            client.answer = _error(str(why))
        except OSError as why:
            client.answer = _error(why.strerror or str(why))

    def _new_name(self, message: Message) -> bytes:
        name = message.text("name")
        if not 0 < len(name) <= MAX_NAME_BYTES:
            raise KeeperRefusal(f"a name has between 1 and {MAX_NAME_BYTES} bytes")
        if name in self._held:
            raise KeeperRefusal("the name is in use")
        return name

    def _find(self, message: Message) -> Holding:
        holding = self._held.get(message.text("name"))
        if holding is None:
            raise KeeperRefusal("nothing is held under this name")
        return holding

    def _take(self, client: Peer, message: Message) -> None:
        holding = self._find(message)
        holding.owner, holding.keep = client, message.number("keep", 0) == 1
        fields: list[tuple[str, bytes | str | int]] = [
            ("pid", holding.pid),
            ("start", holding.start),
        ]
        if holding.status is not None:
            fields.append(("status", holding.status))
        client.answer = Message("ok", fields, holding.body).encode(), holding
        holding.body = b""

    def _release(self, client: Peer, message: Message) -> None:
        holding = self._find(message)
        if holding.owner is client:
            holding.owner, holding.keep = None, True
            holding.body = message.body[:MAX_BODY_BYTES]
        client.answer = _ok()

    def _forget_request(self, client: Peer, message: Message) -> None:
        self._forget(message.text("name"))
        client.answer = _ok()

    def _forget(self, name: bytes) -> None:
        holding = self._held.pop(name, None)
        if holding is not None:
            if holding.owner is not None:
                holding.owner.ended.pop(name, None)
            holding.close()

    def _list(self, client: Peer, message: Message) -> None:
        after = message.text("after", b"")
        fields: list[tuple[str, bytes | str | int]] = []
        for name in sorted(each for each in self._held if each > after)[:LISTED]:
            holding = self._held[name]
            fields += [("name", name), ("pid", holding.pid), ("start", holding.start)]
        client.answer = Message("ok", fields).encode(), None

    def _leave(self, client: Peer, message: Message) -> None:
        if not self._held and self._clients == [client] and self._is_reachable():
            os.unlink(self._path)
        client.answer = _ok()

    # Commands.

    def _spawn(self, client: Peer, message: Message) -> None:
        name = self._new_name(message)
        keep = message.number("keep", 0) == 1
        command = KeeperCommand(message)
        master, slave = os.openpty()
        pipe: list[int] = []
        try:
            if slave >= self._descriptor_limit:
                raise KeeperRefusal("the keeper has no descriptors left")
            command.prepare(master, slave)
            pipe += os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            pid = os.fork()
            if pid == 0:
                command.execute(slave, pipe[1])
        except BaseException:
            os.close(master)
            for each in pipe:
                os.close(each)
            raise
        finally:
            os.close(slave)
        reading, writing = pipe
        os.close(writing)
        holding = Holding(master, client, keep)
        holding.pid = pid
        try:
            holding.start = _start_of(pid)
            process = os.pidfd_open(pid)
        except OSError:  # the host has no descriptors left
            os.close(master)
            os.close(reading)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        self._held[name] = holding
        self._watch(process, lambda _: self._reap(process, name, holding))
        client.is_busy = True
        self._watch(reading, lambda _: self._executed(reading, client, name, holding))

    def _executed(self, reading: int, client: Peer, name: bytes, holding: Holding) -> None:
        """Answer a request for a command: the pipe ends when it was executed, or says why not."""
        try:
            problem = os.read(reading, 16)
        except BlockingIOError:
            return
        self._unwatch(reading)
        os.close(reading)
        client.is_busy = False
        if self._held.get(name) is not holding:
            client.answer = _error("it was forgotten")
        elif problem:
            self._forget(name)
            client.answer = _error(os.strerror(int(problem)))
        else:
            fields = [("pid", holding.pid), ("start", holding.start)]
            client.answer = Message("ok", fields).encode(), holding
        if client in self._clients:
            self._serve(client)

    def _reap(self, process: int, name: bytes, holding: Holding) -> None:
        pid, status = os.waitpid(holding.pid, os.WNOHANG)
        if pid == 0:
            return
        self._unwatch(process)
        os.close(process)
        holding.status = status
        if self._held.get(name) is holding and holding.owner is not None:
            holding.owner.ended[name] = status
            self._serve(holding.owner)


def _events(client: Peer) -> int:
    if client.has_output:
        return select.EPOLLOUT
    return 0 if client.is_busy else select.EPOLLIN  # EPOLLHUP always comes


def _ok() -> tuple[bytes, None]:
    return Message("ok").encode(), None


def _error(why: str) -> tuple[bytes, None]:
    return Message("error", [("why", why.replace("\0", " "))]).encode(), None


def _peer_uid(handle: socket.socket) -> int:
    credentials = handle.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS_BYTES)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def _inode(path: str) -> tuple[int, int] | None:
    try:
        entry = os.stat(path)
    except OSError:
        return None
    return entry.st_dev, entry.st_ino


def _start_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The command's name may contain spaces and parentheses.
        return int(file.read().rpartition(b")")[2].split()[19])


def main(path: str) -> None:
    """
    Run a keeper.

    Standard input is the listening socket, and standard error a log file.
    """
    os.setsid()  # survives the terminal of the runtime
    os.chdir("/")
    listener = socket.socket(fileno=os.dup(0))
    listener.setblocking(False)
    devnull = os.open(os.devnull, os.O_RDWR)
    os.dup2(devnull, 0)
    os.close(devnull)
    KeeperState(listener, path).run()
