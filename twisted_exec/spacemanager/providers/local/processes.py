"""
Processes of local spaces, and their state on disk.

A process (:class:`ProcessRun`) stops when its standard input ends.  So it ends with its manager,
however that ends: the kernel closes the pipe.

The state on disk (:class:`Store`) says which spaces exist, and which process may run them:

=====================  =========================================================================
``lock``               locked (flock) by the provider that runs the spaces; its process ID
``records/NAME.json``  one for each space, written before anything is done for it
``spaces/UID/``        all else of a space: its state directory, kubeconfig and log
=====================  =========================================================================

The data of a space is under its UID, so a reused name never finds remains of an earlier space.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import shutil
import signal
import socket
import sys
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

import twisted_exec
from twisted_exec.api import names
from twisted_exec.api.status import APIError, BadRequest, ServiceUnavailable, one_line
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pki import write_private
from twisted_exec.tls.unix import private_directory

LOWEST = 20000
_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


class NoFreePort(ServiceUnavailable):
    """All ports for spaces are in use."""


def free_port(used: Collection[int], ports: range | None = None) -> int:
    """
    Return a free loopback port.

    :param used: ports of spaces that may not be running.
    :param ports: permitted ports; by default those from :data:`LOWEST` to below :func:`highest`.
    :raises NoFreePort: none is free.
    """
    ports = ports or range(LOWEST, highest())
    for port in random.sample(ports, len(ports)):
        if port not in used and _is_free(port):
            return port
    raise NoFreePort(
        f"local spaces: no free port from {ports[0]} to {ports[-1]} on 127.0.0.1; delete a Space,"
        " stop other programs there, or give a larger --space-port-range"
    )


def highest() -> int:
    """Return the first port beyond the default range."""
    try:
        with open(_RANGE, encoding="ascii") as file:
            lowest_given = int(file.read(64).split()[0])
    except (OSError, ValueError, IndexError):
        lowest_given = 32768
    return lowest_given if lowest_given > LOWEST + 1000 else 32768


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


PROGRAM = "exec-standalone"
STOP_SECONDS = 10.0
"""Timeout for ending sessions and machines before the process is killed."""
_LOOK_SECONDS = 0.02
_LONGEST_LOG = 1 << 20
_TAIL_BYTES = 8 << 10
_ERROR_LEVELS = ("warn", "error", "critical")
# The format of Twisted's textFileLogObserver.
_LOGGED = re.compile(r"\S+ \[[^]]*#(?P<level>[a-z]+)\] (?P<message>.*)")
# "PROGRAM: message" or "Exception: message"; further lines of one message are indented.
_WRITTEN = re.compile(r"[\w.-]+: \S")
_KEPT_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "XDG_RUNTIME_DIR")


def argv(state_directory: str, port: int, client_ca: str = "") -> list[str]:
    """Return the command line of a space's process."""
    # In a process group of its own, and without a pidfile: see the module.
    module = "twisted_exec.spacemanager.providers.local.child"
    options = ["--without-demo", "--without-spaces", "--with-parent", "--drain-seconds", "2"]
    options.append("--no-keep-machines")  # nothing of a deleted Space may be left
    where = ["--state-dir", state_directory, "--port", str(port)]
    if client_ca:
        where += ["--client-ca-file", client_ca]
    return [sys.executable, "-m", module, PROGRAM, *where, *options]


def environment(ours: Mapping[str, str] = os.environ) -> dict[str, str]:
    """
    Return the environment of the process, without variables that may be secret or are meant for the
    manager.
    """
    variables = {name: ours[name] for name in _KEPT_VARIABLES if name in ours}
    variables |= {name: value for name, value in ours.items() if name.startswith(("LC_", "PYTHON"))}
    # The same installation of this program, wherever it was started from.
    root = os.path.dirname(os.path.dirname(os.path.abspath(twisted_exec.__file__)))
    path = [root, *filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))]
    return {**variables, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, path))}


