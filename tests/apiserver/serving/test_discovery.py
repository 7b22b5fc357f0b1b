"""
Tests for :mod:`twisted_exec.apiserver.serving.discovery`, ``openapi`` and the paths that serve
them.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.apiserver.support import MACHINES, APITestCase
from twisted_exec import COMMIT
from twisted_exec.api import kinds
from twisted_exec.apiserver.serving import discovery
from twisted_exec.apiserver.serving.registry import subresources_of

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
GROUP = "compute.ironcore.dev"


class DiscoveryTests(APITestCase):
    """Discovery documents."""

    def discover(self, path: str, accept: str) -> tuple[str, Any]:
        response = self.ask("GET", path, user="jane", headers=[("Accept", accept)])
        self.assertEqual(response.code, 200)
        return response.headers["content-type"], response.json()

    def test_best_form(self) -> None:
        """The first form that the client names and we have, told in the content type."""
        for accept, told in [
            (f"{V2},{V2BETA1},application/json", V2),
            (f"{V2BETA1},application/json", V2BETA1),
            ("application/json", "application/json"),
            ("", "application/json"),
            (f"{V2.replace('v2', 'v3')},application/json", "application/json"),
        ]:
            for path in ("/api", "/apis"):
                self.assertEqual(self.discover(path, accept)[0], told)

    def test_aggregated(self) -> None:
        """Groups with their versions, resources, verbs and subresources."""
        groups = {
            item["metadata"].get("name", ""): item
            for item in self.discover("/apis", V2)[1]["items"]
        }
        (version,) = groups[GROUP]["versions"]
        machines = next(item for item in version["resources"] if item["resource"] == "machines")
        self.assertEqual(machines["scope"], "Namespaced")
        self.assertEqual(machines["singularResource"], "machine")
        self.assertIn("watch", machines["verbs"])
        self.assertEqual(
            {item["subresource"]: item["verbs"] for item in machines["subresources"]},
            {
                "console": ["get"],
                "exec": ["create", "get"],
                "log": ["get"],
                "screen": ["get"],
                "status": ["get", "patch", "update"],
            },
        )
        exec_kind = machines["subresources"][0]["responseKind"]["kind"]
        self.assertEqual(exec_kind, "MachineExecOptions")
        core = self.discover("/api", V2)[1]["items"]
        self.assertEqual([item["metadata"] for item in core], [{}])

    def test_legacy(self) -> None:
        """The same, one document per group and version."""
        groups = self.answer("GET", "/apis", user="jane")["groups"]
        self.assertIn(GROUP, [item["name"] for item in groups])
        self.assertEqual(self.answer("GET", "/api", user="jane")["versions"], ["v1"])
        self.assertEqual(self.answer("GET", f"/apis/{GROUP}", user="jane")["kind"], "APIGroup")
        resources = self.answer("GET", f"/apis/{GROUP}/v1alpha1", user="jane")["resources"]
        # Every kind of the group, each followed by its subresources.
        expected = [
            "/".join(filter(None, (kind.resource.plural, subresource)))
            for kind in kinds.ALL
            if kind.resource.group == GROUP
            for subresource in ("", *subresources_of(kind))
        ]
        self.assertEqual([item["name"] for item in resources], expected)
        self.assertLessEqual({"machines", "machines/exec", "machines/log"}, set(expected))
        namespaces = self.answer("GET", "/api/v1", user="jane")["resources"][0]
        self.assertEqual(namespaces["shortNames"], ["ns"])
        self.assertIs(namespaces["namespaced"], False)

    def test_trailing_slash(self) -> None:
        """Discovery paths may end with a slash, as in kube-apiserver's OpenAPI; others may not."""
        group = f"/apis/{GROUP}"
        for path in ("/version", "/api", "/api/v1", "/apis", group, f"{group}/v1alpha1"):
            with_slash = self.answer("GET", f"{path}/", user="jane")
            self.assertEqual(with_slash, self.answer("GET", path, user="jane"))
        self.assertEqual(self.discover("/apis/", V2), self.discover("/apis", V2))
        self.assertNotIn("/apis/", self.answer("GET", "/", user="admin")["paths"])
        for path in ("/openapi/v2/", "/openapi/v3/", f"{MACHINES}/", "/apis//", "/version//"):
            self.refused(404, "GET", path)

    def test_two_versions(self) -> None:
        """A group may have several versions, the preferred one first."""
        group = self.answer("GET", "/apis/authentication.k8s.io", user="jane")
        self.assertEqual([item["version"] for item in group["versions"]], ["v1", "v1beta1"])
        self.assertEqual(group["preferredVersion"]["version"], "v1")

    def test_version(self) -> None:
        """kubectl wants numbers."""
        told = self.answer("GET", "/version", user="jane")
        self.assertEqual(told["major"], "1")
        self.assertTrue(told["minor"].isdigit())
        self.assertEqual(told["gitCommit"], COMMIT)

    def test_version_between_releases(self) -> None:
        """kubectl wants a semantic version, which has one "+" at most."""
        self.patch(discovery, "__version__", "0.2.0.dev0+gabc.dirty")
        self.patch(discovery, "COMMIT", "abc.dirty")
        told = self.answer("GET", "/version", user="jane")
        self.assertRegex(
            told["gitVersion"], r"^v1\.\d+\.0\+twisted-exec\.0\.2\.0\.dev0\.gabc\.dirty$"
        )
        self.assertEqual((told["gitCommit"], told["gitTreeState"]), ("abc.dirty", "dirty"))

    def test_not_acceptable(self) -> None:
        """An unavailable form is 406."""
        self.refused(406, "GET", "/apis", headers=[("Accept", "text/html")])


