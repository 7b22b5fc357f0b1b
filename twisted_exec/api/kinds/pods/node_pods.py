"""
Pods that are stored: what runs on Nodes, as any cluster has it.

Nothing is scheduled or run here.  They are kept for those who do that (whoever binds a Pod to a Node,
and the kubelet of that Node), and for those who open streams of them.  What nobody acts on has any form.

Source: ``k8s.io/api/core/v1``, ``pkg/apis/core/v1/defaults.go``, ``pkg/apis/core/validation``
(``ValidatePodCreate``, ``ValidatePodUpdate``) and ``pkg/registry/core/pod/strategy.go`` of Kubernetes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from twisted_exec.api import fields, names
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.kind import Kind, Object
from twisted_exec.api.kinds.pods.columns import COLUMNS, of_spec, of_status
from twisted_exec.api.kinds.pods.schema import CONNECTS, OVER, SPEC, STATUS
from twisted_exec.api.logs import POD_QUERY
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import string, struct

CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
"""Where a Pod's spec has containers; a name is unique among all of them."""

_NARROW = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)


def containers_of(pod: Mapping[str, Any]) -> Iterator[tuple[str, Object]]:
    """Every container of a Pod's spec, with the path of its place."""
    for key in CONTAINER_LISTS:
        for index, container in enumerate(pod.get("spec", {}).get(key, [])):
            yield f"spec.{key}[{index}]", container


def node_of(pod: Mapping[str, Any]) -> str:
    """The Node that a Pod is bound to; empty for none."""
    return str(pod.get("spec", {}).get("nodeName", ""))


def is_over(pod: Mapping[str, Any]) -> bool:
    """Whether all that it was for has ended."""
    return pod.get("status", {}).get("phase") in OVER


def _held_by(pod: Object) -> list[str]:
    """Besides finalizers, its kubelet holds it, which says with a grace of 0 that it is gone."""
    metadata = pod["metadata"]
    held = list(metadata.get("finalizers", []))
    if metadata.get("deletionGracePeriodSeconds"):
        held.append("its kubelet")
    return held


def _prepare(pod: Object) -> None:
    """What has a default that depends on something else."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    for key in CONTAINER_LISTS:
        for container in spec.get(key, []):
            image = str(container.get("image", ""))
            container.setdefault("imagePullPolicy", "Always" if _latest(image) else "IfNotPresent")
    account, older = spec.get("serviceAccountName"), spec.get("serviceAccount")
    if account or older:
        spec["serviceAccountName"] = spec["serviceAccount"] = account or older


def _latest(image: str) -> bool:
    """Whether an image's name says the newest one, as one without a tag does."""
    last = image.rpartition("/")[2]
    return "@" not in last and last.partition(":")[2] in ("", "latest")


def _validate(pod: Object) -> list[Cause]:
    spec = pod["spec"]
    found = list(_container_causes(pod))
    if not spec.get("containers"):
        found.append(fields.required("spec.containers"))
    if node := spec.get("nodeName"):
        found += [fields.invalid("spec.nodeName", node, told) for told in names.dns_subdomain(node)]
    return found


def _container_causes(pod: Object) -> Iterator[Cause]:
    seen = set()
    for place, container in containers_of(pod):
        name = container.get("name", "")
        if not name:
            yield fields.required(f"{place}.name")
            continue
        for told in names.dns_label(name):
            yield fields.invalid(f"{place}.name", name, told)
        if name in seen:
            yield fields.duplicate(f"{place}.name", name)
        seen.add(name)
        if not container.get("image"):
            yield fields.required(f"{place}.image")


def _changed(new: Object, old: Object) -> list[Cause]:
    """A Pod is what it was made as; only what a kubelet can carry out on a running one changes."""
    before, after = old["spec"], new["spec"]
    for key in ("containers", "initContainers"):
        if len(before.get(key, [])) != len(after.get(key, [])):
            told = "pod updates may not add or remove containers"
            return [fields.forbidden(f"spec.{key}", told)]
    found = list(_toleration_causes(before.get("tolerations", []), after.get("tolerations", [])))
    found += _deadline_causes(before, after)
    if not found and _fixed(after, before) != before:
        found.append(fields.forbidden("spec", _NARROW))
    return found


def _toleration_causes(before: list[Object], after: list[Object]) -> Iterator[Cause]:
    if any(each not in after for each in before):
        told = "existing toleration can not be modified except its tolerationSeconds"
        yield fields.forbidden("spec.tolerations", told)


def _deadline_causes(before: Object, after: Object) -> Iterator[Cause]:
    place, old = "spec.activeDeadlineSeconds", before.get("activeDeadlineSeconds")
    new = after.get("activeDeadlineSeconds")
    if old is not None and new is None:
        yield fields.invalid(place, None, "must not update from a positive integer to nil value")
    elif old is not None and new > old:
        yield fields.invalid(place, new, "must be less than or equal to previous value")


def _fixed(after: Object, before: Object) -> Object:
    """The new spec with what may change as it was."""
    spec = copy.deepcopy(after)
    for key in ("activeDeadlineSeconds", "tolerations"):
        spec.pop(key, None)
        if key in before:
            spec[key] = before[key]
    for key in ("containers", "initContainers"):
        for container, known in zip(spec.get(key, []), before.get(key, []), strict=True):
            if "image" in known:
                container["image"] = known["image"]
    return spec


BINDINGS = Kind(
    resource=Resource("", "v1", "bindings", "Binding"),
    singular="binding",
    description="Binding says on which Node a Pod is to run; it is carried out and not kept.",
    schema={
        "target": struct(
            {
                "kind": string("Node."),
                "namespace": string("Empty: Nodes are in none."),
                "name": string("Which Node."),
                "uid": string("UID of the referent."),
                "apiVersion": string("API version of the referent."),
                "resourceVersion": string("The resourceVersion that is meant."),
                "fieldPath": string("The part of the referent that is meant."),
            },
            description="Where to.",
        )
    },
    required=["target"],
    stored=False,
)

NODE_PODS = Kind(
    resource=Resource("", "v1", "pods", "Pod"),
    singular="pod",
    short_names=("po",),
    categories=("all",),
    description="Pod is a set of containers on one Node.",
    schema={"spec": SPEC, "status": STATUS},
    required=["spec"],
    columns=COLUMNS,
    has_status=True,
    fields={
        "spec.nodeName": of_spec("nodeName"),
        "spec.restartPolicy": of_spec("restartPolicy"),
        "spec.schedulerName": of_spec("schedulerName"),
        "spec.serviceAccountName": of_spec("serviceAccountName"),
        "spec.hostNetwork": lambda pod: (
            "true" if pod.get("spec", {}).get("hostNetwork") else "false"
        ),
        "status.phase": of_status("phase"),
        "status.podIP": of_status("podIP"),
        "status.nominatedNodeName": of_status("nominatedNodeName"),
    },
    initial_status={"phase": "Pending", "qosClass": "BestEffort"},
    held_by=_held_by,
    prepare=_prepare,
    validate=_validate,
    validate_update=_changed,
    connects=CONNECTS,
    texts={"log": POD_QUERY},
    asked={"binding": BINDINGS},
)
