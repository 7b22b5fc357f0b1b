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
from datetime import UTC, datetime
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from zope.interface import Interface, implementer

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    BadRequest,
    Forbidden,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
)
from twisted_exec.api.times import seconds
from twisted_exec.control.loop import PokedLoop
from twisted_exec.iri.request_cache import EXEC, Grant
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.program.tasks import as_deferred
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


LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
SWEEP_SECONDS = 60.0
RETENTION_SECONDS = 120.0
"""Time after a token's expiry before its Lease is deleted; covers clock skew between replicas."""

_NAME = "exec-token-"
_DIGITS = 40


@implementer(ILedger)
class LeaseLedger:
    """
    The ledger in the target cluster: one Lease per used token.

    An API server creates an object of one name once, so one of two replicas gets the token. The
    token cannot be derived from the name, which contains its hash.

    :param holder: name of this replica, for operators.
    """

    _log = Logger()

    def __init__(
        self,
        client: IKubeClient,
        namespace: str,
        label: str,
        holder: str,
        clock: Any,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._namespace, self._label = client, namespace, label
        self._holder, self._clock, self._now = holder, clock, now
        self._first_seen: dict[str, float] = {}
        self._sweeping = PokedLoop(self._sweep, clock, SWEEP_SECONDS, refused=self._not_swept)
        self._problem = ""

    def start(self) -> None:
        self._sweeping.start()

    def stop(self) -> None:
        self._sweeping.stop()

    @as_deferred
    async def take(self, digest: str, expires: float) -> bool:
        # After a cancellation the owner of a Lease is unknown.  It may be another replica's, so it
        # must not be deleted: the token stays used.
        try:
            await self._client.create(LEASES, self._lease(digest, expires), self._namespace)
        except APIError as error:
            if error.reason == AlreadyExists.reason:
                return False
            raise self._refusal(error) from None
        return True

    def give_back(self, digest: str) -> Deferred[None]:
        return Deferred.fromCoroutine(self._give_back(digest))

    def _lease(self, digest: str, expires: float) -> Object:
        now = self._now()
        at = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": _name(digest), "labels": {self._label: "token"}},
            "spec": {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": max(1, int(expires - now) + 1),
                "acquireTime": at,
                "renewTime": at,
            },
        }

    def _refusal(self, error: APIError) -> ServiceUnavailable:
        if error.code in (Forbidden.code, NotFound.code):
            why = (
                "the target cluster does not permit it to record used tokens: it needs "
                f'create, delete and list on {LEASES.qualified} in the namespace "{self._namespace}"'
            )
        else:
            why = f"the target cluster did not answer which tokens were used: {error.message}"
        if why != self._problem:
            self._problem = why
            self._log.error(
                "no console can be opened: {why}; {answer}", why=why, answer=error.message
            )
        return ServiceUnavailable(
            f"this broker cannot open consoles now: {why}", retry_after_seconds=5
        )

    async def _give_back(self, digest: str) -> None:
        try:
            await self._client.delete(LEASES, _name(digest), self._namespace)
        except APIError as error:
            if error.code != NotFound.code:
                self._log.info(
                    "the Lease of an unused token cannot be deleted: {why}", why=error.message
                )

    async def probe(self) -> None:
        """List Leases as a check of rights and connection."""
        try:
            await self._client.list(LEASES, self._namespace, label_selector=f"{self._label}=token")
        except APIError as error:
            raise self._refusal(error) from None

    async def _sweep(self) -> None:
        """Delete the Leases of expired tokens."""
        listed = await self._client.list(
            LEASES, self._namespace, label_selector=f"{self._label}=token"
        )
        seconds_now, first_seen = self._clock.seconds(), self._first_seen
        names = [lease["metadata"]["name"] for lease in listed["items"]]
        self._first_seen = {name: first_seen.get(name, seconds_now) for name in names}
        for lease in listed["items"]:
            name = lease["metadata"]["name"]
            # By both clocks: while the time of day is wrong, a Lease of a valid token looks old.
            is_known = seconds_now - self._first_seen[name] >= RETENTION_SECONDS
            if is_known and self._is_old(lease):
                await self._give_back(name.removeprefix(_NAME))
        self._problem = ""

    def _is_old(self, lease: Object) -> bool:
        spec = lease.get("spec") or {}
        try:
            ends = seconds(spec["renewTime"]) + spec["leaseDurationSeconds"]
        except (KeyError, TypeError, ValueError):
            return False  # not one of these Leases
        return bool(ends + RETENTION_SECONDS < self._now())

    def _not_swept(self, error: APIError, failures: int) -> None:
        if error.message != self._problem:
            self._problem = error.message
            self._log.warn("old Leases cannot be removed: {why}", why=error.message)


def _name(digest: str) -> str:
    return f"{_NAME}{digest[:_DIGITS]}"