class OpenAPITests(APITestCase):
    """OpenAPI documents."""

    def test_kept(self) -> None:
        """URLs with a content hash may be cached for ever; others are requested again."""
        paths = self.answer("GET", "/openapi/v3", user="jane")["paths"]
        url = paths["api/v1"]["serverRelativeURL"]
        kept = self.ask("GET", url, user="jane")
        self.assertIn("immutable", kept.headers["cache-control"])
        for path in ("/openapi/v3/api/v1", f"{url}0"):
            response = self.ask("GET", path, user="jane")
            self.assertEqual(response.headers["cache-control"], "no-cache, private")
            self.assertEqual(response.body, kept.body)

    def test_unchanged(self) -> None:
        """A client with the current document gets 304."""
        aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        for path in ("/openapi/v3/api/v1", "/openapi/v2", "/apis"):
            accept = ("Accept", aggregated if path == "/apis" else "*/*")
            first = self.ask("GET", path, user="jane", headers=[accept])
            tag = ("If-None-Match", first.headers["etag"])
            again = self.ask("GET", path, user="jane", headers=[accept, tag])
            self.assertEqual((again.code, again.body), (304, b""), path)
            other = ("If-None-Match", '"other"')
            self.assertEqual(self.ask("GET", path, user="jane", headers=[accept, other]).code, 200)

    def test_v2_as_json(self) -> None:
        """A kube-apiserver in front gets version 2 as JSON, with resolvable references only."""
        told = self.answer("GET", "/openapi/v2", headers=[("Accept", "application/json")])
        self.assertEqual(told["swagger"], "2.0")
        text, definitions = json.dumps(told), told["definitions"]
        self.assertNotIn("#/components/", text)
        for reference in set(re.findall(r'"#/definitions/([^"]+)"', text)):
            self.assertIn(reference, definitions)
        machines = told["paths"][MACHINES.replace("default", "{namespace}")]
        self.assertEqual(machines["parameters"][0]["type"], "string")
        body = machines["post"]["parameters"][-1]
        self.assertEqual((body["name"], body["in"]), ("body", "body"))
        self.assertIn(body["schema"]["$ref"].removeprefix("#/definitions/"), definitions)

    def test_v2_for_kubectl(self) -> None:
        """kubectl gets version 2 as protobuf, by the older name of the type, too."""
        media = "application/com.github.proto-openapi.spec.v2{}v1.0+protobuf"
        for accept in (media.format("@"), f"{media.format('.')}, application/json;q=0.5"):
            answer = self.ask("GET", "/openapi/v2", user="jane", headers=[("Accept", accept)])
            self.assertEqual(answer.headers["content-type"], media.format("."))
            self.assertEqual(answer.headers["vary"], "Accept")
            self.assertEqual(answer.body[:6], b"\x0a\x032.0\x12")
            # explain searches the definitions for the kind, and a dry run searches the patches.
            identity = f'{{"group":"{GROUP}","version":"v1alpha1","kind":"Machine"}}'
            for text in (identity, f"[{identity}]"):
                self.assertIn(text.encode(), answer.body)

    def test_v2_by_default(self) -> None:
        """Version 2 is JSON for clients that accept anything, and 406 for those that accept neither."""
        for headers in ([], [("Accept", "*/*")], [("Accept", "application/*")]):
            answer = self.ask("GET", "/openapi/v2", user="jane", headers=headers)
            self.assertEqual(answer.headers["content-type"], "application/json")
            self.assertEqual(answer.json()["swagger"], "2.0")
        self.refused(406, "GET", "/openapi/v2", headers=[("Accept", "text/html")])

    def test_v2_is_readable(self) -> None:
        """kubectl reads schemas only if each list has items, and each value one type or reference."""

        def check(place: str, schema: Any) -> None:
            self.assertTrue(("$ref" in schema) != ("type" in schema), place)
            self.assertEqual("items" in schema, schema.get("type") == "array", place)
            inner = dict(schema.get("properties", {}))
            inner |= {
                key: schema[key] for key in ("items", "additionalProperties") if key in schema
            }
            for name, each in inner.items():
                check(f"{place}.{name}", each)

        for name, schema in self.answer("GET", "/openapi/v2")["definitions"].items():
            check(name, schema)

    def test_every_version(self) -> None:
        """Each group and version has a document; its URL changes with its content."""
        paths = self.answer("GET", "/openapi/v3", user="jane")["paths"]
        wanted = {
            f"apis/{kind.resource.group}/{kind.resource.version}"
            if kind.resource.group
            else f"api/{kind.resource.version}"
            for kind in kinds.ALL
        }
        self.assertEqual(set(paths), wanted)
        for path, item in paths.items():
            self.assertIn(f"/openapi/v3/{path}?hash=", item["serverRelativeURL"])
            self.answer("GET", item["serverRelativeURL"], user="jane")
        self.refused(404, "GET", "/openapi/v3/apis/nowhere/v1")

    def test_what_kubectl_reads(self) -> None:
        """The kind of each schema, a patch with ``fieldValidation``, a path to explain."""
        document = self.answer("GET", f"/openapi/v3/apis/{GROUP}/v1alpha1", user="jane")
        name = "dev.ironcore.compute.v1alpha1.Machine"
        schema = document["components"]["schemas"][name]
        identity = {"group": GROUP, "version": "v1alpha1", "kind": "Machine"}
        self.assertEqual(schema["x-kubernetes-group-version-kind"], [identity])
        self.assertEqual(schema["properties"]["spec"]["properties"]["power"]["enum"], ["On", "Off"])
        size = document["components"]["schemas"]["dev.ironcore.compute.v1alpha1.MachineClass"]
        (named,) = size["properties"]["capabilities"]["additionalProperties"]["allOf"]
        self.assertIn(named["$ref"].rpartition("/")[2], document["components"]["schemas"])
        item = document["paths"][
            f"/apis/{GROUP}/v1alpha1/namespaces/{{namespace}}/machines/{{name}}"
        ]
        self.assertEqual(item["patch"]["x-kubernetes-group-version-kind"], identity)
        parameters = [each["name"] for each in item["patch"]["parameters"]]
        self.assertIn("fieldValidation", parameters)
        content = item["get"]["responses"]["200"]["content"]["application/json"]
        self.assertEqual(content["schema"], {"$ref": f"#/components/schemas/{name}"})

    def test_merging(self) -> None:
        """Clients see how lists and objects merge, and that patches can be applies."""
        document = self.answer("GET", f"/openapi/v3/apis/{GROUP}/v1alpha1", user="jane")
        machine = document["components"]["schemas"]["dev.ironcore.compute.v1alpha1.Machine"]
        spec = machine["properties"]["spec"]["properties"]
        (named,) = machine["properties"]["metadata"]["allOf"]
        name = named["$ref"].rpartition("/")[2]
        metadata = document["components"]["schemas"][name]["properties"]
        told = [
            (each["x-kubernetes-list-type"], each.get("x-kubernetes-list-map-keys"))
            for each in (spec["volumes"], spec["tolerations"], metadata["finalizers"])
        ]
        self.assertEqual(told, [("map", ["name"]), ("atomic", None), ("set", None)])
        for key in ("machineClassRef", "machinePoolSelector"):
            self.assertEqual(spec[key]["x-kubernetes-map-type"], "atomic")
        path = f"/apis/{GROUP}/v1alpha1/namespaces/{{namespace}}/machines/{{name}}"
        operation = document["paths"][path]["patch"]
        self.assertIn("application/apply-patch+yaml", operation["requestBody"]["content"])
        self.assertIn("force", [each["name"] for each in operation["parameters"]])

    def test_logs(self) -> None:
        """The log of a machine is text, with documented parameters."""
        document = self.answer("GET", f"/openapi/v3/apis/{GROUP}/v1alpha1", user="jane")
        path = f"/apis/{GROUP}/v1alpha1/namespaces/{{namespace}}/machines/{{name}}/log"
        log = document["paths"][path]["get"]
        self.assertEqual(list(log["responses"]["200"]["content"]), ["text/plain"])
        told = {each["name"]: each["schema"]["type"] for each in log["parameters"]}
        self.assertEqual((told["follow"], told["tailLines"]), ("boolean", "integer"))

    def test_screens(self) -> None:
        """The screen of a machine has several types, and documented parameters."""
        document = self.answer("GET", f"/openapi/v3/apis/{GROUP}/v1alpha1", user="jane")
        path = f"/apis/{GROUP}/v1alpha1/namespaces/{{namespace}}/machines/{{name}}/screen"
        screen = document["paths"][path]["get"]
        self.assertEqual(
            list(screen["responses"]["200"]["content"]),
            ["text/plain", "application/json", "image/svg+xml"],
        )
        self.assertEqual([each["name"] for each in screen["parameters"]], ["as", "at", "size"])


class PodsOpenAPITests(OpenAPITests):
    """OpenAPI documents of a server with Pods."""

    node_pods = True
