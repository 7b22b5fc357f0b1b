"""
Schemas of fields that several kinds have: metadata, conditions, references, selectors.
"""

from __future__ import annotations

from collections.abc import Mapping

from twisted_exec.api.schema import (
    Schema,
    anything,
    array,
    boolean,
    integer,
    mapping,
    moment,
    string,
    struct,
)

API_VERSION = string(
    "apiVersion is the group and version of this object's schema, in the format GROUP/VERSION."
)
KIND = string("kind is the kind of this object.")

CONDITIONS = array(
    struct(
        {
            "type": string("type is the type of the condition, such as Ready."),
            "status": string(
                "status is the status of the condition: True, False or Unknown.",
                enum=["True", "False", "Unknown"],
            ),
            "reason": string("reason is a one-word CamelCase reason for the last transition."),
            "message": string("message is a human-readable description of the last transition."),
            "observedGeneration": integer(
                "observedGeneration is the metadata.generation that the condition is based on."
            ),
            "lastUpdateTime": string("lastUpdateTime is the last time the condition was updated."),
            "lastTransitionTime": string(
                "lastTransitionTime is the last time the condition's status changed."
            ),
        },
        required=["type", "status"],
    ),
    "conditions are the current conditions of the object.",
    keys=["type"],
)

METAV1_CONDITIONS = array(
    struct(
        {
            "type": string("type is the type of the condition.", maxLength=316),
            "status": string(
                "status is the status of the condition: True, False or Unknown.",
                enum=["True", "False", "Unknown"],
            ),
            "reason": string(
                "reason is a one-word CamelCase reason for the last transition.", maxLength=1024
            ),
            "message": string(
                "message is a human-readable description of the last transition.", maxLength=32768
            ),
            "observedGeneration": integer(
                "observedGeneration is the metadata.generation that the condition is based on."
            ),
            "lastTransitionTime": moment(
                "lastTransitionTime is the last time the condition's status changed."
            ),
        },
        required=["type", "status", "reason", "message", "lastTransitionTime"],
    ),
    "conditions are the current conditions of the object.",
    keys=["type"],
)
"""The schema of conditions: ``Condition`` of ``k8s.io/apimachinery/pkg/apis/meta/v1``."""

TOLERATIONS = array(
    struct(
        {
            "key": string("key is the key of the taint; empty matches all keys."),
            "operator": string(
                "operator is Exists to match any value, or Equal (the default) to match this value.",
                enum=["", "Exists", "Equal"],
            ),
            "value": string("value is the value of the taint."),
            "effect": string("effect is the effect of the taint; empty matches all effects."),
        }
    ),
    "tolerations allow the object on pools with matching taints.",
)

TAINTS = array(
    struct(
        {
            "key": string("key is the key of the taint."),
            "value": string("value is the value of the taint."),
            "effect": string(
                "effect is what happens to objects that do not tolerate the taint.",
                enum=["NoSchedule", "PreferNoSchedule", "NoExecute"],
            ),
        }
    ),
    "taints keep objects without matching tolerations off the pool.",
)

OWNER_REFERENCE = struct(
    {
        "apiVersion": string("apiVersion is the API version of the owner."),
        "kind": string("kind is the kind of the owner."),
        "name": string("name is the name of the owner."),
        "uid": string("uid is the UID of the owner."),
        "controller": boolean("controller is true if the owner is the managing controller."),
        "blockOwnerDeletion": boolean(
            "blockOwnerDeletion delays a foreground deletion of the owner until this object is gone."
        ),
    },
    required=["apiVersion", "kind", "name", "uid"],
    atomic=True,
)

METADATA = struct(
    {
        "name": string("name is unique within the kind and namespace. It is immutable."),
        "generateName": string(
            "generateName is a prefix from which the server generates a unique name if name is empty."
        ),
        "namespace": string(
            "namespace is the scope of the name. It is empty for cluster-scoped objects."
        ),
        "selfLink": string("Deprecated and ignored."),
        "uid": string("uid is unique in time and space. Set by the server."),
        "resourceVersion": string(
            "resourceVersion is an opaque value that changes with each write. Set by the server."
        ),
        "generation": integer(
            "generation is a counter of changes to the desired state. Set by the server."
        ),
        "creationTimestamp": string(
            "creationTimestamp is when the object was created. Set by the server."
        ),
        "deletionTimestamp": string(
            "deletionTimestamp is when deletion was requested. The object is removed once finalizers is empty. Set by the server."
        ),
        "deletionGracePeriodSeconds": integer(
            "deletionGracePeriodSeconds is the grace period of the deletion. Set by the server."
        ),
        "labels": mapping(string(), "labels are key-value pairs that selectors match."),
        "annotations": mapping(string(), "annotations are key-value pairs of arbitrary metadata."),
        "ownerReferences": array(
            OWNER_REFERENCE,
            "ownerReferences are the objects that this object depends on.",
            keys=["uid"],
        ),
        "finalizers": array(
            string(),
            "finalizers must be empty before the object is removed. Each is removed by its owner.",
            unique=True,
            # kube-apiserver accepts repeated finalizers: with a check here, nobody could change or
            # release an object that is stored with them.
            uniqueItems=False,
        ),
        "managedFields": array(
            anything(),
            "managedFields record which manager owns which fields. Maintained by the server.",
        ),
    },
    description="Standard object metadata.",
)

TEMPLATE_METADATA = anything("metadata holds the labels and annotations.")


def strings(description: str) -> Schema:
    """Return the schema of a list of strings."""
    return array(string(), description)


LABEL_SELECTOR = struct(
    {
        "matchLabels": mapping(string(), "matchLabels are labels that an object must have."),
        "matchExpressions": array(
            struct(
                {
                    "key": string("key is the label key."),
                    "operator": string("operator is In, NotIn, Exists or DoesNotExist."),
                    "values": strings("values are the values for the operators In and NotIn."),
                },
                required=["key", "operator"],
            ),
            "matchExpressions are requirements for an object's labels.",
        ),
    },
    description="A label selector.",
    atomic=True,
)


def claim(description: str) -> Schema:
    """Return the schema of a reference to the object that claims this object."""
    return struct(
        {
            "name": string("name is the name of the referent."),
            "uid": string("uid is the UID of the referent."),
        },
        required=["name"],
        description=description,
        atomic=True,
    )


def extend_schema(schema: Schema, properties: Mapping[str, Schema]) -> Schema:
    """Return a schema with additional properties."""
    return {**schema, "properties": {**schema["properties"], **properties}}
