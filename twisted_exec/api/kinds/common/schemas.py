"""
Pieces of schema that several kinds share.
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

API_VERSION = string("GROUP/VERSION of the schema that this object is written in.")
KIND = string("The kind of object that this is.")

CONDITIONS = array(
    struct(
        {
            "type": string("What the condition is about, such as Ready."),
            "status": string("Whether it holds.", enum=["True", "False", "Unknown"]),
            "reason": string("Why, in one word for programs."),
            "message": string("Why, for people."),
            "observedGeneration": integer("The metadata.generation that it was made from."),
            "lastUpdateTime": string("When it was told last."),
            "lastTransitionTime": string("When its status changed last."),
        },
        required=["type", "status"],
    ),
    "What holds of the object just now.",
    keys=["type"],
)

METAV1_CONDITIONS = array(
    struct(
        {
            "type": string("What it is about.", maxLength=316),
            "status": string("Whether it holds.", enum=["True", "False", "Unknown"]),
            "reason": string("Why, in one word for programs.", maxLength=1024),
            "message": string("Why, for people.", maxLength=32768),
            "observedGeneration": integer("The metadata.generation that it was made from."),
            "lastTransitionTime": moment("When its status changed last."),
        },
        required=["type", "status", "reason", "message", "lastTransitionTime"],
    ),
    "What holds of the object just now.",
    keys=["type"],
)
"""As ``Condition`` of ``k8s.io/apimachinery/pkg/apis/meta/v1``."""

TOLERATIONS = array(
    struct(
        {
            "key": string("Key of the taint; empty is any."),
            "operator": string(
                "Exists: whatever its value; Equal, the default: this value.",
                enum=["", "Exists", "Equal"],
            ),
            "value": string("Value of the taint."),
            "effect": string("Effect of the taint; empty is any."),
        }
    ),
    "Taints of pools that do not keep it away.",
)

TAINTS = array(
    struct(
        {
            "key": string("Key of the taint."),
            "value": string("Value of the taint."),
            "effect": string(
                "What it does to those without a toleration.",
                enum=["NoSchedule", "PreferNoSchedule", "NoExecute"],
            ),
        }
    ),
    "What keeps those away that do not tolerate it.",
)

OWNER_REFERENCE = struct(
    {
        "apiVersion": string("API version of the owner."),
        "kind": string("Kind of the owner."),
        "name": string("Name of the owner."),
        "uid": string("UID of the owner."),
        "controller": boolean("Whether it is the one owner that manages the object."),
        "blockOwnerDeletion": boolean("Whether the owner is to wait for the object's end."),
    },
    required=["apiVersion", "kind", "name", "uid"],
    atomic=True,
)

METADATA = struct(
    {
        "name": string("Unique within its kind and namespace."),
        "generateName": string("Prefix of a name that the server makes."),
        "namespace": string("The scope of its name; empty for what has none."),
        "selfLink": string("Not used any more."),
        "uid": string("Unique for ever; set by the server."),
        "resourceVersion": string("Another one after each change; set by the server."),
        "generation": integer("Counts the changes of what is wanted; set by the server."),
        "creationTimestamp": string("When it was made; set by the server."),
        "deletionTimestamp": string(
            "When it was deleted; it stays until nobody holds it. Set by the server."
        ),
        "deletionGracePeriodSeconds": integer("Always 0; set by the server."),
        "labels": mapping(string(), "What selectors choose it by."),
        "annotations": mapping(string(), "What programs note about it."),
        "ownerReferences": array(OWNER_REFERENCE, "What it belongs to.", keys=["uid"]),
        "finalizers": array(
            string(), "Who must agree before it goes; each takes its own away.", unique=True
        ),
        "managedFields": array(anything(), "Who wrote which field; kept by the server."),
    },
    description="Standard object metadata.",
)

TEMPLATE_METADATA = anything("Its labels and annotations.")


def strings(description: str) -> Schema:
    """A list of strings."""
    return array(string(), description)


LABEL_SELECTOR = struct(
    {
        "matchLabels": mapping(string(), "Labels that it must have."),
        "matchExpressions": array(
            struct(
                {
                    "key": string("The label's key."),
                    "operator": string("In, NotIn, Exists or DoesNotExist."),
                    "values": strings("For In and NotIn."),
                },
                required=["key", "operator"],
            ),
            "What its labels must fulfil.",
        ),
    },
    description="Selects objects by their labels.",
    atomic=True,
)


def claim(description: str) -> Schema:
    """A reference to the one object of the namespace that has this one."""
    return struct(
        {"name": string("Name of the referent."), "uid": string("UID of the referent.")},
        required=["name"],
        description=description,
        atomic=True,
    )


def extend_schema(schema: Schema, properties: Mapping[str, Schema]) -> Schema:
    """A struct with more properties."""
    return {**schema, "properties": {**schema["properties"], **properties}}
