"""
What the two gRPC adapters agree on: the methods, how errors travel, who asks.

The methods are read from the descriptors.  Errors travel as gRPC status codes, after
``google.rpc.Code``'s mapping to HTTP; ``RESOURCE_EXHAUSTED`` brings ``retry-after``
(seconds) in its trailing metadata.  An Exec and a Log bring for whom they are as binary
metadata, which a runtime that does not know it ignores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.message import Message

from twisted_exec.api import status as api

from .protos import console_pb2
from .protos import machine_pb2 as pb

Metadata = tuple[tuple[str, str | bytes], ...]

USER, MACHINE_UID, SESSION = "user", "machine_uid", "session"
_EXEC_KEYS = {
    USER: "twisted-exec-user-bin",
    MACHINE_UID: "twisted-exec-machine-uid-bin",
    SESSION: "twisted-exec-session-bin",
}
_RETRY_AFTER = "retry-after"


@dataclass(frozen=True)
class Method:
    """One RPC: its path on the wire, and its name in ``IMachineRuntime``."""

    path: str
    attribute: str
    request: type[Message]
    response: type[Message]


def _methods(service: Any) -> dict[str, Method]:
    return {
        found.name: Method(
            path=f"/{service.full_name}/{found.name}",
            attribute=re.sub(r"(?<=[a-z])(?=[A-Z])", "_", found.name).lower(),
            request=message_factory.GetMessageClass(found.input_type),
            response=message_factory.GetMessageClass(found.output_type),
        )
        for found in service.methods
    }


_MACHINES = pb.DESCRIPTOR.services_by_name["MachineRuntime"]
_CONSOLES = console_pb2.DESCRIPTOR.services_by_name["Console"]

SERVICE: str = _MACHINES.full_name
METHODS: Mapping[str, Method] = _methods(_MACHINES)
"""Of ``IMachineRuntime``."""

CONSOLE_SERVICE: str = _CONSOLES.full_name
CONSOLE_METHODS: Mapping[str, Method] = _methods(_CONSOLES)
"""Of ``IMachineLogs``: our own, beside the interface that all runtimes have."""

TOKENS = ("exec", "log")
"""Attributes of the methods that make a token for somebody, and are told for whom."""

_TO_GRPC = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.ABORTED,
    410: grpc.StatusCode.OUT_OF_RANGE,
    413: grpc.StatusCode.OUT_OF_RANGE,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    501: grpc.StatusCode.UNIMPLEMENTED,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_FROM_GRPC: dict[grpc.StatusCode, type[api.APIError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: api.BadRequest,
    grpc.StatusCode.OUT_OF_RANGE: api.BadRequest,
    grpc.StatusCode.FAILED_PRECONDITION: api.Conflict,
    grpc.StatusCode.ABORTED: api.Conflict,
    grpc.StatusCode.UNAUTHENTICATED: api.Unauthorized,
    grpc.StatusCode.PERMISSION_DENIED: api.Forbidden,
    grpc.StatusCode.UNIMPLEMENTED: api.NotImplementedByBackend,
}


def to_grpc(error: api.APIError) -> tuple[grpc.StatusCode, Metadata]:
    """The status code and the trailing metadata that tell an error."""
    code = _TO_GRPC.get(error.code, grpc.StatusCode.INTERNAL)
    if error.reason == api.AlreadyExists.reason:
        code = grpc.StatusCode.ALREADY_EXISTS
    if error.retry_after_seconds is None:
        return code, ()
    return code, ((_RETRY_AFTER, str(error.retry_after_seconds)),)


def from_grpc(
    code: grpc.StatusCode,
    details: str,
    trailing: Iterable[tuple[str, str | bytes]] = (),
    machine_id: str = "",
) -> api.APIError:
    """
    The error that a failed call stands for.

    :param details: the peer's text, the message on one line.
    :param machine_id: names the object of a ``NotFound``.
    """
    message = api.one_line(details or "") or f"the machine runtime answered {code.name}"
    if code is grpc.StatusCode.NOT_FOUND:
        return api.NotFound("machines", machine_id, message=message)
    if code is grpc.StatusCode.ALREADY_EXISTS:
        return api.APIError(message, code=409, reason=api.AlreadyExists.reason)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return api.TooManyRequests(message, retry_after_seconds=_retry_after(trailing))
    if code is grpc.StatusCode.UNAVAILABLE:
        return api.ServiceUnavailable("the machine runtime of the pool cannot be reached")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return api.GatewayTimeout("the machine runtime of the pool did not answer in time")
    return _FROM_GRPC.get(code, api.InternalError)(message)


def _retry_after(trailing: Iterable[tuple[str, str | bytes]]) -> int:
    """Seconds, at least 1, also from a peer that tells none or nonsense."""
    for key, value in trailing:
        text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
        if key.lower() == _RETRY_AFTER and text.isascii() and text.isdigit():
            return max(1, min(int(text), 3600))
    return 1


def exec_metadata(**facts: str) -> Metadata:
    """For whom an Exec or a Log is, as metadata; empty facts are left out."""
    return tuple((_EXEC_KEYS[name], told.encode()) for name, told in facts.items() if told)


def exec_facts(metadata: Iterable[tuple[str, str | bytes]]) -> dict[str, Any]:
    """
    The keyword arguments of ``IMachineRuntime.exec`` (or ``log``) that the metadata tells.

    :raises BadRequest: a value is not UTF-8.
    """
    sent = dict(metadata)
    facts = {}
    for name, key in _EXEC_KEYS.items():
        value = sent.get(key, b"")
        try:
            facts[name] = value if isinstance(value, str) else value.decode()
        except UnicodeDecodeError:
            raise api.BadRequest(f"metadata {key} is not UTF-8") from None
    return facts
