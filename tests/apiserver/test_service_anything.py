"""
Whatever a client sends, the answer is never our bug.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.apiserver.support import MACHINES, MERGE, PODS, POOLS, APITestCase
from twisted_exec.api import kinds
from twisted_exec.api.schema import Schema, check
from twisted_exec.api.strategy import full_schema
from twisted_exec.apiserver.serving.rest import root_of

_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
_WORDS = st.sampled_from(["a", "default", "small", "On", "Off", "1Gi", "0", "", "x/y", "A", "Role"])


def like(schema: Schema, *, nearly: bool = True) -> st.SearchStrategy[Any]:
    """Values that fit a schema, or nearly: sometimes a part is something else."""
    kind = schema.get("type")
    if "enum" in schema:
        fitting: st.SearchStrategy[Any] = st.sampled_from(schema["enum"])
    elif kind == "object" and "properties" in schema:
        inner = {key: like(value, nearly=nearly) for key, value in schema["properties"].items()}
        needed = {} if nearly else {key: inner.pop(key) for key in schema.get("required", ())}
        fitting = st.fixed_dictionaries(needed, optional=inner)
    elif kind == "object":
        values = like(schema.get("additionalProperties", {}), nearly=nearly)
        fitting = st.dictionaries(_WORDS, values, max_size=3)
    elif kind == "array":
        fitting = st.lists(like(schema["items"], nearly=nearly), max_size=3)
    elif kind == "integer":
        fitting = st.integers(-5, 99999)
    elif kind == "boolean":
        fitting = st.booleans()
    else:
        fitting = _WORDS
    return st.one_of(fitting, fitting, fitting, fitting, _ANY) if nearly else fitting


_KINDS = st.sampled_from(kinds.ALL).flatmap(
    lambda kind: st.tuples(st.just(kind), like(full_schema(kind)))
)
_SETTINGS = settings(
    max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


class AnythingTests(APITestCase):
    """Random bodies, patches, queries and paths."""

    pods_view = True

    def check(self, method: str, path: str, raw: bytes, content_type: str) -> None:
        response = self.ask(method, path, raw, content_type=content_type)
        self.assertNotEqual(response.code, 500, (method, path, raw, response.body))
        self.assertEqual(self.flushLoggedErrors(), [])
        if response.code >= 400:
            self.assertEqual(json.loads(response.body)["kind"], "Status")

    @_SETTINGS
    @given(_KINDS)
    def test_bodies(self, made: tuple[kinds.Kind, Any]) -> None:
        """Objects of any kind, nearly right or not at all."""
        kind, body = made
        scope = "/namespaces/default" if kind.resource.namespaced else ""
        path = f"{root_of(kind)}{scope}/{kind.resource.plural}"
        raw = json.dumps(body).encode()
        self.check("POST", path, raw, "application/json")
        if kind.stored:
            self.check("PUT", f"{path}/a", raw, "application/json")
            for patch in ("merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"):
                self.check("PATCH", f"{path}/a?fieldManager=x", raw, f"application/{patch}")
            self.check("DELETE", f"{path}/a", raw, "application/json")

    @_SETTINGS
    @given(like(full_schema(kinds.MACHINES)), st.sampled_from(["", "/status"]))
    def test_patches(self, patch: Any, subresource: str) -> None:
        """Patches of an existing object."""
        self.ask(
            "POST",
            MACHINES,
            {"metadata": {"name": "a"}, "spec": {"machineClassRef": {"name": "c"}}},
        )
        raw = json.dumps(patch).encode()
        for kind in ("merge-patch+json", "strategic-merge-patch+json", "json-patch+json"):
            self.check("PATCH", f"{MACHINES}/a{subresource}", raw, f"application/{kind}")

    @_SETTINGS
    @given(
        st.lists(
            st.fixed_dictionaries(
                {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"])},
                optional={
                    "path": st.sampled_from(
                        ["", "/spec", "/metadata/name", "/spec/volumes/-", "/x/0", "a"]
                    ),
                    "from": st.sampled_from(["", "/spec", "/metadata", "/spec/power", "/x"]),
                    "value": _ANY,
                },
            ),
            max_size=4,
        )
    )
    def test_operations(self, operations: list[Any]) -> None:
        """JSON patches."""
        self.ask(
            "POST",
            MACHINES,
            {"metadata": {"name": "a"}, "spec": {"machineClassRef": {"name": "c"}}},
        )
        raw = json.dumps(operations).encode()
        self.check("PATCH", f"{MACHINES}/a", raw, "application/json-patch+json")

    @_SETTINGS
    @given(
        like(full_schema(kinds.MACHINES)["properties"]["spec"], nearly=False),
        like(full_schema(kinds.MACHINES)["properties"]["status"], nearly=False),
        like(full_schema(kinds.MACHINEPOOLS)["properties"]["status"], nearly=False),
    )
    def test_pods(self, spec: Any, machine: Any, pool: Any) -> None:
        """Whatever a machine and its pool say of themselves, the machine is a Pod."""
        reference = {"machineClassRef": {"name": "c"}, "machinePoolRef": {"name": "p"}}
        self.ask("POST", MACHINES, {"metadata": {"name": "a"}, "spec": reference})
        self.ask("POST", POOLS, {"metadata": {"name": "p"}})
        self.answer("GET", PODS)
        for path, patch in (
            (f"{MACHINES}/a", {"spec": spec | reference}),
            (f"{MACHINES}/a/status", {"status": machine}),
            (f"{POOLS}/p/status", {"status": pool}),
        ):
            self.check("PATCH", path, json.dumps(patch).encode(), MERGE)
        pod = self.answer("GET", f"{PODS}/a")
        self.assertEqual(check(full_schema(kinds.PODS), pod), [])
        version = self.answer("GET", f"{MACHINES}/a")["metadata"]["resourceVersion"]
        self.assertGreaterEqual(int(pod["metadata"]["resourceVersion"]), int(version))
        self.answer(
            "GET", PODS, headers=[("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")]
        )

    @_SETTINGS
    @given(
        st.sampled_from(
            [
                "labelSelector",
                "fieldSelector",
                "limit",
                "continue",
                "resourceVersion",
                "dryRun",
                "resourceVersionMatch",
                "timeoutSeconds",
                "includeObject",
                "fieldValidation",
            ]
        ),
        st.text(alphabet="abn=!,()<> \\.:metadata-x09é%", max_size=20) | st.just("Exact"),
    )
    def test_queries(self, name: str, value: str) -> None:
        """Queries."""
        self.check("GET", f"{MACHINES}?{name}={quote(value)}", b"", "application/json")
        self.check("DELETE", f"{MACHINES}?{name}={quote(value)}", b"", "application/json")
        self.check("GET", f"{PODS}?{name}={quote(value)}", b"", "application/json")

    @_SETTINGS
    @given(
        st.lists(
            st.sampled_from(
                [
                    "api",
                    "apis",
                    "v1",
                    "compute.ironcore.dev",
                    "v1alpha1",
                    "namespaces",
                    "default",
                    "machines",
                    "pods",
                    "a",
                    "exec",
                    "attach",
                    "portforward",
                    "status",
                    "%2e%2e",
                    "%2F",
                    "",
                    "%00",
                    "%ff",
                    "openapi",
                    "v3",
                    "version",
                    "metrics",
                ]
            ),
            max_size=8,
        ),
        st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]),
    )
    def test_paths(self, segments: list[str], method: str) -> None:
        """Paths."""
        response = self.ask(method, "/" + "/".join(segments), b"{}" if method != "GET" else b"")
        self.assertNotEqual(response.code, 500, (method, segments))
