"""
Configurations with the credentials of their exec plugins.

A plugin runs once for all waiting requests.  Its credential is kept in memory, at most until it
expires or a server rejects it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from twisted_exec.kube.kubeconfig.client_config import ClientConfig, ImpersonatedUser, Material

if TYPE_CHECKING:
    from twisted_exec.kube.kubeconfig.plugin import Credential

_KEPT = 64


def settled(
    config: ClientConfig, reactor: Any, *, interactive: bool = False
) -> Deferred[ClientConfig]:
    """
    Return the configuration with a credential in place of its plugin.

    :return: fails with :class:`~twisted_exec.kube.kubeconfig.client_config.KubeConfigError`.
    """
    if not config.needs_plugin:
        return succeed(config)
    fresh = _plugins.of(config, reactor).credential(interactive=interactive)
    return fresh.addCallback(lambda credential: _with(config, credential))


def renewed(
    config: ClientConfig, reactor: Any, refused: ClientConfig
) -> Deferred[ClientConfig | None]:
    """
    Get another credential from the plugin after a server answered 401.

    :param refused: the result of :func:`settled` that the server rejected.
    :return: fires with the configuration to try instead, or ``None``; fails as :func:`settled`.
    """
    if not config.needs_plugin:
        return succeed(None)
    asking = _plugins.of(config, reactor).renewed(
        lambda credential: _with(config, credential) == refused
    )

    def other(credential: Credential) -> ClientConfig | None:
        renewed = _with(config, credential)
        return None if renewed == refused else renewed

    return asking.addCallback(other)


def _with(config: ClientConfig, credential: Credential) -> ClientConfig:
    assert config.plugin is not None
    source = f" of {config.credentials_source}" if config.credentials_source else ""
    return replace(
        config,
        plugin=None,
        token=credential.token,
        certificate=Material(data=credential.certificate),
        key=Material(data=credential.key),
        credentials_source=f"the plugin {config.plugin.command}{source}",
        expires=credential.expires.timestamp() if credential.expires is not None else None,
    )


class PluginCredentials:
    """The credentials of one plugin for one server."""

    def __init__(
        self,
        config: ClientConfig,
        reactor: Any,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._config, self._reactor, self._now = config, reactor, now
        self._held: Credential | None = None
        self._running: Deferred[Credential] | None = None
        self._waiting: list[Deferred[Credential]] = []

    def credential(self, *, interactive: bool = False) -> Deferred[Credential]:
        """
        Return a valid credential, from the cache or from the plugin.

        Cancelling kills the plugin if no other request waits for it.
        """
        held = self._held
        if held is not None and (held.expires is None or self._now() < held.expires):
            return succeed(held)
        waiting: Deferred[Credential] = Deferred(self._gave_up)
        self._waiting.append(waiting)
        if self._running is None:
            self._run(interactive)
        return waiting

    def renewed(self, is_refused: Callable[[Credential], bool]) -> Deferred[Credential]:
        """As :meth:`credential`, but never one that a server has rejected."""
        if self._held is not None and is_refused(self._held):
            self._held = None
        return self.credential()

    def _run(self, interactive: bool) -> None:
        from twisted_exec.kube.kubeconfig.plugin import run_plugin

        assert self._config.plugin is not None
        self._running = asking = run_plugin(
            self._config.plugin, self._config, self._reactor, interactive=interactive
        )
        asking.addCallbacks(self._succeeded, self._failed)

    def _succeeded(self, credential: Credential) -> None:
        self._held, self._running = credential, None
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.called:  # an earlier one may have cancelled it
                each.callback(credential)

    def _failed(self, failure: Failure) -> None:
        self._running = None
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.called:  # as above
                each.errback(failure)

    def _gave_up(self, waiting: Deferred[Credential]) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)
        if not self._waiting and self._running is not None:
            self._running.cancel()


class _Plugins:
    def __init__(self) -> None:
        self._known: OrderedDict[Any, PluginCredentials] = OrderedDict()

    def of(self, config: ClientConfig, reactor: Any) -> PluginCredentials:
        # Plugins do not get impersonation and namespace, so these do not belong to the cache key.
        key_config = replace(config, namespace="", impersonate=ImpersonatedUser(), source="")
        key = (key_config, id(reactor))
        credentials = self._known.get(key)
        if credentials is None:
            credentials = self._known[key] = PluginCredentials(key_config, reactor)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return credentials


_plugins = _Plugins()
