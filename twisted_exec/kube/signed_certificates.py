"""
Certificates that are signed through the API server, and renewed before they expire.

A signer may compare the names in a serving certificate with the program's own object, such as a
pool. So a new program starts with a self-signed certificate, reports its addresses in that object,
and then requests a certificate.
"""

from __future__ import annotations

import base64
import hashlib
import os
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from OpenSSL import SSL
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.conditions import condition_of
from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS
from twisted_exec.api.kinds.certificates import (
    DENIED,
    DIGITAL_SIGNATURE,
    FAILED,
    SERVER_AUTH,
    certificate_of,
)
from twisted_exec.api.status import APIError, Forbidden, NotFound
from twisted_exec.control.backoff import Backoff
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.queue import Again
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pem import Address, server_name
from twisted_exec.tls.pki.authority import Authority, Issued
from twisted_exec.tls.pki.requests import CertificateRequest, request_server

__all__ = [
    "CLOCK_SECONDS",
    "DENIED_SECONDS",
    "LOOK_SECONDS",
    "ServingCertificate",
    "SignedCertificate",
]


LOOK_SECONDS = 3600.0
"""Longest time between two checks of the certificate."""
DENIED_SECONDS = 900.0
CLOCK_SECONDS = 86400.0
"""A certificate that begins later than this from now is of no use."""
_LONGEST_PAUSE_SECONDS = 60.0
_LONGEST_WAIT_SECONDS = 15.0
"""Longest pause between two looks whether a request is signed."""
_RENEW_FIRST, _RENEW_LAST = 0.7, 0.9
"""Renewal happens after a random part of the certificate's life, between these two."""

_OWN_LIFE = timedelta(days=30)


@dataclass(frozen=True)
class _Request:
    """A request to sign a certificate, with the name of its object."""

    name: str
    request: CertificateRequest


class SignedCertificate(ABC):
    """
    Certificate and key in a directory, renewed before they expire.

    :param now: seconds since the epoch.
    :cvar usage: key usage besides signatures.
    """

    _log = Logger()
    what = ""
    purpose = ""
    usage = ""

    def __init__(
        self,
        clock: IReactorTime,
        *,
        directory: str,
        stem: str,
        name: str,
        group: str,
        label: str,
        now: Callable[[], float],
        signer: str,
    ) -> None:
        self._clock, self._now = clock, now
        self._directory, self._signer = directory, signer
        self._name, self._group, self._label = name, group, label
        self.certificate = os.path.join(directory, f"{stem}.crt")
        self.key = os.path.join(directory, f"{stem}.key")
        self._part = random.uniform(_RENEW_FIRST, _RENEW_LAST)
        self.problem = ""
        """Why there is no trusted certificate, or why it is not renewed yet; or empty."""
        self._request: _Request | None = None
        """The request that waits for its signature."""
        self._loop = PokedLoop(
            self._look,
            clock,
            refused=self._refused,
            backoff=lambda: Backoff(longest_seconds=_LONGEST_PAUSE_SECONDS),
        )

    @abstractmethod
    def request(self) -> CertificateRequest:
        """Return a new key and a request for its certificate."""

    @abstractmethod
    def shortcoming(self, certificate: x509.Certificate) -> str:
        """Return the reason to replace a certificate early; may be empty."""

    @abstractmethod
    def asking(self) -> IKubeClient:
        """Return the client to send requests with."""

    def explained(self, problem: APIError) -> str:
        return problem.message

    def make_directory(self) -> None:
        """
        Create the directory.

        :raises TLSConfigError: it cannot be created.
        """
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
        except OSError as problem:
            raise TLSConfigError(f"cannot make {self._directory!r}: {problem.strerror}") from None

    def run(self) -> None:
        """Request certificates when needed, until :meth:`stop`."""
        self._request = None
        self._loop.start()

    def stop(self) -> Deferred[None]:
        """Stop; fires when nothing is under way."""
        return self._loop.stop()

    async def _look(self) -> float:
        left = self._good_for()
        if left <= 0:
            try:
                await self._renew()
            except Forbidden as refused:
                self._request = None
                self._tell(refused.message)
                return DENIED_SECONDS
            except (TLSConfigError, KubeConfigError) as problem:
                self._request = None
                self._tell(str(problem))
                raise Again from None
            left = self._good_for()
        return min(left, LOOK_SECONDS)

    def _refused(self, error: APIError, failures: int) -> None:
        self._tell(self.explained(error))

    def installed(self) -> x509.Certificate | None:
        """Return the installed certificate if it and its key are usable and signed."""
        try:
            certificate = pem.certificates(read_file(self.certificate), self.certificate)[0]
            key = pem.private_key(read_file(self.key), self.key)
        except TLSConfigError:
            return None
        if not pem.is_key_of(key, certificate) or certificate.issuer == certificate.subject:
            return None
        return None if self.shortcoming(certificate) else certificate

    def _good_for(self) -> float:
        certificate = self.installed()
        if certificate is None or self._begins_later(certificate):
            return 0.0
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        due = begin + (end - begin) * self._part
        return due.timestamp() - self._now()

    def _begins_later(self, certificate: x509.Certificate) -> bool:
        begin = certificate.not_valid_before_utc.timestamp()
        return begin > self._now() + CLOCK_SECONDS

    async def _renew(self) -> None:
        """
        Take the next step to a new certificate.

        :raises Again: the certificate is not signed yet.
        :raises Forbidden: it will not be signed.
        """
        client = self.asking()
        if self._request is None:
            self._request = await self._ask(client, self.request())
        certificate = await self._signed(client, self._request.name)
        self.install(self._fitting(certificate, self._request.request.key_pem))
        self._log.info("certificate of {csr} installed", csr=self._request.name)
        self._request, self.problem = None, ""

    async def _ask(self, client: IKubeClient, request: CertificateRequest) -> _Request:
        digest = hashlib.sha256(request.request_pem).hexdigest()[:12]
        csr: Object = {
            # The name of an object has at most 253 characters.
            "metadata": {"name": f"{self._label[:200]}-{self.purpose}-{digest}"},
            "spec": {
                "request": base64.b64encode(request.request_pem).decode("ascii"),
                "signerName": self._signer,
                "usages": [DIGITAL_SIGNATURE, self.usage],
            },
        }
        await client.create(CERTIFICATESIGNINGREQUESTS.resource, csr)
        name = csr["metadata"]["name"]
        self._log.info("asked {signer} for a certificate: {csr}", signer=self._signer, csr=name)
        return _Request(name, request)

    async def _signed(self, client: IKubeClient, name: str) -> bytes:
        try:
            request = await client.get(CERTIFICATESIGNINGREQUESTS.resource, name)
        except NotFound:
            self._request = None
            raise
        except APIError as error:
            self._tell(error.message)
            raise Again(_LONGEST_WAIT_SECONDS) from None
        if certificate := certificate_of(request):
            return base64.b64decode(certificate)
        for kind in (DENIED, FAILED):
            if condition := condition_of(request, kind):
                why = condition.get("message") or condition.get("reason") or kind
                raise Forbidden(f"certificate signing request {name}: {kind}: {why}")
        self._tell(
            f"certificate signing request {name} waits for approval (kubectl certificate approve)"
        )
        raise Again(_LONGEST_WAIT_SECONDS)

    def _fitting(self, certificate: bytes, key: bytes) -> Issued:
        leaf = pem.certificates(certificate, "the signed certificate")[0]
        if not pem.is_key_of(pem.private_key(key, "the new key"), leaf):
            raise TLSConfigError("the signed certificate is another key's")
        if lacks := self.shortcoming(leaf):
            raise TLSConfigError(f"the signed certificate does not name {lacks}")
        if leaf.not_valid_after_utc <= datetime.fromtimestamp(self._now(), UTC):
            raise TLSConfigError("the signed certificate has ended already")
        if self._begins_later(leaf):
            begin = leaf.not_valid_before_utc
            raise TLSConfigError(
                f"the signed certificate is not valid before {begin:%Y-%m-%d}: check this host's "
                "clock, and that of the API server"
            )
        return Issued(certificate, key)

    def install(self, issued: Issued) -> None:
        """
        Write a certificate and its key to their files.

        :raises TLSConfigError: they cannot be written.
        """
        # A reader between the two files keeps its old pair, see tls.files.
        issued.write(self.certificate, self.key, replace=True)

    def _tell(self, problem: str) -> None:
        if problem != self.problem:
            lack = "no" if self.installed() is None else "no renewal of the"
            self._log.warn("{lack} {what} yet: {why}", lack=lack, what=self.what, why=problem)
        self.problem = problem


