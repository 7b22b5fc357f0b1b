"""
What other programs say in their conditions, fit for ours.

Whose a physical space is, where its provider keeps it as an object of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from twisted_exec.api import names
from twisted_exec.api.spaces import OWNER
from twisted_exec.api.status import BadRequest, one_line


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


_WORD = re.compile("[A-Za-z][A-Za-z0-9]{0,63}")
_LONGEST = 400


def condition(status: Mapping[str, Any], type: str) -> Mapping[str, Any]:
    """A condition of a status; empty when there is none."""
    told = status.get("conditions")
    for each in told if isinstance(told, list) else ():
        if isinstance(each, dict) and each.get("type") == type:
            return each
    return {}


def reason_of(condition: Mapping[str, Any], otherwise: str) -> str:
    """Its reason, if that is one word as a condition of ours may have it."""
    told = str(condition.get("reason") or "")
    return told if _WORD.fullmatch(told) else otherwise


def message_of(condition: Mapping[str, Any]) -> str:
    """Its message, on one line, of a bounded length; may be empty."""
    return one_line(str(condition.get("message") or ""))[:_LONGEST]


def mapping(value: Any) -> Mapping[str, Any]:
    """A member that should be a mapping, and may be anything or not there."""
    return value if isinstance(value, dict) else {}
