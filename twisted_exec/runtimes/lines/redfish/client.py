"""
HTTPS to one BMC: requests limited in time and size, to a server that is verified first.

A BMC is trusted by a CA, or by the SHA-256 of its public key, never without either. The handshake
ends before the request is sent, so a wrong BMC gets no password. Redirects are errors.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint

from twisted_exec.api.obstacles import Obstacle, obstacles_of
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    Forbidden,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.kube.kubeconfig.connection import endpoint
from twisted_exec.kube.transport import HTTPTransport, Request
from twisted_exec.runtimes.lines.redfish import documents
from twisted_exec.runtimes.lines.redfish.documents import Document
from twisted_exec.tls.client import Check
from twisted_exec.tls.errors import VerificationError

REQUEST_SECONDS = 20.0
CONNECT_SECONDS = 10.0

TOKEN_HEADER, LOCATION_HEADER = "x-auth-token", "location"

PASSWORD_EXPIRED = "PasswordChangeRequired"
"""Name of a message, such as ``Base.1.8.PasswordChangeRequired``; source: DMTF's registry Base."""

_DIGEST_BYTES = 32
_HEX = re.compile(r"[0-9A-Fa-f]{64}")
_CURL = "sha256//"


def parse_pin(text: str) -> bytes:
    """
    Return the SHA-256 of a public key.

    :param text: 64 hexadecimal digits, with or without colons, or ``sha256//BASE64`` as of curl.
    :raises ValueError: it is neither.
    """
    digits = text.replace(":", "")
    if _HEX.fullmatch(digits):
        return bytes.fromhex(digits)
    if text.startswith(_CURL):
        try:
            digest = base64.b64decode(text.removeprefix(_CURL), validate=True)
        except binascii.Error:
            digest = b""
        if len(digest) == _DIGEST_BYTES:
            return digest
    raise ValueError(
        "it is no SHA-256 of a public key: 64 hexadecimal digits, or sha256// and base64"
    )


@dataclass(frozen=True)
class Trust:
    """
    How a BMC is verified: by a CA or by its key.

    :param ca: path of a PEM file; empty with ``pin``.
    :param pin: SHA-256 of the DER SubjectPublicKeyInfo; empty with ``ca``.
    :param name: that the certificate must have, if not the host's; only with ``ca``.
    """

    ca: str = ""
    pin: bytes = b""
    name: str = ""


@dataclass(frozen=True)
class Answer:
    """
    An answer of a BMC.

    :param token: of a new session; empty if there is none.
    :param location: the header ``Location``.
    """

    code: int
    body: bytes = field(repr=False)
    token: str = field(default="", repr=False)
    location: str = ""

    @property
    def is_success(self) -> bool:
        return 200 <= self.code < 300

    def document(self) -> Document:
        """:raises BadGateway: the body is not a JSON object."""
        return documents.parse(self.body)

    def message_ids(self) -> Sequence[str]:
        """Return the ids of the messages of an error; empty if there are none."""
        try:
            return documents.message_ids(self.document())
        except BadGateway:
            return ()


class Client:
    """
    HTTPS to one BMC.

    :param host: DNS name or IP address.
    :ivar host_header: host and port.
    """

    def __init__(self, host: str, port: int, trust: Trust, reactor: Any) -> None:
        self.host, self.port, self._trust = host, port, trust
        netloc = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.host_header = netloc
        self._reactor = reactor
        self._config = ClientConfig(
            f"https://{netloc}",
            ca=Material(path=trust.ca),
            tls_server_name=trust.name,
            # Only beside the check of the pin, which refuses all keys but one.
            insecure_skip_tls_verify=not trust.ca,
        )
        assert bool(trust.ca) != bool(trust.pin)
        self._check: Check | None = self._check_pin if trust.pin else None
        #: For other connections to the BMC, such as WebSockets; verified as those of requests.
        self.endpoint: IStreamClientEndpoint = endpoint(
            self._config, reactor, timeout_seconds=CONNECT_SECONDS, check=self._check
        )
        self._transport = self._new_transport()

    def _new_transport(self) -> HTTPTransport:
        return HTTPTransport(self._config, self._reactor, server=self.endpoint, peer="the BMC")

    def _check_pin(self, certificate: x509.Certificate) -> None:
        key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        digest = hashlib.sha256(key).digest()
        if digest != self._trust.pin:
            raise VerificationError(
                f"its key is not the one of pin: its SHA-256 is {digest.hex()}; if its operator "
                "has replaced the certificate, change pin in the classes file, and reload the runtime"
            )

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, object] | None = None,
        headers: Sequence[tuple[str, str]] = (),
        timeout_seconds: float | None = None,
    ) -> Answer:
        """
        Send a request, and return the answer whatever its code is.

        :param path: on the BMC, percent-encoded.
        :param timeout_seconds: ``None`` for :data:`REQUEST_SECONDS`.
        :raises BadGateway: the BMC cannot be reached, is not the one of the pin or of the CA, or
            the answer is not HTTP or too large.
        :raises GatewayTimeout: the answer was not complete in time.
        """
        request = Request(
            method,
            path,
            b"" if body is None else json.dumps(body).encode(),
            repeatable=method in ("GET", "DELETE"),
            headers=[("OData-Version", "4.0"), *headers],
            kept_headers=(TOKEN_HEADER, LOCATION_HEADER),
        )
        seconds = REQUEST_SECONDS if timeout_seconds is None else timeout_seconds
        try:
            code, kept, content = await self._transport.collect(
                request, timeout_seconds=seconds, limit_bytes=documents.DOCUMENT.size_bytes
            )
        except BadGateway as problem:
            if self._trust.ca and Obstacle.CERTIFICATE_UNTRUSTED in obstacles_of(problem):
                raise BadGateway(
                    f"{problem.message}; put its CA in {self._trust.ca}, which is read again, or set "
                    "pin instead of ca in the classes file, and reload the runtime"
                ) from None
            raise
        return Answer(code, content, kept[TOKEN_HEADER], kept[LOCATION_HEADER])

    def close(self) -> Deferred[None]:
        """Close idle connections; later requests open new ones."""
        transport, self._transport = self._transport, self._new_transport()
        return transport.close()


def is_password_expired(answer: Answer) -> bool:
    """Return whether the BMC does nothing for its user but to change the password, whose time is over."""
    return answer.code in (Unauthorized.code, Forbidden.code) and any(
        each.rpartition(".")[2] == PASSWORD_EXPIRED for each in answer.message_ids()
    )


def refused(answer: Answer, method: str, path: str) -> APIError:
    """
    Return the error for an answer that is no success.

    It names the messages of the BMC by their ids: their texts may quote what was sent.
    """
    ids = answer.message_ids()
    what = f"the BMC answers {answer.code} to {method} {path}" + (f" ({ids[0]})" if ids else "")
    if 300 <= answer.code < 400:
        return BadGateway(f"{what}: redirects are not followed")
    if answer.code == Unauthorized.code:
        return Unauthorized(what)
    if answer.code == Forbidden.code:
        return Forbidden(f"{what}: give its user the role Operator there")
    if answer.code == NotFound.code:
        return NotFound("documents", path, message=what)
    if answer.code == TooManyRequests.code:
        return ServiceUnavailable(f"{what}: it is asked too often")
    if answer.code == ServiceUnavailable.code:
        return ServiceUnavailable(f"{what}: it is busy or starting")
    return BadGateway(what)
