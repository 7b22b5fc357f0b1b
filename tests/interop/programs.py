"""
Programs that a test starts: each in one private directory, with a log, ended in reverse.

Most are not ours, and few of them take port 0 or say when they are ready; so what they need of a
free port and of waiting for an answer is here, once. Ours are forks (:mod:`tests.flows.forks`).
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.flows import forks

START_SECONDS = 180.0


class _ForkedProcess(subprocess.Popen[bytes]):
    """A program of ours that :mod:`tests.flows.forks` forks."""

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *others):  # type: ignore[no-untyped-def]
        standard_input, standard_output, standard_error = others[3], others[6], others[8]
        standard = [standard_input, standard_output, standard_error]
        self.pid = forks.nursery().fork(args, env, str(cwd), standard, terminal=False)
        self._child_created = True


class Programs:
    """
    Programs of one trial, and their directory.

    :param keep: leave the directory, with its logs, to whoever wants to look.
    """

    def __init__(self, prefix: str, *, keep: bool = False) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=prefix))
        self.keep = keep
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._started: dict[str, tuple[tuple[str, ...], dict[str, str] | None]] = {}

    def path(self, name: str) -> str:
        """A file of the directory."""
        return str(self.directory / name)

    def write(self, name: str, text: str, mode: int = 0o600) -> str:
        """A file with this text; :return: its path."""
        path = self.directory / name
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    def run(
        self, name: str, *argv: str, env: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start one; what it prints goes to ``NAME.log``."""
        environment = {**os.environ, **(env or {})}
        start = _ForkedProcess if forks.can_fork(argv, environment) else subprocess.Popen
        with open(self.path(f"{name}.log"), "ab") as log:
            process = start(
                argv,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )
        self._running.append((name, process))
        self._started[name] = argv, env
        return process

    def restart(self, name: str, *, kill: bool = True) -> None:
        """Kill or stop a program, and start it again as before."""
        entry = next(entry for entry in self._running if entry[0] == name)
        self._running.remove(entry)
        (entry[1].kill if kill else entry[1].terminate)()
        entry[1].wait()
        argv, env = self._started[name]
        self.run(name, *argv, env=env)

    def log(self, name: str) -> str:
        """Return the output of the program so far."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def pid(self, name: str) -> int:
        """Of one that runs."""
        return next(process.pid for found, process in self._running if found == name)

    def is_running(self, name: str) -> bool:
        """Return whether the program was started and not yet ended by us."""
        return any(found == name for found, _process in self._running)

    def ends(self, name: str) -> Callable[[], bool]:
        """One will end by itself: that is no fault any more. :return: says whether it has."""
        (entry,) = [entry for entry in self._running if entry[0] == name]
        self._running.remove(entry)
        return lambda: entry[1].poll() is not None

    def until(self, what: str, true: Callable[[], object], seconds: float = START_SECONDS) -> None:
        """
        Wait for a condition that a foreign program brings about.

        :raises AssertionError: it did not, or a program ended; with the ends of the logs.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if true():
                return
            ended = [name for name, process in self._running if process.poll() is not None]
            if ended:
                raise AssertionError(f"{what}: {ended} ended: {self._tails()}")
            time.sleep(0.2)
        raise AssertionError(f"{what}: not in {seconds:.0f} s: {self._tails()}")

    def _tails(self) -> str:
        return "\n".join(
            f"--- {name}\n{self.log(name)[-1500:]}" for name, _process in self._running
        )

    def end(self, name: str) -> None:
        """End one, and wait for it."""
        for entry in [entry for entry in self._running if entry[0] == name]:
            self._running.remove(entry)
            _end(entry[1])

    def stop(self) -> None:
        """End all, the last one first, and forget the directory."""
        for _name, process in reversed(self._running):
            _end(process)
        self._running.clear()
        if not self.keep:
            shutil.rmtree(self.directory, ignore_errors=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    """Return a port that is free now, for programs that do not accept port 0."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def answers(url: str, ca: str | None = None, cert: tuple[str, str] | None = None) -> bool:
    """Return whether a GET is answered with 200."""
    context = None
    if url.startswith("https:"):
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            context.load_cert_chain(*cert)
    try:
        with urllib.request.urlopen(url, context=context, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
