"""
A listening socket that systemd holds: new clients wait while the API server is restarted.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.trial.unittest import TestCase

from tests.flows.consoles import watch
from tests.flows.deployment import Deployment, pause
from tests.flows.programs import Program, script
from tests.flows.resuming import Typist
from tests.tiers import PROGRAMS
from twisted_exec.api.kinds import MACHINES

reactor: Any = _reactor

_AS_SYSTEMD = 'export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=connection; exec "$@"'
_FIRST_FD = 3
"""Of the sockets of sd_listen_fds(3)."""
_ACCEPTABLE_AT = 24
"""Where ``struct tcp_info`` of a listening socket has the number of connections that wait."""


class SocketDeployment(Deployment):
    """
    The API server gets its listening socket from this process.

    :ivar listening: the socket.
    """

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]

    def twistd(self, plugin: str, *options: str) -> Program:
        if plugin != "exec-apiserver":
            return super().twistd(plugin, *options)
        words = [script("twistd"), "-n", "--pidfile=", plugin, *options]
        argv = ["/bin/sh", "-c", _AS_SYSTEMD, "sh", *words]
        descriptors = {0: "w", 1: "r", 2: "r", _FIRST_FD: self.listening.fileno()}
        program = Program(argv)
        reactor.spawnProcess(program, argv[0], argv, env=os.environ, childFDs=descriptors)
        return program

    @property
    def waiting(self) -> int:
        """The number of connections that no program has accepted."""
        info = self.listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACCEPTABLE_AT + 4)
        return int(struct.unpack_from("I", info, _ACCEPTABLE_AT)[0])

    async def stop(self) -> None:
        await super().stop()
        self.listening.close()


class SocketUnitTests(TestCase):
    """A shell behind three programs."""

    starts = PROGRAMS
    exact = True

    async def test_clients_wait(self) -> None:
        """Requests and sessions that come before the next start are served after it; an open session is resumed."""
        deployment = SocketDeployment(self.mktemp())
        self.addCleanup(deployment.stop)
        await deployment.start()
        await deployment.create_machine("sh", "shell")
        user = await Typist.at(deployment.admin, "sh")
        self.addCleanup(user.leave)
        for turn, number in enumerate((signal.SIGTERM, signal.SIGKILL), 1):
            await deployment.api.stop(number)
            listing = deployment.client.list(MACHINES.resource, "default")
            opening = watch(deployment.admin, "sh")
            while deployment.waiting < 3:
                await pause()
            self.assertNoResult(listing)
            self.assertNoResult(opening)
            await deployment.start_api()
            self.assertEqual(len((await listing)["items"]), 1)
            screen = await opening
            await user.until_resumed(turn)
            user.type(b"echo turn''%d\n" % turn)
            await user.until_printed(rb"turn%d\r\n" % turn)
            await screen.until(rb"turn%d\r\n" % turn)
            await screen.leave()
        self.assertEqual((user.gaps, set(user.uncertain)), ([], {0}))
