"""
The certificate by which a poollet is known to its API server, when it gets it from there.

A poollet that has none yet asks with what it was given to begin with, such as a bootstrap
token: that need not be good for anything else, nor for long.  From then on it is itself, and renews
the certificate as itself.  Only when that has ended, as after a long time off, the beginning is
needed once more.

As kubelets do it: ``pkg/kubelet/certificate/bootstrap`` of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds.certificates import CLIENT_AUTH
from twisted_exec.api.status import APIError, Unauthorized
from twisted_exec.kube.credentials.signed_certificate import SignedCertificate
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.kubeconfig.client_config import (
    ClientConfig,
    Impersonation,
    KubeConfigError,
    Material,
)
from twisted_exec.kube.kubeconfig.reloading import ReloadingFiles
from twisted_exec.kube.transport.connection import tls
from twisted_exec.tls.pki.authority import Issued, request_client

SIGNER = "kubernetes.io/kube-apiserver-client"

_LOOK_SECONDS = 0.2


class ClientCertificate(SignedCertificate):
    """
    What a poollet is known by, as ``client.crt`` and ``client.key``.

    :param beginning: the API server, and who we are as long as there is no certificate.
    :param client_of: makes a client of a configuration that is asked for each time.
    :param directory: where the files are; made when it is missing.
    :param now: seconds since the epoch.
    """

    what, purpose, usage = "client certificate", "client", CLIENT_AUTH

    def __init__(
        self,
        beginning: Callable[[], ClientConfig],
        client_of: Callable[[Callable[[], ClientConfig]], IKubeClient],
        clock: Any,
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
        """Of who has the certificate; of no use before :meth:`when_known`."""
        return self._clients[True]

    def config(self) -> ClientConfig:
        """The API server, and the certificate that there is."""
        own = replace(
            self._beginning(),
            certificate=Material(path=self.certificate),
            key=Material(path=self.key),
            token="",
            token_file="",
            username="",
            password="",
            plugin=None,
            impersonate=Impersonation(),
        )
        return self._files.current(own)

    def start(self) -> None:
        """
        Ask when need be, until :meth:`stop`.

        :raises TLSConfigError: the directory cannot be made, or the pool cannot be named.
        """
        self.make_directory()
        self.request()
        self.run()

    def when_known(self) -> Deferred[None]:
        """Fires when there is a certificate; may be cancelled."""

        async def known() -> None:
            while not self._is_good():
                await deferLater(self._clock, _LOOK_SECONDS)

        return Deferred.fromCoroutine(known())

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            close = getattr(client, "close", None)
            if close is not None:
                await close()

    def request(self) -> Issued:
        """As :meth:`SignedCertificate.request`."""
        return request_client(self._name, [self._group])

    def asking(self) -> IKubeClient:
        """As :meth:`SignedCertificate.asking`: as ourselves, if anybody knows us."""
        return self._clients[self._is_good()]

    def shortcoming(self, certificate: x509.Certificate) -> str:
        """As :meth:`SignedCertificate.shortcoming`: whom it does not name."""
        names = [
            str(each.value)
            for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        ]
        return "" if names == [self._name] else self._name

    def explained(self, problem: APIError) -> str:
        """As :meth:`SignedCertificate.explained`."""
        if problem.code != Unauthorized.code:
            return problem.message
        return (
            f"{problem.message}: the API server does not know whom --bootstrap-kubeconfig names; "
            "twisted-exec token create makes a new one"
        )

    def _is_good(self) -> bool:
        """Whether somebody who is asked would know us by what is there."""
        certificate = self.found()
        if certificate is None:
            return False
        try:
            tls(self.config())
        except KubeConfigError:
            return False
        now = datetime.fromtimestamp(self._now(), UTC)
        return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc
