"""
TLS as a client: verify the server, present a client certificate.

OpenSSL checks a server's chain against the given CA, and service_identity its name (DNS or IP
subject alternative names, not the common name). Both checks happen inside a full handshake, so that
a wrong server gets none of our data.

OpenSSL does not verify a resumed session's certificate again:
:mod:`twisted_exec.tls.fast.resumption` says which sessions are resumed.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from cryptography import x509
from OpenSSL import SSL
from OpenSSL.crypto import X509
from service_identity import CertificateError
from service_identity import VerificationError as IdentityError
from service_identity.hazmat import (
    DNS_ID,
    CertificatePattern,
    DNSPattern,
    IPAddress_ID,
    IPAddressPattern,
    verify_service_identity,
)
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IReactorTime
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.tls import pem
from twisted_exec.tls.errors import (
    OtherName,
    TLSConfigError,
    VerificationError,
    refused_chain,
)
from twisted_exec.tls.fast.resumption import TLSResumption, can_resume
from twisted_exec.tls.files import Reloading

Check = Callable[[x509.Certificate], None]
"""
Looks at a server's certificate after its verification; raises :class:`VerificationError` to refuse
it.  It is called once for a TLS session and those that resume it.
"""

_CONTEXTS_KEPT = 64
_NAMES_KEPT = 256
_SHOWN, _SHOWN_LENGTH = 8, 100


@implementer(IOpenSSLClientConnectionCreator)
class ClientTLS:
    """
    The TLS settings of a client towards one server.

    :param hostname: DNS name or IP address that the server's certificate must name.
    :param ca_pem: certificates to trust; ``None`` means those of the system.
    :param insecure_skip_verify: accept any certificate; ``check`` still runs.
    :param resumes: resume sessions, but not with ``insecure_skip_verify``, nor if our certificate
        has intermediates.
    :raises TLSConfigError: a PEM text or the hostname cannot be used.
    """

    def __init__(
        self,
        hostname: str,
        *,
        ca_pem: bytes | None,
        certificate_pem: bytes = b"",
        key_pem: bytes = b"",
        insecure_skip_verify: bool = False,
        check: Check | None = None,
        resumes: bool = False,
        alpn: Sequence[bytes] = (b"http/1.1",),
    ) -> None:
        self.hostname = hostname
        # A server gets only the client's own certificate with a resumed session.
        has_intermediates = certificate_pem.count(b"-----BEGIN CERTIFICATE") > 1
        self._resumes = resumes and not insecure_skip_verify and not has_intermediates
        _, self._server_name = _service(hostname)
        self._insecure, self._check = insecure_skip_verify, check
        self._alpn = tuple(alpn)
        self._context = _shared_context(ca_pem, certificate_pem, key_pem, self._alpn)

    def clientConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """Return the OpenSSL connection of ``tlsProtocol``."""
        return self._engine(tlsProtocol, None)

    def client_engine(self, transport: Any, plug: socket.socket) -> SSL.Connection:
        """
        Return the OpenSSL connection on a connected socket.

        :param transport: its ``failVerification`` is called with a
            :class:`~twisted.python.failure.Failure` if the server is refused.
        """
        engine = self._engine(transport, plug)
        engine.set_connect_state()
        return engine

    def context(self) -> SSL.Context:
        """Return the OpenSSL context of a new connection."""
        return self._context

    def _engine(self, tlsProtocol: Any, plug: socket.socket | None) -> SSL.Connection:
        context = self.context()
        connection = SSL.Connection(context, plug)
        if self._server_name:
            connection.set_tlsext_host_name(self._server_name)
        connection.set_app_data(tlsProtocol)
        resumption = None
        if self._resumes and can_resume():
            resumption = TLSResumption((context, self.hostname), self)
            resumption.offer(connection)
        # OpenSSL calls back for every certificate of a chain.  Should it ever
        # not, the endpoint finds ``passed`` unset and refuses the server.
        tlsProtocol.verdict = _Verdict(self, resumption)
        return connection

    def judge(self, certificate: x509.Certificate) -> None:
        """
        Check the leaf certificate of a chain.

        :raises VerificationError: it does not name the server, or ``check`` refused.
        """
        if not self._insecure:
            self._verify_name(certificate)
        if self._check is not None:
            self._check(certificate)

    def believes(self, ok: int) -> bool:
        return bool(ok) or self._insecure

    def _verify_name(self, certificate: x509.Certificate) -> None:
        if not _is_valid_for(certificate, self.hostname):
            raise OtherName(
                f"the server's certificate is not valid for {json.dumps(self.hostname)}: "
                f"it names {_names(certificate)}"
            )


class _Verdict:
    _log = Logger()

    def __init__(self, rules: ClientTLS, resumption: TLSResumption | None) -> None:
        self._rules, self.resumption = rules, resumption
        self.passed = False

    def look_again(self, connection: SSL.Connection) -> None:
        """Check the certificate of a resumed session, for which OpenSSL does not call back."""
        if self.resumption is not None and self.resumption.note_resumption(connection):
            if self.resumption.is_accepted():
                self.passed = True
                return
            certificate = connection.get_peer_certificate()
            if certificate is not None:
                self.look(certificate, SSL.X509VerificationCodes.OK, 0, 1)

    def look(self, certificate: X509, code: int, depth: int, ok: int) -> None:
        try:
            if not self._rules.believes(ok):
                raise refused_chain(certificate.to_cryptography(), code)
            if depth == 0:
                self._rules.judge(certificate.to_cryptography())
                self.passed = True
        except VerificationError:
            self.passed = False
            raise
        except Exception as bug:
            # An exception that leaves a C callback is lost, so it becomes a refusal here.
            self.passed = False
            self._log.failure("while verifying a server's certificate")
            raise VerificationError(f"the certificate cannot be checked: {bug}") from None


def _on_certificate(
    connection: SSL.Connection, certificate: X509, code: int, depth: int, ok: int
) -> bool:
    """
    OpenSSL's verify callback, shared by all connections: a callback for each would be a reference
    cycle.
    """
    protocol = connection.get_app_data()
    verdict = getattr(protocol, "verdict", None)
    if verdict is None:
        return False
    try:
        verdict.look(certificate, code, depth, ok)
    except VerificationError as refusal:
        # The traceback's frames hold the connection, so it must not be kept.
        protocol.failVerification(Failure(refusal.with_traceback(None)))
        return False
    return True


class ClientCredentials:
    """
    A client's CA, certificate and key from PEM files that may be replaced.

    :param ca: path of the certificates to trust; empty means those of the system.
    :raises TLSConfigError: a certificate without a key, or the reverse.
    """

    def __init__(
        self,
        *,
        ca: str = "",
        certificate: str = "",
        key: str = "",
        insecure_skip_verify: bool = False,
        resumes: bool = False,
        alpn: Sequence[bytes] = (b"http/1.1",),
        clock: IReactorTime,
    ) -> None:
        if bool(certificate) != bool(key):
            present, missing = ("certificate", "key") if certificate else ("key", "certificate")
            raise TLSConfigError(f"a client {present} is given without its {missing}")
        self._ca, self._certificate, self._key = ca, certificate, key
        self._insecure, self._resumes, self._alpn = insecure_skip_verify, resumes, tuple(alpn)
        paths = [path for path in (ca, certificate, key) if path]
        self._pems = Reloading(paths, self._parse, clock)

    def load(self) -> None:
        """
        Read the files now.

        :raises TLSConfigError: they cannot be used.
        """
        self._pems.load()

    def to(self, hostname: str, *, check: Check | None = None) -> ClientTLS:
        """
        Return the settings towards one server.

        They follow the files, as :class:`~twisted_exec.tls.files.Reloading` does.

        :raises TLSConfigError: the files were never valid, or the hostname is malformed.
        """
        return _CurrentTLS(self._pems, hostname, self._insecure, check, self._resumes, self._alpn)

    def _parse(self, *contents: bytes) -> tuple[bytes | None, bytes, bytes]:
        remaining = list(contents)
        ca_pem = remaining.pop(0) if self._ca else None
        certificate_pem, key_pem = remaining if self._certificate else (b"", b"")
        # A context of its own, only to find errors now and to name the files in them.
        _new_context(
            ca_pem,
            certificate_pem,
            key_pem,
            (),
            names=(
                f"CA {self._ca!r}",
                f"client certificate {self._certificate!r}",
                f"client key {self._key!r}",
            ),
        )
        return ca_pem, certificate_pem, key_pem


class _CurrentTLS(ClientTLS):
    def __init__(
        self,
        pems: Reloading[tuple[bytes | None, bytes, bytes]],
        hostname: str,
        insecure_skip_verify: bool,
        check: Check | None,
        resumes: bool,
        alpn: Sequence[bytes],
    ) -> None:
        self._pems = pems
        ca_pem, certificate_pem, key_pem = pems.get()
        super().__init__(
            hostname,
            ca_pem=ca_pem,
            certificate_pem=certificate_pem,
            key_pem=key_pem,
            insecure_skip_verify=insecure_skip_verify,
            check=check,
            resumes=resumes,
            alpn=alpn,
        )

    def context(self) -> SSL.Context:
        self._context = _shared_context(*self._pems.get(), self._alpn)
        return self._context


@lru_cache(_CONTEXTS_KEPT)
def _shared_context(
    ca_pem: bytes | None, certificate_pem: bytes, key_pem: bytes, alpn: tuple[bytes, ...]
) -> SSL.Context:
    return _new_context(ca_pem, certificate_pem, key_pem, alpn)


def _new_context(
    ca_pem: bytes | None,
    certificate_pem: bytes,
    key_pem: bytes,
    alpn: tuple[bytes, ...],
    names: tuple[str, str, str] = ("the CA", "the client certificate", "the client key"),
) -> SSL.Context:
    context = pem.new_context(SSL.TLS_CLIENT_METHOD)
    context.set_verify(SSL.VERIFY_PEER, _on_certificate)
    if ca_pem is None:
        context.set_default_verify_paths()
    else:
        pem.trust(context.get_cert_store(), ca_pem, names[0])
    if bool(certificate_pem) != bool(key_pem):
        raise TLSConfigError("a client certificate and its key go together: one is missing")
    if certificate_pem:
        pem.use_certificate(context, certificate_pem, key_pem, names[1], names[2])
    if alpn:
        context.set_alpn_protos(list(alpn))
    return context


@lru_cache(_NAMES_KEPT)
def _service(hostname: str) -> tuple[DNS_ID | IPAddress_ID, bytes]:
    """Return the name that the certificate must have, and the SNI to send."""
    name = pem.server_name(hostname)
    if isinstance(name, str):
        try:
            return DNS_ID(name), name.encode("ascii")
        except ValueError:  # a number alone: no certificate could name it
            raise TLSConfigError(f"{json.dumps(hostname)} is no DNS name or IP address") from None
    return IPAddress_ID(str(name)), b""


@lru_cache(_NAMES_KEPT)
def _is_valid_for(certificate: x509.Certificate, hostname: str) -> bool:
    identity, _ = _service(hostname)
    try:
        verify_service_identity(_patterns(certificate), [identity], [])
    except (IdentityError, CertificateError, *pem.UNREADABLE):
        return False
    return True


def _patterns(certificate: x509.Certificate) -> Sequence[CertificatePattern]:
    return [pattern for each in _alternatives(certificate) if (pattern := _pattern(each))]


def _pattern(name: x509.GeneralName) -> CertificatePattern | None:
    # The parser takes twice the bytes of an address for a network, which matches nothing.
    if isinstance(name, x509.IPAddress) and isinstance(name.value, IPv4Address | IPv6Address):
        return IPAddressPattern(name.value)
    # service_identity would strip whitespace, and match what no other verifier does.
    if not isinstance(name, x509.DNSName) or name.value != name.value.strip():
        return None
    try:
        return DNSPattern.from_bytes(name.value.encode("utf-8"))
    except CertificateError:  # an address, empty, NUL, or a wildcard elsewhere than in `*.a.b`
        return None


def _alternatives(certificate: x509.Certificate) -> Sequence[x509.GeneralName]:
    try:
        kind = x509.SubjectAlternativeName
        return list(certificate.extensions.get_extension_for_class(kind).value)
    except x509.ExtensionNotFound:
        return []


def _names(certificate: x509.Certificate) -> str:
    try:
        names = _alternatives(certificate)
    except pem.UNREADABLE:
        return "none that can be read"
    if not names:
        return "none (no subject alternative name)"
    return ", ".join(map(_shown, names[:_SHOWN])) + (" ..." if len(names) > _SHOWN else "")


def _shown(name: x509.GeneralName) -> str:
    text = str(name.value)
    quoted = json.dumps(text[:_SHOWN_LENGTH]) + "..." * (len(text) > _SHOWN_LENGTH)
    if isinstance(name, x509.DNSName) and _pattern(name) is None:
        return f"{quoted} (no usable DNS name)"
    return quoted
