"""
Two conditions of a provider, from the result of its last request; without I/O.

A provider that rejects us is reachable, and our credentials are invalid.  An unreachable provider
proves nothing about the credentials.
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
from twisted_exec.spacemanager.interfaces import ProviderCondition

_UNREACHABLE = (BadGateway.code, ServiceUnavailable.code, TooManyRequests.code)


@dataclass(frozen=True)
class ProviderConditions:
    """Conditions ProviderReachable and CredentialsValid of a provider."""

    reachable: ProviderCondition
    credentials: ProviderCondition

    @property
    def well(self) -> bool:
        """True if the provider is reachable and accepts our credentials."""
        return self.reachable.status == self.credentials.status == "True"


LISTED = ProviderConditions(
    ProviderCondition("True", "Listed", "the provider listed its physical spaces"),
    ProviderCondition("True", "Accepted", "the provider accepted the credentials"),
)
NOT_YET = ProviderConditions(
    ProviderCondition("Unknown", "NotAskedYet", "no request has been sent yet"),
    ProviderCondition("Unknown", "NotAskedYet", "no request has been sent yet"),
)


def not_asked(reason: str, why: str) -> ProviderConditions:
    """Return the conditions if the provider could not be created."""
    return ProviderConditions(
        ProviderCondition("Unknown", reason, why), ProviderCondition("Unknown", reason, why)
    )


def refused(error: APIError) -> ProviderConditions:
    """Return the conditions for a failed list."""
    if error.code in (Unauthorized.code, Forbidden.code):
        reason = "Unauthorized" if error.code == Unauthorized.code else "Forbidden"
        answered = ProviderCondition(
            "True", "Answered", "the provider answered, and rejected the credentials"
        )
        return ProviderConditions(answered, ProviderCondition("False", reason, error.message))
    reason = "ListFailed"
    if error.code == GatewayTimeout.code:
        reason = "TimedOut"
    elif error.code in _UNREACHABLE:
        reason = "Unreachable"
    unknown = ProviderCondition(
        "Unknown", reason, "the provider is unreachable, so the credentials are unverified"
    )
    return ProviderConditions(ProviderCondition("False", reason, error.message), unknown)
