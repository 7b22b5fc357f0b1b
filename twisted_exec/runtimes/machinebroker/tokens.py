"""
Self-contained tokens: every replica with the key can read them, and each token works once.

A token is a random nonce and an AES-256-GCM ciphertext (NIST SP 800-38D) of a grant and its expiry.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from twisted.internet.defer import Deferred, succeed
from zope.interface import Interface, implementer

from twisted_exec.api.status import (
    BadRequest,
    NotFound,
    TooManyRequests,
)
from twisted_exec.iri.request_cache import EXEC, Grant
from twisted_exec.tls.errors import TLSConfigError

LIFE_SECONDS = 60.0
SKEW_SECONDS = 60.0
"""How far the clocks of replicas may differ."""
MIN_KEY_BYTES = 32

_NONCE_BYTES = 12
_MAX_TOKEN = 3072
"""Poollets accept URLs of up to 4 KiB."""
_PURPOSE = b"twisted-exec broker token 1"


class ILedger(Interface):
    """Records claims of tokens."""

    def take(digest: str, expires: float) -> Deferred[bool]:
        """
        Claim a token.

        :param digest: hash of the token, in hexadecimal digits.
        :param expires: seconds since the epoch.
        :return: fires with true if the token was not claimed before; fails with
            :class:`~twisted_exec.api.status.APIError` if that is unknown.
        """

    def give_back(digest: str) -> Deferred[None]:
        """
        Return the claim of an unused token.

        :return: never fails; if the claim cannot be returned, the token stays used.
        """


@implementer(ILedger)
class MemoryLedger:
    """
    The claims of this process.

    :param seconds: a monotonic clock. A claim is kept for two minutes: a token may be valid so long
        if the clock is set back meanwhile.
    """

    def __init__(self, seconds: Callable[[], float] = time.monotonic, limit: int = 10_000) -> None:
        self._seconds, self._limit = seconds, limit
        self._claims: dict[str, float] = {}

    def take(self, digest: str, expires: float) -> Deferred[bool]:
        now = self._seconds()
        if len(self._claims) >= self._limit:
            self._claims = {key: until for key, until in self._claims.items() if until > now}
        if digest in self._claims:
            return succeed(False)
        if len(self._claims) >= self._limit:
            raise TooManyRequests("too many consoles were opened here within two minutes")
        self._claims[digest] = now + LIFE_SECONDS + SKEW_SECONDS
        return succeed(True)

    def give_back(self, digest: str) -> Deferred[None]:
        self._claims.pop(digest, None)
        return succeed(None)

    def export(self) -> dict[str, float]:
        """Return for how many seconds each claim is kept, for the ledger of another process."""
        now = self._seconds()
        return {key: until - now for key, until in self._claims.items() if until > now}

    def restore(self, seconds: Mapping[str, float]) -> None:
        now = self._seconds()
        self._claims |= {key: now + left for key, left in seconds.items()}


def new_key() -> bytes:
    """Return a random key for a single broker."""
    return secrets.token_bytes(MIN_KEY_BYTES)


def key_of(content: bytes) -> bytes:
    """
    Return the content of the shared key file; all of its bytes are the key, including a final
    newline.

    :raises TLSConfigError: the key is too short.
    """
    if len(content) < MIN_KEY_BYTES:
        raise TLSConfigError(
            f"the token key has fewer than {MIN_KEY_BYTES} bytes: "
            "make it with head -c 32 /dev/urandom | base64"
        )
    return content


@dataclass(frozen=True)
class TokenClaim:
    """One request's claim of a token, which is used up unless the claim is returned."""

    grant: Grant
    _ledger: ILedger
    _digest: str

    def give_back(self) -> Deferred[None]:
        """Return the claim after a failed upgrade; the token is valid again until it expires."""
        return self._ledger.give_back(self._digest)


class Tokens:
    """
    Creates, reads and claims tokens.

    :param now: seconds since the epoch; the replicas' clocks must agree.
    """

    def __init__(
        self,
        key: Callable[[], bytes],
        ledger: object,
        *,
        now: Callable[[], float] = time.time,
        life_seconds: float = LIFE_SECONDS,
    ) -> None:
        self._key, self._ledger = key, ILedger(ledger)
        self._now, self._life_seconds = now, life_seconds
        self._material, self._cipher = b"", AESGCM(bytes(32))

    def make(self, grant: Grant) -> str:
        """
        Return a token for a grant: URL-safe text.

        :raises BadRequest: the grant is too long.
        """
        expires = self._now() + self._life_seconds
        fields = [expires, grant.purpose, grant.machine_id, grant.machine_uid]
        plain = json.dumps([*fields, grant.user, grant.session], separators=(",", ":"))
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + self._sealing().encrypt(nonce, plain.encode("utf-8", "replace"), _PURPOSE)
        token = base64.urlsafe_b64encode(sealed).rstrip(b"=").decode("ascii")
        if len(token) > _MAX_TOKEN:
            raise BadRequest("the user's name is too long for a token")
        return token

    def read(self, token: str, *, user: str = "", machine_uid: str = "") -> Grant:
        """
        Read a token, even if it is used or expired.

        :raises NotFound: the token is not valid, or is for another user or machine.
        """
        _, grant = self._open(_bytes(token))
        if not _agree(grant.user, user) or not _agree(grant.machine_uid, machine_uid):
            raise _unknown()
        return grant

    async def claim(
        self, token: str, *, user: str = "", machine_uid: str = "", purpose: str = EXEC
    ) -> TokenClaim:
        """
        Claim a token for one request. Cancelling may leave the token used.

        The request must repeat user and UID of the ``Exec`` call, if that had them, so a stolen
        token alone is useless.

        :raises NotFound: the token cannot be used for this request.
        :raises APIError: the ledger does not answer, or is full.
        """
        grant = self.read(token, user=user, machine_uid=machine_uid)
        sealed = _bytes(token)
        expires, _ = self._open(sealed)
        if (user, machine_uid) != (grant.user or user, grant.machine_uid or machine_uid):
            raise _unknown()
        left = expires - self._now()
        # A token with more than its life left was made while a clock was ahead.
        if grant.purpose != purpose or not 0 < left <= self._life_seconds + SKEW_SECONDS:
            raise _unknown()
        # Hash the decoded bytes: base64 can encode the same bytes in several ways.
        digest = hashlib.sha256(sealed).hexdigest()
        if not await self._ledger.take(digest, expires):
            raise _unknown()
        return TokenClaim(grant, self._ledger, digest)

    def _sealing(self) -> AESGCM:
        material = self._key()
        if material != self._material:
            derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(material)
            self._material, self._cipher = material, AESGCM(derived)
        return self._cipher

    def _open(self, sealed: bytes) -> tuple[float, Grant]:
        nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            plain = self._sealing().decrypt(nonce, rest, _PURPOSE)
        except (InvalidTag, ValueError):
            raise _unknown() from None
        expires, purpose, machine_id, machine_uid, user, session = json.loads(plain)
        return expires, Grant(machine_id, machine_uid, user, session, purpose)


def _bytes(token: str) -> bytes:
    if len(token) > _MAX_TOKEN:
        raise _unknown()
    try:
        return base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _unknown() from None


def _agree(granted: str, claimed: str) -> bool:
    return not granted or not claimed or granted == claimed


def _unknown() -> NotFound:
    return NotFound("exec", "", message="unknown exec token: used, expired or mistyped")
