"""
The client certificate of a poollet, signed by way of its API server.

A poollet without a valid certificate requests one with its bootstrap kubeconfig.

As in kubelets: ``pkg/kubelet/certificate/bootstrap`` of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from cryptography import x509
from cryptography.x509.oid import NameOID
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds.certificates import CLIENT_AUTH
from twisted_exec.api.status import APIError, Unauthorized
from twisted_exec.control.polling import until
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.kubeconfig.client_config import (
    ClientConfig,
    ImpersonatedUser,
    KubeConfigError,
    Material,
)
from twisted_exec.kube.kubeconfig.connection import tls
from twisted_exec.kube.kubeconfig.reloading import ReloadingFiles
from twisted_exec.kube.signed_certificates import SignedCertificate
from twisted_exec.tls.pki.requests import CertificateRequest, request_client

SIGNER = "kubernetes.io/kube-apiserver-client"

_LOOK_SECONDS = 0.2


class ClientCertificate(SignedCertificate):
    """
    The poollet's client certificate, as ``client.crt`` and ``client.key``.

    :param beginning: returns the bootstrap kubeconfig; its credentials are used only while there is
        no valid certificate.
    :param client_of: creates a client from a function that returns the current configuration.
    :param now: seconds since the epoch.
    """

    what, purpose, usage = "client certificate", "client", CLIENT_AUTH

    def __init__(
        self,
        beginning: Callable[[], ClientConfig],
        client_of: Callable[[Callable[[], ClientConfig]], IKubeClient],
        clock: IReactorTime,
        *,
        directory: str,
        dialect: Dialect,
        pool: str,
        now: Callable[[], float],
    ) -> None:
        super().__init__(
            clock,
            directory=directory,
            stem="client",
            name=dialect.pool_identity(pool),
            group=dialect.pool_identity_group,
            label=pool,
            now=now,
            signer=SIGNER,
        )
        self._beginning, self._files = beginning, ReloadingFiles()
        self._clients = {True: client_of(self.config), False: client_of(beginning)}

    @property
    def client(self) -> IKubeClient:
        """Client with the certificate; unusable before :meth:`when_known` fires."""
        return self._clients[True]

    def config(self) -> ClientConfig:
        own = replace(
            self._beginning(),
            certificate=Material(path=self.certificate),
            key=Material(path=self.key),
            token="",
            token_file="",
            username="",
            password="",
            plugin=None,
            impersonate=ImpersonatedUser(),
        )
        return self._files.current(own)

    def start(self) -> None:
        """
        Request and renew the certificate until :meth:`stop`.

        :raises TLSConfigError: the directory cannot be created, or the pool's name is no valid
            subject.
        """
        self.make_directory()
        self.request()
        self.run()

    def when_known(self) -> Deferred[None]:
        """Return a Deferred that fires once there is a certificate."""

        # It may be valid only some time after it was installed.
        known = until(self._is_good, self._clock, _LOOK_SECONDS)
        return Deferred.fromCoroutine(known).addCallback(lambda _: None)

    async def close(self) -> None:
        for client in self._clients.values():
            close = getattr(client, "close", None)
            if close is not None:
                await close()

    def request(self) -> CertificateRequest:
        return request_client(self._name, [self._group])

    def asking(self) -> IKubeClient:
        """See :meth:`SignedCertificate.asking`: with the certificate while it is valid."""
        return self._clients[self._is_good()]

    def shortcoming(self, certificate: x509.Certificate) -> str:
        """See :meth:`SignedCertificate.shortcoming`: the certificate names another subject."""
        names = [
            str(each.value)
            for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        ]
        return "" if names == [self._name] else self._name

    def explained(self, problem: APIError) -> str:
        if problem.code != Unauthorized.code:
            return problem.message
        return (
            f"{problem.message}: the API server does not accept the credentials of "
            "--bootstrap-kubeconfig; create a new token with twisted-exec token create"
        )

    def _is_good(self) -> bool:
        certificate = self.installed()
        if certificate is None:
            return False
        try:
            tls(self.config())
        except KubeConfigError:
            return False
        now = datetime.fromtimestamp(self._now(), UTC)
        return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc
