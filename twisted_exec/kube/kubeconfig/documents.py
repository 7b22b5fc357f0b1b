"""YAML of kubeconfigs from another party, checked before it is parsed."""

from __future__ import annotations

from typing import Any

import yaml

from twisted_exec.api.yaml_text import TooDeep, yaml_events, yaml_problem

MAX_VALUES = 5_000
"""Limit of keys and values in YAML from others."""
MAX_DEPTH = 32  # deep nesting exhausts the stack of the parser

_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _OverLimit(ValueError):
    """The data exceeds a limit."""


class _Loader(_BaseLoader):  # type: ignore[misc]
    """Reads scalars other than booleans and null as text."""


_NO_TEXT = ("bool", "null")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.endswith(_NO_TEXT)]
    for first, resolvers in _BaseLoader.yaml_implicit_resolvers.items()
}


def parse_untrusted(text: str | bytes) -> object:
    """
    Parse YAML.

    :raises ValueError: it is malformed, exceeds a limit, or has aliases or tags.
    """
    try:
        _check(text)
        document: object = yaml.load(text, _Loader)
    except (_OverLimit, TooDeep):
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"not YAML: {yaml_problem(error)}") from None
    return document


def _check(text: str | bytes) -> None:
    values = 0
    for event in yaml_events(text, _Loader, MAX_DEPTH):
        # They expand a few hundred bytes to gigabytes.
        if isinstance(event, yaml.AliasEvent):
            raise _OverLimit("it has aliases (*), which are not taken from here; write them out")
        if getattr(event, "tag", None) is not None:
            raise _OverLimit("it has tags (!), which are not taken from here; leave them out")
        # 256 KiB of commas would block the reactor for seconds.
        values += isinstance(event, yaml.NodeEvent)
        if values > MAX_VALUES:
            raise _OverLimit(f"it has more than {MAX_VALUES} keys and values")
