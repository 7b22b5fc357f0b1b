"""
Costs of work on bodies and objects, estimated before the work.

The unit is a value: a number, a string, a list or an object.
"""

from __future__ import annotations

from twisted_exec.api import bodies
from twisted_exec.api.encoded import json_of
from twisted_exec.api.kinds import Object

CHEAP = 512
"""Cost of work that runs at once."""

_BYTES_PER_VALUE = 256
# YAML and protobuf are decoded in Python, and a value takes two bytes or more.
_BYTES_PER_FOREIGN_VALUE = 4
_YAML_FACTOR = 4


def cost_of_json(text: bytes) -> int:
    """Estimate the cost of JSON in values: long text counts by its bytes."""
    cost = len(text) // _BYTES_PER_VALUE
    # Beyond that the exact number makes no difference.
    return cost if cost > CHEAP else cost + bodies.most_values(text)


def cost_of_body(content_type: str, raw: bytes) -> int:
    """Estimate the cost of a request's body."""
    if not raw.lstrip().startswith((b"{", b"[")):
        return len(raw) // _BYTES_PER_FOREIGN_VALUE
    # Most of what is called YAML is JSON, but it may be YAML that looks like it.
    return cost_of_json(raw) * (_YAML_FACTOR if "yaml" in content_type else 1)


def cost_of_object(obj: Object) -> int:
    """Estimate the cost of work on a stored object."""
    return cost_of_json(json_of(obj))
