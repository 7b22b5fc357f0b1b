"""
Pieces of schema that several kinds share.
"""

from __future__ import annotations

from twisted_exec.api.schema import anything, array, boolean, integer, mapping, string, struct

CONDITIONS = array(
    struct(
        {
            "type": string(),
            "status": string(enum=["True", "False", "Unknown"]),
            "reason": string(),
            "message": string(),
            "observedGeneration": integer(),
            "lastUpdateTime": string(),
            "lastTransitionTime": string(),
        },
        required=["type", "status"],
    ),
    keys=["type"],
)

TOLERATIONS = array(
    struct(
        {
            "key": string(),
            "operator": string(enum=["", "Exists", "Equal"]),
            "value": string(),
            "effect": string(),
        }
    )
)

OWNER_REFERENCE = struct(
    {
        "apiVersion": string(),
        "kind": string(),
        "name": string(),
        "uid": string(),
        "controller": boolean(),
        "blockOwnerDeletion": boolean(),
    },
    required=["apiVersion", "kind", "name", "uid"],
    atomic=True,
)

METADATA = struct(
    {
        "name": string("Unique within its kind and namespace."),
        "generateName": string("Prefix of a name that the server makes."),
        "namespace": string(),
        "selfLink": string(),
        "uid": string(),
        "resourceVersion": string(),
        "generation": integer(),
        "creationTimestamp": string(),
        "deletionTimestamp": string(),
        "deletionGracePeriodSeconds": integer(),
        "labels": mapping(string()),
        "annotations": mapping(string()),
        "ownerReferences": array(OWNER_REFERENCE, keys=["uid"]),
        "finalizers": array(string(), unique=True),
        "managedFields": array(anything()),
    },
    description="Standard object metadata.",
)

STRINGS = array(string())
