"""
Tokens that hold what they allow: any replica with the key reads them, and one of all spends them.

A token is an AES-256-GCM ciphertext (NIST SP 800-38D) of a grant and the time at which it ends, behind
a random nonce: nobody without the key can make one, change one or read one.  So outstanding tokens
take no memory, and whoever asks often locks nobody out.

Only that a token was used must be known to all.  It is *claimed* before the next hop is asked, and
given back when that refuses, so a probe or a failed upgrade spends nothing.  A ledger keeps the
claims: in memory for a broker alone, in the target cluster for several behind one address.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from twisted.internet.defer import Deferred, succeed
from zope.interface import Interface, implementer

from twisted_exec.api.status import BadRequest, NotFound, TooManyRequests
from twisted_exec.iri.request_cache import EXEC, Grant
from twisted_exec.tls.errors import TLSConfigError

LIFE_SECONDS = 60.0
MIN_KEY_BYTES = 32

_NONCE_BYTES = 12
_LONGEST_TOKEN = 3072
"""Poollets take URLs of up to 4 KiB."""
_PURPOSE = b"twisted-exec broker token 1"


class ILedger(Interface):
    """Where it is written down that a token is claimed."""

    def take(digest: str, expires: float) -> Deferred[bool]:
        """
        Claim a token.

        :param digest: of the token, in hexadecimal digits.
        :param expires: when it does, in seconds since the epoch; until then it is kept.
        :return: fires with whether nobody had it; fails with
            :class:`~twisted_exec.api.status.APIError` when that cannot be known.
        """

    def give_back(digest: str) -> Deferred[None]:
        """It was not used.  Never fails: what cannot be given back is spent."""


@implementer(ILedger)
class MemoryLedger:
    """
    The claims of this process.

    :param limit: tokens that are kept, all of them not yet expired.
    """

    def __init__(self, now: Callable[[], float] = time.time, limit: int = 10_000) -> None:
        self._now, self._limit = now, limit
        self._taken: dict[str, float] = {}

    def take(self, digest: str, expires: float) -> Deferred[bool]:
        """See :meth:`ILedger.take`."""
        now = self._now()
        if len(self._taken) >= self._limit:
            self._taken = {one: until for one, until in self._taken.items() if until > now}
        if digest in self._taken:
            return succeed(False)
        if len(self._taken) >= self._limit:
            raise TooManyRequests("too many consoles were opened here within a minute")
        self._taken[digest] = expires
        return succeed(True)

    def give_back(self, digest: str) -> Deferred[None]:
        """See :meth:`ILedger.give_back`."""
        self._taken.pop(digest, None)
        return succeed(None)


def new_key() -> bytes:
    """For a broker that shares its tokens with no other."""
    return secrets.token_bytes(MIN_KEY_BYTES)


def key_of(content: bytes) -> bytes:
    """
    The key from the file that replicas share: all of its bytes, also a last line end.

    :raises TLSConfigError: too little to be a secret.
    """
    if len(content) < MIN_KEY_BYTES:
        raise TLSConfigError(
            f"the token key has fewer than {MIN_KEY_BYTES} bytes: "
            "make it with head -c 32 /dev/urandom | base64"
        )
    return content


@dataclass(frozen=True)
class Claim:
    """One request's hold on a token: it is used up, unless it is given back."""

    grant: Grant
    _ledger: ILedger
    _digest: str

    def give_back(self) -> Deferred[None]:
        """The upgrade failed: the token is good until it expires."""
        return self._ledger.give_back(self._digest)


class Tokens:
    """
    Makes tokens, and reads them.

    :param key: what the key is made of, asked each time: it may be replaced.
    :param ledger: provides :class:`ILedger`.
    :param now: seconds since the epoch; replicas compare these.
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
        self._made_of, self._cipher = b"", AESGCM(bytes(32))

    def make(self, grant: Grant) -> str:
        """
        A token for a grant.

        :return: URL-safe.
        :raises BadRequest: what it must hold is too long.
        """
        expires = self._now() + self._life_seconds
        told = [expires, grant.purpose, grant.machine_id, grant.machine_uid]
        plain = json.dumps([*told, grant.user, grant.session], separators=(",", ":"))
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + self._sealing().encrypt(nonce, plain.encode("utf-8", "replace"), _PURPOSE)
        token = base64.urlsafe_b64encode(sealed).rstrip(b"=").decode("ascii")
        if len(token) > _LONGEST_TOKEN:
            raise BadRequest("the user's name is too long for a token")
        return token

    def read(self, token: str, *, user: str = "", machine_uid: str = "") -> Grant:
        """
        What a token allowed, once: it may be used and expired by now.

        :param user: who the request says it is for; empty when it does not say.
        :param machine_uid: likewise.
        :raises NotFound: it is none of ours, or is for another user or machine.
        """
        _, grant = self._open(_bytes(token))
        if not _agree(grant.user, user) or not _agree(grant.machine_uid, machine_uid):
            raise _unknown()
        return grant

    async def claim(
        self, token: str, *, user: str = "", machine_uid: str = "", purpose: str = EXEC
    ) -> Claim:
        """
        Take hold of a token for one request.  Cancelling may leave it spent.

        A request tells all that the token was made for: whoever said it in the Exec says it
        again, and a thief of the token alone cannot.

        :raises NotFound: as :meth:`read`; or it has expired, was used, is being used, or is for
            something else.
        :raises APIError: whether it was used cannot be known.
        """
        grant = self.read(token, user=user, machine_uid=machine_uid)
        sealed = _bytes(token)
        expires, _ = self._open(sealed)
        if (user, machine_uid) != (grant.user or user, grant.machine_uid or machine_uid):
            raise _unknown()
        if grant.purpose != purpose or expires <= self._now():
            raise _unknown()
        # Of the bytes: one token can be written in several ways.
        digest = hashlib.sha256(sealed).hexdigest()
        if not await self._ledger.take(digest, expires):
            raise _unknown()
        return Claim(grant, self._ledger, digest)

    def _sealing(self) -> AESGCM:
        made_of = self._key()
        if made_of != self._made_of:
            derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(made_of)
            self._made_of, self._cipher = made_of, AESGCM(derived)
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
    """:raises NotFound: it cannot be a token."""
    if len(token) > _LONGEST_TOKEN:
        raise _unknown()
    try:
        return base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _unknown() from None


def _agree(granted: str, told: str) -> bool:
    return not granted or not told or granted == told


def _unknown() -> NotFound:
    return NotFound("exec", "", message="unknown exec token: used, expired or mistyped")
