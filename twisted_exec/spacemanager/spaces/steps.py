"""
What can be done about a Space of a provider: decided by :mod:`.space_plan`, done by :mod:`.space_work`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twisted_exec.spacemanager.interfaces import Access, Physical


@dataclass(frozen=True)
class SetFinalizers:
    finalizers: Sequence[str]


@dataclass(frozen=True)
class Intend:
    """Write in ``status`` what will be asked for; ``None`` for nothing."""

    physical: Physical | None


@dataclass(frozen=True)
class Create:
    """Have the physical space made."""


@dataclass(frozen=True)
class Delete:
    """Have the physical space deleted."""


@dataclass(frozen=True)
class Rotate:
    """Have new credentials made."""


@dataclass(frozen=True)
class WriteSecret:
    viewpoint: str
    access: Access


@dataclass(frozen=True)
class DeleteSecret:
    viewpoint: str


@dataclass(frozen=True)
class DeleteSpace:
    """Delete the object, which is ours."""


@dataclass(frozen=True)
class LookAgain:
    """Have the provider asked again, by whoever keeps what it lists."""


@dataclass(frozen=True)
class Tell:
    """An Event."""

    type: str
    reason: str
    message: str


Step = (
    SetFinalizers
    | Intend
    | Create
    | Delete
    | Rotate
    | WriteSecret
    | DeleteSecret
    | DeleteSpace
    | LookAgain
    | Tell
)
