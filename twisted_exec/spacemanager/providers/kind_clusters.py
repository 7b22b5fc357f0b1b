"""
Clusters of the ``kind`` program: runs and output of kind, settings, records and states.

Source: ``sigs.k8s.io/kind`` v0.32.0, ``pkg/cluster/internal/create/create.go``,
``pkg/apis/config/v1alpha4``.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from twisted_exec.api.spaces import OWNER
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    BadRequest,
    GatewayTimeout,
    Invalid,
    ServiceUnavailable,
    one_line,
)
from twisted_exec.api.yaml_reader import FILE, parse_yaml
from twisted_exec.control.runs import StoppingParts
from twisted_exec.program.process_groups import kill_group, leading
from twisted_exec.spacemanager.interfaces import Physical, ProviderSpec
from twisted_exec.spacemanager.providers.cluster import wrong_secret
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pki import write_private

PROGRAM = "kind"
MAX_OUT_BYTES = 1 << 20
MAX_STDERR_BYTES = 64 << 10
"""Limit for stderr; its end is kept, which has the error."""
AT_ONCE = 4
"""Limit for concurrent runs that read or delete, because each starts other programs."""

_MAKING = 'cd /; ulimit -f 16384; trap "" HUP; "$@"; echo $? > "$0.new" && mv -f "$0.new" "$0"'
"""
Script for ``sh -c``: run a program with a limit of 8 MiB for its output, and write its exit code
atomically to the file ``$0``.
"""


@dataclass(frozen=True)
class CompletedRun:
    """
    Result of a run.

    :param errors: the error on stderr, on one line.
    """

    code: int
    out: bytes = field(repr=False)
    errors: str


class KindCli:
    """
    Runs the program.

    Runs that read or delete belong to the manager: they and their process group end when they are
    cancelled or time out. A run that creates a cluster is independent: it survives the manager, and
    writes its exit code to a file.

    ``KUBECONFIG`` is never passed on, and every run that writes a kubeconfig gets a file of its
    own: otherwise kind writes to the user's file and switches its context.
    """

    def __init__(
        self, reactor: Any, environ: Mapping[str, str] | None = None, program: str = PROGRAM
    ) -> None:
        self._reactor, self._program = reactor, program
        around = os.environ if environ is None else environ
        self._environ = {key: value for key, value in around.items() if key != "KUBECONFIG"}
        self._room = DeferredSemaphore(AT_ONCE)
        self.running: set[_Run] = set()
        self._ending = StoppingParts()

    async def run(self, *words: str, seconds: float) -> CompletedRun:
        """
        Run the program and wait for its end.

        :raises ServiceUnavailable: the program cannot be started, or was ended by a signal.
        :raises GatewayTimeout: the run took too long, and was killed.
        :raises BadGateway: the output was too large.
        """
        waiting: Deferred[Any] = self._room.acquire()
        await waiting
        try:
            return await self._started(words, seconds)
        finally:
            self._room.release()

    async def _started(self, words: Sequence[str], seconds: float) -> CompletedRun:
        run = _Run(self._reactor, f"{self._program} {' '.join(words[:2])}", seconds)
        self._spawn(run, [self._path_of(self._program), *words], {0: _NOTHING, 1: "r", 2: "r"})
        self.running.add(run)
        self._ending.add(run.gone)
        try:
            return await run.ended
        finally:
            self.running.discard(run)

    def make(
        self, words: Sequence[str], code: str, log: str, lock: int, ended: Callable[[], None]
    ) -> int:
        """
        Run the program independently of the manager.

        :param code: file for the exit code.
        :param lock: descriptor that the run keeps open until all of it has ended.
        :return: the process group; 0 if the run has already ended.
        :raises ServiceUnavailable: the program cannot be started.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            prints = os.open(log, flags, 0o600)
        except OSError as problem:
            raise _not_started(self._program, problem) from None
        try:
            whole = [self._path_of("sh"), "-c", _MAKING, code, self._path_of(self._program), *words]
            group: int = self._spawn(
                _IndependentRun(ended), whole, {0: _NOTHING, 1: prints, 2: prints, 3: lock}
            )
            return group
        finally:
            os.close(prints)

    def close(self) -> Deferred[Any]:
        """Kill the manager's own runs; fires when their processes are gone."""
        for run in list(self.running):
            run.kill()
        return self._ending.over()

    def _path_of(self, program: str) -> str:
        path = shutil.which(program, path=self._environ.get("PATH", os.defpath))
        if path is None:
            raise ServiceUnavailable(
                f"the program {program} is not on PATH where the manager runs; install it there"
            )
        return path

    def _spawn(
        self, protocol: ProcessProtocol, words: Sequence[str], files: Mapping[int, Any]
    ) -> int:
        command = leading(words)
        try:
            nothing = os.open(os.devnull, os.O_RDONLY)
        except OSError as problem:
            raise _not_started(words[0], problem) from None
        descriptors = {
            number: nothing if file is _NOTHING else file for number, file in files.items()
        }
        try:
            # Without a working directory Twisted need not fork, which is four times as fast.
            transport = self._reactor.spawnProcess(
                protocol, command[0], command, env=self._environ, childFDs=descriptors
            )
        except OSError as problem:
            raise _not_started(words[0], problem) from None
        finally:
            os.close(nothing)
        pid: int | None = transport.pid
        return pid or 0  # the process may already have been reaped


