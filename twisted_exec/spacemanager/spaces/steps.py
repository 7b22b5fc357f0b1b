"""
Steps for one Space of a provider: :mod:`.plan` decides on them, :mod:`.worker` carries them out.
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
    """Record in ``status`` the physical space to be created; ``None`` for none."""

    physical: Physical | None


@dataclass(frozen=True)
class Create:
    """Create the physical space."""


@dataclass(frozen=True)
class Delete:
    """Delete the physical space."""


@dataclass(frozen=True)
class Rotate:
    """Rotate the credentials."""


@dataclass(frozen=True)
class WriteSecret:
    viewpoint: str
    access: Access


@dataclass(frozen=True)
class DeleteSecret:
    viewpoint: str


@dataclass(frozen=True)
class DeleteSpace:
    """Delete the Space object, which the manager created."""


@dataclass(frozen=True)
class LookAgain:
    """Refresh the copy of the provider's list."""


@dataclass(frozen=True)
class Tell:
    """Record an Event."""

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
