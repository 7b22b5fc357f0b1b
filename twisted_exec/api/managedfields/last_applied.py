"""
The note that ``kubectl apply`` without ``--server-side`` leaves of what it applied.

With it kubectl goes on server-side without conflicts with its former self, and
with it another kubectl can go back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from twisted_exec.api import strategy
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.managedfields import fieldset, merge
from twisted_exec.api.managedfields.entries import bare
from twisted_exec.api.managedfields.fieldset import Path

NOTE = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation."""

KUBECTL = "kubectl"
"""The manager whose note it is."""


def agreed(kind: Kind, live: Object) -> frozenset[Path]:
    """
    What ``kubectl apply`` without ``--server-side`` applied last and still is so.

    kubectl managed it by that annotation, whichever program made it: it may go on with it.
    """
    annotations: Mapping[str, str] = live.get("metadata", {}).get("annotations", {})
    try:
        return _agreed(kind, live, json.loads(annotations.get(NOTE, "")))
    except (ValueError, RecursionError):
        return frozenset()


def _agreed(kind: Kind, live: Object, config: Any) -> frozenset[Path]:
    schema = strategy.full_schema(kind)
    if not isinstance(config, dict) or config.get("apiVersion") != kind.resource.api_version:
        return frozenset()
    if next(merge.problems(schema, config), None) is not None:
        return frozenset()
    difference = merge.compare(schema, config, bare(live))
    fields = merge.field_set(schema, config)
    for changed in (difference.added, difference.modified, difference.removed):
        fields = fieldset.difference(fields, changed)
    return frozenset(fieldset.paths(fields))


def noted(body: Object, config: Object) -> Object:
    """The body with a note, if it has one, that tells what kubectl applied just now."""
    metadata = body.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if not annotations.get(NOTE):
        return body
    told = json.dumps(
        _without_note(config), separators=(",", ":"), sort_keys=True, ensure_ascii=False
    )
    annotations = {**annotations, NOTE: f"{told}\n"}
    return {**body, "metadata": {**metadata, "annotations": annotations}}


def _without_note(config: Object) -> Object:
    metadata = config.get("metadata") or {}
    if not metadata.get("annotations"):
        return config
    annotations = {k: v for k, v in metadata["annotations"].items() if k != NOTE}
    return {**config, "metadata": {**metadata, "annotations": annotations}}
