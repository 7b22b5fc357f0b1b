"""
Why a machine's console does not open: reasons for programs, among the causes of a ``Status``.

The cause ``Decided``, which is no obstacle, is in :mod:`twisted_exec.api.status`: it says that one of our
programs has decided a 403.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from twisted_exec.api.status import APIError


class Obstacle(StrEnum):
    """The ``reason`` of a cause in ``details.causes``."""

    BEING_DELETED = "BeingDeleted"
    RECREATED = "Recreated"
    """The machine of the session was deleted, and another one has its name."""
    POWERED_OFF = "PoweredOff"
    CANNOT_START = "CannotStart"
    """The runtime does not get the machine running, and says why."""
    NOT_RUNNING = "NotRunning"
    """The runtime has not started the machine yet."""
    NO_POOL = "NoPool"
    """The machine has no pool yet."""
    POOL_NOT_FOUND = "PoolNotFound"
    """The pool of the machine does not exist."""
    NOT_IN_POOL = "NotInPool"
    """The poollet does not have the machine."""
    NO_ADDRESS = "NoAddress"
    """The pool has no address that the API server uses."""
    CANNOT_BE_RECORDED = "CannotBeRecorded"
    """The session needs a recording, which cannot be made."""
    NOT_RECORDED = "NotRecorded"
    """The session began without the recording that a ConsolePolicy requires by now; a new one has it."""

    SERVER_UNREACHABLE = "ServerUnreachable"
    """A client got no answer from its API server."""
    POOLLET_FAILED = "PoolletFailed"
    """The API server did not reach the poollet, or got no valid answer."""
    RUNTIME_FAILED = "RuntimeFailed"
    """The poollet did not reach the runtime, or got no valid answer."""

    NAME_UNKNOWN = "NameUnknown"
    """The name of the next program's host does not resolve."""
    CONNECTION_REFUSED = "ConnectionRefused"
    NO_ROUTE = "NoRoute"
    CONNECT_TIMEOUT = "ConnectTimeout"
    CONNECTION_LOST = "ConnectionLost"
    """The peer closed the connection before it answered."""
    NO_ANSWER = "NoAnswer"
    """The peer accepted the connection, and did not answer in time, perhaps in TLS already."""
    NO_HTTP = "NoHTTP"
    """The peer's answer is not HTTP."""
    NO_TLS = "NoTLS"
    """The peer does not speak TLS."""
    HANDSHAKE_FAILED = "HandshakeFailed"
    CERTIFICATE_REFUSED = "CertificateRefused"
    """The peer's certificate is refused for none of the reasons below."""
    CERTIFICATE_UNTRUSTED = "CertificateUntrusted"
    """No trusted CA has signed the peer's certificate."""
    CERTIFICATE_OF_OTHER = "CertificateOfOther"
    """The peer's certificate does not name the peer."""
    CERTIFICATE_OUTSIDE_VALIDITY = "CertificateOutsideValidity"
    """The peer's certificate has expired, or is not valid yet."""
    CREDENTIALS_REFUSED = "CredentialsRefused"
    """The peer does not accept this program's credentials."""


_REASONS = frozenset(obstacle.value for obstacle in Obstacle)


def named_obstacles(reasons: Iterable[object]) -> tuple[Obstacle, ...]:
    """Return the obstacles among the reasons of causes, in their order."""
    return tuple(
        Obstacle(reason) for reason in reasons if isinstance(reason, str) and reason in _REASONS
    )


def because(obstacle: Obstacle | None, error: APIError) -> APIError:
    """Add an obstacle, if there is one, to the causes of an error; return the error."""
    if obstacle is not None:
        causes = error.details.setdefault("causes", [])
        causes.append({"reason": obstacle.value, "message": error.message})
    return error


def because_of_all(problems: Iterable[tuple[str, APIError]], error: APIError) -> APIError:
    """
    Add the obstacles of several attempts to the causes of an error; return the error.

    :param problems: the label of each attempt, and its error.
    """
    for label, problem in problems:
        for obstacle in obstacles_of(problem):
            causes = error.details.setdefault("causes", [])
            causes.append({"reason": obstacle.value, "message": f"{label}: {problem.message}"})
    return error


def obstacles_of(error: APIError) -> tuple[Obstacle, ...]:
    """Return the obstacles among the causes of an error, in their order."""
    return named_obstacles(cause.get("reason") for cause in error.causes)


def doctor_advice(name: str, namespace: str) -> str:
    """Return the next step for a machine whose console does not open."""
    return f"twisted-exec doctor {name} -n {namespace} says what to do"
