"""
Namespaces.
"""

from __future__ import annotations

from twisted_exec.api import names
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.kinds.schemas import CONDITIONS, strings
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import string, struct

NAMESPACE_FINALIZER = "kubernetes"
"""Item of ``spec.finalizers`` that keeps a namespace until its content is gone."""


def _prepare_namespace(namespace: Object) -> None:
    if isinstance(namespace.setdefault("spec", {}), dict):
        namespace["spec"].setdefault("finalizers", [NAMESPACE_FINALIZER])
    labels = namespace["metadata"].setdefault("labels", {})
    if isinstance(labels, dict):
        # Selectors can choose namespaces by name.
        labels["kubernetes.io/metadata.name"] = namespace["metadata"].get("name", "")


def _keep_finalizers(new: Object, old: Object) -> None:
    """Only namespace deletion removes these finalizers, after the content is gone."""
    new["spec"] = dict(old.get("spec", {}))


def _held_by(namespace: Object) -> list[str]:
    own = namespace.get("spec", {}).get("finalizers", [])
    return [*namespace["metadata"].get("finalizers", []), *own]


def _phase(namespace: Object) -> str:
    return str(namespace.get("status", {}).get("phase", "Active"))


NAMESPACES = Kind(
    resource=Resource("", "v1", "namespaces", "Namespace", namespaced=False),
    singular="namespace",
    short_names=("ns",),
    description="Namespace provides a scope for names.",
    schema={
        "spec": struct(
            {"finalizers": strings("finalizers must be empty before the namespace is removed.")},
            description="spec is the desired state of the namespace.",
        ),
        "status": struct(
            {"phase": string("phase is Active or Terminating."), "conditions": CONDITIONS},
            description="status is the observed state of the namespace.",
        ),
    },
    columns=(Column("Status", _phase, "The status of the namespace"),),
    has_status=True,
    name_rule=names.dns_label,
    fields={"status.phase": lambda namespace: _phase(dict(namespace))},
    initial_status={"phase": "Active"},
    server_fields=("spec",),
    terminating_status={"phase": "Terminating"},
    held_by=_held_by,
    prepare=_prepare_namespace,
    carry_over=_keep_finalizers,
)
