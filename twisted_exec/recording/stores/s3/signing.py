"""
AWS Signature Version 4 of requests to S3.

Source: https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from urllib.parse import quote

ALGORITHM = "AWS4-HMAC-SHA256"
_SERVICE = "s3"


@dataclass(frozen=True)
class Credentials:
    """An access key, and the token of a temporary one."""

    key_id: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True)
class Signer:
    """Signs requests of one user in one region."""

    credentials: Credentials
    region: str

    def sign(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str],
        headers: Mapping[str, str],
        payload: str,
        now: datetime,
    ) -> Sequence[tuple[str, str]]:
        """
        Return the headers of a signed request.

        :param path: percent-encoded.
        :param headers: all that are signed, ``Host`` among them.
        :param payload: SHA-256 of the body, in hexadecimal digits.
        :param now: in UTC.
        """
        signed = {name.lower(): value.strip() for name, value in headers.items()}
        signed["x-amz-date"] = time = f"{now:%Y%m%dT%H%M%SZ}"
        signed["x-amz-content-sha256"] = payload
        if self.credentials.token:
            signed["x-amz-security-token"] = self.credentials.token
        names = ";".join(sorted(signed))
        lines = [method, path, query(parameters)]
        lines += [f"{name}:{signed[name]}" for name in sorted(signed)]
        canonical = "\n".join([*lines, "", names, payload])
        scope = f"{now:%Y%m%d}/{self.region}/{_SERVICE}/aws4_request"
        text = f"{ALGORITHM}\n{time}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        key = f"AWS4{self.credentials.secret}".encode()
        for part in scope.split("/"):
            key = _mac(key, part)
        signature = _mac(key, text).hex()
        signed["authorization"] = (
            f"{ALGORITHM} Credential={self.credentials.key_id}/{scope},"
            f"SignedHeaders={names},Signature={signature}"
        )
        return list(signed.items())


def query(parameters: Mapping[str, str]) -> str:
    """Return the query of a URL in the form that is signed."""
    return "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
        for name, value in sorted(parameters.items())
    )


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
