"""
Pods on Nodes, which are stored, as in any cluster: their kind, subresources and validation.

Sources: ``k8s.io/api/core/v1``, and of Kubernetes ``pkg/apis/core/validation`` and
``pkg/registry/core/pod/strategy.go``.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

from twisted_exec.api import fields, names
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.kind import Connect, Kind, Object
from twisted_exec.api.kinds.pods.columns import COLUMNS, of_spec, of_status
from twisted_exec.api.kinds.pods.schema import OVER, SPEC, STATUS
from twisted_exec.api.kinds.schemas import strings
from twisted_exec.api.logs import POD_QUERY
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import (
    Schema,
    array,
    boolean,
    integer,
    string,
    struct,
)

CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
"""The lists of containers in a Pod's spec; a name is unique among all of them."""

_NARROW = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)


def _streams(kind: str, **more: Schema) -> Connect:
    properties = {
        "container": string(
            "container is the name of the container. Optional if the pod has only one."
        ),
        "stdin": boolean("stdin opens a stream for input."),
        "stdout": boolean("stdout opens a stream for output."),
        "stderr": boolean("stderr opens a stream for errors."),
        "tty": boolean("tty allocates a terminal."),
        **more,
    }
    return Connect(
        kind, struct(properties, description=f"{kind} is the query options of the subresource.")
    )


CONNECTS = {
    "attach": _streams("PodAttachOptions"),
    "exec": _streams(
        "PodExecOptions", command=strings("command is the command to run, with its arguments.")
    ),
    "portforward": Connect(
        "PodPortForwardOptions",
        struct(
            {"ports": array(integer(), "ports are the ports to forward.")},
            description="PodPortForwardOptions is the query options of the subresource.",
        ),
    ),
}


def containers_of(pod: Mapping[str, Any]) -> Iterator[tuple[str, Object]]:
    """Yield all containers of a Pod's spec with their paths."""
    for key in CONTAINER_LISTS:
        for index, container in enumerate(pod.get("spec", {}).get(key, [])):
            yield f"spec.{key}[{index}]", container


def node_of(pod: Mapping[str, Any]) -> str:
    """Return the Node that a Pod is bound to; empty if unbound."""
    return str(pod.get("spec", {}).get("nodeName", ""))


def is_over(pod: Mapping[str, Any]) -> bool:
    """Return whether a Pod has completed."""
    return pod.get("status", {}).get("phase") in OVER


def _held_by(pod: Object) -> list[str]:
    """Return what holds a Pod: finalizers, and its kubelet until a delete with grace period 0."""
    metadata = pod["metadata"]
    held = list(metadata.get("finalizers", []))
    if metadata.get("deletionGracePeriodSeconds"):
        held.append("its kubelet")
    return held


def _prepare(pod: Object) -> None:
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
    last = image.rpartition("/")[2]
    return "@" not in last and last.partition(":")[2] in ("", "latest")


def _validate(pod: Object) -> list[Cause]:
    spec = pod["spec"]
    causes = list(_container_causes(pod))
    if not spec.get("containers"):
        causes.append(fields.required("spec.containers"))
    if node := spec.get("nodeName"):
        causes += [
            fields.invalid("spec.nodeName", node, problem) for problem in names.dns_subdomain(node)
        ]
    return causes


def _container_causes(pod: Object) -> Iterator[Cause]:
    container_names = set()
    for place, container in containers_of(pod):
        name = container.get("name", "")
        if not name:
            yield fields.required(f"{place}.name")
            continue
        for problem in names.dns_label(name):
            yield fields.invalid(f"{place}.name", name, problem)
        if name in container_names:
            yield fields.duplicate(f"{place}.name", name)
        container_names.add(name)
        if not container.get("image"):
            yield fields.required(f"{place}.image")


def _changed(new: Object, old: Object) -> list[Cause]:
    """Check an update: only fields that a kubelet can apply to a running Pod may change."""
    before, after = old["spec"], new["spec"]
    for key in ("containers", "initContainers"):
        if len(before.get(key, [])) != len(after.get(key, [])):
            problem = "pod updates may not add or remove containers"
            return [fields.forbidden(f"spec.{key}", problem)]
    causes = list(_toleration_causes(before.get("tolerations", []), after.get("tolerations", [])))
    causes += _deadline_causes(before, after)
    if not causes and _fixed(after, before) != before:
        causes.append(fields.forbidden("spec", _NARROW))
    return causes


def _toleration_causes(before: list[Object], after: list[Object]) -> Iterator[Cause]:
    kept = {_text(each) for each in after}
    if any(_text(each) not in kept for each in before):
        problem = "existing toleration can not be modified except its tolerationSeconds"
        yield fields.forbidden("spec.tolerations", problem)


def _text(toleration: Object) -> str:
    return json.dumps(toleration, sort_keys=True)


def _deadline_causes(before: Object, after: Object) -> Iterator[Cause]:
    place, old = "spec.activeDeadlineSeconds", before.get("activeDeadlineSeconds")
    new = after.get("activeDeadlineSeconds")
    if old is not None and new is None:
        yield fields.invalid(place, None, "must not update from a positive integer to nil value")
    elif old is not None and new > old:
        yield fields.invalid(place, new, "must be less than or equal to previous value")


def _fixed(after: Object, before: Object) -> Object:
    spec = copy.deepcopy(after)
    for key in ("activeDeadlineSeconds", "tolerations"):
        spec.pop(key, None)
        if key in before:
            spec[key] = before[key]
    for key in ("containers", "initContainers"):
        for container, previous in zip(spec.get(key, []), before.get(key, []), strict=True):
            if "image" in previous:
                container["image"] = previous["image"]
    return spec


BINDINGS = Kind(
    resource=Resource("", "v1", "bindings", "Binding"),
    singular="binding",
    description="Binding binds a Pod to a Node. It is applied to the Pod and not stored.",
    schema={
        "target": struct(
            {
                "kind": string("kind is always Node."),
                "namespace": string("namespace is always empty."),
                "name": string("name is the name of the Node."),
                "uid": string("uid is the UID of the referent."),
                "apiVersion": string("apiVersion is the API version of the referent."),
                "resourceVersion": string("resourceVersion is the version of the referent."),
                "fieldPath": string("fieldPath is a part of the referent."),
            },
            description="target is the Node to bind the Pod to.",
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
    description="Pod is a collection of containers on one Node.",
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
    requests={"binding": BINDINGS},
)