def _not_started(program: str, problem: OSError) -> ServiceUnavailable:
    return ServiceUnavailable(
        f"{program} cannot be started: {problem.strerror}; see the limits of the manager"
    )


_NOTHING = object()


class _IndependentRun(ProcessProtocol):
    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended

    def processEnded(self, reason: Failure) -> None:
        self._ended()


class _Run(ProcessProtocol):
    def __init__(self, reactor: Any, title: str, seconds: float) -> None:
        self.ended: Deferred[CompletedRun] = Deferred(lambda _: self.kill())
        self.gone: Deferred[None] = Deferred()
        self._reactor, self._title, self._seconds = reactor, title, seconds
        self._out: list[bytes] = []
        self._size = 0
        self._stderr = b""
        self._limit: IDelayedCall | None = None

    def connectionMade(self) -> None:
        self._limit = self._reactor.callLater(self._seconds, self._too_slow)

    def outReceived(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > MAX_OUT_BYTES:
            message = f"{self._title} prints more than {MAX_OUT_BYTES >> 20} MiB; see what is installed as kind"
            self._give_up(BadGateway(message))
        else:
            self._out.append(data)

    def errReceived(self, data: bytes) -> None:
        self._stderr = (self._stderr + data)[-MAX_STDERR_BYTES:]

    def processEnded(self, reason: Failure) -> None:
        self._disarm()
        self.gone.callback(None)
        if self.ended.called:
            return
        value: Any = reason.value
        code = value.exitCode
        if code is None:
            self.ended.errback(
                ServiceUnavailable(f"{self._title} was ended by signal {value.signal}")
            )
            return
        self.ended.callback(CompletedRun(code, b"".join(self._out), error_of(self._stderr)))

    def kill(self) -> None:
        self._disarm()
        transport: Any = self.transport
        if transport is not None:
            if transport.pid is not None and not kill_group(transport.pid):
                os.kill(transport.pid, signal.SIGKILL)  # it has no process group yet
            # A process outside the group may hold the output open, and must not block us.
            transport.loseConnection()

    def _too_slow(self) -> None:
        self._limit = None
        message = (
            f"{self._title} did not end within {self._seconds:g} s; see whether docker answers"
        )
        self._give_up(GatewayTimeout(message))

    def _give_up(self, why: Exception) -> None:
        self._out.clear()
        self.kill()
        if not self.ended.called:
            self.ended.errback(why)

    def _disarm(self) -> None:
        limit, self._limit = self._limit, None
        if limit is not None:
            limit.cancel()


def error_of(stderr: bytes) -> str:
    """Return kind's error."""
    text = stderr.decode("utf-8", "replace")
    _before, mark, error = text.rpartition("ERROR: ")
    chosen = error if mark else text[-500:]
    return one_line(chosen)[:500]


IMAGE = "image"
"""Parameter: the image of the nodes."""
CONFIG_KEY, IMAGES_KEY, INTERNAL_KEY = "config", "images", "internal"
"""
Keys of the provider's Secret: a configuration of kind; patterns of images that Spaces may choose;
and ``true`` if the hub is in the network of the nodes (``docker network`` ``kind``).
"""
IMAGES = ("kindest/node:*", "kindest/node@sha256:*")
LONGEST_NAME = 50
"""kind warns of longer names, because host names contain them."""
API_VERSION = "kind.x-k8s.io/v1alpha4"
_MAX_CONFIG_BYTES = 64 << 10
_RULES = replace(FILE, values=5_000)  # it is parsed in the reactor

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}")


