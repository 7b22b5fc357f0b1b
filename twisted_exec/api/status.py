"""
API errors, each carrying what its Kubernetes ``Status`` needs.

Every refusal in every program is one of these; each hop renders them in one
place.  The mapping of codes to reasons is that of
``k8s.io/apimachinery/pkg/apis/meta/v1/types.go``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_LONGEST_TEXT = 2048
_LONGEST_RETRY_SECONDS = 3600


class APIError(Exception):
    """
    A request was refused.

    :param message: what was refused, which object, what would help.  It is
        shown to the user as it is, so it never holds a secret.
    :param details: the ``details`` of the Status (name, group, kind, causes).
    :param retry_after_seconds: when trying again may help.
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

    def to_status(self) -> dict[str, Any]:
        """The ``Status`` document, ready for JSON."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if not self.reason:  # as in what an admission webhook refuses without giving one
            del status["reason"]
        # As Go writes them: a name or group that is empty is left out.
        details = {key: value for key, value in self.details.items() if value != ""}
        # Every 404 of Kubernetes has them, and kubectl debug crashes over one that has not.
        if details or self.reason == NotFound.reason:
            status["details"] = details
        return status


class BadRequest(APIError):
    code, reason = 400, "BadRequest"


class Unauthorized(APIError):
    code, reason = 401, "Unauthorized"

    def __init__(self, message: str = "Unauthorized", **more: Any) -> None:
        super().__init__(message, **more)


class Forbidden(APIError):
    code, reason = 403, "Forbidden"


class NotFound(APIError):
    """
    ``machines.compute.ironcore.dev "x" not found``.

    :param group: empty in the core group, and where it is not known: a runtime has none.
    """

    code, reason = 404, "NotFound"

    def __init__(self, resource: str, name: str, group: str = "", message: str = "") -> None:
        qualified = f"{resource}.{group}" if group else resource
        super().__init__(
            message or f'{qualified} "{name}" not found',
            details={"name": name, "group": group, "kind": resource},
        )


class MethodNotAllowed(APIError):
    code, reason = 405, "MethodNotAllowed"


class NotAcceptable(APIError):
    code, reason = 406, "NotAcceptable"


class RequestTimeout(APIError):
    """The *client* was too slow (408)."""

    code, reason = 408, "Timeout"


class AlreadyExists(APIError):
    code, reason = 409, "AlreadyExists"

    def __init__(self, resource: str, name: str, group: str = "") -> None:
        qualified = f"{resource}.{group}" if group else resource
        super().__init__(
            f'{qualified} "{name}" already exists',
            details={"name": name, "group": group, "kind": resource},
        )


class Conflict(APIError):
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
    The object was understood and refused (422).

    :param causes: one mapping per field: ``reason``, ``message``, ``field``.
    """

    code, reason = 422, "Invalid"

    def __init__(
        self, kind: str, name: str, causes: Sequence[Mapping[str, str]], group: str = ""
    ) -> None:
        told = ", ".join(f"{cause.get('field', '')}: {cause['message']}" for cause in causes)
        if len(causes) > 1:
            told = f"[{told}]"
        qualified = f"{kind}.{group}" if group else kind
        super().__init__(
            f'{qualified} "{name}" is invalid: {told}',
            details={
                "name": name,
                "group": group,
                "kind": kind,
                "causes": [dict(cause) for cause in causes],
            },
        )


class TooManyRequests(APIError):
    code, reason = 429, "TooManyRequests"

    def __init__(self, message: str, retry_after_seconds: int = 1, **more: Any) -> None:
        super().__init__(message, retry_after_seconds=retry_after_seconds, **more)


class InternalError(APIError):
    code, reason = 500, "InternalError"


class NotImplementedByBackend(APIError):
    """The backend exists and does not offer this, such as a runtime without an exec URL (501)."""

    code, reason = 501, "NotImplemented"


class BadGateway(APIError):
    """The next hop is down or answered nonsense (502)."""

    code, reason = 502, "BadGateway"


class ServiceUnavailable(APIError):
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
    """
    What a peer says, fit for a log and a terminal: printable, on one line, at most 2048 characters.
    """
    printable = "".join(char if char.isprintable() else " " for char in text[:_LONGEST_TEXT])
    return " ".join(printable.split())


def from_status(status: Mapping[str, Any], code: int = 500) -> APIError:
    """
    The error that a peer's Status document stands for.

    What it says is made fit to be shown: the peer may be in other hands.

    :param code: used when the document gives none, such as the HTTP status.
    """
    told_code = status.get("code")
    code = told_code if isinstance(told_code, int) and 100 <= told_code <= 599 else code
    details = status.get("details")
    details = details if isinstance(details, Mapping) else {}
    retry = details.get("retryAfterSeconds")
    return APIError(
        one_line(str(status.get("message") or "")) or f"the server answered {code}",
        code=code,
        reason=one_line(str(status.get("reason") or "")) or _BY_CODE.get(code, "Unknown"),
        details=details,
        retry_after_seconds=_seconds(retry),
    )


def _seconds(told: object) -> int | None:
    if not isinstance(told, int) or isinstance(told, bool):
        return None
    return min(max(0, told), _LONGEST_RETRY_SECONDS)


def from_code(code: int, message: str) -> APIError:
    """An error for a bare HTTP status with a text, as servers without Status bodies send."""
    return APIError(message, code=code, reason=_BY_CODE.get(code, "Unknown"))
