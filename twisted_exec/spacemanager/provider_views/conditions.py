"""
What it says about a provider that it answered, or did not: two conditions, without I/O.

A provider that refuses us was reached, and our credentials are not good.  One that cannot be reached tells
nothing about credentials.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted_exec.api.status import (
    APIError,
    BadGateway,
    Forbidden,
    GatewayTimeout,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from twisted_exec.spacemanager.interfaces import Look

_AWAY = (BadGateway.code, ServiceUnavailable.code, TooManyRequests.code)


@dataclass(frozen=True)
class Looks:
    """Conditions ProviderReachable and CredentialsValid of a provider."""

    reachable: Look
    credentials: Look

    @property
    def well(self) -> bool:
        """It was reached, and let us in."""
        return self.reachable.status == self.credentials.status == "True"


LISTED = Looks(
    Look("True", "Listed", "the provider told its physical spaces"),
    Look("True", "Accepted", "the provider took our credentials"),
)
NOT_YET = Looks(
    Look("Unknown", "NotAskedYet", "the provider was not asked yet"),
    Look("Unknown", "NotAskedYet", "the provider was not asked yet"),
)


def not_asked(reason: str, why: str) -> Looks:
    """There is no adaptor by which to ask."""
    return Looks(Look("Unknown", reason, why), Look("Unknown", reason, why))


def refused(error: APIError) -> Looks:
    """What a list that failed says."""
    if error.code in (Unauthorized.code, Forbidden.code):
        reason = "Unauthorized" if error.code == Unauthorized.code else "Forbidden"
        told = Look("True", "Answered", "the provider answered, and did not let us in")
        return Looks(told, Look("False", reason, error.message))
    reason = "ListFailed"
    if error.code == GatewayTimeout.code:
        reason = "TimedOut"
    elif error.code in _AWAY:
        reason = "Unreachable"
    unknown = Look("Unknown", reason, "the provider cannot be asked about our credentials")
    return Looks(Look("False", reason, error.message), unknown)
