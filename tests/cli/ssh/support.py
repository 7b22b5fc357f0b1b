"""
Stock ssh at a server of consoles.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import struct
import termios
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor

from tests import needs
from tests.cli.console.test_program_process import ConsoleProcess
from tests.flows.programs import script
from tests.kube.console_cases import ConsolesCase
from tests.tiers import PROGRAMS
from twisted_exec.cli.ssh.config import ssh_config
from twisted_exec.ssh.host_keys import host_key
from twisted_exec.testing.console import RecordingAttachment
from twisted_exec.wire.resize import TerminalSize

reactor: Any = _reactor


class SSHCase(ConsolesCase):
    """
    Runs ssh with the configuration that ``kubectl console --ssh-config`` prints.

    :ivar state: a directory for the host key and the configuration.
    """

    starts = PROGRAMS
    skip = needs.ssh()

    def setUp(self) -> Any:
        self.state = Path(self.mktemp()).absolute()
        self.state.mkdir()
        self.near = -1
        return super().setUp()

    def serve(self, attachment: RecordingAttachment, name: str = "default/vm") -> Any:
        self.consoles.machines[name] = lambda: attachment
        self.consoles.observers[name] = lambda: attachment
        return attachment

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "XDG_STATE_HOME": str(self.state)}

    def write_config(self, *, program: str = script("twisted-exec"), more: str = "") -> Path:
        """Write ssh's configuration; return its path."""
        key = host_key(str(self.state / "twisted-exec" / "ssh"))
        options = argparse.Namespace(kubeconfig=self.kubeconfig(), context=None, namespace=None)
        path = self.state / "config"
        path.write_text(ssh_config(program, options, key.known_hosts) + more)
        return path

    def ssh(
        self,
        *arguments: str,
        config: Path | None = None,
        size: TerminalSize | None = None,
        **env: str,
    ) -> ConsoleProcess:
        """
        Start ssh.

        :param size: of its terminal; ``None`` for pipes.
        """
        process = ConsoleProcess()
        program = shutil.which("ssh") or ""
        command = [program, "-F", str(config or self.write_config()), *arguments]
        environment = {**self.environment, "TERM": "xterm", **env}
        pty: Any = False
        if size is not None:
            far, near = os.openpty()
            resize(near, size)
            self.near, pty = os.dup(near), (far, near, os.ttyname(near))
        reactor.spawnProcess(process, program, command, env=environment, usePTY=pty)
        self.addCleanup(self._kill, process)
        return process

    def _close_near(self) -> None:
        if self.near >= 0:
            os.close(self.near)
            self.near = -1

    async def ends_on_terminal(self, process: ConsoleProcess) -> int:
        """Wait for the end, and for all output; return the exit code."""
        await process.exited
        self._close_near()
        return await process.ended

    def _kill(self, process: ConsoleProcess) -> Any:
        self._close_near()
        if process.ended.called:
            return None
        if not process.exited.called:
            process.signal(signal.SIGKILL)
        return process.ended  # behind the end of the proxy, which has the same standard error


def resize(terminal: int, size: TerminalSize) -> None:
    """Set the size of a terminal."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))