class ServingCertificate(SignedCertificate):
    """
    A program's serving certificate, in the files ``tls.crt`` and ``tls.key``.

    Its names are the DNS names and IP addresses passed to :meth:`start`.

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
        Create a self-signed certificate if there is no usable one, so that the program can listen.

        :raises TLSConfigError: it cannot be created.
        """
        self.make_directory()
        try:
            # Both files, and matching: a crash between the two writes leaves a pair that OpenSSL refuses.
            chain, key = read_file(self.certificate), read_file(self.key)
            context = pem.new_context(SSL.TLS_SERVER_METHOD)
            pem.use_certificate(context, chain, key, self.certificate, self.key)
        except TLSConfigError:
            # A common name has at most 64 characters (RFC 5280 A.1, ub-common-name).
            own = Authority.create(self._name[:64])
            self.install(own.issue_server(["localhost"], common_name=self._name, life=_OWN_LIFE))
            self.problem = "no certificate was signed yet"

    def start(self, names: Sequence[str]) -> None:
        """Request certificates when needed, until :meth:`stop`."""
        self._names = names
        self.run()

    def request(self) -> CertificateRequest:
        return request_server(self._name, [self._group], self._names)

    def asking(self) -> IKubeClient:
        return self._client

    def shortcoming(self, certificate: x509.Certificate) -> str:
        return ", ".join(self._missing(certificate))

    def _missing(self, certificate: x509.Certificate) -> list[str]:
        try:
            alternatives = certificate.extensions.get_extension_for_class(
                x509.SubjectAlternativeName
            )
        except (x509.ExtensionNotFound, *pem.UNREADABLE):
            return list(self._names)
        names = alternatives.value
        # No client accepts a DNS name that is an address, so kinds are compared, too.
        has: set[object] = {name.lower() for name in names.get_values_for_type(x509.DNSName)}
        has.update(names.get_values_for_type(x509.IPAddress))
        return [name for name in self._names if _as_signed(name) not in has]


def _as_signed(name: str) -> Address | str:
    try:
        return server_name(name.lower())
    except TLSConfigError:
        return name
