"""
API errors, with the reason, message, code and details of a Kubernetes ``Status``.

Reasons are those of ``k8s.io/apimachinery/pkg/apis/meta/v1/types.go`` where it has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_LONGEST_TEXT = 2048
_DEEPEST_DETAILS = 4
_MOST_DETAILS = 100
_LONGEST_RETRY_SECONDS = 3600
_MAX_CAUSES = 100
_DECIDED = "Decided"
"""
Reason of the cause in a 403 of these programs without other causes.

A kube-apiserver that is starting answers 403 to everybody, without any cause.
"""


class APIError(Exception):
    """
    A refused request.

    :param message: the refusal, its object, and the remedy. Users see it unchanged, so it must not
        contain secrets.
    :param details: the ``details`` of the Status.
    :param retry_after_seconds: when a retry may succeed.
    """

    code = 500
    reason = "InternalError"

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        reason: str | None = None,
        details: Mapping[str, Any] | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = type(self).code if code is None else code
        self.reason = type(self).reason if reason is None else reason
        self.details = dict(details or {})
        self.retry_after_seconds = retry_after_seconds
        if retry_after_seconds is not None:
            self.details.setdefault("retryAfterSeconds", retry_after_seconds)

    @property
    def causes(self) -> list[Mapping[str, Any]]:
        """The causes among the details, without malformed entries."""
        causes = self.details.get("causes")
        return [
            each for each in (causes if isinstance(causes, list) else ()) if isinstance(each, dict)
        ]

    @property
    def is_decided(self) -> bool:
        """Return whether a 403 is from a server that knows the rights."""
        return self.code == Forbidden.code and bool(self.details.get("causes"))

    @property
    def may_pass(self) -> bool:
        """Return whether the same request may succeed later, without a change of the request."""
        return self.code == TooManyRequests.code or (
            self.code >= 500 and self.code != NotImplementedByBackend.code
        )

    def to_status(self) -> dict[str, Any]:
        """Return the ``Status`` document."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if not self.reason:  # an admission webhook may refuse without a reason
            del status["reason"]
        # Go omits an empty name or group.
        details = {key: value for key, value in self.details.items() if value != ""}
        # All of Kubernetes' 404s have details, and kubectl debug crashes without.
        if details or self.reason == NotFound.reason:
            status["details"] = details
        return status

    def as_class(self, kind: type[APIError]) -> APIError:
        """Return the same error as an instance of a class, so that callers can catch it."""
        typed = kind.__new__(kind)
        # The constructor of each class words its own message; this message is to stay.
        APIError.__init__(
            typed,
            self.message,
            code=self.code,
            reason=self.reason,
            details=self.details,
            retry_after_seconds=self.retry_after_seconds,
        )
        return typed


class BadRequest(APIError):
    """The request is malformed (400)."""

    code, reason = 400, "BadRequest"


class Unauthorized(APIError):
    """The request has no valid credentials (401)."""

    code, reason = 401, "Unauthorized"

    def __init__(self, message: str = "Unauthorized", **more: Any) -> None:
        super().__init__(message, **more)


class Forbidden(APIError):
    """The request is not allowed (403); see :meth:`APIError.is_decided`."""

    code, reason = 403, "Forbidden"

    def __init__(self, message: str, **more: Any) -> None:
        super().__init__(message, **more)
        self.details.setdefault("causes", [{"reason": _DECIDED, "message": message}])


class NotFound(APIError):
    """
    ``machines.compute.ironcore.dev "x" not found``.

    :param group: empty for the core group.
    """

    code, reason = 404, "NotFound"

    def __init__(self, resource: str, name: str, group: str = "", message: str = "") -> None:
        qualified = f"{resource}.{group}" if group else resource
        super().__init__(
            message or f'{qualified} "{name}" not found',
            details={"name": name, "group": group, "kind": resource},
        )


class MethodNotAllowed(APIError):
    """The path does not have this verb (405)."""

    code, reason = 405, "MethodNotAllowed"


class NotAcceptable(APIError):
    code, reason = 406, "NotAcceptable"


class RequestTimeout(APIError):
    """The *client* was too slow (408)."""

    code, reason = 408, "Timeout"


class AlreadyExists(APIError):
    """The name is taken (409)."""

    code, reason = 409, "AlreadyExists"

    def __init__(self, resource: str, name: str, group: str = "") -> None:
        qualified = f"{resource}.{group}" if group else resource
        super().__init__(
            f'{qualified} "{name}" already exists',
            details={"name": name, "group": group, "kind": resource},
        )


class Conflict(APIError):
    """The object has changed meanwhile: read it, and try again (409)."""

    code, reason = 409, "Conflict"


class Expired(APIError):
    """The resourceVersion or continue token is too old (410)."""

    code, reason = 410, "Expired"


class RequestEntityTooLarge(APIError):
    code, reason = 413, "RequestEntityTooLarge"


class UnsupportedMediaType(APIError):
    code, reason = 415, "UnsupportedMediaType"


