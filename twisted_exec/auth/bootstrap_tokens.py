"""
Authentication by bootstrap token (:mod:`twisted_exec.api.kinds.bootstrap_tokens`).

The ID in a token is public; the secret part is compared in constant time.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Callable, Mapping
from typing import Any

from zope.interface import implementer

from twisted_exec.api.kinds import SECRETS
from twisted_exec.api.kinds.bootstrap_tokens import (
    AUTHENTICATION,
    GROUP,
    ID,
    NAME_PREFIX,
    NAMESPACE,
    SECRET,
    SECRET_TYPE,
    USER_PREFIX,
    expiry_of,
    extra_groups,
    is_expired,
    split_token,
)
from twisted_exec.api.kinds.secrets import values_of
from twisted_exec.api.status import NotFound
from twisted_exec.api.users import with_authenticated
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.service_accounts import Look
from twisted_exec.auth.tokens import ITokenAuthenticator
from twisted_exec.program.tasks import as_deferred


@implementer(ITokenAuthenticator)
class BootstrapTokenAuthenticator:
    """
    Authenticates users by bootstrap token.

    :param look: reads the Secret.
    :param now: the time of day, in seconds since the epoch.
    """

    def __init__(self, look: Look, now: Callable[[], float]) -> None:
        self._look, self._now = look, now

    @as_deferred
    async def authenticate_token(self, token: bytes) -> User | None:
        parts = split_token(token)
        if parts is None:
            return None
        try:
            # Any client can cause this read, so a cached Secret must do; a client with a newer token tries again.
            secret = await self._look(
                SECRETS.resource, NAMESPACE, f"{NAME_PREFIX}{parts[0]}", stale=True
            )
        except NotFound:
            return None
        return user_of(secret, *parts, self._now())


def user_of(
    secret: Mapping[str, Any], token_id: str, token_secret: bytes, now: float
) -> User | None:
    """Return the user of a bootstrap token, or ``None`` if the token is not valid now."""
    values = values_of(secret)
    if secret.get("type") != SECRET_TYPE or "deletionTimestamp" in secret["metadata"]:
        return None
    if not hmac.compare_digest(values.get(SECRET, b""), token_secret):
        return None
    if values.get(ID) != token_id.encode() or values.get(AUTHENTICATION) != b"true":
        return None
    if is_expired(values, now):
        return None
    try:
        groups, end = (GROUP, *extra_groups(values)), expiry_of(values)
    except ValueError:
        return None
    name = f"{USER_PREFIX}{token_id}"
    end = math.inf if end is None else end
    return User(name, with_authenticated(name, groups), expires=end)
