"""
Authorities of OpenSSH certificates, and the keys and certificates of users.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    SSHCertificateBuilder,
    SSHCertificateType,
)

NOW = 1_800_000_000.0
"""When the certificates are valid."""


def line_of(private: Any) -> str:
    """Return the public key's line of a private key."""
    public: bytes = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return public.decode()


def blob_of(private: Any) -> bytes:
    """Return the public key's blob of a private key."""
    return a2b_base64(line_of(private).split()[1])


@dataclass
class Authority:
    """Signs certificates."""

    private: Any = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def line(self) -> str:
        return line_of(self.private)

    @property
    def blob(self) -> bytes:
        return blob_of(self.private)

    def certify(
        self,
        private: Any,
        *principals: bytes,
        kind: SSHCertificateType = SSHCertificateType.USER,
        serial: int = 7,
        key_id: bytes = b"ada@laptop",
        valid: tuple[float, float] = (NOW - 60, NOW + 60),
        options: Mapping[bytes, bytes] = {},
        extensions: Sequence[bytes] = (b"permit-pty",),
    ) -> bytes:
        """Return a certificate as a blob; without principals it is for all."""
        builder = (
            SSHCertificateBuilder()
            .public_key(private.public_key())
            .serial(serial)
            .type(kind)
            .key_id(key_id)
            .valid_after(int(valid[0]))
            .valid_before(int(valid[1]))
        )
        if principals:
            builder = builder.valid_principals(list(principals))
        else:
            builder = builder.valid_for_all_principals()
        for name, value in options.items():
            builder = builder.add_critical_option(name, value)
        for name in extensions:
            builder = builder.add_extension(name, b"")
        return a2b_base64(builder.sign(self.private).public_bytes().split()[1])
