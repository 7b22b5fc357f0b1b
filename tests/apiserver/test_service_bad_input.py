"""
Bad requests get the same answers as from a Go API server.

Programs depend on the code, the reason and the causes; people read the message.  Source of the
wording: ``k8s.io/apiserver/pkg/endpoints/handlers`` and ``k8s.io/apimachinery/pkg/api/errors``.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.apiserver.support import MACHINES, MERGE, REMEMBERED, APITestCase, machine

JSON = "application/json"
YAML = "application/yaml"
UNKNOWN = "the object provided is unrecognized (must be of type Machine): the body of the request "
HANDLED = 'Machine in version "v1alpha1" cannot be handled as a Machine: strict decoding error: '
STRICT = f"{MACHINES}?fieldValidation=Strict"


class BodyTests(APITestCase):
    """Bodies that are not what they should be."""

    def post(self, raw: bytes | str, code: int, kind: str = JSON, path: str = MACHINES) -> Any:
        raw = raw.encode() if isinstance(raw, str) else raw
        status = self.answer("POST", path, raw, code=code, content_type=kind)
        self.assertEqual((status["kind"], status["code"]), ("Status", code))
        return status

    def test_unreadable(self) -> None:
        """400, with what is wrong and the beginning of what was sent."""
        for raw, kind, told in (
            (b"", JSON, "is not valid JSON: Expecting value: line 1 column 1 (char 0) (<empty>)"),
            (
                b'{"kind":"Machine","metadata":{"name":"a"',
                JSON,
                "is not valid JSON: Expecting ',' delimiter: line 1 column 41 (char 40) "
                '({"kind":"Machine","metadata":{ ...)',
            ),
            (b"[]", JSON, "is not an object (5b5d)"),
            (b"\xff\xfe", JSON, "is not valid JSON: 'utf-8' codec can't decode byte 0xff in "),
            (b"{}{}", JSON, "is not valid JSON: Extra data"),
            (
                b'{"a":99999999999999999999}',
                JSON,
                "is not valid JSON: number 99999999999999999999 ",
            ),
            (b'{"a":1e400}', JSON, "holds a number that is too large"),
            (b"[" * 10_000, JSON, "is not valid JSON: "),
            (b'{"a":' * 65 + b"1" + b"}" * 65, JSON, "is nested more than 64 levels deep"),
            (b'{"a":"\x00"}', JSON, "is not valid JSON: Invalid control character"),
            (b"a: [", YAML, "is not valid YAML: "),
            (
                b"a: 99999999999999999999",
                YAML,
                "is not valid YAML: line 1: number 99999999999999999999 ",
            ),
            (b"{a: " * 65 + b"1" + b"}" * 65, YAML, "is nested more than 64 levels deep"),
            (b"[" * 100_000, YAML, "is nested more than 64 levels deep"),
            (b"a: &a [1]\nb: *a", YAML, ""),
        ):
            status = self.post(raw, 400, kind)
            self.assertEqual(status["reason"], "BadRequest")
            self.assertIn(UNKNOWN + told if told else "aliases", status["message"])

    def test_protobuf(self) -> None:
        """A kind that is not available as protobuf is requested as JSON."""
        status = self.post(
            b"k8s\x00\x0a\x09\x12\x07Machine", 415, "application/vnd.kubernetes.protobuf"
        )
        self.assertEqual(status["reason"], "UnsupportedMediaType")
        self.assertIn("send application/json", status["message"])
        self.post(b"nonsense", 400, "application/vnd.kubernetes.protobuf")

    def test_media_type(self) -> None:
        """415 names what is accepted."""
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/cbor"):
            self.assertEqual(
                self.post(b"{}", 415, kind)["message"],
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json, application/yaml, application/vnd.kubernetes.protobuf",
            )

    def test_not_acceptable(self) -> None:
        """406 names what there is."""
        for accept in ("text/html", "application/json;as=Foo;g=meta.k8s.io;v=v1"):
            told = self.refused(406, "GET", MACHINES, headers=[("Accept", accept)])
            self.assertEqual(
                told,
                "only the following media types are accepted: application/json, application/yaml",
            )

    def test_too_large(self) -> None:
        """413, of the body as it comes, and of the object that is kept."""
        big = json.dumps({"a": "x" * (3 << 20)})
        self.assertEqual(self.post(big, 413)["reason"], "RequestEntityTooLarge")
        self.assertEqual(self.post(b"a: b\n" * 200_000, 413, YAML)["code"], 413)
        kept = machine("a")
        kept["spec"]["efiVars"] = [{"name": "x", "value": "v" * (1 << 20)}]
        self.post(json.dumps(kept), 413)

    def test_too_many_values(self) -> None:
        """413, of a body and of the object that a patch would make."""
        many = {f"l{number}": "v" for number in range(12_000)}
        body = machine("a")
        body["metadata"]["labels"] = {**many, **{f"m{number}": "v" for number in range(12_000)}}
        self.assertIn("16384 values", self.post(json.dumps(body), 413)["message"])
        body["metadata"]["labels"] = many
        self.answer("POST", MACHINES, body, code=201)
        self.assertNotIn("managedFields", self.answer("GET", f"{MACHINES}/a")["metadata"])
        more = {"metadata": {"annotations": {f"m{number}": "v" for number in range(12_000)}}}
        message = self.refused(413, "PATCH", f"{MACHINES}/a", more, content_type=MERGE)
        self.assertIn("split it into several objects", message)
        options = {"dryRun": ["All"] * 3000}
        self.assertIn("2048", self.refused(413, "DELETE", f"{MACHINES}/a", options))

    def test_many_causes(self) -> None:
        """An answer lists a hundred mistakes, and how many more there are."""
        body = machine("a")
        body["metadata"]["labels"] = {f"-{number}": "v" for number in range(150)}
        status = self.post(json.dumps(body), 422)
        self.assertEqual(len(status["details"]["causes"]), 100)
        self.assertIn("and 50 more problems", status["message"])

    def test_unknown_fields(self) -> None:
        """Strict refuses them, Warn warns of each, Ignore does not."""
        body = json.dumps(machine("a", pwoer="On", volumes=[{"name": "v", "x": 1}]))
        status = self.post(body, 400, path=STRICT)
        self.assertEqual(
            status["message"],
            HANDLED + 'unknown field "spec.pwoer", unknown field "spec.volumes[0].x"',
        )

    def test_duplicates(self) -> None:
        """Duplicate keys are reported as well; the last one counts."""
        raw = (
            '{"metadata":{"name":"a","name":"b"},'
            '"spec":{"machineClassRef":{"name":"small"},"power":"On","power":"Off","x":1,'
            '"tolerations":[{"key":"a","key":"b"}]}}'
        )
        told = (
            'duplicate field "metadata.name", duplicate field "spec.power", '
            'duplicate field "spec.tolerations[0].key", unknown field "spec.x"'
        )
        self.assertEqual(self.post(raw, 400, path=STRICT)["message"], HANDLED + told)
        response = self.ask("POST", MACHINES, raw.encode())
        self.assertEqual(response.code, 201)
        self.assertEqual(response.headers["warning"], r'299 - "unknown field \"spec.x\""')
        made = response.json()
        self.assertEqual((made["metadata"]["name"], made["spec"]["power"]), ("b", "Off"))
        quiet = self.ask(
            "POST", f"{MACHINES}?fieldValidation=Ignore", raw.replace('"b"', '"c"', 1).encode()
        )
        self.assertNotIn("warning", quiet.headers)

    def test_long_warnings(self) -> None:
        """However much is unknown, and whatever it is called: the head of the answer stays one."""
        odd = {
            "a\r\nX-Evil: 1\x1b[2J": 1,
            "\u00e9": 1,
            **{f"{each}{'x' * 500}": 1 for each in range(30)},
        }
        body = json.dumps({**machine("a"), **odd}).encode()
        client = self.server.connect()
        client.send(
            f"POST {MACHINES} HTTP/1.1\r\nHost: server\r\nAuthorization: Bearer admin\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = client.received().partition(b"\r\n\r\n")[0]
        warnings = [line for line in head.split(b"\r\n") if line.startswith(b"Warning: ")]
        self.assertTrue(head.startswith(b"HTTP/1.1 201 "))
        self.assertEqual(warnings[0], rb'Warning: 299 - "unknown field \"a X-Evil: 1 [2J\""')
        self.assertEqual(warnings[1], rb'Warning: 299 - "unknown field \"?\""')
        self.assertTrue(warnings[2].endswith(b'xxx..."'), warnings[2])
        self.assertTrue(3 < len(warnings) < 20, len(warnings))

    def test_yaml_duplicates(self) -> None:
        """In YAML, too."""
        raw = "metadata: {name: a}\nspec:\n  machineClassRef: {name: small, name: small}\n"
        self.assertEqual(
            self.post(raw, 400, YAML, STRICT)["message"],
            HANDLED + 'duplicate field "spec.machineClassRef.name"',
        )
        self.answer("POST", MACHINES, raw.encode(), content_type=YAML, code=201)

    def test_other_kind(self) -> None:
        """The body must be what the path says."""
        for wrong, told in (
            (
                {"apiVersion": "v1"},
                "the API version in the data (v1) does not match the expected API version "
                "(compute.ironcore.dev/v1alpha1)",
            ),
            (
                {"kind": "Role"},
                'Role in version "v1alpha1" cannot be handled as a Machine: the kind in the data '
                "does not match the expected kind",
            ),
        ):
            status = self.post(json.dumps(machine("a") | wrong), 400)
            self.assertEqual(status["message"], told)

    def test_odd_shapes(self) -> None:
        """Parts of other types are 422 with a cause each, or 400 where nothing can be named."""
        for change, code in (
            ({"metadata": 5}, 400),
            ({"metadata": {"name": 5}}, 422),
            ({"metadata": {"name": "a", "labels": []}}, 422),
            ({"metadata": {"name": "a", "finalizers": {"a": 1}}}, 422),
            ({"spec": []}, 422),
            ({"spec": {"machineClassRef": "small"}}, 422),
            ({"kind": 5}, 400),
            ({"apiVersion": {}}, 400),
        ):
            self.post(json.dumps(machine("a") | change), code)
        (cause,) = self.post(json.dumps(machine("a", power=5)), 422)["details"]["causes"]
        self.assertEqual((cause["field"], cause["reason"]), ("spec.power", "FieldValueTypeInvalid"))

    def test_names(self) -> None:
        """Names that are none, and places that are not the URL's."""
        for name in ("A", "a_b", "-a", "a" * 64, "ä", "a\x00b", " ", "a/b", "..", "a\n"):
            status = self.post(json.dumps(machine(name)), 422)
            self.assertEqual(status["details"]["causes"][0]["field"], "metadata.name")
        self.assertEqual(
            self.post(json.dumps({"metadata": {}, "spec": {}}), 422)["details"]["causes"][0],
            {
                "reason": "FieldValueRequired",
                "message": "Required value: name or generateName is required",
                "field": "metadata.name",
            },
        )
        elsewhere = machine("a") | {"metadata": {"name": "a", "namespace": "other"}}
        self.assertEqual(
            self.post(json.dumps(elsewhere), 400)["message"],
            "the namespace of the provided object does not match the namespace sent on the request",
        )
        self.make_machine("a")
        other = self.answer("GET", f"{MACHINES}/a") | {"metadata": {"name": "b"}}
        told = self.refused(422, "PUT", f"{MACHINES}/a", other)
        self.assertIn("metadata.resourceVersion", told)
        other["metadata"]["resourceVersion"] = "1"
        self.assertEqual(
            self.refused(400, "PUT", f"{MACHINES}/a", other),
            "the name of the object (b) does not match the name on the URL (a)",
        )


