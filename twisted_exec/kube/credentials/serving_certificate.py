"""
The certificate that a program shows, when it gets it from the API server.

A certificate names where the program is reached, and a signer looks that up in the object that the
program reports itself in, such as a pool or a Node: so one that has none yet begins with one that it
signed itself, which nobody trusts, reports its addresses, and asks.  It asks again when the addresses are others.
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
from twisted_exec.tls.pem import server_name
from twisted_exec.tls.pki.authority import Authority, Issued, request_server

__all__ = ["DENIED_SECONDS", "LOOK_SECONDS", "ServingCertificate"]

_OWN_LIFE = timedelta(days=30)


class ServingCertificate(SignedCertificate):
    """
    What a program shows to those who connect, as ``tls.crt`` and ``tls.key``.

    Its names, DNS names and IP addresses where it is reached, are known by :meth:`start`
    at the latest.

    :param directory: where the files are; made when it is missing.
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
        See to it that there is something to listen with.

        :raises TLSConfigError: the directory cannot be written, or nobody of that name can be certified.
        """
        self.make_directory()
        try:
            # Of both, and together: a program that died between writing one and the other left a
            # pair that nobody can listen with.
            chain, key = read_file(self.certificate), read_file(self.key)
            context = pem.new_context(SSL.TLS_SERVER_METHOD)
            pem.present(context, chain, key, self.certificate, self.key)
        except TLSConfigError:
            own = Authority.create(self._name[:64])
            self.install(own.issue_server(["localhost"], common_name=self._name, life=_OWN_LIFE))
            self.problem = "no certificate was signed yet"

    def start(self, names: Sequence[str]) -> None:
        """Ask when need be, until :meth:`stop`."""
        self._names = names
        self.run()

    def request(self) -> Issued:
        """As :meth:`SignedCertificate.request`."""
        return request_server(self._name, [self._group], self._names)

    def asking(self) -> IKubeClient:
        """As :meth:`SignedCertificate.asking`: as the program itself."""
        return self._client

    def shortcoming(self, certificate: x509.Certificate) -> str:
        """As :meth:`SignedCertificate.shortcoming`: the names that it has not."""
        return ", ".join(self._missing(certificate))

    def _missing(self, certificate: x509.Certificate) -> list[str]:
        """The names that a certificate has not."""
        try:
            alternatives = certificate.extensions.get_extension_for_class(
                x509.SubjectAlternativeName
            )
        except (x509.ExtensionNotFound, ValueError):
            return list(self._names)
        names = alternatives.value
        has = {name.lower() for name in names.get_values_for_type(x509.DNSName)}
        has |= {str(address) for address in names.get_values_for_type(x509.IPAddress)}
        return [name for name in self._names if _as_signed(name) not in has]


def _as_signed(name: str) -> str:
    """An address as certificates have it, however it was given."""
    try:
        return str(server_name(name.lower()))
    except TLSConfigError:
        return name