class ProcessRun(ProcessProtocol):
    """
    One run of a process.

    :ivar how: how it ended, in words; empty while it runs.
    """

    transport: Any
    _log = Logger()

    def __init__(self, log: str, reactor: Any) -> None:
        self._path, self._reactor = log, reactor
        self.how = ""
        self._waiting: list[Deferred[str]] = []
        self._killing: IDelayedCall | None = None

    def start(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """
        Start the process.

        :raises OSError: the process cannot be started.
        """
        log = open_log(self._path)
        try:
            self._reactor.spawnProcess(
                self,
                argv[0],
                list(argv),
                env=dict(env),
                path="/",
                childFDs={0: "w", 1: log, 2: log},
            )
        finally:
            os.close(log)

    @property
    def pid(self) -> int | None:
        """Process ID."""
        return None if self.how else self.transport.pid

    def ended(self) -> Deferred[str]:
        """Return a Deferred that fires with how the process ended."""
        waiting: Deferred[str] = Deferred(self._waiting.remove)
        self._waiting.append(waiting)
        if self.how:
            self._tell()
        return waiting

    def until(self, true: Callable[[], bool], seconds: float) -> Deferred[bool]:
        """
        Wait for a condition.  Fires with ``False`` if the process ends first, or after a timeout.
        """
        deadline = self._reactor.seconds() + seconds
        waiting: Deferred[bool] = Deferred(lambda _: call[0].cancel())
        call: list[IDelayedCall] = []

        def look() -> None:
            if self.how or true() or self._reactor.seconds() > deadline:
                waiting.callback(not self.how and true())
            else:
                call[:] = [self._reactor.callLater(_LOOK_SECONDS, look)]

        look()
        return waiting

    def stop(self) -> Deferred[str]:
        """Stop the process; fires when it has ended."""
        if not self.how and self._killing is None:
            self.transport.closeStdin()
            self._signal(signal.SIGTERM)
            self._killing = self._reactor.callLater(STOP_SECONDS, self.kill)
        return self.ended()

    def kill(self) -> None:
        if self.how or self.transport.pid is None:
            return
        try:
            os.killpg(self.transport.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has no process group yet
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.transport.pid is not None:
            os.kill(self.transport.pid, number)

    def trim(self) -> None:
        try:
            if os.path.getsize(self._path) > _LONGEST_LOG:
                os.truncate(self._path, 0)
        except OSError:
            pass  # there is no log

    def processExited(self, reason: Failure) -> None:
        if self._killing is not None and self._killing.active():
            self._killing.cancel()
        self.how = _how(reason, self._path)
        self._tell()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(self.how)


def _how(reason: Failure, log: str) -> str:
    value: Any = reason.value
    if value.signal is not None:
        return f"killed by signal {value.signal} ({_signal_name(value.signal)})"
    how, error = f"exited with code {value.exitCode}", last_error(log)
    return f"{how}: {error}" if error and value.exitCode else how


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return signal.strsignal(number) or "unknown"


def open_log(path: str) -> int:
    """Open a log file for a new run, without the output of earlier runs."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)


def last_error(path: str) -> str:
    """Return the last message of a log that explains a failure, or empty."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - _TAIL_BYTES))
            tail = file.read(_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    errors = (_error_in(line) for line in reversed(tail.splitlines()))
    return one_line(next(filter(None, errors), "").removeprefix(f"{PROGRAM}: "))


def _error_in(line: str) -> str:
    if logged := _LOGGED.match(line):
        return logged["message"] if logged["level"] in _ERROR_LEVELS else ""
    return line if _WRITTEN.match(line) else ""


LOCK, RECORDS, SPACES = "lock", "records", "spaces"
_SUFFIX = ".json"
_LONGEST_RECORD = 64 << 10


@dataclass(frozen=True)
class SpaceRecord:
    """
    A space that runs or must be started, or that is being deleted.

    :param uid: of the physical space, and name of its directory.
    :param port: of its API server, or 0 until one was chosen.
    :param damaged: why nothing is known but the name.
    """

    name: str
    uid: str
    owner: str = ""
    port: int = 0
    made: bool = False
    going: bool = False
    damaged: str = ""

    @property
    def physical(self) -> Physical:
        return Physical(self.name)


def new_record(name: str, owner: str, port: int = 0) -> SpaceRecord:
    """Return the record of a new space."""
    return SpaceRecord(name, str(uuid.uuid4()), owner, port)


def checked(physical: Physical) -> str:
    """
    Return the name of a valid physical space.

    :raises BadRequest: the name or parent is impossible.
    """
    name = ascii(physical.name[:80])
    if physical.parent:
        where = ascii(physical.parent[:80])
        raise BadRequest(
            f"local space {name}: there is no place {where}, local spaces are all in one;"
            " take the annotation kubestellar.io/space-path away"
        )
    if wrong := names.dns_label(physical.name):
        raise BadRequest(f"local space {name}: its name {wrong[0]}")
    return physical.name


class Store:
    """The directory of one provider.  Call :meth:`open` first."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = -1
        self._seen: dict[str, tuple[tuple[int, int, int], SpaceRecord]] = {}

    # Ownership.

    def open(self) -> None:
        """
        Lock the directory, or check that it is still the same.

        :raises ServiceUnavailable: the directory is not usable.
        """
        try:
            if self._lock < 0:
                private_directory(self.path)
                self._take_lock()
                private_directory(os.path.join(self.path, RECORDS))
                private_directory(os.path.join(self.path, SPACES))
                self._clear()
            self._check_there()
        except (OSError, TLSConfigError) as error:
            self.close()
            why = error.strerror if isinstance(error, OSError) else error
            raise ServiceUnavailable(
                f"local spaces: {self.path} cannot be used: {why}; give it back, or free it"
            ) from None

    def is_ours(self) -> bool:
        try:
            self._check_there()
        except (OSError, ServiceUnavailable):
            return False
        return True

    def close(self) -> None:
        """Release the lock."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def _take_lock(self) -> None:
        path = os.path.join(self.path, LOCK)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
            os.close(lock)
            by = f"process {holder}" if holder.isdigit() else "another process"
            raise ServiceUnavailable(
                f"local spaces: {self.path} is in use by {by}; stop that one, or wait until it lets go"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % os.getpid(), 0)
        self._lock = lock

    def _clear(self) -> None:
        for name in os.listdir(os.path.join(self.path, RECORDS)):
            if name.startswith("."):
                _unlink(os.path.join(self.path, RECORDS, name))

    def _check_there(self) -> None:
        if self._lock < 0:
            raise ServiceUnavailable("local spaces: closed")
        ours = os.fstat(self._lock)
        try:
            status = os.stat(os.path.join(self.path, LOCK))
        except OSError:  # for example, the directory is a file now
            status = None
        if status is None or (status.st_dev, status.st_ino) != (ours.st_dev, ours.st_ino):
            raise ServiceUnavailable(
                f"local spaces: {self.path} is not there any more, or is another one;"
                " put it back (is its file system mounted?), or restart the manager"
            )

    # Reading.

    def records(self) -> dict[str, SpaceRecord]:
        """Return all records by name, sorted."""
        records: dict[str, tuple[tuple[int, int, int], SpaceRecord]] = {}
        try:
            with os.scandir(os.path.join(self.path, RECORDS)) as entries:
                for entry in entries:
                    name = entry.name.removesuffix(_SUFFIX)
                    if not entry.name.startswith(".") and name != entry.name:
                        records[name] = self._read(name, entry)
        except OSError as error:
            raise ServiceUnavailable(
                f"local spaces: {self.path}/{RECORDS} cannot be read: {error.strerror}; repair it"
            ) from None
        self._seen = records
        return {name: records[name][1] for name in sorted(records)}

    def stamp(self) -> int:
        """Return a number that changes when a record is written or removed."""
        self._check_there()
        try:
            return os.stat(os.path.join(self.path, RECORDS)).st_mtime_ns
        except OSError as error:
            raise ServiceUnavailable(f"local spaces: {self.path}: {error.strerror}") from None

    def _read(self, name: str, entry: os.DirEntry[str]) -> tuple[tuple[int, int, int], SpaceRecord]:
        status = entry.stat(follow_symlinks=False)
        stamp = status.st_ino, status.st_mtime_ns, status.st_size
        cached = self._seen.get(name)
        if cached is not None and cached[0] == stamp and not cached[1].damaged:
            return cached
        return stamp, _parse(name, entry.path)

    def home(self, record: SpaceRecord, *parts: str) -> str:
        assert record.uid, (
            record
        )  # a damaged record has no UID, and must not mean the parent directory
        return os.path.join(self.path, SPACES, record.uid, *parts)

    def has_home(self, record: SpaceRecord) -> bool:
        return os.path.isdir(self.home(record))

    # Changing.  Each method raises ServiceUnavailable on failure.

    def write(self, record: SpaceRecord) -> None:
        value = {
            key: item for key, item in asdict(record).items() if key not in ("name", "damaged")
        }
        self.write_file(
            os.path.join(self.path, RECORDS, record.name + _SUFFIX), json.dumps(value).encode()
        )

    def remove(self, record: SpaceRecord) -> None:
        self._change(_unlink, os.path.join(self.path, RECORDS, record.name + _SUFFIX))

    def make_home(self, record: SpaceRecord) -> None:
        self._change(private_directory, self.home(record))

    def remove_home(self, record: SpaceRecord) -> None:
        self._change(_remove_tree, self.home(record))

    def write_file(self, path: str, content: bytes) -> None:
        self._change(write_private, path, content)

    def remove_file(self, path: str) -> None:
        self._change(_unlink, path)

    def _change(self, act: Any, *args: Any) -> None:
        self.step()
        self._check_there()
        try:
            act(*args)
        except (OSError, TLSConfigError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ServiceUnavailable(f"local spaces: {args[0]}: {why}; repair it") from None

    def step(self) -> None:
        """Hook for tests, called before each change."""


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _remove_tree(path: str) -> None:
    """Rename a tree, then remove it: a partial one must not be taken for a space."""
    removed = f"{path}.gone"
    if os.path.lexists(path):
        os.replace(path, removed)
    if os.path.lexists(removed):
        shutil.rmtree(removed)


def _parse(name: str, path: str) -> SpaceRecord:
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read(_LONGEST_RECORD))
        return _read_record(name, document)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, APIError):
        return SpaceRecord(
            name, "", damaged=f"{path} cannot be read; put it right, or take it away"
        )


def _read_record(name: str, document: Mapping[str, Any]) -> SpaceRecord:
    checked(Physical(name))
    uid, owner, port = document["uid"], document.get("owner", ""), document.get("port", 0)
    is_valid = isinstance(owner, str) and isinstance(port, int) and 0 <= port < 65536
    if not is_valid or str(uuid.UUID(uid)) != uid:  # it names a directory
        raise ValueError
    return SpaceRecord(
        name, uid, owner, port, document.get("made") is True, document.get("going") is True
    )
