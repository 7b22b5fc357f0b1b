"""
Scenarios of writes to objects, as requests; each begins on an empty server.

The same requests go to a real kube-apiserver (``tests/interop/kube_apiserver.py``), which knows
our kinds as custom resources, and to ours (``test_service_apply.py``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

COMPUTE = "compute.ironcore.dev/v1alpha1"
MACHINES = f"/apis/{COMPUTE}/namespaces/default/machines"
POOLS = f"/apis/{COMPUTE}/machinepools"
CLASSES = f"/apis/{COMPUTE}/machineclasses"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
RBAC = "/apis/rbac.authorization.k8s.io/v1"

VERSION = "$resourceVersion"
"""In a body: the version that the last answer with an object had."""


@dataclass(frozen=True)
class Step:
    """One request.  ``body``: a document, or text that is sent as it is."""

    method: str
    path: str
    body: Any
    content_type: str = "application/json"
    agent: str = "tests/1"


def machine(name: str = "m", *, version: str = "", **parts: Any) -> dict[str, Any]:
    """A Machine; ``parts`` are of its metadata, but ``spec``."""
    spec = parts.pop("spec", {})
    metadata = {"name": name, **parts}
    if version:
        metadata["resourceVersion"] = version
    return {"apiVersion": COMPUTE, "kind": "Machine", "metadata": metadata, "spec": spec}


def pool(name: str = "p", *, spec: Any = None, status: Any = None, **parts: Any) -> dict[str, Any]:
    """A MachinePool."""
    body = {"apiVersion": COMPUTE, "kind": "MachinePool", "metadata": {"name": name, **parts}}
    if spec is not None:
        body["spec"] = spec
    if status is not None:
        body["status"] = status
    return body


CLASS = {"machineClassRef": {"name": "small"}}


def disk(name: str, device: str = "oda", size: str = "1Gi") -> dict[str, Any]:
    """A volume."""
    return {"name": name, "device": device, "emptyDisk": {"sizeLimit": size}}


def _query(manager: str, more: dict[str, str]) -> str:
    told = {"fieldManager": manager, **more} if manager else more
    return f"?{urlencode(told)}" if told else ""


def create(
    body: Any, manager: str = "", at: str = MACHINES, agent: str = "tests/1", **q: str
) -> Step:
    return Step("POST", at + _query(manager, q), body, agent=agent)


def put(body: Any, manager: str, at: str = f"{MACHINES}/m", **q: str) -> Step:
    return Step("PUT", at + _query(manager, q), body)


def merge(body: Any, manager: str, at: str = f"{MACHINES}/m", **q: str) -> Step:
    return Step("PATCH", at + _query(manager, q), body, MERGE)


def json_patch(body: Any, manager: str, at: str = f"{MACHINES}/m", **q: str) -> Step:
    return Step("PATCH", at + _query(manager, q), body, JSON_PATCH)


def apply(body: Any, manager: str, at: str = f"{MACHINES}/m", **q: str) -> Step:
    return Step("PATCH", at + _query(manager, q), body, APPLY)


def _conditions(**states: str) -> list[dict[str, str]]:
    return [{"type": key, "status": value} for key, value in states.items()]


def _told(**reasons: str) -> list[dict[str, str]]:
    return [{"type": key, "status": "True", "reason": why} for key, why in reasons.items()]


_RICH = machine(
    labels={"a": "1", "b": "2"},
    annotations={"note": "x"},
    finalizers=["example.com/f"],
    spec={
        **CLASS,
        "volumes": [disk("root"), disk("data", "odb")],
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "machinePoolSelector": {"zone": "z"},
    },
)
_APPLIED = machine(labels={"a": "1"}, spec={**CLASS, "power": "On"})


def _last_applied(body: Any) -> str:
    return json.dumps(body, separators=(",", ":"), sort_keys=True) + "\n"


_CSA = machine(labels={"a": "1"}, spec={**CLASS, "power": "On"})
_CSA_STORED = machine(
    labels={"a": "1"},
    annotations={LAST_APPLIED: _last_applied(_CSA)},
    spec={**CLASS, "power": "On"},
)
_ENTRY = {
    "manager": "told",
    "operation": "Apply",
    "apiVersion": COMPUTE,
    "time": "2020-01-01T00:00:00Z",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}},
}

SCENARIOS: dict[str, list[Step]] = {
    "create": [create(_RICH, "one")],
    "create by user agent": [
        create(machine("u1", spec=CLASS), agent="kubectl/v1.33.1 (linux/amd64) kubernetes/8adc0f0"),
        create(machine("u2", spec=CLASS), agent="plain"),
        create(machine("u3", spec=CLASS), agent=""),
        create(machine("u4", spec=CLASS), agent="/x"),
        create(machine("u5", spec=CLASS), agent="a b" + "c" * 200 + "/1"),
    ],
    "updates": [
        create(_RICH, "one"),
        put(
            machine(version=VERSION, labels={"a": "1", "c": "3"}, spec={**CLASS, "power": "Off"}),
            "two",
        ),
        merge({"metadata": {"labels": {"a": None}}}, "three"),
        merge({"metadata": {"labels": {"c": "3"}}}, "four"),
        merge({"spec": {"power": "On"}}, "one"),
        json_patch([{"op": "add", "path": "/metadata/annotations", "value": {"x": "y"}}], "five"),
        merge({"metadata": {"annotations": None}}, "six"),
    ],
    "update of list items": [
        create(machine(spec={**CLASS, "volumes": [disk("root"), disk("data", "odb")]}), "one"),
        json_patch([{"op": "replace", "path": "/spec/volumes/1/device", "value": "odc"}], "two"),
        json_patch([{"op": "add", "path": "/spec/volumes/0", "value": disk("x", "odx")}], "three"),
        json_patch([{"op": "remove", "path": "/spec/volumes/1"}], "four"),
        merge({"spec": {"volumes": None}}, "five"),
    ],
    "apply creates": [apply(_RICH, "one"), apply(_RICH, "one"), apply(_RICH, "one", force="true")],
    "apply agrees": [apply(_APPLIED, "one"), apply(_APPLIED, "two"), apply(_APPLIED, "one")],
    "apply changes its own": [
        apply(_APPLIED, "one"),
        apply(machine(labels={"a": "2"}, spec={**CLASS, "power": "Off"}), "one"),
    ],
    "apply conflicts": [
        apply(_APPLIED, "one"),
        apply(machine(labels={"a": "2"}), "two"),
        apply(machine(labels={"a": "2"}, spec={"power": "Off"}), "two"),
        apply(machine(labels={"a": "2"}, spec={"power": "Off"}), "two", force="true"),
        apply(_APPLIED, "one"),
        apply(machine(labels={"a": "2"}, spec=CLASS), "one"),
    ],
    "apply conflicts with updates": [
        create(_RICH, "maker"),
        merge({"metadata": {"labels": {"b": "3"}}}, "patcher"),
        apply(
            machine(
                labels={"a": "9", "b": "9"},
                finalizers=["example.com/g"],
                spec={
                    "machineClassRef": {"name": "large"},
                    "volumes": [disk("data", "odd"), disk("new", "odn")],
                    "tolerations": [{"key": "l", "operator": "Exists"}],
                    "machinePoolSelector": {"zone": "z", "rack": "r"},
                },
            ),
            "applier",
        ),
    ],
    "apply drops": [
        apply(machine(labels={"a": "1", "b": "2"}, spec={**CLASS, "power": "Off"}), "one"),
        apply(machine(labels={"b": "2"}), "two"),
        apply(machine(spec=CLASS), "one"),
        apply(machine(), "two"),
        apply(machine(spec=CLASS), "two"),
        apply(machine(labels={"z": "1"}, spec=CLASS), "one"),
        apply(machine(spec=CLASS), "one"),
    ],
    "apply drops what others updated": [
        apply(machine(labels={"a": "1", "b": "2"}, spec=CLASS), "one"),
        merge({"metadata": {"labels": {"a": "5"}}}, "two"),
        apply(machine(labels={"b": "2"}, spec=CLASS), "one"),
    ],
    "apply drops items": [
        create(pool(), "maker", POOLS),
        apply(pool(status={"conditions": _told(A="a", B="b")}), "one", f"{POOLS}/p/status"),
        apply(
            pool(status={"conditions": [{"type": "B", "status": "True", "message": "m"}]}),
            "two",
            f"{POOLS}/p/status",
        ),
        apply(pool(status={"conditions": _told(A="a")}), "one", f"{POOLS}/p/status"),
        apply(pool(status={"state": "Ready"}), "one", f"{POOLS}/p/status"),
        apply(pool(), "two", f"{POOLS}/p/status"),
        apply(pool(), "one", f"{POOLS}/p/status"),
    ],
    "apply orders items": [
        create(pool(), "maker", POOLS),
        apply(pool(status={"conditions": _told(A="a", B="b", C="c")}), "one", f"{POOLS}/p/status"),
        apply(pool(status={"conditions": _told(C="c", X="x", A="a")}), "two", f"{POOLS}/p/status"),
        apply(pool(status={"conditions": _told(N="n", B="b")}), "three", f"{POOLS}/p/status"),
        apply(
            pool(status={"conditions": _told(Z="z", X="x", A="a", Y="y", C="c")}),
            "two",
            f"{POOLS}/p/status",
        ),
    ],
    "apply sets": [
        apply(machine(finalizers=["example.com/a", "example.com/b"], spec=CLASS), "one"),
        apply(machine(finalizers=["example.com/c", "example.com/a"]), "two"),
        apply(machine(spec=CLASS), "one"),
        merge({"metadata": {"finalizers": []}}, "three"),
    ],
    "apply owners": [
        apply(
            machine(
                ownerReferences=[{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "1"}],
                spec=CLASS,
            ),
            "one",
        ),
        apply(
            machine(ownerReferences=[{"apiVersion": "v1", "kind": "Y", "name": "y", "uid": "2"}]),
            "two",
        ),
        apply(
            machine(ownerReferences=[{"apiVersion": "v1", "kind": "Z", "name": "z", "uid": "1"}]),
            "two",
        ),
    ],
    "apply what is atomic": [
        apply(machine(spec={**CLASS, "machinePoolSelector": {"a": "1"}}), "one"),
        apply(machine(spec={"machinePoolSelector": {"b": "1"}}), "two"),
        apply(machine(spec={"machinePoolSelector": {"b": "1"}}), "two", force="true"),
    ],
    "apply nothing and null": [
        apply(machine(labels={}, spec={**CLASS, "volumes": [], "ignitionRef": {}}), "one"),
        apply(machine(labels={"a": "1"}, spec={**CLASS, "power": None}), "one"),
        apply(machine(labels={"a": None}, spec={**CLASS, "power": "Off"}), "two"),
        apply(machine(labels=None, spec=CLASS), "one"),
    ],
    "apply free content": [
        apply(
            machine(
                spec={
                    **CLASS,
                    "volumes": [
                        {
                            "name": "v",
                            "device": "oda",
                            "ephemeral": {
                                "volumeTemplate": {"spec": {"a": {"b": 1}, "l": [1, {"x": 2}]}}
                            },
                        }
                    ],
                }
            ),
            "one",
        ),
        apply(
            machine(
                spec={
                    "volumes": [
                        {
                            "name": "v",
                            "ephemeral": {
                                "volumeTemplate": {"spec": {"a": {"b": 2, "c": 3}, "l": [2]}}
                            },
                        }
                    ]
                }
            ),
            "two",
        ),
    ],
    "status": [
        create(pool(spec={"providerID": "x"}, status={"state": "Ready"}), "maker", POOLS),
        merge(
            {"status": {"state": "Ready", "conditions": _conditions(Ready="True")}},
            "poollet",
            f"{POOLS}/p/status",
        ),
        merge(
            {"status": {"conditions": _conditions(Ready="False", Other="True")}},
            "other",
            f"{POOLS}/p/status",
        ),
        put(
            pool(
                resourceVersion=VERSION,
                status={"state": "Offline", "conditions": _conditions(Ready="False")},
            ),
            "third",
            f"{POOLS}/p/status",
        ),
        put(
            pool(resourceVersion=VERSION, spec={"providerID": "x"}, status={"state": "Error"}),
            "third",
            f"{POOLS}/p",
        ),
        merge({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}, "third", f"{POOLS}/p"),
    ],
    "apply status": [
        create(pool(spec={"providerID": "x"}), "maker", POOLS),
        apply(
            pool(
                spec={"providerID": "y"},
                status={"state": "Ready", "conditions": _conditions(Ready="True")},
            ),
            "one",
            f"{POOLS}/p/status",
        ),
        apply(pool(status={"conditions": _conditions(Other="True")}), "two", f"{POOLS}/p/status"),
        apply(pool(status={"conditions": _conditions(Ready="False")}), "two", f"{POOLS}/p/status"),
        apply(
            pool(status={"conditions": _conditions(Ready="False")}),
            "two",
            f"{POOLS}/p/status",
            force="true",
        ),
        merge({"status": {"state": "Error"}}, "three", f"{POOLS}/p/status"),
        apply(pool(status={"state": "Ready"}), "one", f"{POOLS}/p/status"),
        apply(pool(status={"state": "Pending"}), "one", f"{POOLS}/p"),
        apply(pool("missing", status={"state": "Pending"}), "one", f"{POOLS}/missing/status"),
    ],
    "reset": [
        create(_APPLIED, "one"),
        merge({"metadata": {"managedFields": [{}]}}, "two"),
        merge({"metadata": {"labels": {"b": "2"}}}, "two"),
        apply(machine(labels={"b": "3"}), "three"),
        apply(machine(labels={"c": "3"}), "three"),
        put(machine(version=VERSION, managedFields=[], labels={"c": "4"}, spec=CLASS), "four"),
        put(machine(version=VERSION, labels={"c": "5"}, spec=CLASS), "four"),
    ],
    "told": [
        create(_APPLIED, "one"),
        json_patch(
            [{"op": "replace", "path": "/metadata/managedFields", "value": [_ENTRY]}], "two"
        ),
        merge({"metadata": {"managedFields": [_ENTRY], "labels": {"a": "2"}}}, "two"),
        merge({"metadata": {"managedFields": [_ENTRY | {"operation": "Wish"}]}}, "two"),
        merge({"metadata": {"managedFields": [_ENTRY | {"fieldsV1": {"x": {}}}]}}, "two"),
        merge({"metadata": {"managedFields": [_ENTRY | {"fieldsV1": {"q:y": {}}}]}}, "two"),
        merge({"metadata": {"managedFields": [_ENTRY | {"apiVersion": "v9"}]}}, "two"),
        merge({"metadata": {"managedFields": None}}, "two"),
        merge({"metadata": {"managedFields": "x"}}, "two"),
        create(machine("n", managedFields=[_ENTRY], labels={"b": "1"}, spec=CLASS), "one"),
    ],
    "told through status": [
        create(pool(spec={"providerID": "x"}), "maker", POOLS),
        merge(
            {"metadata": {"managedFields": [{}]}, "status": {"state": "Ready"}},
            "one",
            f"{POOLS}/p/status",
        ),
    ],
    "capped": [
        create(_APPLIED, "maker"),
        *(merge({"metadata": {"labels": {f"l{n}": "x"}}}, f"manager-{n}") for n in range(12)),
        merge({"metadata": {"labels": {"a": "9"}}}, "manager-0"),
    ],
    "client-side apply becomes server-side": [
        create(_CSA_STORED, "kubectl-client-side-apply"),
        apply(machine(labels={"a": "1"}, spec={**CLASS, "power": "Off"}), "kubectl"),
        apply(machine(labels={"a": "2"}, spec={**CLASS, "power": "Off"}), "other"),
    ],
    "client-side apply that others changed": [
        create(_CSA_STORED, "kubectl-client-side-apply"),
        merge({"spec": {"power": "Off"}}, "other"),
        apply(machine(labels={"a": "2"}, spec={**CLASS, "power": "On"}), "kubectl"),
        apply(machine(labels={"a": "2"}, spec=CLASS), "kubectl"),
    ],
    "dry run": [
        apply(_APPLIED, "one", dryRun="All"),
        create(_APPLIED, "one", dryRun="All"),
        create(_APPLIED, "one"),
        apply(machine(labels={"b": "2"}), "two", dryRun="All"),
        apply(machine(labels={"a": "2"}), "two", dryRun="All"),
        merge({"metadata": {"labels": {"a": "2"}}}, "two", dryRun="All"),
        merge({"metadata": {"labels": {"a": "2"}}}, "one"),
    ],
    "versions in what is applied": [
        apply(machine(version="5", spec=CLASS), "one"),
        apply(_APPLIED, "one"),
        apply(machine(version="5", spec=CLASS), "one"),
        apply(machine(version=VERSION, labels={"a": "3"}, spec=CLASS), "one"),
        apply(machine(uid="nobody", spec=CLASS), "one"),
        apply(machine("n", uid="nobody", spec=CLASS), "one", f"{MACHINES}/n"),
    ],
    "what apply refuses": [
        apply(_APPLIED, ""),
        apply(_APPLIED, "x" * 129),
        apply(_APPLIED, "bad\nname"),
        apply(_APPLIED, "one", force="maybe"),
        apply(_APPLIED, "one", dryRun="Some"),
        apply(_APPLIED, "one", fieldValidation="Loud"),
        apply("", "one"),
        apply("[]", "one"),
        apply("7", "one"),
        apply("null", "one"),
        apply("{}", "one"),
        apply("a: [", "one"),
        apply("{", "one"),
        apply({"spec": CLASS}, "one"),
        apply({**_APPLIED, "apiVersion": "v9"}, "one"),
        apply({**_APPLIED, "apiVersion": "compute.ironcore.dev/v2"}, "one"),
        apply({**_APPLIED, "kind": "Pool"}, "one"),
        apply(machine("other", spec=CLASS), "one"),
        apply(machine(namespace="other", spec=CLASS), "one"),
        apply({**_APPLIED, "metadata": {}}, "one"),
        apply({**_APPLIED, "metadata": None}, "one"),
        apply({**_APPLIED, "metadata": []}, "one"),
        apply({key: value for key, value in _APPLIED.items() if key != "metadata"}, "one"),
        apply(machine(managedFields=[], spec=CLASS), "one"),
        apply(machine(managedFields=[_ENTRY], spec=CLASS), "one"),
        apply(machine(spec={}), "one"),
        apply(machine(spec=None), "one"),
        apply(machine(spec=[]), "one"),
        apply(machine(spec={**CLASS, "power": 1}), "one"),
        apply(machine(spec={**CLASS, "power": "Maybe"}), "one"),
        apply(machine(spec={**CLASS, "volumes": {}}), "one"),
        apply(machine(spec={**CLASS, "volumes": [1]}), "one"),
        apply(machine(spec={**CLASS, "volumes": [{"device": "oda"}]}), "one"),
        apply(machine(spec={**CLASS, "volumes": [disk("a"), disk("a")]}), "one"),
        apply(machine(finalizers=["a/b", "a/b"], spec=CLASS), "one"),
        apply(machine(labels={"a": 1}, spec=CLASS), "one"),
        apply(machine(labels={"a": "not a label value"}, spec=CLASS), "one"),
        apply(machine(spec={**CLASS, "bogus": 1}), "one"),
        apply(machine(spec={**CLASS, "bogus": 1}), "one", fieldValidation="Ignore"),
        apply(machine(spec={**CLASS, "bogus": 1}), "one", fieldValidation="Strict"),
        apply(machine(bogus="1", spec=CLASS), "one"),
        apply({**_APPLIED, "bogus": 1}, "one"),
        apply(
            f"apiVersion: {COMPUTE}\nkind: Machine\nkind: Machine\nmetadata: {{name: m}}\n",
            "one",
            fieldValidation="Strict",
        ),
    ],
    "patches that are refused": [
        create(_APPLIED, "one"),
        Step("PATCH", f"{MACHINES}/m", {}, "application/json"),
        Step("PATCH", f"{MACHINES}/m", {}, ""),
        Step("PATCH", f"{MACHINES}/m", {}, "text/plain; charset=utf-8"),
        Step("PATCH", f"{MACHINES}/m", {"metadata": {}}, STRATEGIC),
        Step("PATCH", f"{RBAC}/clusterroles/admin", {}, "application/json"),
        merge({"spec": {"power": "Off"}}, "one", force="true"),
        merge({"spec": {"power": "Off"}}, "x" * 129),
        merge({"spec": {"power": "Off"}}, "one", f"{MACHINES}/missing"),
        merge("", "one"),
        merge("{", "one"),
        merge("[]", "one"),
        merge("7", "one"),
        merge("null", "one"),
        merge('{"spec": {"power": "Off"}} x', "one"),
        merge({"spec": None}, "one"),
        merge({"spec": []}, "one"),
        merge({"spec": {"power": 1}}, "one"),
        merge({"spec": {"power": "Maybe"}}, "one"),
        merge({"metadata": None}, "one"),
        merge({"metadata": {"name": "other"}}, "one"),
        merge({"metadata": {"namespace": "other"}}, "one"),
        merge({"metadata": {"labels": 1}}, "one"),
        merge({"metadata": {"labels": {"a": 1}}}, "one"),
        merge({"metadata": {"resourceVersion": "1"}}, "one"),
        merge({"metadata": {"resourceVersion": "x"}}, "one"),
        merge({"metadata": {"uid": "nobody"}}, "one"),
        merge({"apiVersion": "v1"}, "one"),
        merge({"kind": "Pool"}, "one"),
        merge({"spec": {"bogus": 1}}, "one", fieldValidation="Strict"),
        merge('{"spec": {"power": "On", "power": "Off"}}', "one", fieldValidation="Strict"),
        json_patch("", "one"),
        json_patch("{", "one"),
        json_patch("{}", "one"),
        json_patch("7", "one"),
        json_patch("[7]", "one"),
        json_patch([{}], "one"),
        json_patch([{"op": "dance", "path": "/spec"}], "one"),
        json_patch([{"op": "add", "value": 1}], "one"),
        json_patch([{"op": "add", "path": "/spec/power"}], "one"),
        json_patch([{"op": "test", "path": "/spec/power", "value": "Off"}], "one"),
        json_patch([{"op": "test", "path": "/spec/none", "value": "Off"}], "one"),
        json_patch([{"op": "remove", "path": "/spec/none"}], "one"),
        json_patch([{"op": "replace", "path": "/spec/none", "value": 1}], "one"),
        json_patch([{"op": "add", "path": "/none/at/all", "value": 1}], "one"),
        json_patch([{"op": "add", "path": "spec", "value": 1}], "one"),
        json_patch([{"op": "add", "path": "/spec/power/x", "value": 1}], "one"),
        json_patch([{"op": "add", "path": "/spec/volumes/7", "value": {}}], "one"),
        json_patch([{"op": "move", "from": "/spec/none", "path": "/spec/x"}], "one"),
        json_patch([{"op": "copy", "from": "/spec/none", "path": "/spec/x"}], "one"),
        json_patch([{"op": "remove", "path": ""}], "one"),
        json_patch([{"op": "replace", "path": "", "value": []}], "one"),
        json_patch([{"op": "replace", "path": "/spec", "value": 7}], "one"),
        json_patch(
            [{"op": "add", "path": "/spec/bogus", "value": 7}], "one", fieldValidation="Strict"
        ),
        json_patch([{"op": "test", "path": "/spec/power", "value": "On"}] * 10_001, "one"),
        json_patch(
            [{"op": "test", "path": "/spec/power", "value": "On", "extra": 1}],
            "one",
            fieldValidation="Strict",
        ),
    ],
    "options that are refused": [
        create(_APPLIED, "x" * 129),
        create(_APPLIED, "one", dryRun="Some"),
        create(_APPLIED, "one", fieldValidation="Loud"),
        create(_APPLIED, "one"),
        put(machine(version=VERSION, spec=CLASS), "x" * 129),
        put(machine(version=VERSION, spec=CLASS), "one", dryRun="Some"),
        put(machine(version=VERSION, spec=CLASS), "one", fieldValidation="Loud"),
    ],
    "roles": [
        apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": {"name": "r"},
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
            },
            "one",
            f"{RBAC}/namespaces/default/roles/r",
        ),
        apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": {"name": "r"},
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
            },
            "two",
            f"{RBAC}/namespaces/default/roles/r",
        ),
        create(
            {
                "metadata": {"name": "b"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
                "subjects": [
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "u"}
                ],
            },
            "one",
            f"{RBAC}/namespaces/default/rolebindings",
        ),
        apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "b"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
                "subjects": [
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "v"}
                ],
            },
            "two",
            f"{RBAC}/namespaces/default/rolebindings/b",
        ),
    ],
    "namespaces": [
        create(
            {"metadata": {"name": "scenario", "labels": {"a": "1"}}}, "one", "/api/v1/namespaces"
        ),
        apply(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "scenario", "labels": {"a": "2"}},
            },
            "two",
            "/api/v1/namespaces/scenario",
        ),
        apply(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "scenario2", "labels": {"a": "2"}},
            },
            "two",
            "/api/v1/namespaces/scenario2",
        ),
    ],
    "leases": [
        create(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "l"},
                "spec": {"holderIdentity": "a", "leaseDurationSeconds": 40},
            },
            "one",
            f"{LEASES}",
        ),
        merge({"spec": {"holderIdentity": "b"}}, "two", f"{LEASES}/l"),
        apply(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "l"},
                "spec": {"holderIdentity": "c", "leaseDurationSeconds": 40},
            },
            "three",
            f"{LEASES}/l",
        ),
    ],
    "classes": [
        create(
            {
                "apiVersion": COMPUTE,
                "kind": "MachineClass",
                "metadata": {"name": "c"},
                "capabilities": {"cpu": "1", "memory": "1Gi"},
            },
            "one",
            CLASSES,
        ),
        apply(
            {
                "apiVersion": COMPUTE,
                "kind": "MachineClass",
                "metadata": {"name": "c"},
                "capabilities": {"cpu": "2"},
            },
            "two",
            f"{CLASSES}/c",
        ),
        apply(
            {
                "apiVersion": COMPUTE,
                "kind": "MachineClass",
                "metadata": {"name": "c"},
                "capabilities": {"cpu": "1", "memory": "1Gi"},
            },
            "two",
            f"{CLASSES}/c",
        ),
    ],
}
