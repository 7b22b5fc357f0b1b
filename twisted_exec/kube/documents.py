"""
The text of a kubeconfig, read: as its owner's file, or as data that somebody else has written.

Of what others wrote the work is bounded before it is done.  A few hundred bytes of YAML can stand for gigabytes,
by aliases; a few thousand can be nested until nobody can read them; and a quarter of a megabyte of commas is
seconds of work, in which nothing else happens here.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

MAX_VALUES = 5_000
"""Keys and values of YAML that others wrote: fifty clusters, with their users, have a quarter of that."""
MAX_DEPTH = 32

_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Refused(ValueError):
    """It may well be YAML, and is not read all the same; one line, which says why."""


class _Loader(_BaseLoader):  # type: ignore[misc]
    """What is neither truth nor nothing is text: of numbers a kubeconfig has none, and long ones cost."""


_NO_TEXT = ("bool", "null")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.endswith(_NO_TEXT)]
    for first, resolvers in _BaseLoader.yaml_implicit_resolvers.items()
}


def own(content: bytes) -> Any:
    """
    A file's document.

    :raises ValueError: and ``yaml.YAMLError``, ``RecursionError``, ``OverflowError``: it is none.
    """
    found = _json(content)
    return yaml.safe_load(content) if found is None else found


def others(content: bytes) -> Any:
    """
    The document of what somebody else wrote, with bounds; raises as :func:`own`.
    """
    found = _json(content)
    if found is not None:
        return found
    _check(content)
    return yaml.load(content, _Loader)


def _json(content: bytes) -> Any:
    """JSON is YAML, and read a hundred times as fast: what programs write is JSON."""
    if content.startswith(b"{"):
        try:
            return json.loads(content)
        except ValueError:
            pass  # a mapping as YAML writes it on one line begins like this, too
    return None


def _check(content: bytes) -> None:
    """:raises Refused: it would be more work than a kubeconfig is worth."""
    depth = values = 0
    for event in yaml.parse(content, _Loader):
        if isinstance(event, yaml.AliasEvent):
            raise Refused("it has aliases (*), which are not taken from here; write them out")
        if getattr(event, "tag", None) is not None:
            raise Refused("it has tags (!), which are not taken from here; leave them out")
        values += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if values > MAX_VALUES:
            raise Refused(f"it has more than {MAX_VALUES} keys and values")
        if depth > MAX_DEPTH:
            raise Refused(f"it is nested more than {MAX_DEPTH} deep")
