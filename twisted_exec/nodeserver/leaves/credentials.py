"""
Credentials of a leaf, from a file, a Secret, a Cluster or a Space.

Invalid credentials leave the last valid ones in force; deleting a Secret, or the kubeconfig of a
Cluster, withdraws them. A kubeconfig from the root is data only
(:func:`~twisted_exec.kube.kubeconfig.loader.load_inline`), and must not name files and programs as
one from a file may.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.kinds.secrets import SECRETS, value_of
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.kubeconfig.loader import load_inline
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig
from twisted_exec.nodeserver.leaves.spec import (
    Kubeconfig,
    KubeconfigData,
    KubeconfigFile,
    KubeconfigSecret,
    KubeconfigSpace,
)

LOOK_SECONDS = 1.0
"""Interval of attempts to read an invalid file again."""


class LeafCredentials:
    """
    The current configuration for one leaf.

    :ivar gone: why the leaf was removed, or empty.
    """

    problem = ""
    gone = ""

    def __init__(self) -> None:
        self._changed: Callable[[], None] = lambda: None

    def current(self) -> ClientConfig:
        """
        Return the configuration for the next request.

        :raises ServiceUnavailable: there is no valid one.
        """
        raise ServiceUnavailable(self.problem)

    def start(self, changed: Callable[[], None]) -> None:
        """Watch the source; ``changed`` is called when a retry is worthwhile."""
        self._changed = changed

    def stop(self) -> Deferred[None]:
        """Stop; fires when nothing is under way."""
        return succeed(None)

    def reread(self, refused: ClientConfig) -> Deferred[bool]:
        """See :data:`~twisted_exec.kube.late_credentials.Reread`."""
        return succeed(False)


class FileCredentials(LeafCredentials):
    """A kubeconfig file of any form."""

    def __init__(self, source: KubeconfigFile, clock: IReactorTime) -> None:
        super().__init__()
        self._source, self._clock = source, clock
        self._followed: ReloadingConfig | None = None
        self._next_look = 0.0
        self._open()

    def current(self) -> ClientConfig:
        if self._followed is None and self._clock.seconds() >= self._next_look:
            self._open()
        if self._followed is None:
            raise ServiceUnavailable(self.problem)
        return self._followed.current()

    def _open(self) -> None:
        self._next_look = self._clock.seconds() + LOOK_SECONDS
        try:
            self._followed = ReloadingConfig(self._source.path, self._source.context or None)
            self.problem = ""
        except KubeConfigError as error:
            self.problem = str(error)


class DataCredentials(LeafCredentials):
    """
    A kubeconfig given as constant data.

    :param before: earlier credentials of the same leaf, which stay in force if these are invalid,
        but not if the source has none any more.
    """

    _log = Logger()

    def __init__(self, source: KubeconfigData, before: LeafCredentials | None = None) -> None:
        super().__init__()
        self.problem, self._config = source.problem, None
        if not self.problem:
            self._config, self.problem = _read(source.content, source.source)
        if self._config is None and source.is_given and isinstance(before, DataCredentials):
            self._keep(before)

    def _keep(self, before: DataCredentials) -> None:
        if before._config is not None:
            self._log.warn("keeping the credentials from before: {why}", why=self.problem)
            self._config, self.problem = before._config, ""

    def current(self) -> ClientConfig:
        if self._config is None:
            raise ServiceUnavailable(self.problem)
        return self._config


class SecretCredentials(LeafCredentials):
    """
    A kubeconfig in a Secret of the root, watched by name.

    :param client: of the root; it may ``get``, ``list`` and ``watch`` this Secret.
    """

    _log = Logger()

    def __init__(self, source: KubeconfigSecret, client: IKubeClient, clock: IReactorTime) -> None:
        super().__init__()
        self._source = source
        self._config: ClientConfig | None = None
        self._wrong = ""
        self._reflector = Reflector(
            client,
            SECRETS.resource,
            clock,
            namespace=source.namespace,
            field_selector=f"metadata.name={source.name}",
            on_change=self._read,
        )

    @property
    def problem(self) -> str:  # type: ignore[override]
        if self._config is not None:
            return ""
        if self._reflector.problem and not self._reflector.synced:
            return f"{self._source} cannot be read: {self._reflector.problem}"
        if not self._reflector.synced:
            return f"{self._source} was not read yet"
        return self._wrong or f"{self._source} does not exist; create it, with {self._key_hint}"

    @property
    def _key_hint(self) -> str:
        return f'the leaf\'s kubeconfig under the key "{self._source.key}"'

    def current(self) -> ClientConfig:
        if self._config is None:
            raise ServiceUnavailable(self.problem)
        return self._config

    def start(self, changed: Callable[[], None]) -> None:
        super().start(changed)
        self._reflector.start()

    def stop(self) -> Deferred[None]:
        return self._reflector.stop()

    def _read(self, _: Object | None, secret: Object | None) -> None:
        if secret is None:
            self._config, self._wrong = None, ""
        else:
            self._take(value_of(secret, self._source.key))
        self._changed()

    def _take(self, content: bytes | None) -> None:
        if content is None:
            config, wrong = None, f"{self._source} does not have {self._key_hint}"
        else:
            config, wrong = _read(content, str(self._source), self._source.context)
        if config is not None:
            self._config = config
        elif self._config is not None and wrong != self._wrong:
            self._log.warn("keeping the credentials from before: {why}", why=wrong)
        self._wrong = wrong


class LeafSpaceCredentials(LeafCredentials):
    """Credentials of a leaf that is a Space."""

    def __init__(self, source: KubeconfigSpace) -> None:
        super().__init__()
        self._source = source

    @property
    def problem(self) -> str:  # type: ignore[override]
        return str(self._source.space.problem)

    @property
    def gone(self) -> str:  # type: ignore[override]
        return self._source.gone

    def current(self) -> ClientConfig:
        return self._source.space.config()

    def start(self, changed: Callable[[], None]) -> None:
        super().start(changed)
        self._source.follow(changed)

    def stop(self) -> Deferred[None]:
        self._source.follow(lambda: None)
        return succeed(None)

    def reread(self, refused: ClientConfig) -> Deferred[bool]:
        return self._source.space.reread(refused)


def _read(content: bytes, source: str, context: str = "") -> tuple[ClientConfig | None, str]:
    try:
        return load_inline(content, source, context or None), ""
    except KubeConfigError as error:
        return None, str(error)


def credentials(
    source: Kubeconfig,
    root: IKubeClient,
    clock: IReactorTime,
    before: LeafCredentials | None = None,
) -> LeafCredentials:
    """Return the credentials object for a leaf's kubeconfig."""
    if isinstance(source, KubeconfigFile):
        return FileCredentials(source, clock)
    if isinstance(source, KubeconfigSecret):
        return SecretCredentials(source, root, clock)
    if isinstance(source, KubeconfigSpace):
        return LeafSpaceCredentials(source)
    return DataCredentials(source, before)
