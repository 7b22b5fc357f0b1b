"""
The downward API: what of an object its runtime is told, as labels and annotations.

Which field is told under which name is the operator's choice; the names get a
prefix of the dialect's.  Source: ironcore ``poollet/common/utils`` and
``k8s.io/kubectl/pkg/util/fieldpath``, whose field paths these are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_ENTRY = re.compile(r"metadata\.(labels|annotations)\['([^']{1,316})'\]")
_PLAIN = ("name", "namespace", "uid")
_WHOLE = ("labels", "annotations")


@dataclass(frozen=True)
class Downward:
    """
    Field paths by the name that they are told under.

    :param labels: told as labels of the runtime's machine, when it is made.
    :param annotations: told as its annotations, kept current.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


def check(path: str) -> str:
    """
    ``path``, if it can be told.

    :raises ValueError: it is none of ours, in words for an operator.
    """
    supported = [f"metadata.{name}" for name in (*_PLAIN, *_WHOLE)]
    if path not in supported and not _ENTRY.fullmatch(path):
        raise ValueError(f"{path!r} is none of {', '.join(supported)}, metadata.labels['KEY']")
    return path


def values(paths: Mapping[str, str], obj: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """
    What ``obj`` has at these paths; nothing there is an empty text.

    :param paths: by name, each as :func:`check` lets it pass.
    :param prefix: put before each name.
    """
    return {prefix + name: _value(obj["metadata"], path) for name, path in paths.items()}


def _value(metadata: Mapping[str, Any], path: str) -> str:
    entry = _ENTRY.fullmatch(path)
    if entry is not None:
        return str((metadata.get(entry[1]) or {}).get(entry[2], ""))
    found = metadata.get(path.removeprefix("metadata."))
    if isinstance(found, Mapping):
        return "\n".join(f'{key}="{value}"' for key, value in sorted(found.items()))
    return str(found or "")
