"""
API errors as errors of gRPC, and back: status codes, messages and trailing metadata.

The codes follow ``google.rpc.Code``'s mapping to HTTP. Programs of this project also send the
``Status`` as binary metadata, because the codes do not express all of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import grpc

from twisted_exec.api import status as api

Metadata = tuple[tuple[str, str | bytes], ...]

_RETRY_AFTER = "retry-after"
_STATUS = "twisted-exec-status-bin"

# gRPC implementations refuse trailers of more than 8 KiB in total.
_LONGEST_STATUS_BYTES = 2048
_LONGEST_MESSAGE_BYTES = 4096

_TO_GRPC = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    405: grpc.StatusCode.UNIMPLEMENTED,
    406: grpc.StatusCode.INVALID_ARGUMENT,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.ABORTED,
    410: grpc.StatusCode.OUT_OF_RANGE,
    412: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.OUT_OF_RANGE,
    415: grpc.StatusCode.INVALID_ARGUMENT,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    501: grpc.StatusCode.UNIMPLEMENTED,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_FROM_GRPC: dict[grpc.StatusCode, type[api.APIError]] = {
    grpc.StatusCode.CANCELLED: api.ServiceUnavailable,
    grpc.StatusCode.UNKNOWN: api.InternalError,  # grpc-go uses it for every untyped error
    grpc.StatusCode.INVALID_ARGUMENT: api.BadRequest,
    grpc.StatusCode.OUT_OF_RANGE: api.BadRequest,
    grpc.StatusCode.FAILED_PRECONDITION: api.Conflict,
    grpc.StatusCode.ABORTED: api.Conflict,
    grpc.StatusCode.UNAUTHENTICATED: api.Unauthorized,
    grpc.StatusCode.PERMISSION_DENIED: api.Forbidden,
    grpc.StatusCode.UNIMPLEMENTED: api.NotImplementedByBackend,
    grpc.StatusCode.INTERNAL: api.InternalError,
    grpc.StatusCode.DATA_LOSS: api.InternalError,
}


def to_grpc(error: api.APIError) -> tuple[grpc.StatusCode, str, Metadata]:
    code = _TO_GRPC.get(error.code, grpc.StatusCode.INTERNAL)
    if error.reason == api.AlreadyExists.reason:
        code = grpc.StatusCode.ALREADY_EXISTS
    trailing: list[tuple[str, str | bytes]] = [(_STATUS, _status(error))]
    if error.retry_after_seconds is not None:
        trailing.append((_RETRY_AFTER, str(error.retry_after_seconds)))
    return code, _fitting(error.message), tuple(trailing)


def _status(error: api.APIError) -> bytes:
    detail: dict[str, Any] = {"code": error.code, "reason": error.reason}
    whole = json.dumps(detail | {"details": error.details}, default=str).encode()
    return whole if len(whole) <= _LONGEST_STATUS_BYTES else json.dumps(detail).encode()


def _fitting(message: str) -> str:
    # It is percent-encoded on the wire.
    while len(quote(message)) > _LONGEST_MESSAGE_BYTES:
        message = message[: len(message) * 3 // 4]
    return message


def from_grpc(
    code: grpc.StatusCode,
    details: str,
    trailing: Iterable[tuple[str, str | bytes]] = (),
    machine_id: str = "",
) -> api.APIError:
    """
    Return the API error of a failed call.

    :param machine_id: name of the object for ``NotFound``.
    """
    message = api.one_line(details or "") or f"the machine runtime answered {code.name}"
    sent = list(trailing)
    by_code, status = _by_code(code, message, sent, machine_id), attached_status(sent)
    if status is None:
        return by_code
    whole = api.from_status(status | {"message": message})
    if (whole.code, whole.reason) != (by_code.code, by_code.reason):
        return whole
    # The same, as an instance of the class that callers catch.
    by_code.message, by_code.details = whole.message, whole.details
    by_code.retry_after_seconds = whole.retry_after_seconds
    by_code.args = whole.args
    return by_code


def _by_code(
    code: grpc.StatusCode,
    message: str,
    trailing: Iterable[tuple[str, str | bytes]],
    machine_id: str,
) -> api.APIError:
    if code is grpc.StatusCode.NOT_FOUND:
        return api.NotFound("machines", machine_id, message=message)
    if code is grpc.StatusCode.ALREADY_EXISTS:
        return api.APIError(message, code=409, reason=api.AlreadyExists.reason)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return _exhausted(message, trailing)
    if code is grpc.StatusCode.UNAVAILABLE:
        return api.ServiceUnavailable("the machine runtime of the pool cannot be reached")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return api.GatewayTimeout("the machine runtime of the pool did not answer in time")
    return _FROM_GRPC.get(code, api.InternalError)(message)


def attached_status(trailing: Iterable[tuple[str, str | bytes]]) -> dict[str, Any] | None:
    """Return the ``Status`` in the metadata of this project's runtimes."""
    for key, value in trailing:
        if key != _STATUS or not isinstance(value, bytes) or len(value) > _LONGEST_STATUS_BYTES:
            continue
        try:
            detail = json.loads(value)
        except (ValueError, RecursionError):
            continue
        # Only error codes: an error must not become a success.
        if (
            isinstance(detail, dict)
            and isinstance(detail.get("code"), int)
            and detail["code"] >= 400
        ):
            return detail
    return None


def _exhausted(message: str, trailing: Iterable[tuple[str, str | bytes]]) -> api.APIError:
    if "larger than max" in message:  # grpcio's message on both sides for a message above the limit
        if "CLIENT: " in message:
            return api.BadGateway(f"the machine runtime's answer is too large: {message}")
        return api.RequestEntityTooLarge(f"the machine runtime does not take that much: {message}")
    return api.TooManyRequests(message, retry_after_seconds=_retry_after(trailing))


def _retry_after(trailing: Iterable[tuple[str, str | bytes]]) -> int:
    for key, value in trailing:
        text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
        if key.lower() == _RETRY_AFTER and text.isascii() and text.isdigit():
            return max(1, min(int(text[:5]), 3600))
    return 1
