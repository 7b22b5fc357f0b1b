"""
Our programs, forked instead of started: most CPU time of a start is imports.

A *nursery*, one process for each process that runs tests, has imported our programs and holds neither a reactor nor
a thread. It forks each program: the child gets the command's arguments, environment, directory and
descriptors, runs the console script, and is a child of the process that runs the tests, not of the nursery.

What a fork cannot show is tested with the real command line: starts and imports.

In forks no hop cuts a session because the next one is late: the reason of its end passes, however busy the
machine is.  Those limits are tested with the test's clock (:mod:`tests.streaming.proxy.test_endings`).
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # As a console script has it; this file's directory must not hide any module.
    sys.path[0] = os.path.dirname(sys.executable)

import ctypes
import io
import json
import runpy
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any

SCRIPTS = ("twistd", "kubectl-console", "twisted-exec")
_MODULES = [
    "twisted.scripts.twistd",
    "twisted.application.app",
    "twisted.plugin",
    "twisted.internet.endpoints",
    "twisted_exec.cli.main",
    "twisted_exec.cli.console.main",
    "twisted_exec.cli.console.machine",
    "twisted_exec.apiserver.tap",
    "twisted_exec.poollet.tap",
    "twisted_exec.runtimes.tap",
    "twisted_exec.runtimes.machinebroker.tap",
    "twisted_exec.nodeserver.tap",
    "twisted_exec.spacemanager.tap",
    "twisted_exec.standalone.tap",
]
_READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "GRPC_", "OPENSSL_", "MALLOC_")
"""Variables that the interpreter and libraries read before any code of ours runs."""
_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 15, 36
_SIZE = struct.Struct("!I")
_END_SECONDS = 600.0
_PATIENCE_SECONDS = 600.0
enabled = True
"""Whether programs are forked where a test does not demand a real start."""


def prctl(option: int, value: object) -> None:
    """Set an attribute of this process; see prctl(2)."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def script_directory() -> str:
    """Return the directory of the console scripts of this environment."""
    return os.path.dirname(sys.executable)


def can_fork(argv: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether a fork does what the command line would do."""
    directory, name = os.path.split(argv[0])
    if not enabled or not sys.platform.startswith("linux") or name not in SCRIPTS:
        return False
    if directory != script_directory():
        return False
    return _read_at_start(environment) == _read_at_start(os.environ)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environment.items() if name.startswith(_READ_AT_START)}


class Nursery:
    """
    The process that forks programs; it ends with this one.

    :param modules: what the programs import.
    :param environment: is added to this process's, for modules that read it when they are imported.
    """

    def __init__(
        self, modules: Sequence[str] = _MODULES, environment: Mapping[str, str] | None = None
    ) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), *modules],
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def close(self) -> None:
        """End the process; programs that it has forked run on."""
        self._socket.close()
        self._process.wait(_END_SECONDS)

    def fork(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        directory: str | None,
        descriptors: Sequence[int],
        *,
        terminal: bool,
    ) -> int:
        """
        Fork a program.

        :param descriptors: standard input, output and error.
        :param terminal: they are a terminal, which will be the program's controlling terminal.
        :return: its process id; it is a child of this process.
        """
        sys.audit("tests.program", argv[0])
        request = {
            "argv": list(argv),
            "environment": dict(environment),
            "directory": directory or os.getcwd(),
            "terminal": terminal,
        }
        body = json.dumps(request).encode()
        # The fork's parent ends at once. The kernel then gives the fork to this process.
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        try:
            socket.send_fds(self._socket, [_SIZE.pack(len(body))], list(descriptors))
            self._socket.sendall(body)
            return int(_SIZE.unpack(_read(self._socket, _SIZE.size))[0])
        finally:
            prctl(_PR_SET_CHILD_SUBREAPER, 0)


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError("the process that forks programs has ended")
        data += more
    return data


_nurseries: dict[int, Nursery] = {}


def nursery() -> Nursery:
    """Return this process's nursery."""
    pid = os.getpid()
    if pid not in _nurseries:
        _nurseries[pid] = Nursery()
    return _nurseries[pid]


def _import(modules: Sequence[str]) -> None:
    import importlib

    for name in modules:
        importlib.import_module(name)
    if "twisted.plugin" in modules:
        from twisted.application.service import IServiceMaker
        from twisted.plugin import getPlugins

        list(getPlugins(IServiceMaker))
    if "twisted.internet.reactor" in sys.modules or threading.active_count() > 1:
        raise RuntimeError("what the programs import has installed a reactor or started a thread")


def _be_patient() -> None:
    """Wait long for the next hop when a session ends."""
    if "twisted_exec.streaming.proxy" in sys.modules:
        from twisted_exec.streaming.http import session_requests
        from twisted_exec.streaming.proxy import Proxy

        session_requests.SILENCE_SECONDS = _PATIENCE_SECONDS
        Proxy.__init__.__kwdefaults__["end_seconds"] = _PATIENCE_SECONDS


def _serve(connection: socket.socket) -> dict[str, Any] | None:
    """
    Fork programs until the tests end.

    :return: in a fork what to run; ``None`` at the end.
    """
    while True:
        try:
            head, descriptors, _, _ = socket.recv_fds(connection, _SIZE.size, 3)
        except ConnectionError:
            return None
        if not head:
            return None
        head += _read(connection, _SIZE.size - len(head))
        request: dict[str, Any] = json.loads(_read(connection, _SIZE.unpack(head)[0]))
        number, begin = os.pipe(), os.pipe()
        parent = os.fork()
        if not parent:
            pid = os.fork()
            if pid:
                os.write(number[1], _SIZE.pack(pid))
                os._exit(0)
            # Begin when the parent is the process that runs the tests.
            os.close(begin[1])
            os.read(begin[0], 1)
            for each in (*number, begin[0]):
                os.close(each)
            connection.close()
            request["descriptors"] = descriptors
            return request
        pid = os.read(number[0], _SIZE.size)
        os.waitpid(parent, 0)  # wait: the process ends by itself
        for each in (*number, *begin, *descriptors):
            os.close(each)
        connection.sendall(pid)


def _become(request: dict[str, Any]) -> str:
    """Let this process look as if it had been started; :return: the console script."""
    argv = request["argv"]
    if request["terminal"]:
        os.setsid()
    for number, descriptor in enumerate(request["descriptors"]):
        os.dup2(descriptor, number)
    for descriptor in request["descriptors"]:
        if descriptor > 2:
            os.close(descriptor)
    if request["terminal"]:
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[:] = argv
    sys.path[0] = os.path.dirname(argv[0])
    sys.orig_argv[:] = [sys.executable, *argv]
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        old = getattr(sys, name)
        buffering = 1 if name == "stderr" else -1
        new = open(  # noqa: SIM115
            number, mode, buffering, encoding=old.encoding, errors=old.errors, closefd=False
        )
        if name == "stdout" and "PYTHONUNBUFFERED" in os.environ:
            new = io.TextIOWrapper(
                io.FileIO(number, "w", closefd=False),  # type: ignore[arg-type]
                encoding=old.encoding,
                errors=old.errors,
                write_through=True,
            )
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    prctl(_PR_SET_NAME, os.path.basename(argv[0]).encode()[:15])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return str(argv[0])


def _main(descriptor: int, *modules: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import(modules)
    _be_patient()
    import gc

    gc.collect()
    gc.freeze()
    request = _serve(socket.socket(fileno=descriptor))
    if request is not None:
        runpy.run_path(_become(request), run_name="__main__")


if __name__ == "__main__":
    _main(int(sys.argv[1]), *sys.argv[2:])
