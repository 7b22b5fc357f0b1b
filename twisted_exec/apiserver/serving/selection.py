"""
Selection of objects by the selectors of a list or a watch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from twisted_exec.api.kinds import Kind, Object
from twisted_exec.apiserver.serving.query import ListOptions
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.storage.history import key_of


def candidates(
    objects: Sequence[Object], target: RequestTarget, options: ListOptions
) -> Sequence[Object]:
    """Return the objects to compare with the selectors: at most one if these name it."""
    name, namespace = options.fields.required("metadata.name"), target.namespace
    if name is None or (target.kind.resource.namespaced and not namespace):
        return objects
    first = bisect_left(objects, (namespace, name), key=key_of)
    return objects[first : bisect_right(objects, (namespace, name), first, key=key_of)]


def is_selected(kind: Kind, obj: Object, options: ListOptions) -> bool:
    """Return whether an object matches a list's selectors, already validated for the kind."""
    labels = obj["metadata"].get("labels", {})
    return options.labels.matches(labels) and options.fields.matches(obj, kind.selectable)
