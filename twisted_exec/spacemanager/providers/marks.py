"""
Whose a physical space is, where its provider keeps it as an object of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted_exec.api import names
from twisted_exec.api.spaces import OWNER
from twisted_exec.api.status import BadRequest


def owner_of(obj: Mapping[str, Any]) -> str:
    """The mark that an object bears, or empty."""
    annotations = obj["metadata"].get("annotations")
    return str(annotations.get(OWNER) or "") if isinstance(annotations, dict) else ""


def mark(owner: str) -> dict[str, str]:
    """
    The annotation that says whose something is.

    :raises BadRequest: that is no UID.
    """
    if not owner or names.label_value(owner):
        raise BadRequest("the owner of a physical space must be the UID of a Space")
    return {OWNER: owner}
