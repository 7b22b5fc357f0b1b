"""When credentials expire, and a note about it in the refusal of expired ones."""

from __future__ import annotations

import base64
import binascii
import json
import time
from datetime import UTC, datetime

from cryptography import x509

from twisted_exec.api.status import APIError, Unauthorized
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.tls.pem import validity_problem

_LONGEST_TOKEN = 64 << 10


def expiry_of(config: ClientConfig) -> float | None:
    """
    Return the earliest known expiry time of the credentials, in seconds since the epoch.

    Files are not read, and values are unverified: they are only for information.
    """
    ends = (_token_end(config.token), _certificate_end(config), config.expires)
    return min((end for end in ends if end is not None), default=None)


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
    except (ValueError, x509.InvalidVersion):
        return None


def explain_refusal(refused: APIError, config: ClientConfig) -> APIError:
    """
    Add to a 401 that our credentials have expired, or are not valid yet.

    :return: ``refused`` itself.
    """
    if refused.code == Unauthorized.code and (problem := _expiry_problem(config)):
        note = f"({problem})"
        if not refused.message.endswith(note):  # a dialect may be one of several
            refused.message = f"{refused.message} {note}"
    return refused


def _expiry_problem(config: ClientConfig) -> str:
    try:
        content = config.certificate.read()
    except KubeConfigError:
        content = b""
    if problem := validity_problem(content, "the client certificate"):
        return problem
    end = expiry_of(config)
    if end is None or end >= time.time():
        return ""
    return f"the token ended on {datetime.fromtimestamp(end, UTC):%Y-%m-%d at %H:%M:%S} UTC"
