"""
Reading objects of providers that are Kubernetes objects: owners and conditions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from twisted_exec.api import names
from twisted_exec.api.spaces import OWNER
from twisted_exec.api.status import BadRequest, one_line


def owner_of(obj: Mapping[str, Any]) -> str:
    """Return the owner in an object's annotation, or empty."""
    annotations = obj["metadata"].get("annotations")
    return str(annotations.get(OWNER) or "") if isinstance(annotations, dict) else ""


def mark(owner: str) -> dict[str, str]:
    """
    Return the annotation for an owner.

    :raises BadRequest: the owner is not a UID.
    """
    if not owner or names.label_value(owner):
        raise BadRequest("the owner of a physical space must be the UID of a Space")
    return {OWNER: owner}


_WORD = re.compile("[A-Za-z][A-Za-z0-9]{0,63}")
_LONGEST = 400


def condition(status: Mapping[str, Any], type: str) -> Mapping[str, Any]:
    """Return a condition of a status; empty if there is none."""
    conditions = status.get("conditions")
    for each in conditions if isinstance(conditions, list) else ():
        if isinstance(each, dict) and each.get("type") == type:
            return each
    return {}


def reason_of(condition: Mapping[str, Any], otherwise: str) -> str:
    """Return the condition's reason if it is a valid one-word reason."""
    reason = str(condition.get("reason") or "")
    return reason if _WORD.fullmatch(reason) else otherwise


def message_of(condition: Mapping[str, Any]) -> str:
    """Return the condition's message, on one line and of bounded length; may be empty."""
    return one_line(str(condition.get("message") or ""))[:_LONGEST]


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}
