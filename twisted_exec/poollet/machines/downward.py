"""The downward API: fields of objects that the runtime gets as labels and annotations."""

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
    Downward API: paths of fields that the runtime gets, by label or annotation name, such as
    ``{"zone": "metadata.labels['zone']"}``.

    Source: ironcore ``poollet/common/utils`` and ``k8s.io/kubectl/pkg/util/fieldpath`` (the field
    paths).

    :param labels: set once, when the runtime's machine is created.
    :param annotations: kept up to date while the machine exists.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


def check(path: str) -> str:
    """
    Return ``path`` if it is a supported field path.

    :raises ValueError: it is not supported.
    """
    supported = [f"metadata.{name}" for name in (*_PLAIN, *_WHOLE)]
    if path not in supported and not _ENTRY.fullmatch(path):
        raise ValueError(f"{path!r} is none of {', '.join(supported)}, metadata.labels['KEY']")
    return path


def values(paths: Mapping[str, str], obj: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """
    Return the values of ``obj`` at these paths; a missing field becomes an empty string.

    :param paths: by name; each passed :func:`check`.
    """
    return {prefix + name: _value(obj["metadata"], path) for name, path in paths.items()}


def _value(metadata: Mapping[str, Any], path: str) -> str:
    entry = _ENTRY.fullmatch(path)
    if entry is not None:
        return str((metadata.get(entry[1]) or {}).get(entry[2], ""))
    field_value = metadata.get(path.removeprefix("metadata."))
    if isinstance(field_value, Mapping):
        return "\n".join(f'{key}="{value}"' for key, value in sorted(field_value.items()))
    return str(field_value or "")
