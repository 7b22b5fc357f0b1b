"""
Serving certificates that are signed through the API server.

The certificate names the program's addresses, and the signer compares them with the program's own
object, such as a pool or a Node.  So a new program starts with an untrusted self-signed
certificate, reports its addresses in that object, and then requests a certificate.  It requests
another one when its addresses change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from cryptography import x509
from OpenSSL import SSL
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.kinds.certificates import SERVER_AUTH
from twisted_exec.kube.credentials.signed_certificate import (
    DENIED_SECONDS,
    LOOK_SECONDS,
    SignedCertificate,
)
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pem import Address, server_name
from twisted_exec.tls.pki.authority import Authority, Issued, request_server

__all__ = ["DENIED_SECONDS", "LOOK_SECONDS", "ServingCertificate"]

_OWN_LIFE = timedelta(days=30)


class ServingCertificate(SignedCertificate):
    """
    A program's serving certificate, in the files ``tls.crt`` and ``tls.key``.

    Its names are the DNS names and IP addresses passed to :meth:`start`.

    :param directory: directory of the files, which is created if missing.
    :param now: seconds since the epoch.
    """

    what, purpose, usage = "serving certificate", "serving", SERVER_AUTH

    def __init__(
        self,
        client: IKubeClient,
        clock: IReactorTime,
        *,
        directory: str,
        name: str,
        group: str,
        label: str,
        now: Callable[[], float],
        signer: str,
    ) -> None:
        super().__init__(
            clock,
            directory=directory,
            stem="tls",
            name=name,
            group=group,
            label=label,
            now=now,
            signer=signer,
        )
        self._client = client
        self._names: Sequence[str] = ()

    def prepare(self) -> None:
        """
        Create a self-signed certificate if there is none, so that the program can listen.

        :raises TLSConfigError: the directory is not writable, or the name is too long for a
            certificate.
        """
        self.make_directory()
        try:
            # Both files, and matching: a crash between the two writes leaves a pair that OpenSSL refuses.
            chain, key = read_file(self.certificate), read_file(self.key)
            context = pem.new_context(SSL.TLS_SERVER_METHOD)
            pem.use_certificate(context, chain, key, self.certificate, self.key)
        except TLSConfigError:
            own = Authority.create(self._name[:64])
            self.install(own.issue_server(["localhost"], common_name=self._name, life=_OWN_LIFE))
            self.problem = "no certificate was signed yet"

    def start(self, names: Sequence[str]) -> None:
        """Request certificates when needed, until :meth:`stop`."""
        self._names = names
        self.run()

    def request(self) -> Issued:
        """As :meth:`SignedCertificate.request`."""
        return request_server(self._name, [self._group], self._names)

    def asking(self) -> IKubeClient:
        """As :meth:`SignedCertificate.asking`: the program's own client."""
        return self._client

    def shortcoming(self, certificate: x509.Certificate) -> str:
        """As :meth:`SignedCertificate.shortcoming`: the missing names."""
        return ", ".join(self._missing(certificate))

    def _missing(self, certificate: x509.Certificate) -> list[str]:
        """Return the names that a certificate lacks."""
        try:
            alternatives = certificate.extensions.get_extension_for_class(
                x509.SubjectAlternativeName
            )
        except (x509.ExtensionNotFound, ValueError):
            return list(self._names)
        names = alternatives.value
        # No client accepts a DNS name that is an address, so kinds are compared, too.
        has: set[object] = {name.lower() for name in names.get_values_for_type(x509.DNSName)}
        has.update(names.get_values_for_type(x509.IPAddress))
        return [name for name in self._names if _as_signed(name) not in has]


def _as_signed(name: str) -> Address | str:
    """Return a name or an address in the form that certificates use."""
    try:
        return server_name(name.lower())
    except TLSConfigError:
        return name
