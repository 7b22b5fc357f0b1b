"""
kubectl's annotation of the configuration that it applied last, client-side or server-side.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from twisted_exec.api import strategy
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.managedfields import fieldset, merge
from twisted_exec.api.managedfields.entries import without_managed_fields
from twisted_exec.api.managedfields.fieldset import Path

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
"""Key of the annotation."""

KUBECTL = "kubectl"
"""Field manager that the annotation belongs to."""


def unchanged_fields(kind: Kind, live: Object) -> frozenset[Path]:
    """Return the fields of the last client-side apply that are unchanged since."""
    annotations: Mapping[str, str] = live.get("metadata", {}).get("annotations", {})
    try:
        return _unchanged_fields(kind, live, json.loads(annotations.get(ANNOTATION, "")))
    except (ValueError, RecursionError):
        return frozenset()


def _unchanged_fields(kind: Kind, live: Object, config: Any) -> frozenset[Path]:
    schema = strategy.full_schema(kind)
    if not isinstance(config, dict) or config.get("apiVersion") != kind.resource.api_version:
        return frozenset()
    if next(merge.problems(schema, config), None) is not None:
        return frozenset()
    difference = merge.compare(schema, config, without_managed_fields(live))
    fields = merge.field_set(schema, config)
    for changed in (difference.added, difference.modified, difference.removed):
        fields = fieldset.difference(fields, changed)
    return frozenset(fieldset.paths(fields))


def with_annotation(body: Object, config: Object) -> Object:
    """Return a body whose annotation, if it has one, shows what kubectl has just applied."""
    metadata = body.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if not annotations.get(ANNOTATION):
        return body
    text = json.dumps(
        _without_annotation(config), separators=(",", ":"), sort_keys=True, ensure_ascii=False
    )
    annotations = {**annotations, ANNOTATION: f"{text}\n"}
    return {**body, "metadata": {**metadata, "annotations": annotations}}


def _without_annotation(config: Object) -> Object:
    metadata = config.get("metadata") or {}
    if not metadata.get("annotations"):
        return config
    annotations = {k: v for k, v in metadata["annotations"].items() if k != ANNOTATION}
    return {**config, "metadata": {**metadata, "annotations": annotations}}