@dataclass(frozen=True)
class KindSettings:
    """
    Settings of a provider.

    A node of kind runs privileged, from an arbitrary image, with arbitrary mounts: Spaces may only
    choose among the images that the provider's owner allows.

    :param config: configuration for every cluster, without the name.
    :param internal: offer the control plane's name in the nodes' network as viewpoint ``InCluster``.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    images: Sequence[str] = IMAGES
    internal: bool = False


def kind_settings(spec: ProviderSpec) -> KindSettings:
    """
    Parse a provider's Secret.

    :raises Invalid: the Secret's content is not usable.
    """
    content = spec.secret or {}
    texts = {key: _text(spec, key, content[key]) for key in content}
    internal = texts.get(INTERNAL_KEY, "").strip() or "false"
    if internal not in ("true", "false"):
        raise _wrong(spec, INTERNAL_KEY, "it is neither true nor false")
    images = tuple(texts.get(IMAGES_KEY, "").split()) or IMAGES
    return KindSettings(_config(spec, texts.get(CONFIG_KEY, "")), images, internal == "true")


def _text(spec: ProviderSpec, key: str, value: bytes) -> str:
    if len(value) > _MAX_CONFIG_BYTES:
        raise _wrong(spec, key, f"it is larger than {_MAX_CONFIG_BYTES >> 10} KiB")
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise _wrong(spec, key, "it is no text") from None


def _config(spec: ProviderSpec, text: str) -> Mapping[str, Any]:
    try:
        config = parse_yaml(text, _RULES) if text.strip() else {}
        json.dumps(config, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise _wrong(spec, CONFIG_KEY, "it is no YAML that can be JSON") from None
    if not isinstance(config, dict):
        raise _wrong(spec, CONFIG_KEY, "a mapping is expected, with kind: Cluster")
    is_ours = config.get("kind", "Cluster") == "Cluster"
    if not is_ours or config.get("apiVersion", API_VERSION) != API_VERSION:
        raise _wrong(spec, CONFIG_KEY, f"its kind must be Cluster, its apiVersion {API_VERSION}")
    nodes = config.get("nodes") or []
    if not isinstance(nodes, list) or not all(_is_node(each) for each in nodes):
        raise _wrong(
            spec, CONFIG_KEY, "nodes must be a list of mappings, labels mappings of strings"
        )
    return {key: value for key, value in config.items() if key != "name"}


def _is_node(node: Any) -> bool:
    labels = (node.get("labels") or {}) if isinstance(node, dict) else None
    return isinstance(labels, dict) and all(isinstance(each, str) for each in labels.values())


def _wrong(spec: ProviderSpec, key: str, problem: str) -> APIError:
    return wrong_secret(spec, f'secret {spec.secret_ref}, key "{key}": {problem}')


def config_of(settings: KindSettings, owner: str) -> bytes:
    """Return the configuration of a cluster."""
    nodes = settings.config.get("nodes") or [{"role": "control-plane"}]
    marked = [{**node, "labels": {**(node.get("labels") or {}), OWNER: owner}} for node in nodes]
    # JSON is YAML, and json.dumps() is a safe writer.
    whole = {"kind": "Cluster", "apiVersion": API_VERSION, **settings.config, "nodes": marked}
    return json.dumps(whole).encode()


def image_of(settings: KindSettings, name: str, parameters: Mapping[str, str]) -> str:
    """
    Return the image that a Space chooses, or empty for kind's default.

    :raises BadRequest: the parameter is unknown, or the image is not allowed.
    """
    unknown = sorted(set(parameters) - {IMAGE})
    if unknown:
        raise BadRequest(
            f'cluster "{name}" cannot be made: spec.parameters: "{one_line(unknown[0])[:80]}" is not known to'
            f" providers of type kind; there is {IMAGE}"
        )
    image = parameters.get(IMAGE, "")
    if image and not (
        _IMAGE.fullmatch(image) and any(fnmatchcase(image, each) for each in settings.images)
    ):
        raise BadRequest(
            f'cluster "{name}" cannot be made: spec.parameters: {IMAGE} "{one_line(image)[:80]}" is not allowed;'
            f' allowed are {", ".join(settings.images)}, and more by the key "{IMAGES_KEY}" of the provider\'s Secret'
        )
    return image


def check_name(physical: Physical, *, new: bool = False) -> None:
    """
    Check the name of a cluster.

    :raises Invalid: it is not valid.
    """
    causes = []
    if not is_name(physical.name) or (new and len(physical.name) > LONGEST_NAME):
        problem = (
            f"a cluster's name has up to {LONGEST_NAME} lower case letters, digits, '.' and '-', and begins and"
            " ends with a letter or a digit"
        )
        causes.append({"field": "metadata.name", "message": problem})
    if physical.parent:
        problem = "providers of type kind have no places: leave the Space's path out"
        causes.append({"field": "metadata.annotations", "message": problem})
    if causes:
        raise Invalid("clusters", one_line(str(physical))[:80], causes)


def is_name(name: str) -> bool:
    """Return whether a name is valid for us. Kind itself also accepts ``..`` and ``-v``."""
    return len(name) <= 200 and _NAME.fullmatch(name) is not None


def listed_names(out: bytes) -> list[str]:
    """
    Return the clusters in the output of ``kind get clusters`` whose names are valid for us.

    :raises BadGateway: the output is something else.
    """
    lines = out.decode("utf-8", "replace").splitlines()
    if not all(re.fullmatch(r"[a-z0-9.-]{1,253}", line) for line in lines):
        raise BadGateway(
            "kind get clusters printed what are no names of clusters; see which program is called kind"
        )
    return sorted({line for line in lines if is_name(line)})


CREATING, MADE, DELETING = "creating", "made", "deleting"
_STATES = (CREATING, MADE, DELETING)
_RECORD, _LOCK = "record", "lock"
CONFIG, KUBECONFIG, CODE, LOG = "config", "kubeconfig", "code", "log"
LOG_BYTES = 64 << 10


@dataclass(frozen=True)
class ClusterRecord:
    """
    The record of one cluster.

    :param state: :data:`CREATING`, :data:`MADE` or :data:`DELETING`.
    :param group: process group of the creating run; 0 if unknown.
    :param began: seconds since the epoch.
    """

    owner: str
    state: str
    began: float
    group: int = 0
    uid: str = ""


@dataclass(frozen=True)
class ClusterCreation:
    """
    The run that creates a cluster.

    :param code: exit code; ``None`` without a regular end.
    """

    busy: bool
    code: int | None = None
    log: bytes = b""


class Records:
    """
    The records of a provider.

    kind knows the names of clusters, but not their owners, so a record with the owner is written
    before a cluster is created.

    ``lock`` is locked (``flock``) by the process that changes the cluster or its record, and by the
    run of kind that creates it.
    """

    def __init__(self, directory: str, step: Callable[[], None] = lambda: None) -> None:
        self._directory, self._step = directory, step

    def path(self, name: str, file: str) -> str:
        return os.path.join(self._directory, name, file)

    def names(self) -> list[str]:
        try:
            return sorted(os.listdir(self._directory))
        except FileNotFoundError:
            return []

    def read(self, name: str) -> ClusterRecord | None:
        """Return a record; ``None`` if it is missing or invalid."""
        try:
            with open(self.path(name, _RECORD), encoding="utf-8") as file:
                document = json.load(file)
            record = ClusterRecord(**document)
        except (OSError, ValueError, TypeError):
            return None
        texts = (record.owner, record.state, record.uid)
        numbers = (record.began, record.group)
        sound = all(isinstance(each, str) for each in texts) and all(
            isinstance(each, int | float) for each in numbers
        )
        return record if sound and record.state in _STATES else None

    def write(self, name: str, record: ClusterRecord) -> None:
        self._step()
        self.put(name, _RECORD, json.dumps(asdict(record)).encode())

    def put(self, name: str, file: str, content: bytes) -> None:
        """
        Write a file of a cluster, mode 0600.

        :raises ServiceUnavailable: the file cannot be written.
        """
        try:
            write_private(self.path(name, file), content)
        except TLSConfigError as problem:
            raise ServiceUnavailable(f"clusters of kind: {problem}; repair it") from None

    def attempt(self, name: str) -> ClusterCreation:
        try:
            descriptor = os.open(self.path(name, _LOCK), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return ClusterCreation(False)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return ClusterCreation(True)
        finally:
            os.close(descriptor)
        return ClusterCreation(False, self._code(name), self._log(name))

    def lock(self, name: str) -> int | None:
        """
        Lock a cluster; closing the descriptor unlocks it.

        :return: ``None`` if another process has the lock.
        :raises ServiceUnavailable: it cannot be locked.
        """
        try:
            return self._locked(name)
        except OSError as problem:
            raise ServiceUnavailable(
                f"clusters of kind: {self.path(name, _LOCK)} cannot be locked: {problem.strerror}; repair it"
            ) from None

    def _locked(self, name: str) -> int | None:
        while True:
            os.makedirs(os.path.join(self._directory, name), mode=0o700, exist_ok=True)
            try:
                descriptor = os.open(
                    self.path(name, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                )
            except FileNotFoundError:
                continue  # another process has just removed the directory
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            if self._is_current(name, descriptor):
                return descriptor
            os.close(descriptor)

    def clear(self, name: str) -> None:
        """Remove the files of the previous run.  The lock must be held."""
        self._step()
        for file in os.listdir(os.path.join(self._directory, name)):
            # A killed run leaves kind's own lock file, which would block the next run.
            if file not in (_LOCK, _RECORD):
                os.unlink(self.path(name, file))

    def forget(self, name: str) -> None:
        """Remove all files of a cluster, whose lock is held or which no process changes."""
        if not os.path.lexists(os.path.join(self._directory, name)):
            return
        self._step()
        # The record goes first: the rest has no meaning without it.
        for file in (_RECORD, ""):
            path = self.path(name, file)
            try:
                os.unlink(path) if file else shutil.rmtree(path)
            except OSError as problem:
                if problem.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                    raise

    def _is_current(self, name: str, descriptor: int) -> bool:
        try:
            there = os.stat(self.path(name, _LOCK))
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(descriptor))

    def _code(self, name: str) -> int | None:
        try:
            with open(self.path(name, CODE), encoding="ascii") as file:
                return int(file.read(20))
        except (OSError, ValueError):
            return None

    def _log(self, name: str) -> bytes:
        try:
            with open(self.path(name, LOG), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - LOG_BYTES))
                return file.read(LOG_BYTES)
        except OSError:
            return b""


ABSENT = "absent"
"""The cluster does not exist."""
OTHERS = "others'"
"""The cluster exists, and has no record."""
GROWING = "growing"
"""The cluster is being created."""
FAILED = "failed"
"""The creation failed or was interrupted."""
COMPLETE = "complete"
"""The cluster was created here, and exists."""
LEAVING = "leaving"
"""The cluster is being deleted."""

MAKING_SECONDS = 1800.0
"""Limit for a creation, which may have to pull the image first."""


@dataclass(frozen=True)
class ClusterState:
    """The state of a cluster."""

    which: str
    reason: str = ""
    message: str = ""
    forget: bool = False
    late: bool = False


def standing(
    record: ClusterRecord | None, attempt: ClusterCreation, listed: bool, now: float
) -> ClusterState:
    """
    Return the state of a cluster.

    :param attempt: the last creation, read before ``record``.
    :param listed: whether kind lists the cluster, requested after reading both.
    """
    if record is None:
        # A running creation has no record yet, so a listed cluster is not its result.
        return ClusterState(OTHERS if listed else ABSENT, forget=not attempt.busy)
    if record.state == CREATING and attempt.busy:
        late = now - record.began > MAKING_SECONDS
        return ClusterState(GROWING, "Creating", "kind is creating it", late=late)
    if record.state == CREATING and attempt.code != 0:
        return _not_made(attempt, listed)
    if not listed:
        return ClusterState(ABSENT, forget=not attempt.busy)
    if record.state == DELETING:
        return ClusterState(LEAVING)
    return ClusterState(COMPLETE)


def _not_made(attempt: ClusterCreation, listed: bool) -> ClusterState:
    if attempt.code is None:
        return ClusterState(FAILED, "Interrupted", "the creation was interrupted")
    if b"already exist" in attempt.log:
        # Another creator was faster, and owns the cluster.
        return ClusterState(OTHERS if listed else ABSENT, forget=True)
    detail = error_of(attempt.log) or f"exit code {attempt.code}"
    if listed:
        # kind removes the nodes of a failed creation, so this cluster is another's.  If the removal
        # fails too, the remains are indistinguishable from another creation under way.
        return ClusterState(OTHERS, forget=True)
    return ClusterState(FAILED, "CreateFailed", f"kind could not create it: {detail}")
