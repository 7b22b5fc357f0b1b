"""
Finalizers for the garbage collector.

A standalone server has no garbage collector and no owner references.  Behind a host cluster, the
host's collector follows our objects as it follows all others; a finalizer tells it that dependents
must be handled before the object goes.  Source: ``deletionFinalizersForGarbageCollection`` of
``k8s.io/apiserver/pkg/registry/generic/registry/store.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted_exec.api.kinds import Object

_FINALIZERS = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}


def with_collector_finalizer(obj: Object, options: Mapping[str, Any]) -> Object:
    """
    Return the object to delete, with the finalizer that the garbage collector waits for.

    :param options: the ``DeleteOptions``.
    :return: the same object if the policy needs no finalizer.
    """
    policy = "Orphan" if options.get("orphanDependents") else options.get("propagationPolicy")
    finalizer, held = _FINALIZERS.get(str(policy)), obj["metadata"].get("finalizers", [])
    if finalizer is None or finalizer in held:
        return obj
    return {**obj, "metadata": {**obj["metadata"], "finalizers": [*held, finalizer]}}
