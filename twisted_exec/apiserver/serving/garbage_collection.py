"""
What becomes of objects that belong to a deleted one, where a garbage collector sees to them.

StandaloneControlPlane there is none, and nothing belongs to anything.  Behind another API server its collector
follows our objects as it follows all others, and is told by a finalizer that there is something
to be done first.  Source: ``deletionFinalizersForGarbageCollection`` of
``k8s.io/apiserver/pkg/registry/generic/registry/store.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted_exec.api.kinds import Object

_FINALIZERS = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}


def with_collector_finalizer(obj: Object, told: Mapping[str, Any]) -> Object:
    """
    An object that is to be deleted, with the finalizer that its collector waits for.

    :param told: the ``DeleteOptions``.
    :return: the same object where nothing is to be done first.
    """
    policy = "Orphan" if told.get("orphanDependents") else told.get("propagationPolicy")
    finalizer, held = _FINALIZERS.get(str(policy)), obj["metadata"].get("finalizers", [])
    if finalizer is None or finalizer in held:
        return obj
    return {**obj, "metadata": {**obj["metadata"], "finalizers": [*held, finalizer]}}
