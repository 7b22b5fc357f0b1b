"""
Trust in the host's front proxy and client CAs, from the host's ConfigMap.

Source: ``k8s.io/apiserver/pkg/server/options/authentication_dynamic_request_header.go`` and
``pkg/controlplane/controller/clusterauthenticationtrust`` of Kubernetes.

Until this server has read the ConfigMap ``kube-system/extension-apiserver-authentication``, it
cannot identify users, and answers 503. Later, an unusable ConfigMap changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from cryptography import x509
from prometheus_client import CollectorRegistry
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, ServiceUnavailable
from twisted_exec.auth.request_header import HeaderNames
from twisted_exec.control.backoff import FIRST_PAUSE_SECONDS, Backoff
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.queue import Again
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.program.metrics import state_gauge
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError

CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"

_CONFIG_MAP = f"the ConfigMap {NAMESPACE}/{NAME}"
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_MOST_NAMES = 256

_REMEDIES = {
    401: "see the user of --kubeconfig",
    403: f"bind its user to the role extension-apiserver-authentication-reader in {NAMESPACE}",
    404: "--kubeconfig must lead to a kube-apiserver",
}
"""Remedies for refusals, by code; a host that is starting refuses like this, too."""
_LONGEST_PAUSE_SECONDS = 5.0


class TrustError(Exception):
    """The host's settings cannot be used; the message has the remedy."""


@dataclass(frozen=True)
class RequestHeaderOverrides:
    """Settings that take precedence over the ConfigMap (``--requestheader-*``), where not empty."""

    names: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    uid: tuple[str, ...] = ()
    extra_prefix: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProxyTrust:
    """
    Trusted CAs and proxies.

    :param client_ca: PEM bundle of client CAs; empty disables client certificates.
    :param proxy_ca: PEM bundle of the CAs of proxies.
    :param names: common names of proxies; empty allows every certificate of ``proxy_ca``, which
        then must not sign users.
    """

    client_ca: bytes
    proxy_ca: bytes
    names: tuple[str, ...]
    headers: HeaderNames = field(default_factory=HeaderNames)
    warning: str = ""

    @property
    def authorities(self) -> bytes:
        """All CAs of acceptable client certificates, PEM."""
        return self.client_ca + self.proxy_ca


def trust_of(
    configmap: Mapping[str, Any], overrides: RequestHeaderOverrides | None = None
) -> ProxyTrust:
    """
    Return the trust settings in a ConfigMap.

    :raises TrustError: they are not usable, as when every user could impersonate everyone.
    """
    settings = overrides or RequestHeaderOverrides()
    data = configmap.get("data")
    data = data if isinstance(data, Mapping) else {}
    clients = _authorities(data, "client-ca-file")
    proxies = _authorities(data, "requestheader-client-ca-file")
    if not proxies:
        raise TrustError(
            f"{_CONFIG_MAP} has no requestheader-client-ca-file: start kube-apiserver with "
            "--requestheader-client-ca-file and --proxy-client-cert-file"
        )
    names = settings.names or _names(data, "requestheader-allowed-names")
    return ProxyTrust(
        pem.pem_of(clients),
        pem.pem_of(proxies),
        names,
        HeaderNames(
            settings.user or _headers(data, "requestheader-username-headers", needed=True),
            settings.group or _headers(data, "requestheader-group-headers"),
            settings.uid or _headers(data, "requestheader-uid-headers"),
            settings.extra_prefix or _headers(data, "requestheader-extra-headers-prefix"),
        ),
        _check_apart(clients, proxies, names),
    )


def is_header_name(text: str) -> bool:
    """Return whether the text is a valid header name, or prefix of one: RFC 9110 section 5.1."""
    return bool(_TOKEN.fullmatch(text))


def _authorities(data: Mapping[str, Any], key: str) -> list[x509.Certificate]:
    text = data.get(key) or ""
    if not text:
        return []
    try:
        return pem.certificates(str(text).encode("utf-8", "replace"), f"{key} of {_CONFIG_MAP}")
    except TLSConfigError as error:
        raise TrustError(str(error)) from None


