"""
The right that a user lacks, as a cause of a 403 names it for programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from twisted_exec.api.status import APIError

MISSING_RIGHT = "MissingRight"
MAY_OBSERVE = "MayObserve"
"""Reason of a cause that a client adds to a refusal, after it has asked whether the user may observe the console."""
NEVER_ALLOWED = "NeverAllowed"
"""Reason of a cause in place of :data:`MISSING_RIGHT`: no role gives the user the right."""
_REMEDY = "remedy"


@dataclass(frozen=True)
class MissingRight:
    """
    A right that a user lacks.

    :param resource: the plural, such as ``machines``.
    :param namespace: empty for all.
    """

    user: str
    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""

    def cause(self, message: str, remedy: str = "") -> dict[str, str]:
        """
        Return the cause of a refusal.

        :param remedy: the end of the refusal's message, which clients with a remedy of their own leave out.
        """
        members = {"reason": MISSING_RIGHT, "message": message, **asdict(self), _REMEDY: remedy}
        return {key: value for key, value in members.items() if value}


def missing_right(error: APIError) -> MissingRight | None:
    """Return the right that a refusal is about; ``None`` if it names none."""
    return next(iter(missing_rights(error)), None)


def missing_rights(error: APIError) -> list[MissingRight]:
    """Return all rights that a refusal names."""
    return [
        MissingRight(
            **{each.name: str(cause.get(each.name) or "") for each in fields(MissingRight)}
        )
        for cause in _causes(error)
    ]


def message_without_remedy(error: APIError) -> str:
    """Return the message of a refusal without the server's own remedy."""
    remedies = (str(each[_REMEDY]) for each in _causes(error) if each.get(_REMEDY))
    remedy = next(remedies, "")
    return error.message.removesuffix(f": {remedy}") if remedy else error.message


def _causes(error: APIError) -> list[Mapping[str, Any]]:
    return [each for each in error.causes if each.get("reason") == MISSING_RIGHT]
