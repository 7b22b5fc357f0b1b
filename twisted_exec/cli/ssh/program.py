"""
``twisted-exec ssh proxy HOST``: an SSH server on standard input and output, for one connection.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Iterable

from twisted.internet.interfaces import IReactorFDSet
from twisted.internet.main import CONNECTION_DONE
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure

from twisted_exec.cli.console.process import collect_garbage, start_log, the_reactor
from twisted_exec.cli.console.terminal import TerminalInput, TerminalOutput
from twisted_exec.cli.failures import failed
from twisted_exec.cli.options import config_of
from twisted_exec.cli.ssh.hosts import ConsoleHost, console_host
from twisted_exec.cli.ssh.session import ConsoleSessions, console_options
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.ssh.host_keys import HostKeyError, host_key, user_directory
from twisted_exec.ssh.server import OneConnection
from twisted_exec.tls.fast.loop import use_monotonic_clock

COMMAND = "ssh proxy"
_NOT_BY_HAND = (
    "ssh runs this command, on a pipe: kubectl console --ssh-config prints the configuration for it"
)


def run(options: argparse.Namespace) -> int:
    """Serve the connection until its end; return the exit code."""
    try:
        host = console_host(options.host)
        if os.isatty(0) or os.isatty(1):
            raise ValueError(_NOT_BY_HAND)
        console = _console_options(options, host)
        config = config_of(console)
        key = host_key(user_directory())
    except (ValueError, HostKeyError, KubeConfigError) as problem:
        return failed(COMMAND, str(problem))
    start_log()
    reactor = the_reactor()
    use_monotonic_clock(reactor)
    sessions = ConsoleSessions(console, config, reactor)
    server = OneConnection(key.private, sessions, reactor)
    source, sink = _own_descriptors()

    def begin() -> None:
        connection = _Pipe(server.buildProtocol(None), source, sink, reactor)
        for number in (signal.SIGHUP, signal.SIGTERM):
            # ssh sends the first at its end. A session that only vanished would be kept for a while.
            handler = lambda *_: reactor.callFromThread(connection.loseConnection)  # noqa: E731
            signal.signal(number, handler)
        # Ctrl-C is ssh's: before a session it ends ssh, and in one it is a key.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    server.lost.addCallback(lambda _: sessions.left()).addBoth(lambda _: reactor.stop())
    reactor.callWhenRunning(begin)
    collect_garbage()
    reactor.run(installSignalHandlers=False)
    return 0


class _Pipe:
    """
    The pipe of ssh, as the transport of a protocol.

    With :class:`twisted.internet.stdio.StandardIO` the connection is never lost if ssh closes its end
    between our last write and ``loseConnection``.
    """

    def __init__(self, protocol: Protocol, source: int, sink: int, reactor: IReactorFDSet) -> None:
        for descriptor in (source, sink):
            os.set_blocking(descriptor, False)
        self._protocol, self._is_lost = protocol, False
        self._input = TerminalInput(source, protocol.dataReceived, self._lost, reactor)
        self._output = TerminalOutput(sink, lambda _: self._lost(), reactor)
        protocol.makeConnection(self)
        self._input.startReading()

    def write(self, data: bytes) -> None:
        self._output.write(data)

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        self._output.writeSequence(iovec)

    def loseConnection(self) -> None:
        """Write what waits, and end the connection."""
        self._input.stop()
        self._output.loseConnection()

    def _lost(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._input.stop()
            self._output.stopWriting()
            self._protocol.connectionLost(Failure(CONNECTION_DONE))


def _console_options(options: argparse.Namespace, host: ConsoleHost) -> argparse.Namespace:
    """Return the options of ``kubectl console`` for this host, with those that both commands have."""
    console = console_options(host.name)
    shared = vars(console).keys() & vars(options).keys()
    vars(console).update({key: vars(options)[key] for key in shared})
    console.namespace = host.namespace or options.namespace
    return console


def _own_descriptors() -> tuple[int, int]:
    """
    Return new descriptors of the pipe.

    Nothing else reads or writes it then: neither a stray message of this program, nor a credential plugin.
    """
    source, sink = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    return source, sink
