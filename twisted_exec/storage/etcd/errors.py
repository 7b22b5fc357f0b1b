"""
Errors of etcd, and the API errors that they become.
"""

from __future__ import annotations

from typing import Any

import grpc

from twisted_exec.api.status import (
    APIError,
    GatewayTimeout,
    RequestEntityTooLarge,
    ServiceUnavailable,
    one_line,
)
from twisted_exec.storage.etcd.target import EtcdTarget

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
_RETRY_SECONDS = 1


_REFUSED = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)
_REFUSALS = ("authentication failed", "authentication is not enabled", "user name is empty")
_UNKNOWN = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DATA_LOSS,
        grpc.StatusCode.ABORTED,
    }
)
# Messages of grpcio when the connection was never made, and of etcd before it executes a call.
_NOT_SENT = (
    "failed to connect to all addresses",
    "DNS resolution failed",
    "etcdserver: no leader",
    "etcdserver: not capable",
    "etcdserver: rpc not supported for learner",
)


class EtcdError(Exception):
    """
    A failed call.

    :ivar undone: the call was certainly not executed.
    """

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(f"{message or code.name}")
        self.code, self.message = code, message
        self.undone = code not in _UNKNOWN or message.startswith(_NOT_SENT)

    @property
    def elsewhere(self) -> bool:
        """Another member might answer."""
        return self.code in _UNKNOWN

    @property
    def is_full(self) -> bool:
        """The quota is used up, until an operator makes room."""
        return "database space exceeded" in self.message

    @property
    def is_token(self) -> bool:
        """The token is missing or no longer valid."""
        return (
            self.code is grpc.StatusCode.UNAUTHENTICATED
            or "revision of auth store is old" in self.message
            or "user name is empty" in self.message
        )

    @property
    def is_compacted(self) -> bool:
        """The requested revision has been compacted."""
        return self.code is grpc.StatusCode.OUT_OF_RANGE and "compacted" in self.message

    @property
    def is_too_large(self) -> bool:
        """The request exceeds the message limit of etcd's gRPC server, or the answer ours."""
        return self.code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in self.message

    @property
    def is_refusal(self) -> bool:
        """Repeating the call does not help until the configuration changes."""
        return self.code in _REFUSED or any(words in self.message for words in _REFUSALS)


def error_of(call: Any) -> EtcdError:
    """Return the error of a failed call."""
    return EtcdError(call.code(), one_line(call.details() or ""))


def refused(error: EtcdError, target: EtcdTarget) -> str:
    """Return the message for an unusable configuration, with a remedy."""
    message = f"etcd at {target}: {error}"
    if error.code is grpc.StatusCode.PERMISSION_DENIED:
        who = ascii(target.user) if target.user else "the common name of cert="
        message += f": grant {who} readwrite on what begins with {target.prefix}/"
    elif "user name is empty" in error.message:
        message += ": give user= and password-file=, or cert= and key="
    return message


def hint(why: str, target: EtcdTarget) -> str:
    """Return a remedy for an unreachable etcd; may be empty."""
    if target.secure and "TSI_" in why:  # grpcio's prefix for all TLS errors
        return " (look at ca=, and at cert= and key=, which etcd may ask for)"
    if not target.secure and "Socket closed" in why:
        return " (it may want https)"
    return ""


def read_refusal(error: EtcdError) -> APIError:
    """Return the API error for a failed read."""
    if error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return GatewayTimeout(
            "the store did not answer in time", retry_after_seconds=_RETRY_SECONDS
        )
    return ServiceUnavailable(
        f"the store cannot be read: {_words(error)}", retry_after_seconds=_RETRY_SECONDS
    )


def write_refusal(error: EtcdError) -> APIError:
    """Return the API error for a failed write."""
    if not error.undone:
        return GatewayTimeout(
            "the store did not say whether it has written this: look before trying again",
            retry_after_seconds=_RETRY_SECONDS,
        )
    # etcd's message; grpc has its own for requests that are much larger.
    if "request is too large" in error.message or error.is_too_large:
        return RequestEntityTooLarge(
            "the object is larger than the store takes (etcd's --max-request-bytes)"
        )
    return ServiceUnavailable(
        f"the store cannot write: {_words(error)}", retry_after_seconds=_RETRY_SECONDS
    )


def _words(error: EtcdError) -> str:
    """Return the message without addresses, which users must not see."""
    if error.is_full:
        return (
            "etcd is full (alarm NOSPACE): compact and defragment it, then disarm the alarm, or "
            "raise its quota"
        )
    if error.message.startswith("etcdserver: "):
        return error.message
    return "etcd cannot be reached"