class Invalid(APIError):
    """
    The object violates rules (422).

    :param causes: one mapping per problem: ``reason``, ``message``, ``field``.
    """

    code, reason = 422, "Invalid"

    def __init__(
        self, kind: str, name: str, causes: Sequence[Mapping[str, str]], group: str = ""
    ) -> None:
        first = causes[:_MAX_CAUSES]
        problems = ", ".join(f"{cause.get('field', '')}: {cause['message']}" for cause in first)
        if len(causes) > len(first):
            problems += f", and {len(causes) - len(first)} more problems"
        if len(causes) > 1:
            problems = f"[{problems}]"
        qualified = f"{kind}.{group}" if group else kind
        super().__init__(
            f'{qualified} "{name}" is invalid: {problems}',
            details={
                "name": name,
                "group": group,
                "kind": kind,
                "causes": [dict(cause) for cause in first],
            },
        )


class TooManyRequests(APIError):
    """
    A limit is reached for now (429).

    :param retry_after_seconds: when the client may try again.
    """

    code, reason = 429, "TooManyRequests"

    def __init__(self, message: str, retry_after_seconds: int | None = 1, **more: Any) -> None:
        super().__init__(message, retry_after_seconds=retry_after_seconds, **more)


class InternalError(APIError):
    code, reason = 500, "InternalError"


class NotImplementedByBackend(APIError):
    """The backend does not support this, such as a runtime without exec URLs (501)."""

    code, reason = 501, "NotImplemented"


class BadGateway(APIError):
    """The next hop is down or sent an invalid answer (502)."""

    code, reason = 502, "BadGateway"


class ServiceUnavailable(APIError):
    """The server cannot do this now, and has not done it (503)."""

    code, reason = 503, "ServiceUnavailable"


class GatewayTimeout(APIError):
    """The next hop was too slow (504)."""

    code, reason = 504, "Timeout"


_BY_CODE: dict[int, str] = {
    cls.code: cls.reason
    for cls in (
        BadRequest,
        Unauthorized,
        Forbidden,
        MethodNotAllowed,
        NotAcceptable,
        RequestTimeout,
        Conflict,
        Expired,
        RequestEntityTooLarge,
        UnsupportedMediaType,
        TooManyRequests,
        InternalError,
        NotImplementedByBackend,
        BadGateway,
        ServiceUnavailable,
        GatewayTimeout,
    )
} | {404: "NotFound", 422: "Invalid"}


def one_line(text: str) -> str:
    """Make a peer's text printable: one line of limited length, without control characters."""
    printable = "".join(char if char.isprintable() else " " for char in text[:_LONGEST_TEXT])
    return " ".join(printable.split())


def message_of(problem: BaseException | None) -> str:
    """Return one printable line for an exception of any layer."""
    if problem is None:
        return "no reason is known"
    text = str(problem)
    for part in problem.args:
        cause = getattr(part, "value", None)
        if isinstance(cause, BaseException):
            text = text.replace(str(part), message_of(cause).rstrip("."))
    return one_line(text) or type(problem).__name__


def from_status(status: Mapping[str, Any], code: int = 500) -> APIError:
    """
    Return the error for a peer's Status document.

    The texts are sanitised, because the peer may be under someone else's control.

    :param code: used if the document has none.
    """
    status_code = status.get("code")
    code = status_code if isinstance(status_code, int) and 100 <= status_code <= 599 else code
    details = _printable(status.get("details"), _DEEPEST_DETAILS)
    details = details if isinstance(details, dict) else {}
    retry = details.get("retryAfterSeconds")
    return APIError(
        one_line(str(status.get("message") or "")) or f"the server answered {code}",
        code=code,
        reason=one_line(str(status.get("reason") or "")) or _BY_CODE.get(code, "Unknown"),
        details=details,
        retry_after_seconds=_seconds(retry),
    )


def _printable(value: Any, levels: int) -> Any:
    if isinstance(value, str):
        return one_line(value)
    if levels == 0 or value is None or isinstance(value, bool | int | float):
        return None if isinstance(value, Mapping | list) else value
    if isinstance(value, Mapping):
        pairs = list(value.items())[:_MOST_DETAILS]
        return {one_line(str(key)): _printable(each, levels - 1) for key, each in pairs}
    if isinstance(value, list):
        return [_printable(each, levels - 1) for each in value[:_MOST_DETAILS]]
    return None


def _seconds(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return min(max(0, value), _LONGEST_RETRY_SECONDS)


def from_code(code: int, message: str) -> APIError:
    """Return the error for a plain HTTP status with a text."""
    return APIError(one_line(message), code=code, reason=_BY_CODE.get(code, "Unknown"))


class InsufficientStorage(APIError):
    """The store has no space for the object (507)."""

    code, reason = 507, "InsufficientStorage"


def forget_frames(error: BaseException) -> None:
    """
    Break the reference cycles of an error that was handled.

    An error of a Deferred refers to itself by its traceback, and with it to all that its callers
    worked on, until the garbage collector finds it.
    """
    each: BaseException | None = error
    while each is not None:
        context = each.__context__
        each.__traceback__ = each.__context__ = None
        each = context
