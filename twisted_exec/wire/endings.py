"""
How a console session ends: the ``Status`` on the error channel, and our reasons in it.

Protocols before version 4 end with plain text instead.

Sources: ``k8s.io/kubelet/pkg/cri/streaming/remotecommand`` (what servers write),
``k8s.io/client-go/tools/remotecommand/{v2,v4}.go`` (what clients read).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from twisted_exec.wire.channel import V4, V4_BASE64, V5
from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError

# Reasons for the end of a session.  ``COMPLETED`` with no exit code or 0 is Success on the wire,
# with another exit code NonZeroExitCode.  Every other reason is a Failure that carries it in
# details.causes.
COMPLETED = "Completed"
MACHINE_DELETED = "MachineDeleted"
POOL_DELETED = "PoolDeleted"
POWERED_OFF = "PoweredOff"
LINE_LOST = "LineLost"
SHUTTING_DOWN = "ShuttingDown"
RESTARTING = "Restarting"
"""
A program on the path stops, and the client resumes the session when it is back.  It is no Status on the
wire: the client reads a WebSocket Close with code 1012.
"""
REVOKED = "AuthorizationWithdrawn"
SESSION_DELETED = "SessionDeleted"
IDLE = "Idle"
TIME_OVER = "TimeOver"
CONSOLE_IN_USE = "ConsoleInUse"
INPUT_DENIED = "InputDenied"
TOO_MANY_VIEWERS = "TooManyViewers"
RESUMED = "Resumed"
USER_LEFT = "UserLeft"
INTERNAL = "InternalError"

LOGIN_EXPIRED = "the certificate or token of this session expired"
"""Begins the message of a session with ``REVOKED`` whose credentials have expired."""

HOP_REASONS = frozenset(
    {
        MACHINE_DELETED,
        POOL_DELETED,
        POWERED_OFF,
        LINE_LOST,
        SHUTTING_DOWN,
        REVOKED,
        SESSION_DELETED,
        IDLE,
        TIME_OVER,
        INTERNAL,
    }
)
"""Reasons for which any hop may end a session."""

FAILURES = HOP_REASONS | {CONSOLE_IN_USE, INPUT_DENIED, TOO_MANY_VIEWERS, RESUMED}
"""Reasons that are read from the causes of a failed Status."""

STATUS_LIMIT_BYTES = 64 << 10
"""A larger Status is rejected unparsed."""
MOST_CAUSES = 8

_WITH_STATUS = frozenset({V5, V4, V4_BASE64})
EXIT_REASON = "NonZeroExitCode"
"""Reason of a Status with a nonzero exit code, as in Kubernetes."""
_EXIT_CAUSE = "ExitCode"


@dataclass(frozen=True)
class Ending:
    """
    Why a session ended, as its final Status reports it.

    :param exit_code: the exit code (0 to 255) of a process, else ``None``.
    :param reason: one of the reasons above, for programs.
    :param message: for people: what ended, and why.
    :param causes: further reasons for programs, such as the hop that failed
        (:class:`~twisted_exec.api.obstacles.Obstacle`); at most 8 are read.
    :param user: the user who ended it, with :data:`SESSION_DELETED`; empty if unknown, as from release 0.2.0.
    """

    reason: str
    message: str = ""
    exit_code: int | None = None
    causes: tuple[str, ...] = ()
    user: str = ""

    def __post_init__(self) -> None:
        # client-go parses the code with 8 bits (v4.go).
        if self.exit_code is not None and not 0 <= self.exit_code <= 255:
            raise LocalProtocolError(f"no process ends with code {self.exit_code}")

    @property
    def is_success(self) -> bool:
        """True for a Success status: the session ended as its user intended."""
        return self.reason == COMPLETED and not self.exit_code


def has_status(protocol: str) -> bool:
    """Return whether a protocol ends with a Status; versions before 4 end with plain text."""
    return protocol in _WITH_STATUS


def encode_ending(ending: Ending, protocol: str) -> bytes:
    """Encode the message for the error channel; may be empty in protocols with plain text."""
    if has_status(protocol):
        return encode_status(ending)
    text: str = _status(ending).get("message", "")
    return text.encode()


def decode_ending(document: bytes, protocol: str) -> Ending:
    """
    Decode everything that was received on the error channel.

    :raises RemoteProtocolError: see :func:`decode_status`.
    """
    if has_status(protocol) or not document:
        return decode_status(document)
    if len(document) > STATUS_LIMIT_BYTES:
        raise RemoteProtocolError(f"status is larger than {STATUS_LIMIT_BYTES} bytes")
    return Ending(INTERNAL, document.decode("utf-8", "replace").strip())


def encode_status(ending: Ending) -> bytes:
    """Encode the Status of an ending as JSON."""
    return json.dumps(_status(ending), separators=(",", ":")).encode()


def _status(ending: Ending) -> dict[str, Any]:
    if ending.is_success:
        # Go writes the empty metadata of each Status.
        return {"metadata": {}, "status": "Success"}
    status: dict[str, Any] = {"metadata": {}, "status": "Failure"}
    if ending.reason == COMPLETED:
        code = ending.exit_code
        detail = ending.message or f"command terminated with exit code {code}"
        # The words of kubelets (exec.go), which kubectl shows.
        status["message"] = f"command terminated with non-zero exit code: {detail}"
        status["reason"] = EXIT_REASON
        status["details"] = {"causes": [{"reason": _EXIT_CAUSE, "message": str(code)}]}
        return status
    message = ending.message or f"the session ended: {ending.reason}"
    status["message"] = message
    status["reason"] = ending.reason
    causes = [{"reason": ending.reason, "message": message}]
    if ending.user:
        causes[0]["user"] = ending.user
    causes += [{"reason": each} for each in ending.causes]
    status["details"] = {"causes": causes}
    if ending.reason == INTERNAL:
        # As in Kubernetes' NewInternalError.
        status["code"] = 500
    return status


def decode_status(document: bytes) -> Ending:
    """
    Decode the peer's Status.

    A failure without an exit code and without one of :data:`FAILURES` becomes ``INTERNAL``.

    :param document: the complete JSON text.  Empty means success, as in client-go.
    :raises RemoteProtocolError: the document is not a valid Status.
    """
    # client-go reads the channel to its end, and takes no bytes for success (errorstream.go).
    if not document:
        return Ending(COMPLETED)
    if len(document) > STATUS_LIMIT_BYTES:
        raise RemoteProtocolError(f"status is larger than {STATUS_LIMIT_BYTES} bytes")
    try:
        status = json.loads(document)
    # Deep nesting raises RecursionError, which is no ValueError.
    except (ValueError, RecursionError):
        raise RemoteProtocolError("status is not JSON") from None
    if not isinstance(status, dict):
        raise RemoteProtocolError("status is not an object")
    if status.get("status") == "Success":
        return Ending(COMPLETED)
    if status.get("status") != "Failure":
        raise RemoteProtocolError("status is neither Success nor Failure")
    return _failure(status)


def _failure(status: dict[str, Any]) -> Ending:
    message = str(status.get("message") or "")
    causes = _causes(status)
    if status.get("reason") == EXIT_REASON:
        return Ending(COMPLETED, _strip_exit_prefix(message), _exit_code(causes))
    named = [cause for cause in causes if cause.reason]
    for number, (reason, _, user) in enumerate(named):
        if reason in FAILURES:
            further = named[number + 1 : number + 1 + MOST_CAUSES]
            return Ending(reason, message, causes=tuple(each.reason for each in further), user=user)
    return Ending(INTERNAL, message or "the server gave no reason")


class _Cause(NamedTuple):
    reason: str
    message: str
    user: str


def _causes(status: dict[str, Any]) -> list[_Cause]:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    if not isinstance(causes, list):
        return []
    return [
        _Cause(*(str(cause.get(name, "")) for name in _Cause._fields))
        for cause in causes
        if isinstance(cause, dict)
    ]


def _exit_code(causes: list[_Cause]) -> int:
    for reason, value, _ in causes:
        if reason == _EXIT_CAUSE:
            # isdecimal() alone accepts the digits of other scripts.
            if value.isascii() and value.isdecimal() and len(value) <= 3 and int(value) <= 255:
                return int(value)
            raise RemoteProtocolError("status carries an exit code that is not 0 to 255")
    raise RemoteProtocolError("status says NonZeroExitCode without a code")


def _strip_exit_prefix(message: str) -> str:
    return message.removeprefix("command terminated with non-zero exit code: ")
