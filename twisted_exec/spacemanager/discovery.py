"""
Which physical spaces discovery takes: ``spec.SpacePrefixForDiscovery``, without I/O.

Upstream took it for a prefix, and an empty one or ``*`` for everything.  Ours may be a glob, too: it is one
when it has any of ``*``, ``?`` and ``[``.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

EVERYTHING = ("", "*")
_MARKS = frozenset("*?[")


def filter_of(told: str) -> Callable[[str], bool]:
    """
    What says of a name whether it is taken.

    :param told: a prefix (``ks-``), or a glob that the whole name is to match (``ks-*-prod``).
    """
    if told in EVERYTHING:
        return lambda name: True
    if _MARKS.isdisjoint(told):
        return lambda name: name.startswith(told)
    matching = re.compile(fnmatch.translate(told)).match
    return lambda name: matching(name) is not None
