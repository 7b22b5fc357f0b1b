"""Names of kind clusters, and their lists."""

from __future__ import annotations

import re

from twisted_exec.api.status import BadGateway, Invalid, one_line
from twisted_exec.spacemanager.interfaces import Physical

LONGEST_NAME = 50
"""kind warns of longer names, because host names contain them."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def check_name(physical: Physical, *, new: bool = False) -> None:
    """
    Check the name of a cluster.

    :raises Invalid: it is not valid.
    """
    causes = []
    if not is_name(physical.name) or (new and len(physical.name) > LONGEST_NAME):
        problem = (
            f"a cluster's name has up to {LONGEST_NAME} lower case letters, digits, '.' and '-', and begins and"
            " ends with a letter or a digit"
        )
        causes.append({"field": "metadata.name", "message": problem})
    if physical.parent:
        problem = "providers of type kind have no places: leave the Space's path out"
        causes.append({"field": "metadata.annotations", "message": problem})
    if causes:
        raise Invalid("clusters", one_line(str(physical))[:80], causes)


def is_name(name: str) -> bool:
    """Return whether a name is valid for us. Kind itself also accepts ``..`` and ``-v``."""
    return len(name) <= 200 and _NAME.fullmatch(name) is not None


def listed_names(out: bytes) -> list[str]:
    """
    Return the clusters in the output of ``kind get clusters`` whose names are valid for us.

    :raises BadGateway: the output is something else.
    """
    lines = out.decode("utf-8", "replace").splitlines()
    if not all(re.fullmatch(r"[a-z0-9.-]{1,253}", line) for line in lines):
        raise BadGateway(
            "kind get clusters printed what are no names of clusters; see which program is called kind"
        )
    return sorted({line for line in lines if is_name(line)})
