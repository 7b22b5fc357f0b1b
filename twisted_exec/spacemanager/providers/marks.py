"""
Whose a physical space is, where its provider keeps it as an object of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted_exec.api import names
from twisted_exec.api.status import BadRequest

OWNER = "space.twisted-exec.dev/owner"
"""Label: the UID of the Space that it was made for."""


def owner_of(obj: Mapping[str, Any]) -> str:
    """The mark that an object bears, or empty."""
    labels = obj["metadata"].get("labels")
    return str(labels.get(OWNER) or "") if isinstance(labels, dict) else ""


def mark(owner: str) -> dict[str, str]:
    """
    The label that says whose something is.

    :raises BadRequest: it cannot be one, and so is no UID.
    """
    if not owner or names.label_value(owner):
        raise BadRequest("the owner of a physical space must be the UID of a Space")
    return {OWNER: owner}
