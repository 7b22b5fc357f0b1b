"""
Who is asking, behind a host: whom its proxies speak for, who has a certificate of its users' CA,
whose token it knows.

The host's ConfigMap says whom to believe (:mod:`.trust`).  It is read before anything is served, and
followed from then on: CAs and names rotate without a restart.  What cannot be used changes nothing;
the last that could stays, which is told in the log and by a metric.  Sessions know nothing of
it: they are who they were when they were opened, and may what they may now.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.status import APIError
from twisted_exec.apiserver.aggregated.trust import (
    CONFIGMAPS,
    NAME,
    NAMESPACE,
    Overrides,
    Trust,
    TrustError,
    trust_of,
)
from twisted_exec.auth.credentials import PresentedCredentials
from twisted_exec.auth.interfaces import IAuthenticator, User
from twisted_exec.auth.request_header import RequestHeaderAuthenticator
from twisted_exec.auth.x509 import X509Authenticator
from twisted_exec.kube.informers.reflector import Backoff, Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.wire.upgrade import HeaderSet

_REFUSED = (
    "the host cluster does not let this server read the ConfigMap {where} ({why}): bind its user "
    "to the role extension-apiserver-authentication-reader in {namespace}"
)
_LONGEST_PAUSE_SECONDS = 5.0


class HostTrust(Service):
    """
    Whom the host says to believe, as it says it now.

    :param overrides: what goes before the ConfigMap.
    :ivar problem: why the ConfigMap as it is cannot be used; empty when it can.
    :ivar changed: called when somebody else is to be believed.
    """

    _log = Logger()

    def __init__(
        self,
        client: IKubeClient,
        clock: IReactorTime,
        overrides: Overrides | None = None,
        metrics: CollectorRegistry | None = None,
    ) -> None:
        self._client, self._clock, self._overrides = client, clock, overrides
        self._trust: Trust | None = None
        self.problem = ""
        self.changed: Callable[[], None] = lambda: None
        self._reflector = Reflector(
            client,
            CONFIGMAPS,
            clock,
            namespace=NAMESPACE,
            field_selector=f"metadata.name={NAME}",
            on_change=self._told,
        )
        if metrics is not None:
            gauge = Gauge(
                "twisted_exec_host_authentication_current",
                "1 while the host's ConfigMap of whom to believe is known and can be used.",
                registry=metrics,
            )
            gauge.set_function(lambda: float(self.is_current))

    @property
    def is_current(self) -> bool:
        """Whether what is believed is what the host says now."""
        return self._trust is not None and not self.problem and not self._reflector.problem

    @property
    def current(self) -> Trust:
        """Whom to believe; there is one once :meth:`begin` has returned."""
        assert self._trust is not None
        return self._trust

    def authorities(self) -> bytes:
        """All CAs of which clients may show certificates, PEM."""
        return self.current.authorities

    async def begin(self) -> None:
        """
        Ask for the first time, for as long as the host is down.

        :raises TrustError: the host refuses, or what it says cannot be used.
        """
        backoff, told = Backoff(longest_seconds=_LONGEST_PAUSE_SECONDS), ""
        while True:
            try:
                found = await self._client.get(CONFIGMAPS, NAME, NAMESPACE)
                break
            except APIError as error:
                if error.code in (401, 403, 404):
                    raise TrustError(_refusal(error)) from None
                if error.message != told:
                    self._log.warn("waiting for the host cluster: {why}", why=error.message)
                told = error.message
            await deferLater(self._clock, backoff.pause())
        self._take(trust_of(found, self._overrides))

    def startService(self) -> None:
        """Follow the ConfigMap."""
        super().startService()
        self._reflector.start()

    def stopService(self) -> Deferred[None]:
        """Follow it no longer; fires when nothing is under way."""
        super().stopService()
        return self._reflector.stop()

    def _told(self, before: Object | None, after: Object | None) -> None:
        try:
            if after is None:
                raise TrustError(f"the ConfigMap {NAMESPACE}/{NAME} was deleted")
            self._take(trust_of(after, self._overrides))
        except TrustError as error:
            self.problem = str(error)
            self._log.error("whom to believe stays as it was: {why}", why=self.problem)

    def _take(self, trust: Trust) -> None:
        self.problem = ""
        if trust == self._trust:
            return
        if trust.warning:
            self._log.warn("{warning}", warning=trust.warning)
        if self._trust is not None:
            self._log.info("the host cluster says anew whom to believe")
        self._trust = trust
        self.changed()


def _refusal(error: APIError) -> str:
    if error.code == 404:
        return (
            f"the host cluster has no ConfigMap {NAMESPACE}/{NAME}: --kubeconfig must lead to a "
            "kube-apiserver"
        )
    why = error.message
    if error.code == 401:
        return f"the host cluster does not know this server ({why}): see the user of --kubeconfig"
    return _REFUSED.format(where=f"{NAMESPACE}/{NAME}", why=why, namespace=NAMESPACE)


@implementer(IAuthenticator)
class HostAuthenticator:
    """
    Knows users as servers behind a kube-apiserver do: by a proxy's headers, then by certificate,
    then by token.  Nobody is anonymous.

    :param tokens: knows whose a bearer token is.
    """

    def __init__(self, trust: HostTrust, tokens: IAuthenticator, clock: IReactorTime) -> None:
        self._trust, self._tokens, self._clock = trust, tokens, clock
        self._believed: Trust | None = None

    def _understood(self) -> None:
        trust = self._trust.current
        if trust is not self._believed:
            self._believed, ca = trust, trust.client_ca
            self._users = X509Authenticator(ca, self._clock) if ca else None
            self._proxies = RequestHeaderAuthenticator(
                trust.proxy_ca,
                trust.names,
                self._clock,
                names=trust.headers,
                any_name=not trust.names,
            )

    @property
    def credential_headers(self) -> HeaderSet:
        """As :attr:`IAuthenticator.credential_headers`: what proxies call them now."""
        return self._trust.current.headers.headers

    def authenticate(self, credentials: PresentedCredentials) -> Deferred[User | None]:
        """As :meth:`IAuthenticator.authenticate`."""
        return Deferred.fromCoroutine(self._authenticate(credentials))

    async def _authenticate(self, credentials: PresentedCredentials) -> User | None:
        self._understood()
        users, proxies = self._users, self._proxies
        user = await proxies.authenticate(credentials)
        if user is None and users is not None:
            user = await users.authenticate(credentials)
        return user if user is not None else await self._tokens.authenticate(credentials)
