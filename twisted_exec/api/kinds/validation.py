"""Validation and schemas of fields that several kinds have: references, resources, addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Any

from twisted_exec.api import fields, names, quantity, selectors
from twisted_exec.api.fields import Cause
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

IPV4, IPV6 = "IPv4", "IPv6"
FAMILIES = (IPV4, IPV6)
Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_MOST_SELECTOR_TERMS = 64


def reference(
    obj: Mapping[str, Any],
    key: str,
    field: str,
    *,
    needed: bool = False,
    rule: Callable[[str], list[str]] = names.dns_subdomain,
) -> Iterator[Cause]:
    """
    Check that ``obj[key]["name"]`` is a valid name.

    :param field: path of ``obj[key]``.
    """
    if key not in obj and not needed:
        return
    name = obj.get(key, {}).get("name", "")
    if not name:
        yield fields.required(f"{field}.name", "must specify a name")
        return
    for problem in rule(name):
        yield fields.invalid(f"{field}.name", name, problem)


def labels(values: Mapping[str, str], field: str) -> Iterator[Cause]:
    """Check the keys and values of labels."""
    for key, value in values.items():
        for problem in names.qualified_name(key):
            yield fields.invalid(field, key, problem)
        for problem in names.label_value(value):
            yield fields.invalid(field, value, problem)


def label_selector(selector: Mapping[str, Any], field: str) -> Iterator[Cause]:
    """Check a label selector that fits its schema."""
    terms = len(selector.get("matchLabels", {})) + sum(
        1 + len(each.get("values", ())) for each in selector.get("matchExpressions", ())
    )
    if terms > _MOST_SELECTOR_TERMS:
        yield fields.too_many(field, terms, _MOST_SELECTOR_TERMS)
        return
    try:
        parsed = selectors.of_object(selector)
    except ValueError as error:
        yield fields.invalid(field, selector, str(error))
        return
    for requirement in parsed.requirements:
        for problem in names.qualified_name(requirement.key):
            yield fields.invalid(field, requirement.key, problem)
        for value in sorted(requirement.values):
            for problem in names.label_value(value):
                yield fields.invalid(field, value, problem)


def positive(resources: Mapping[str, Any], key: str, field: str) -> Iterator[Cause]:
    """Check that ``resources[key]`` is present and positive."""
    if key not in resources:
        yield fields.required(f"{field}[{key}]", f"must specify {key}")
        return
    try:
        amount = quantity.parse(resources[key])
    except ValueError as error:
        yield fields.invalid(f"{field}[{key}]", resources[key], str(error))
        return
    if amount <= 0:
        yield fields.invalid(f"{field}[{key}]", resources[key], "must be greater than zero")


def unchanged(new: Any, old: Any, field: str) -> Iterator[Cause]:
    """Check that a field is unchanged."""
    if new != old:
        yield fields.forbidden(field, "field is immutable")


def set_once(new: Any, old: Any, field: str) -> Iterator[Cause]:
    """Check that a field is unchanged once it is set."""
    if old:
        yield from unchanged(new, old, field)


def address_of(text: str) -> Address | None:
    """Parse an IP address; ``None`` if it is invalid."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def network_of(text: str) -> Network | None:
    """Parse a prefix, ``ADDRESS/BITS``; ``None`` if it is invalid or has host bits set."""
    try:
        return ip_network(text) if "/" in text else None
    except ValueError:
        return None


def family_of(value: Address | Network) -> str:
    """Return ``IPv4`` or ``IPv6``."""
    return IPV4 if value.version == 4 else IPV6


def bits_of(family: str) -> int:
    """Return the address length of an IP family in bits."""
    return 32 if family == IPV4 else 128


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
