"""
When credentials end, as they say themselves.
"""

from __future__ import annotations

import base64
import binascii
import json

from cryptography import x509

from twisted_exec.kube.config import ClientConfig

_LONGEST_TOKEN = 64 << 10


def expiry_of(config: ClientConfig) -> float | None:
    """
    When the first of its credentials ends, in seconds since the epoch, as far as they say so themselves.

    Nothing is believed because of it: whoever takes them decides.
    """
    ends = [end for end in (_token_end(config.token), _certificate_end(config)) if end is not None]
    return min(ends, default=None)


def _token_end(token: str) -> float | None:
    parts = token.split(".")
    if len(parts) != 3 or len(token) > _LONGEST_TOKEN:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return None
    end = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(end, bool) or not isinstance(end, int | float) or not 0 < end < 1 << 40:
        return None
    return float(end)


def _certificate_end(config: ClientConfig) -> float | None:
    if not config.certificate.data:
        return None
    try:
        certificate = x509.load_pem_x509_certificate(config.certificate.data)
        return certificate.not_valid_after_utc.timestamp()
    except ValueError:
        return None
