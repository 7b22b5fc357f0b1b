"""
Why calls of etcd fail, and what users are told.

Which of etcd's errors tell what is in its ``api/v3rpc/rpctypes/error.go``.
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


class EtcdError(Exception):
    """
    A call failed.

    :param code: gRPC's.
    :param message: from etcd or grpcio, on one line.
    :ivar undone: it has certainly not been done.
    """

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(f"{message or code.name}")
        self.code, self.message = code, message
        self.undone = code not in _UNKNOWN or message.startswith(_NOT_SENT)

    @property
    def elsewhere(self) -> bool:
        """Whether another member may do better."""
        return self.code in _UNKNOWN

    @property
    def is_full(self) -> bool:
        """Its quota is used up: nothing is written before an operator has made room."""
        return "database space exceeded" in self.message

    @property
    def is_token(self) -> bool:
        """The token is none any more, or is of before the last change of users."""
        return (
            self.code is grpc.StatusCode.UNAUTHENTICATED
            or "revision of auth store is old" in self.message
            or "user name is empty" in self.message
        )

    @property
    def is_compacted(self) -> bool:
        """The revision asked for has been forgotten."""
        return self.code is grpc.StatusCode.OUT_OF_RANGE and "compacted" in self.message

    @property
    def is_too_large(self) -> bool:
        """A question is larger than etcd takes, or an answer larger than we do."""
        return self.code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in self.message

    @property
    def is_refusal(self) -> bool:
        """Trying again never helps before somebody has changed something."""
        return self.code in _REFUSED or any(words in self.message for words in _REFUSALS)


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
# grpcio's words for a connection that there never was, and etcd's before it begins.
_NOT_SENT = (
    "failed to connect to all addresses",
    "DNS resolution failed",
    "etcdserver: no leader",
    "etcdserver: not capable",
    "etcdserver: rpc not supported for learner",
)


def error_of(call: Any) -> EtcdError:
    """Why a call has failed."""
    return EtcdError(call.code(), one_line(call.details() or ""))


def refused(error: EtcdError, target: EtcdTarget) -> str:
    """Why a store can never be had like this, and what would help."""
    message = f"etcd at {target}: {error}"
    if error.code is grpc.StatusCode.PERMISSION_DENIED:
        who = ascii(target.user) if target.user else "the common name of cert="
        message += f": grant {who} readwrite on what begins with {target.prefix}/"
    elif "user name is empty" in error.message:
        message += ": give user= and password-file=, or cert= and key="
    return message


def hint(why: str, target: EtcdTarget) -> str:
    """What to look at when etcd cannot be reached; empty where the reason says it."""
    if target.secure and "TSI_" in why:  # grpcio's words for whatever TLS did not like
        return " (look at ca=, and at cert= and key=, which etcd may ask for)"
    if not target.secure and "Socket closed" in why:
        return " (it may want https)"
    return ""


def read_refusal(error: EtcdError) -> APIError:
    """What users are told when a read fails."""
    if error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return GatewayTimeout(
            "the store did not answer in time", retry_after_seconds=_RETRY_SECONDS
        )
    return ServiceUnavailable(
        f"the store cannot be read: {_words(error)}", retry_after_seconds=_RETRY_SECONDS
    )


def write_refusal(error: EtcdError) -> APIError:
    """What users are told when a write fails."""
    if not error.undone:
        return GatewayTimeout(
            "the store did not say whether it has written this: look before trying again",
            retry_after_seconds=_RETRY_SECONDS,
        )
    # etcd's words; and, for what is much larger, grpc's.
    if "request is too large" in error.message or error.is_too_large:
        return RequestEntityTooLarge(
            "the object is larger than the store takes (etcd's --max-request-bytes)"
        )
    return ServiceUnavailable(
        f"the store cannot write: {_words(error)}", retry_after_seconds=_RETRY_SECONDS
    )


def _words(error: EtcdError) -> str:
    """Without addresses, which are no user's business."""
    if error.is_full:
        return (
            "etcd is full (alarm NOSPACE): compact and defragment it, then disarm the alarm, or "
            "raise its quota"
        )
    if error.message.startswith("etcdserver: "):
        return error.message
    return "etcd cannot be reached"
