"""
The old process's side of a hand-over: it starts its successor, and sends it the sockets and the state.

:mod:`.process` decides when; the new process's side is :mod:`.predecessor`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from twisted_exec.program.descriptors import restore_descriptor_limit
from twisted_exec.program.handover.channel import (
    FAILED,
    GO,
    HELLO,
    READY,
    STATE,
    STOP,
    HandoverChannel,
    Message,
)
from twisted_exec.program.handover.interfaces import ServiceState
from twisted_exec.program.handover.predecessor import VARIABLE
from twisted_exec.program.listening import ListeningSocket

_CHANNEL = 3
"""Number of the channel's descriptor in the successor."""
_LONGEST_LINE_BYTES = 256
"""Longest first line of a script: ``BINPRM_BUF_SIZE`` of Linux."""


class HandOverError(Exception):
    """A hand-over failed."""


@dataclass(frozen=True)
class ProcessCommand:
    """The command line of this process, for another process."""

    argv: tuple[str, ...]
    directory: str

    @classmethod
    def own(cls) -> ProcessCommand:
        """
        Return this process's own command line; call this before twistd changes the directory.

        A script is started by its path, so that its first line names the interpreter: behind a
        symbolic link that has moved, this is the interpreter of another release.
        """
        interpreter, *words = sys.orig_argv
        if words and _first_line(words[0]) == b"#!" + os.fsencode(interpreter):
            return cls(tuple(words), os.getcwd())
        return cls((sys.executable, *words), os.getcwd())


def _first_line(script: str) -> bytes:
    try:
        with open(script, "rb") as file:
            return (
                file.readline(_LONGEST_LINE_BYTES).rstrip() if os.access(script, os.X_OK) else b""
            )
    except OSError:
        return b""


class Successor(ProcessProtocol):
    """
    A process that is about to replace this process.

    :ivar hello: fires with the release and the version of the state; fails if the process ends.
    :ivar ready: fires when the process can serve; fails if it ends.
    """

    def __init__(self, stop: Any) -> None:
        self.hello: Deferred[Message] = Deferred()
        self.ready: Deferred[None] = Deferred()
        self.ended: Deferred[None] = Deferred()
        self.pid = 0
        self._process: Any = None
        self._copies: list[int] = []
        self._stop = stop
        self._why = ""
        self.channel: HandoverChannel | None = None

    def spawn(self, reactor: Any, command: ProcessCommand) -> None:
        """
        Start the process.

        :raises HandOverError: it cannot be started.
        """
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        environment = {**os.environ, VARIABLE: str(_CHANNEL)}
        # Twisted can only fork, and not spawn, for another directory.
        elsewhere = None if command.directory == _directory() else command.directory
        try:
            self._process = reactor.spawnProcess(
                self,
                command.argv[0],
                command.argv,
                env=environment,
                path=elsewhere,
                childFDs={0: 0, 1: 1, 2: 2, _CHANNEL: its.fileno()},
            )
        except OSError as problem:
            ours.close()
            raise HandOverError(f"{command.argv[0]}: {problem.strerror}") from None
        finally:
            its.close()
        self.pid = self._process.pid
        restore_descriptor_limit(self.pid)
        self.channel = HandoverChannel.over(reactor, ours, self._received, self._gone)

    def _received(self, message: Message) -> None:
        if HELLO in message and not self.hello.called:
            self.hello.callback(message[HELLO])
        elif READY in message and not self.ready.called:
            self.ready.callback(None)
        elif FAILED in message:
            self._why = str(message[FAILED])
        elif STOP in message:
            self._stop()

    def processEnded(self, reason: Failure) -> None:
        if not self._why:
            self._why = f"it ended {_how(reason.value)}; the reason is among its messages"
        self.ended.callback(None)
        self._gone()

    def _gone(self) -> None:
        if self.channel is None or self.channel.is_open or not self.ended.called:
            return
        for waiting in (self.hello, self.ready):
            if not waiting.called:
                waiting.errback(HandOverError(self._why))
                return

    def move(
        self, frozen: ServiceState, sockets: Sequence[ListeningSocket], predecessors: Sequence[int]
    ) -> None:
        """
        Send the listening sockets and the state.

        :raises HandOverError: this process has too many open files.
        """
        assert self.channel is not None
        state = {
            "sockets": [(each.description, each.is_shared) for each in sockets],
            "predecessors": len(predecessors),
            "descriptors": len(sockets) + len(predecessors) + len(frozen.descriptors),
            "values": dict(frozen.values),
            # As under nohup; Twisted's children get the default action.
            "ignoresHangup": signal.getsignal(signal.SIGHUP) is signal.SIG_IGN,
        }
        numbers = [each.socket.fileno() for each in sockets]
        # The channel sends later, and an earlier process may end meanwhile.
        try:
            for each in (*numbers, *predecessors, *frozen.descriptors):
                self._copies.append(os.dup(each))
        except OSError as problem:
            raise HandOverError(f"its descriptors cannot be sent: {problem.strerror}") from None
        self.channel.send({STATE: state}, self._copies)

    def go(self) -> None:
        """Let the successor serve."""
        assert self.channel is not None
        self._close_copies()
        if self.channel.is_open:
            self.channel.send({GO: True})

    def _close_copies(self) -> None:
        while self._copies:
            os.close(self._copies.pop())

    async def kill(self) -> None:
        """Kill the process if it runs, and wait for its end."""
        for waiting in (self.hello, self.ready):
            waiting.addErrback(lambda _: None)
        if self.channel is None:
            return
        with suppress(ProcessExitedAlready):
            self._process.signalProcess("KILL")
        if not self.ended.called:
            await self.ended
        if self.channel.is_open:
            self.channel.close()
        self._close_copies()


def _how(end: object) -> str:
    if isinstance(end, ProcessTerminated) and end.signal is not None:
        return f"by {signal.Signals(end.signal).name}"
    return f"with exit code {getattr(end, 'exitCode', 0)}"


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""