class WriteTests(APITestCase):
    """Writes to existing objects."""

    def setUp(self) -> None:
        super().setUp()
        self.made = self.make_machine("a")

    def test_immutable(self) -> None:
        """422, with a cause for each field."""
        change = {"spec": {"machineClassRef": {"name": "x"}, "machinePoolRef": {"name": "x"}}}
        status = self.answer("PATCH", f"{MACHINES}/a", change, content_type=MERGE, code=422)
        self.assertEqual(status["reason"], "Invalid")
        self.assertEqual(
            status["details"]["causes"],
            [
                {
                    "reason": "FieldValueForbidden",
                    "message": "Forbidden: field is immutable",
                    "field": f"spec.{name}",
                }
                for name in ("machineClassRef", "machinePoolRef")
            ],
        )

    def test_conflict(self) -> None:
        """409: the object is another one than the client read."""
        self.answer("PATCH", f"{MACHINES}/a", {"spec": {"power": "Off"}}, content_type=MERGE)
        status = self.answer("PUT", f"{MACHINES}/a", self.made, code=409)
        self.assertEqual(
            (status["reason"], status["message"], status["details"]),
            (
                "Conflict",
                'Operation cannot be fulfilled on machines.compute.ironcore.dev "a": the object '
                "has been modified; please apply your changes to the latest version and try again",
                {"name": "a", "group": "compute.ironcore.dev", "kind": "machines"},
            ),
        )
        metadata = {**self.made["metadata"], "uid": "other"}
        told = self.refused(409, "PUT", f"{MACHINES}/a", {**self.made, "metadata": metadata})
        self.assertIn("Precondition failed: UID in precondition: other, UID in object meta:", told)

    def test_preconditions(self) -> None:
        """409: the object to delete has another UID or version."""
        version = self.made["metadata"]["resourceVersion"]
        wrong = {"preconditions": {"resourceVersion": "1"}}
        self.assertEqual(
            self.refused(409, "DELETE", f"{MACHINES}/a", wrong),
            'Operation cannot be fulfilled on machines.compute.ironcore.dev "a": Precondition '
            "failed: ResourceVersion in precondition: 1, ResourceVersion in object meta: "
            f"{version}",
        )
        told = self.refused(409, "DELETE", f"{MACHINES}/a", {"preconditions": {"uid": "x"}})
        self.assertIn("Precondition failed: UID in precondition: x, UID in object meta:", told)

    def test_options(self) -> None:
        """422: unknown values of options."""
        for method, path, kind, field in (
            ("POST", f"{MACHINES}?dryRun=Some", "CreateOptions", "dryRun"),
            ("POST", f"{MACHINES}?fieldValidation=Some", "CreateOptions", "fieldValidation"),
            ("PUT", f"{MACHINES}/a?dryRun=Some", "UpdateOptions", "dryRun"),
            ("PATCH", f"{MACHINES}/a?dryRun=Some", "PatchOptions", "dryRun"),
            ("DELETE", f"{MACHINES}/a?dryRun=Some", "DeleteOptions", "dryRun"),
            ("DELETE", f"{MACHINES}?dryRun=Some", "DeleteOptions", "dryRun"),
        ):
            kind_of_body = MERGE if method == "PATCH" else JSON
            status = self.answer(method, path, {}, content_type=kind_of_body, code=422)
            self.assertEqual(
                (status["details"]["kind"], status["details"]["group"]), (kind, "meta.k8s.io")
            )
            self.assertEqual(status["details"]["causes"][0]["field"], field)
        self.assertEqual(
            self.refused(422, "POST", f"{MACHINES}?dryRun=Some", machine("b")),
            'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: '
            'supported values: "All"',
        )

    def test_delete_options(self) -> None:
        """DeleteOptions are validated, in the body or the query."""
        path = f"{MACHINES}/a"
        for body, code in (
            ({"propagationPolicy": "Later"}, 422),
            ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422),
            ({"dryRun": ["Some"]}, 422),
            ({"dryRun": [{}]}, 422),
            ({"dryRun": "All"}, 400),
            ({"propagationPolicy": 5}, 400),
            ({"gracePeriodSeconds": "5"}, 400),
            ({"gracePeriodSeconds": True}, 400),
            ({"orphanDependents": "yes"}, 400),
            ({"preconditions": []}, 400),
            ({"preconditions": {"uid": 5}}, 400),
            ({"kind": "Machine"}, 400),
            ([], 400),
        ):
            self.refused(code, "DELETE", path, body)
        self.refused(400, "DELETE", path, b"{")
        self.refused(422, "DELETE", f"{path}?propagationPolicy=Later")
        self.refused(400, "DELETE", f"{path}?gracePeriodSeconds=soon")
        self.refused(415, "DELETE", path, b"x", content_type="text/plain")
        for policy in ("Foreground", "Background", "Orphan"):
            self.answer("DELETE", f"{path}?dryRun=All&propagationPolicy={policy}")
            self.answer("DELETE", f"{path}?dryRun=All", {"propagationPolicy": policy})
        # Clients in Go send null for options that are not set.
        self.refused(422, "DELETE", f"{path}?propagationPolicy=Later", b"null")
        self.answer("DELETE", f"{path}?dryRun=All", b" null\n")
        self.answer("DELETE", f"{path}?gracePeriodSeconds=0&orphanDependents=false")

    def test_patches(self) -> None:
        """Malformed patches, and unknown types of patches."""
        path = f"{MACHINES}/a"
        status = self.answer("PATCH", path, {}, content_type=JSON, code=415)
        self.assertIn("application/merge-patch+json", status["message"])
        for kind in ("merge-patch+json", "json-patch+json", "strategic-merge-patch+json"):
            self.refused(400, "PATCH", path, b"{", content_type=f"application/{kind}")
        self.refused(400, "PATCH", path, [], content_type=MERGE)
        self.refused(400, "PATCH", path, {}, content_type="application/json-patch+json")