def _names(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    try:
        words = json.loads(data.get(key) or "[]")
    except (ValueError, TypeError, RecursionError):
        words = None
    if not isinstance(words, list) or not all(isinstance(each, str) and each for each in words):
        raise TrustError(f"{key} of {_CONFIG_MAP} is not a JSON list of words")
    if len(words) > _MOST_NAMES:
        raise TrustError(f"{key} of {_CONFIG_MAP} has more than {_MOST_NAMES} words")
    return tuple(words)


def _headers(data: Mapping[str, Any], key: str, *, needed: bool = False) -> tuple[str, ...]:
    words = _names(data, key)
    for each in words:
        if not is_header_name(each):
            raise TrustError(f"{key} of {_CONFIG_MAP}: no header can be called {each[:64]!r}")
    if needed and not words:
        raise TrustError(f"{_CONFIG_MAP} has no {key}: requests of proxies would name no user")
    return words


def _check_apart(
    clients: list[x509.Certificate], proxies: list[x509.Certificate], names: tuple[str, ...]
) -> str:
    pairs = [(proxy, client) for proxy in proxies for client in clients]
    covered = any(_covers(*pair) for pair in pairs)
    # An intermediate CA below that of users signs users as well, whatever its purpose.
    if not names and (covered or any(_covers(client, proxy) for proxy, client in pairs)):
        raise TrustError(
            f"requestheader-allowed-names of {_CONFIG_MAP} is empty, and requestheader-client-ca-file "
            "also signs users: every user could speak for everyone; start kube-apiserver with "
            "--requestheader-allowed-names, and best with a CA of its own for proxies"
        )
    if not covered:
        return ""
    return (
        f"by {_CONFIG_MAP} one CA signs users and proxies: a user with a certificate for "
        f"{' or '.join(names)} can impersonate everyone; give proxies a CA of their own"
    )


def _covers(proxy: x509.Certificate, client: x509.Certificate) -> bool:
    """Return whether ``proxy`` also verifies certificates signed by ``client``."""
    return proxy == client or pem.is_key_of(proxy, client) or pem.has_issued(proxy, client)


class HostTrust(Service):
    """
    The trust settings of the host, kept current.

    :ivar problem: why the ConfigMap is not usable; empty if it is.
    """

    _log = Logger()

    def __init__(
        self,
        client: IKubeClient,
        clock: IReactorTime,
        overrides: RequestHeaderOverrides | None = None,
        metrics: CollectorRegistry | None = None,
    ) -> None:
        self._client, self._clock, self._overrides = client, clock, overrides
        self._trust: ProxyTrust | None = None
        self._waiting: list[Deferred[None]] = []
        self._loop = PokedLoop(
            self._look, clock, backoff=lambda: Backoff(longest_seconds=_LONGEST_PAUSE_SECONDS)
        )
        self.problem = ""
        self.changed: Callable[[], None] = lambda: None
        self._reflector = Reflector(
            client,
            CONFIGMAPS,
            clock,
            namespace=NAMESPACE,
            field_selector=f"metadata.name={NAME}",
            on_change=self._configmap_changed,
        )
        if metrics is not None:
            state_gauge(
                metrics,
                "twisted_exec_host_authentication_current",
                "1 while the host's authentication ConfigMap is known and usable.",
                lambda: self.is_current,
            )

    @property
    def is_known(self) -> bool:
        """Return whether there are settings in force."""
        return self._trust is not None

    @property
    def is_current(self) -> bool:
        """Return whether the settings in force are the host's current ones."""
        return self._trust is not None and not self.problem and not self._reflector.problem

    @property
    def current(self) -> ProxyTrust:
        """
        The settings in force.

        :raises ServiceUnavailable: they are not known yet.
        """
        if self._trust is None:
            # Without the reason, which may name users and addresses: the asker is unknown.
            message = "the host cluster has not said yet whom to trust; this server's log says why"
            raise ServiceUnavailable(message, retry_after_seconds=1)
        return self._trust

    def authorities(self) -> bytes:
        """As :attr:`ProxyTrust.authorities`; empty until they are known."""
        return b"" if self._trust is None else self._trust.authorities

    @property
    def headers(self) -> HeaderNames:
        """The headers of proxies; the usual ones until the host's are known."""
        return HeaderNames() if self._trust is None else self._trust.headers

    async def begin(self) -> None:
        """
        Read the ConfigMap once, if the host returns it.

        :raises TrustError: it is unusable.
        """
        try:
            configmap = await self._client.get(CONFIGMAPS, NAME, NAMESPACE)
        except APIError as error:
            why = _explained(error)
            if why != self.problem:
                self._log.warn("waiting for the host cluster: {why}", why=why)
            self.problem = why
        else:
            self._take(trust_of(configmap, self._overrides))

    def when_known(self) -> Deferred[None]:
        """Fires when the settings are known; fails with :class:`TrustError` if they are unusable."""
        if self._trust is not None:
            return succeed(None)
        waiting: Deferred[None] = Deferred(self._waiting.remove)
        self._waiting.append(waiting)
        return waiting

    def startService(self) -> None:
        super().startService()
        self._loop.start(FIRST_PAUSE_SECONDS if self._trust is None else 0.0)

    def stopService(self) -> Deferred[None]:
        super().stopService()
        return self._loop.stop().addCallback(lambda _: self._reflector.stop())

    async def _look(self) -> float:
        """Read the settings, until there are some to follow."""
        if self._trust is None:
            try:
                await self.begin()
            except TrustError as error:
                self._refuse(error)
                return inf
        if self._trust is None:
            raise Again
        self._reflector.start()
        return inf

    def _refuse(self, error: TrustError) -> None:
        self.problem = str(error)
        self._log.error("the host cluster's settings are unusable: {why}", why=self.problem)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.errback(error)

    def _configmap_changed(self, before: Object | None, after: Object | None) -> None:
        try:
            if after is None:
                raise TrustError(f"the ConfigMap {NAMESPACE}/{NAME} was deleted")
            self._take(trust_of(after, self._overrides))
        except TrustError as error:
            self.problem = str(error)
            self._log.error("the trusted CAs and proxies stay unchanged: {why}", why=self.problem)

    def _take(self, trust: ProxyTrust) -> None:
        is_awaited, self.problem = self._trust is None and bool(self.problem), ""
        if trust == self._trust:
            return
        if trust.warning:
            self._log.warn("{warning}", warning=trust.warning)
        if self._trust is not None:
            self._log.info("the host cluster changed the trusted CAs and proxies")
        elif is_awaited:
            self._log.info("the host cluster has answered: the trusted CAs and proxies are known")
        self._trust = trust
        self.changed()
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)


def _explained(error: APIError) -> str:
    remedy = _REMEDIES.get(error.code)
    if remedy is None:
        return error.message
    return (
        f"it does not return the ConfigMap {NAMESPACE}/{NAME} to this server ({error.message}); "
        f"unless it is starting, {remedy}"
    )