class QueryTests(APITestCase):
    """Queries and paths."""

    def test_lists(self) -> None:
        """Options of lists are validated."""
        self.make_machine("a")
        self.make_machine("b")
        token = self.answer("GET", f"{MACHINES}?limit=1")["metadata"]["continue"]
        for query, code in (
            ("limit=many", 400),
            ("resourceVersion=abc", 400),
            ("resourceVersion=-1", 400),
            ("continue=x", 400),
            ("continue=bm90aGluZw==", 400),
            (f"continue={token}&resourceVersion=1", 400),
            ("resourceVersionMatch=Exact", 422),
            ("resourceVersionMatch=Sometimes&resourceVersion=1", 422),
            ("labelSelector=a%3D%3D%3Db", 400),
            ("labelSelector=%2C", 400),
            ("labelSelector=a+in+b", 400),
            ("labelSelector=" + "a" * 5000, 400),
            ("fieldSelector=nothing", 400),
            ("fieldSelector=spec.nothing%3Dx", 400),
            ("watch=1&timeoutSeconds=long", 400),
        ):
            self.refused(code, "GET", f"{MACHINES}?{query}")

    def test_expired(self) -> None:
        """410, with a token to go on with what there is now."""
        for name in "abc":
            self.make_machine(name)
        token = self.answer("GET", f"{MACHINES}?limit=1")["metadata"]["continue"]
        for turn in range(REMEMBERED + 1):
            change = {"metadata": {"labels": {"turn": str(turn)}}}
            self.answer("PATCH", f"{MACHINES}/c", change, content_type=MERGE)
        status = self.answer("GET", f"{MACHINES}?limit=1&continue={token}", code=410)
        self.assertEqual(status["reason"], "Expired")
        self.assertIn("use the continue token in this response", status["message"])
        fresh = status["metadata"]["continue"]
        found = self.answer("GET", f"{MACHINES}?limit=1&continue={fresh}")
        self.assertEqual([item["metadata"]["name"] for item in found["items"]], ["b"])

    def test_methods(self) -> None:
        """405, with the methods that there are."""
        for method, path, allowed in (
            ("PUT", MACHINES, "DELETE, GET, POST"),
            ("POST", f"{MACHINES}/a", "DELETE, GET, PATCH, PUT"),
            ("DELETE", "/version", "GET"),
            ("OPTIONS", MACHINES, "DELETE, GET, POST"),
            ("TRACE", MACHINES, "DELETE, GET, POST"),
            ("POST", f"{MACHINES}/a/status", "GET, PATCH, PUT"),
        ):
            response = self.ask(method, path, {})
            self.assertEqual((response.code, response.headers["allow"]), (405, allowed), path)
            self.assertEqual(response.json()["reason"], "MethodNotAllowed")

    def test_paths(self) -> None:
        """404 for what is not there, 400 for what is no path."""
        for path in ("/nothing", "/api/v2", "/apis/x/v1", f"{MACHINES}/a/scale", f"{MACHINES}/"):
            self.assertEqual(
                self.refused(404, "GET", path),
                "the server could not find the requested resource",
            )
        for path in ("/api/v1/namespaces/%2e%2e", f"{MACHINES}/%2F", f"{MACHINES}/%00"):
            self.refused(400, "GET", path)

    def test_path_details(self) -> None:
        """The 404 of a path has details, of nothing: clients of Kubernetes look into them."""
        self.assertEqual(self.ask("PATCH", f"{MACHINES}/a/scale", {}).json()["details"], {})

    def test_head(self) -> None:
        """HEAD is GET without the body."""
        self.make_machine("a")
        for path in (MACHINES, f"{MACHINES}/a", "/version", "/", "/openapi/v2"):
            response = self.ask("HEAD", path)
            self.assertEqual((response.code, response.body), (200, b""), path)
        self.assertEqual(self.ask("HEAD", f"{MACHINES}/b").code, 404)
        self.assertEqual(self.ask("HEAD", f"{MACHINES}?watch=1").code, 405)

    def test_head_of_streams(self) -> None:
        """HEAD of a stream is not allowed, and 401 comes first."""
        for path in (f"{MACHINES}/a/exec", f"{MACHINES}/a/log"):
            self.assertEqual(self.ask("HEAD", path, user="").code, 401, path)
            self.assertEqual(self.ask("HEAD", path).code, 405, path)

    def test_yaml(self) -> None:
        """Objects, lists, tables, discovery and refusals are YAML for a client that prefers it."""
        self.make_machine("a")
        yaml_first = [("Accept", "application/yaml, application/json;q=0.5")]
        for path in (MACHINES, f"{MACHINES}/a", f"{MACHINES}/none", "/version", "/apis", "/none"):
            plain, shown = self.ask("GET", path), self.ask("GET", path, headers=yaml_first)
            self.assertEqual(shown.headers["content-type"], "application/yaml")
            self.assertEqual(shown.code, plain.code)
            self.assertEqual(yaml.safe_load(shown.body), plain.json())
            self.assertFalse(shown.body.startswith(b"{"))
        table = [("Accept", "application/yaml;as=Table;v=v1;g=meta.k8s.io")]
        shown = self.ask("GET", MACHINES, headers=table)
        self.assertEqual(yaml.safe_load(shown.body)["rows"][0]["cells"][0], "a")
        created = self.ask("POST", MACHINES, machine("b"), headers=yaml_first)
        self.assertEqual(yaml.safe_load(created.body)["metadata"]["name"], "b")
        json_first = [("Accept", "application/json, application/yaml")]
        self.assertTrue(self.ask("GET", MACHINES, headers=json_first).body.startswith(b"{"))

    def test_no_watch_in_yaml(self) -> None:
        """A watch is JSON only, as in kube-apiserver; the refusal is YAML."""
        yaml_only = [("Accept", "application/yaml")]
        refused = self.ask("GET", f"{MACHINES}?watch=1", headers=yaml_only)
        self.assertEqual((refused.code, yaml.safe_load(refused.body)["code"]), (406, 406))

    def test_pretty(self) -> None:
        """JSON is laid out for people who ask for that."""
        self.make_machine("a")
        for path in (MACHINES, f"{MACHINES}/a", f"{MACHINES}/none", "/version", "/apis"):
            plain, shown = self.ask("GET", path), self.ask("GET", f"{path}?pretty=true")
            self.assertEqual(plain.json(), shown.json())
            self.assertIn(b'\n  "', shown.body)
            self.assertNotIn(b'\n  "', plain.body)
        self.assertEqual(self.ask("GET", "/readyz?pretty=1").body, b"ok")
