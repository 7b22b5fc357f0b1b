"""
Tests for the verbs over HTTP: :mod:`twisted_exec.apiserver.serving.rest` and what is behind it.
"""

from __future__ import annotations

import base64
import gzip
import json

from twisted.internet.defer import Deferred

from tests.apiserver.support import (
    ALL_MACHINES,
    CLASSES,
    MACHINES,
    MERGE,
    NAMESPACES,
    POOLS,
    RBAC,
    APITestCase,
    machine,
)
from twisted_exec.api.kinds import Object
from twisted_exec.api.resource import Resource
from twisted_exec.apiserver.serving.request_limits import RequestLimits
from twisted_exec.testing.network import Response

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


class CreateTests(APITestCase):
    """POST."""

    def test_created(self) -> None:
        """A created object is returned and can be read."""
        made = self.answer("POST", MACHINES, machine("a"), code=201)
        self.assertEqual(made["spec"]["power"], "On")
        self.assertEqual(self.answer("GET", f"{MACHINES}/a"), made)

    def test_twice(self) -> None:
        """A name can be taken once."""
        self.make_machine("a")
        told = self.refused(409, "POST", MACHINES, machine("a"))
        self.assertEqual(told, 'machines.compute.ironcore.dev "a" already exists')

    def test_invalid(self) -> None:
        """An invalid object gets 422, and the message names the field."""
        told = self.refused(422, "POST", MACHINES, machine("a", power="Maybe"))
        self.assertIn('Machine.compute.ironcore.dev "a" is invalid: spec.power', told)

    def test_unreadable(self) -> None:
        """Bodies that cannot be read are 400 or 415."""
        for raw in (b"", b"{", b"[]", b"\xff\xfe"):
            self.refused(400, "POST", MACHINES, raw)
        self.refused(415, "POST", MACHINES, b"x", content_type="text/plain")

    def test_namespace(self) -> None:
        """Objects live in namespaces that exist, and in that of the URL."""
        missing = MACHINES.replace("default", "nowhere")
        self.assertEqual(
            self.refused(404, "POST", missing, machine("a")), 'namespaces "nowhere" not found'
        )
        body = machine("a")
        body["metadata"]["namespace"] = "other"
        self.refused(400, "POST", MACHINES, body)

    def test_dry_run(self) -> None:
        """A dry run answers like a real create, but stores nothing."""
        made = self.answer("POST", f"{MACHINES}?dryRun=All", machine("a"), code=201)
        self.assertEqual(made["status"], {"state": "Pending"})
        self.refused(404, "GET", f"{MACHINES}/a")
        self.refused(422, "POST", f"{MACHINES}?dryRun=Some", machine("a"))
        self.make_machine("a")
        self.refused(409, "POST", f"{MACHINES}?dryRun=All", machine("a"))

    def test_field_validation(self) -> None:
        """Unknown fields are refused, warned of, or passed over; they are never stored."""
        body = machine("a", pwoer="On")
        told = self.refused(400, "POST", f"{MACHINES}?fieldValidation=Strict", body)
        self.assertEqual(
            told,
            'Machine in version "v1alpha1" cannot be handled as a Machine: strict decoding error: '
            'unknown field "spec.pwoer"',
        )
        response = self.ask("POST", f"{MACHINES}?fieldValidation=Warn", body)
        self.assertEqual(response.headers["warning"], r'299 - "unknown field \"spec.pwoer\""')
        self.assertNotIn("pwoer", response.json()["spec"])
        quiet = self.ask("POST", f"{MACHINES}?fieldValidation=Ignore", machine("b", pwoer=1))
        self.assertNotIn("warning", quiet.headers)

    def test_too_large(self) -> None:
        """The size of an object is limited."""
        body = machine("a", machinePoolSelector={})
        body["spec"]["efiVars"] = [{"name": "x", "value": "v" * (1 << 20)}]
        self.refused(413, "POST", MACHINES, body)

    def test_managers_of_what_is_large(self) -> None:
        """An object that is too large with its managers, and not without, is kept without."""
        labels = {f"label-{number:05}": "x" for number in range(12_000)}
        body = machine("a") | {"metadata": {"name": "a", "labels": labels}}
        made = self.answer("POST", MACHINES, body, code=201)
        self.assertEqual(len(made["metadata"]["labels"]), 12_000)
        self.assertNotIn("managedFields", made["metadata"])
        path, kind = f"{MACHINES}/b?fieldManager=t", "application/apply-patch+yaml"
        body["metadata"]["name"] = "b"
        self.refused(413, "PATCH", path, body, content_type=kind)

    def test_yaml(self) -> None:
        """YAML is read as well."""
        raw = b"metadata: {name: a}\nspec: {machineClassRef: {name: small}}\n"
        self.answer("POST", MACHINES, raw, code=201, content_type="application/yaml")


class ReadTests(APITestCase):
    """GET."""

    def setUp(self) -> None:
        super().setUp()
        for name in "bca":
            self.make_machine(name, "pool-a" if name != "c" else "pool-b")

    def names(self, query: str = "", path: str = MACHINES) -> list[str]:
        found = self.answer("GET", f"{path}{query}")
        return [item["metadata"]["name"] for item in found["items"]]

    def test_list(self) -> None:
        """In order, with the version to watch from."""
        found = self.answer("GET", MACHINES)
        self.assertEqual(
            (found["kind"], found["apiVersion"]), ("MachineList", "compute.ironcore.dev/v1alpha1")
        )
        self.assertEqual(found["metadata"], {"resourceVersion": str(self.storage.version())})
        self.assertEqual(self.names(), ["a", "b", "c"])
        self.assertEqual(self.names(path=ALL_MACHINES), ["a", "b", "c"])

    def test_selectors(self) -> None:
        """By label and by field."""
        self.answer(
            "PATCH", f"{MACHINES}/a", {"metadata": {"labels": {"x": "y"}}}, content_type=MERGE
        )
        self.assertEqual(self.names("?labelSelector=x%3Dy"), ["a"])
        self.assertEqual(self.names("?labelSelector=%21x"), ["b", "c"])
        self.assertEqual(self.names("?fieldSelector=spec.machinePoolRef.name%3Dpool-b"), ["c"])
        self.assertEqual(self.names("?fieldSelector=metadata.name%21%3Da"), ["b", "c"])
        told = self.refused(400, "GET", f"{MACHINES}?fieldSelector=spec.power%3DOn")
        self.assertEqual(told, "field label not supported: spec.power")

    def test_pages(self) -> None:
        """A list in pages is as of one moment, whatever happens meanwhile."""
        first = self.answer("GET", f"{MACHINES}?limit=2")
        self.assertEqual([item["metadata"]["name"] for item in first["items"]], ["a", "b"])
        self.assertEqual(first["metadata"]["remainingItemCount"], 1)
        self.make_machine("d")
        self.answer("DELETE", f"{MACHINES}/c")
        token = first["metadata"]["continue"]
        rest = self.answer("GET", f"{MACHINES}?limit=2&continue={token}")
        self.assertEqual([item["metadata"]["name"] for item in rest["items"]], ["c"])
        self.assertNotIn("continue", rest["metadata"])

    def change_much(self) -> None:
        """Make more changes than are remembered."""
        for turn in range(201):
            patch = {"metadata": {"labels": {"turn": str(turn)}}}
            self.answer("PATCH", f"{MACHINES}/a", patch, content_type=MERGE)

    def test_expired_page(self) -> None:
        """A page whose moment is forgotten is 410; with the token given there it goes on now."""
        first = self.answer("GET", f"{MACHINES}?limit=1")
        self.change_much()
        self.make_machine("d")
        late = f"{MACHINES}?limit=2&continue={first['metadata']['continue']}"
        status = self.answer("GET", late, code=410)
        self.assertEqual(status["reason"], "Expired")
        self.assertIn("is too old to display a consistent list result", status["message"])
        rest = self.answer("GET", f"{MACHINES}?limit=2&continue={status['metadata']['continue']}")
        self.assertEqual([item["metadata"]["name"] for item in rest["items"]], ["b", "c"])
        self.assertEqual(int(rest["metadata"]["resourceVersion"]), self.storage.version())
        last = self.answer("GET", f"{MACHINES}?limit=2&continue={rest['metadata']['continue']}")
        self.assertEqual([item["metadata"]["name"] for item in last["items"]], ["d"])

    def test_partial_names(self) -> None:
        """Metadata alone, called by the right name."""
        accept = "application/json;as={};g=meta.k8s.io;v=v1"
        for path, right, wrong in (
            (MACHINES, "PartialObjectMetadataList", "PartialObjectMetadata"),
            (f"{MACHINES}/a", "PartialObjectMetadata", "PartialObjectMetadataList"),
        ):
            found = self.answer("GET", path, headers=[("Accept", accept.format(right))])
            self.assertEqual((found["kind"], found["apiVersion"]), (right, "meta.k8s.io/v1"))
            for each in found.get("items", [found]):
                self.assertEqual(set(each), {"kind", "apiVersion", "metadata"})
            told = self.refused(406, "GET", path, headers=[("Accept", accept.format(wrong))])
            self.assertIn(f"you requested {wrong}, but the requested object is ", told)

    def test_bad_tokens(self) -> None:
        """A malformed continue token is refused."""
        told = [
            "null",
            "[1, 2, 3]",
            '{"v":"meta.k8s.io/v2","rv":1,"start":"default/a"}',
            '{"v":"meta.k8s.io/v1","rv":0,"start":"default/a"}',
            '{"v":"meta.k8s.io/v1","rv":true,"start":"default/a"}',
            '{"v":"meta.k8s.io/v1","rv":1,"start":"a"}',
            '{"v":"meta.k8s.io/v1","rv":1,"start":"../../a"}',
            '{"v":"meta.k8s.io/v1","rv":1,"start":7}',
        ]
        tokens = ["x", "~~~~", *(base64.urlsafe_b64encode(each.encode()).decode() for each in told)]
        for token in tokens:
            message = self.refused(400, "GET", f"{MACHINES}?continue={token}")
            self.assertIn("invalid continue token", message)

    def test_pages_of_a_selection(self) -> None:
        """Pages of a selection have no count of remaining items, and are complete."""
        query = "?limit=1&fieldSelector=spec.machinePoolRef.name%3Dpool-a"
        first = self.answer("GET", f"{MACHINES}{query}")
        self.assertNotIn("remainingItemCount", first["metadata"])
        token = first["metadata"]["continue"]
        second = self.answer("GET", f"{MACHINES}{query}&continue={token}")
        self.assertEqual([item["metadata"]["name"] for item in second["items"]], ["b"])
        self.assertNotIn("continue", second["metadata"])

    def test_bad_numbers(self) -> None:
        """A malformed number is refused."""
        versions = ["x", "-1", str(2**64), "9" * 100, "%C2%B2"]
        queries = [f"resourceVersion={each}" for each in versions]
        nonsense = ("limit=x", "timeoutSeconds=x", "resourceVersion=x&resourceVersionMatch=Exact")
        for query in nonsense:
            self.refused(400, "GET", f"{MACHINES}?{query}")
        self.assertEqual(self.names("?limit=-1"), ["a", "b", "c"])
        for query in queries:
            for path in (MACHINES, f"{MACHINES}/a"):
                told = self.refused(400, "GET", f"{path}?{query}")
                self.assertIn("invalid resource version", told)

    def test_not_older(self) -> None:
        """A version that has been reached is answered with what there is now."""
        version = self.storage.version()
        self.make_machine("d")
        for query in (
            f"?resourceVersion={version}",
            f"?resourceVersion={version}&resourceVersionMatch=NotOlderThan&limit=9",
            "?resourceVersion=0",
            "?resourceVersion=0&limit=9",
            "?resourceVersion=0&resourceVersionMatch=NotOlderThan",
        ):
            self.assertEqual(self.names(query), ["a", "b", "c", "d"], query)
        found = self.answer("GET", f"{MACHINES}/d?resourceVersion={version}")
        self.assertEqual(found["metadata"]["name"], "d")

    def test_version_with_limit(self) -> None:
        """A version with a limit, and no word on how to take it, is that version exactly."""
        version = self.storage.version()
        self.make_machine("d")
        first = self.answer("GET", f"{MACHINES}?resourceVersion={version}&limit=2")
        self.assertEqual(first["metadata"]["resourceVersion"], str(version))
        self.assertEqual(first["metadata"]["remainingItemCount"], 1)

    def test_version_to_come(self) -> None:
        """A version that has not happened yet is 504, with the time to try again."""
        version = self.storage.version() + 5
        for path in (
            f"{MACHINES}?resourceVersion={version}",
            f"{MACHINES}?resourceVersion={version}&resourceVersionMatch=NotOlderThan",
            f"{MACHINES}?resourceVersion={version}&resourceVersionMatch=Exact",
            f"{MACHINES}/a?resourceVersion={version}",
        ):
            response = self.ask("GET", path)
            status = response.json()
            self.assertEqual((response.code, status["reason"]), (504, "Timeout"))
            self.assertEqual(response.headers["retry-after"], "1")
            self.assertEqual(status["details"]["retryAfterSeconds"], 1)
            (cause,) = status["details"]["causes"]
            self.assertEqual(cause["reason"], "ResourceVersionTooLarge")
            self.assertEqual(
                status["message"],
                f"Timeout: Too large resource version: {version}, current: {version - 5}",
            )

    def test_forgotten_version(self) -> None:
        """A list at a compacted version is 410."""
        version = self.storage.version()
        self.change_much()
        query = f"?resourceVersion={version}&resourceVersionMatch=Exact"
        told = self.refused(410, "GET", f"{MACHINES}{query}")
        self.assertEqual(told, "The resourceVersion for the provided list is too old.")

    def test_contradictions(self) -> None:
        """Options that cannot be meant together are named, as kube-apiserver names them."""
        match = "resourceVersionMatch"
        for query, field, told in (
            (f"{match}=Exact", match, "is forbidden unless resourceVersion is provided"),
            (f"{match}=Exact&resourceVersion=0", match, '"exact" is forbidden for resourceVersion'),
            (f"{match}=Never&resourceVersion=5", match, 'Unsupported value: "Never"'),
            (f"{match}=Exact&resourceVersion=5&continue=x", match, "when continue is provided"),
            ("sendInitialEvents=true", "sendInitialEvents", "is forbidden for list"),
        ):
            status = self.answer("GET", f"{MACHINES}?{query}", code=422)
            self.assertEqual(status["reason"], "Invalid")
            self.assertEqual(
                (status["details"]["group"], status["details"]["kind"]),
                ("meta.k8s.io", "ListOptions"),
            )
            (cause,) = status["details"]["causes"]
            self.assertEqual(cause["field"], field)
            self.assertIn(told, cause["message"])
            self.assertIn('ListOptions.meta.k8s.io "" is invalid: ', status["message"])
        token = self.answer("GET", f"{MACHINES}?limit=1")["metadata"]["continue"]
        told = self.refused(400, "GET", f"{MACHINES}?continue={token}&resourceVersion=5")
        self.assertEqual(told, "specifying resource version is not allowed when using continue")
        self.assertEqual(self.names(f"?continue={token}&resourceVersion=0"), ["b", "c"])

    def test_exact_version(self) -> None:
        """A list as of a version."""
        version = self.storage.version()
        self.answer("DELETE", f"{MACHINES}/a")
        query = f"?resourceVersionMatch=Exact&resourceVersion={version}"
        self.assertEqual(self.names(query), ["a", "b", "c"])
        self.refused(504, "GET", f"{MACHINES}?resourceVersionMatch=Exact&resourceVersion=99999")

    def test_table(self) -> None:
        """As kubectl prints it, with ages of this moment."""
        self.clock.advance(65)
        made = self.answer("GET", MACHINES, headers=[("Accept", TABLE)])
        self.assertEqual(made["kind"], "Table")
        self.assertEqual(
            made["rows"][0]["cells"],
            ["a", "small", "Pending", "<unknown>", "<none>", "65s", "<none>", "pool-a"]
            + ["<none>"] * 2,
        )
        each = self.answer("GET", f"{MACHINES}/a?includeObject=Object", headers=[("Accept", TABLE)])
        self.assertEqual(each["rows"][0]["object"]["spec"]["power"], "On")

    def test_table_later(self) -> None:
        """A later Table shows the machine as it is then, with its age."""
        for name in ("a", "b"):
            self.answer("GET", f"{MACHINES}/{name}", headers=[("Accept", TABLE)])
        patch = {"status": {"state": "Running"}}
        self.answer("PATCH", f"{MACHINES}/a/status", patch, content_type=MERGE)
        self.clock.advance(60)
        rows = self.answer("GET", MACHINES, headers=[("Accept", TABLE)])["rows"]
        self.assertEqual([row["cells"][2] for row in rows][:2], ["Running", "Pending"])
        self.assertEqual({row["cells"][5] for row in rows}, {"60s"})

    def test_partial(self) -> None:
        """Metadata alone."""
        made = self.answer("GET", MACHINES, headers=[("Accept", PARTIAL)])
        self.assertEqual(made["kind"], "PartialObjectMetadataList")
        self.assertNotIn("spec", made["items"][0])

    def test_not_acceptable(self) -> None:
        """A form that we do not have is 406."""
        self.refused(406, "GET", MACHINES, headers=[("Accept", "text/html")])

    def test_unknown(self) -> None:
        """A missing object is named in the error."""
        self.assertEqual(
            self.refused(404, "GET", f"{MACHINES}/z"), 'machines.compute.ironcore.dev "z" not found'
        )
        self.refused(404, "GET", "/apis/compute.ironcore.dev/v1/machines")
        self.refused(404, "GET", "/apis/nowhere/v1/things")
        self.refused(405, "PUT", MACHINES, machine("a"))
        self.refused(405, "POST", ALL_MACHINES, machine("a"))

    def test_head(self) -> None:
        """HEAD has no body."""
        self.assertEqual(self.ask("HEAD", f"{MACHINES}/a").code, 200)


class UpdateTests(APITestCase):
    """PUT and PATCH."""

    def setUp(self) -> None:
        super().setUp()
        self.made = self.make_machine("a")

    def patch(
        self, body: object, kind: str = MERGE, path: str = f"{MACHINES}/a", code: int = 200
    ) -> object:
        return self.answer("PATCH", path, body, content_type=kind, code=code)

    def test_put(self) -> None:
        """A whole object replaces the one that was read, once."""
        body = {**self.made, "spec": {**self.made["spec"], "power": "Off"}}
        stored = self.answer("PUT", f"{MACHINES}/a", body)
        self.assertEqual(stored["metadata"]["generation"], 2)
        told = self.refused(409, "PUT", f"{MACHINES}/a", body)
        self.assertIn("the object has been modified", told)

    def test_put_without_version(self) -> None:
        """Replacing a machine needs its resourceVersion; replacing a class does not."""
        told = self.refused(422, "PUT", f"{MACHINES}/a", machine("a"))
        self.assertIn("metadata.resourceVersion: Invalid value: 0: must be specified", told)
        body = {"metadata": {"name": "c"}, "capabilities": {"cpu": 1, "memory": 1}}
        self.answer("POST", CLASSES, body, code=201)
        body["metadata"] = {"name": "c", "labels": {"a": "b"}}  # type: ignore[dict-item]
        self.answer("PUT", f"{CLASSES}/c", body)

    def test_nothing_changed(self) -> None:
        """An update that changes nothing makes no new version."""
        self.assertEqual(self.answer("PUT", f"{MACHINES}/a", self.made), self.made)

    def test_put_missing(self) -> None:
        """An update of a missing object does not create it."""
        self.refused(
            404,
            "PUT",
            f"{MACHINES}/z",
            {**self.made, "metadata": {"name": "z", "resourceVersion": "1"}},
        )

    def test_merge(self) -> None:
        """A merge patch needs no version and keeps the rest."""
        self.patch({"spec": {"power": "Off"}, "metadata": {"labels": {"a": "b"}}})
        now = self.answer("GET", f"{MACHINES}/a")
        self.assertEqual((now["spec"]["power"], now["metadata"]["labels"]), ("Off", {"a": "b"}))
        self.assertEqual(now["spec"]["machineClassRef"], {"name": "small"})

    def test_patch_with_version(self) -> None:
        """A patch that names a version means that one."""
        self.refused(
            409,
            "PATCH",
            f"{MACHINES}/a",
            {"metadata": {"resourceVersion": "1"}},
            content_type=MERGE,
        )

    def test_json_patch(self) -> None:
        """Operations, and a test that fails."""
        kind = "application/json-patch+json"
        self.patch([{"op": "replace", "path": "/spec/power", "value": "Off"}], kind)
        test = [{"op": "test", "path": "/spec/power", "value": "On"}]
        self.refused(422, "PATCH", f"{MACHINES}/a", test, content_type=kind)
        gone = [{"op": "remove", "path": "/metadata"}]
        self.refused(400, "PATCH", f"{MACHINES}/a", gone, content_type=kind)
        gone = [{"op": "replace", "path": "", "value": 1}]
        self.refused(422, "PATCH", f"{MACHINES}/a", gone, content_type=kind)

    def test_strategic(self) -> None:
        """kubectl's default patch is a merge here."""
        kind = "application/strategic-merge-patch+json"
        self.patch({"metadata": {"finalizers": ["a/b"]}}, kind)
        self.patch({"metadata": {"finalizers": ["c/d"]}}, kind)
        finalizers = self.stored_finalizers()
        self.assertEqual(finalizers, ["a/b", "c/d"])

    def stored_finalizers(self) -> list[str]:
        found: list[str] = self.answer("GET", f"{MACHINES}/a")["metadata"]["finalizers"]
        return found

    def test_apply(self) -> None:
        """Server-side apply creates a missing object and merges into an existing one."""
        kind, path = "application/apply-patch+yaml", f"{MACHINES}/new?fieldManager=t"
        made = self.answer("PATCH", path, machine("new"), content_type=kind, code=201)
        body = b"{apiVersion: compute.ironcore.dev/v1alpha1, kind: Machine, spec: {power: 'Off'}}"
        again = self.answer("PATCH", f"{path}2", body, content_type=kind)
        self.assertEqual(made["metadata"]["uid"], again["metadata"]["uid"])
        self.assertEqual(again["spec"], {**made["spec"], "power": "Off"})
        managers = [entry["manager"] for entry in again["metadata"]["managedFields"]]
        self.assertEqual(sorted(managers), ["t", "t2"])
        self.refused(422, "PATCH", f"{MACHINES}/new", machine("new"), content_type=kind)

    def test_apply_to_what_goes_meanwhile(self) -> None:
        """
        An object that is deleted between read and write is not created again: creating was not
        authorized.
        """
        real = self.storage.update

        def update(resource: Resource, obj: Object) -> Deferred[Object]:
            self.successResultOf(self.storage.delete(resource, obj))
            return real(resource, obj)

        self.storage.update = update  # type: ignore[method-assign]
        path, kind = f"{MACHINES}/a?fieldManager=t", "application/apply-patch+yaml"
        body = {**machine("a"), "metadata": {"name": "a", "labels": {"k": "v"}}}
        self.refused(404, "PATCH", path, body, content_type=kind)
        self.refused(404, "GET", f"{MACHINES}/a")

    def test_apply_is_a_create_too(self) -> None:
        """A user with ``patch`` only cannot create by applying."""
        role = {
            "metadata": {"name": "patcher"},
            "rules": [{"verbs": ["patch"], "apiGroups": ["*"], "resources": ["*"]}],
        }
        self.answer("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", role, code=201)
        self.bind("jane", "patcher")
        kind, query = "application/apply-patch+yaml", "?fieldManager=t"
        more = {"content_type": kind, "user": "jane"}
        self.answer("PATCH", f"{MACHINES}/a{query}", machine("a"), **more)
        told = self.refused(403, "PATCH", f"{MACHINES}/z{query}", machine("z"), **more)
        self.assertIn("cannot create", told)

    def test_unknown_patch(self) -> None:
        """Other kinds of patches are 415."""
        self.refused(415, "PATCH", f"{MACHINES}/a", {}, content_type="application/json")

    def test_status(self) -> None:
        """Status is written through its subresource, and only there."""
        self.patch({"status": {"state": "Running"}})
        self.assertEqual(self.answer("GET", f"{MACHINES}/a")["status"], {"state": "Pending"})
        self.patch(
            {"status": {"state": "Running"}, "spec": {"power": "Off"}}, path=f"{MACHINES}/a/status"
        )
        now = self.answer("GET", f"{MACHINES}/a/status")
        self.assertEqual((now["status"]["state"], now["spec"]["power"]), ("Running", "On"))
        body = {**now, "status": {"state": "Shutdown"}}
        self.assertEqual(
            self.answer("PUT", f"{MACHINES}/a/status", body)["status"], {"state": "Shutdown"}
        )

    def test_dry_run(self) -> None:
        """A dry run shows what would be."""
        told = self.answer(
            "PATCH", f"{MACHINES}/a?dryRun=All", {"spec": {"power": "Off"}}, content_type=MERGE
        )
        self.assertEqual(told["spec"]["power"], "Off")
        self.assertEqual(self.answer("GET", f"{MACHINES}/a")["spec"]["power"], "On")


class DeleteTests(APITestCase):
    """DELETE."""

    def test_gone(self) -> None:
        """The answer to a delete identifies the deleted object."""
        made = self.make_machine("a")
        told = self.answer("DELETE", f"{MACHINES}/a", {"propagationPolicy": "Background"})
        self.assertEqual(
            (told["status"], told["details"]["uid"]), ("Success", made["metadata"]["uid"])
        )
        self.refused(404, "DELETE", f"{MACHINES}/a")

    def test_finalizers(self) -> None:
        """An object with finalizers is marked, and goes with the last of them."""
        self.make_machine("a")
        finalizers = {"metadata": {"finalizers": ["x/y"]}}
        self.answer("PATCH", f"{MACHINES}/a", finalizers, content_type=MERGE)
        marked = self.answer("DELETE", f"{MACHINES}/a")
        self.assertEqual(marked["metadata"]["deletionTimestamp"], "2023-11-14T22:13:20Z")
        self.clock.advance(10)
        again = self.answer("DELETE", f"{MACHINES}/a")
        self.assertEqual(again["metadata"]["deletionTimestamp"], "2023-11-14T22:13:20Z")
        self.answer(
            "PATCH", f"{MACHINES}/a", {"metadata": {"finalizers": None}}, content_type=MERGE
        )
        self.refused(404, "GET", f"{MACHINES}/a")

    def test_preconditions(self) -> None:
        """A deletion may mean one object, or one version of it."""
        made = self.make_machine("a")["metadata"]
        for wrong in ({"uid": "x"}, {"resourceVersion": "1"}):
            self.refused(409, "DELETE", f"{MACHINES}/a", {"preconditions": wrong})
        self.refused(400, "DELETE", f"{MACHINES}/a", {"preconditions": {"uid": 5}})
        right = {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}
        self.answer("DELETE", f"{MACHINES}/a", {"preconditions": right})

    def test_dry_run(self) -> None:
        """A dry run deletes nothing, said in the query or the body."""
        self.make_machine("a")
        self.answer("DELETE", f"{MACHINES}/a?dryRun=All")
        self.answer("DELETE", f"{MACHINES}/a", {"dryRun": ["All"]})
        self.answer("GET", f"{MACHINES}/a")

    def test_collection(self) -> None:
        """Deleting a collection deletes all objects that match the list."""
        for name, pool in (("a", "pool-a"), ("b", "pool-b"), ("c", "pool-a")):
            self.make_machine(name, pool)
        told = self.answer("DELETE", f"{MACHINES}?fieldSelector=spec.machinePoolRef.name%3Dpool-a")
        self.assertEqual(len(told["items"]), 2)
        left = self.answer("GET", MACHINES)["items"]
        self.assertEqual([item["metadata"]["name"] for item in left], ["b"])


class NobodyTests(APITestCase):
    """Authentication and authorization."""

    def test_unauthenticated(self) -> None:
        """Without a credential, or with a wrong one, everything but probes is 401."""
        for path in (MACHINES, "/version", "/nowhere", "/metrics", f"{MACHINES}/a/exec", "/api"):
            self.refused(401, "GET", path, user="")
            self.refused(401, "GET", path, user="wrong")

    def test_probes(self) -> None:
        """Probes answer anyone with one word."""
        for path in ("/healthz", "/livez", "/readyz", "/readyz?verbose"):
            response = self.ask("GET", path, user="")
            self.assertEqual((response.code, response.body), (200, b"ok"))
        told = self.ask("GET", "/readyz?verbose").body
        self.assertEqual(
            told,
            b"[+]ping ok\n[+]storage ok\n[+]system-objects ok\n[+]shutdown ok\nreadyz check passed\n",
        )

    def test_forbidden(self) -> None:
        """Without a role everything is refused, with the missing permission."""
        told = self.refused(403, "GET", f"{MACHINES}/a", user="jane")
        self.assertEqual(
            told,
            'machines.compute.ironcore.dev "a" is forbidden: User "jane" cannot get resource '
            '"machines" in API group "compute.ironcore.dev" in the namespace "default"',
        )
        told = self.refused(403, "GET", "/metrics", user="jane")
        self.assertEqual(told, 'forbidden: User "jane" cannot get path "/metrics"')
        self.refused(403, "GET", POOLS, user="jane")

    def test_impersonation(self) -> None:
        """Impersonation gives exactly the other user's permissions."""
        told = self.refused(403, "GET", MACHINES, headers=[("Impersonate-User", "bob")])
        self.assertIn('User "bob" cannot list resource "machines"', told)
        whole = [("Impersonate-User", "eve"), ("Impersonate-Group", "system:masters")]
        self.assertEqual(self.ask("GET", MACHINES, headers=whole).code, 200)
        told = self.ask(
            "POST",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
            headers=[*whole, ("Impersonate-Extra-Team", "red"), ("Impersonate-Uid", "9")],
        ).json()["status"]["userInfo"]
        self.assertEqual(
            told,
            {
                "username": "eve",
                "uid": "9",
                "groups": ["system:masters", "system:authenticated"],
                "extra": {"team": ["red"]},
            },
        )

    def test_impersonation_refused(self) -> None:
        """Each part is a right; without it the request is not served as the sender's either."""
        role = {
            "metadata": {"name": "as-bob"},
            "rules": [
                {
                    "verbs": ["impersonate"],
                    "apiGroups": [""],
                    "resources": ["users"],
                    "resourceNames": ["bob"],
                }
            ],
        }
        self.ask("POST", f"{RBAC}/clusterroles", role)
        binding = {
            "metadata": {"name": "as-bob"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "as-bob",
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
        }
        self.ask("POST", f"{RBAC}/clusterrolebindings", binding)
        bob = ("Impersonate-User", "bob")
        self.assertEqual(self.ask("GET", "/api", user="jane", headers=[bob]).code, 200)
        for headers, told in (
            (
                [("Impersonate-User", "admin")],
                'users "admin" is forbidden: User "jane" cannot impersonate resource "users" '
                'in API group "" at the cluster scope',
            ),
            (
                [bob, ("Impersonate-Group", "system:masters")],
                'groups "system:masters" is forbidden: User "jane" cannot impersonate resource '
                '"groups" in API group "" at the cluster scope',
            ),
            (
                [bob, ("Impersonate-Extra-Scopes", "all")],
                'userextras.authentication.k8s.io "all" is forbidden: User "jane" cannot '
                'impersonate resource "userextras/scopes" in API group "authentication.k8s.io" '
                "at the cluster scope",
            ),
        ):
            self.assertEqual(self.refused(403, "GET", "/api", user="jane", headers=headers), told)
        self.refused(400, "GET", "/api", headers=[("Impersonate-Group", "g")])
        self.refused(400, "GET", "/api", headers=[bob, ("Impersonate-Who", "g")])

    def test_metrics(self) -> None:
        """An administrator can read the metrics."""
        self.assertIn(b"twisted_exec_sessions_active 0.0", self.ask("GET", "/metrics").body)

    def test_one_name(self) -> None:
        """A list that selects one name asks for that one alone."""
        role = {
            "metadata": {"name": "one"},
            "rules": [
                {
                    "verbs": ["list"],
                    "apiGroups": ["*"],
                    "resources": ["machines"],
                    "resourceNames": ["a"],
                }
            ],
        }
        self.answer("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", role, code=201)
        self.bind("jane", "one")
        self.answer("GET", f"{MACHINES}?fieldSelector=metadata.name%3Da", user="jane")
        self.refused(403, "GET", MACHINES, user="jane")

    def test_own_namespace(self) -> None:
        """A role within a namespace can show that namespace."""
        self.bind("jane", "view")
        self.answer("GET", f"{NAMESPACES}/default", user="jane")
        self.refused(403, "GET", NAMESPACES, user="jane")


class LimitTests(APITestCase):
    """Too many at once."""

    limits = RequestLimits(long=2, long_per_user=1)

    def test_27_watches(self) -> None:
        """Watches are counted apart, per user and in all, until they end."""
        first = self.watch(f"{MACHINES}?watch=1")
        self.assertEqual(self.ask("GET", f"{MACHINES}?watch=1").code, 429)
        first.client.lose()
        self.assertEqual(self.watch(f"{MACHINES}?watch=1").events(), [])


class StatusTests(APITestCase):
    """Every answer that is an error is a Status."""

    def test_json(self) -> None:
        """Unknown paths and methods too."""
        for method, path in (
            ("GET", "/x"),
            ("BREW", MACHINES),
            ("GET", "/apis/%2e%2e/x"),
            ("GET", "/apis//v1"),
        ):
            response = self.ask(method, path)
            self.assertEqual(response.headers["content-type"], "application/json")
            self.assertEqual(json.loads(response.body)["kind"], "Status")


class CompressionTests(APITestCase):
    """Long answers are compressed for clients that accept it, as by kube-apiserver."""

    GZIP = "deflate, gzip;q=0.8"

    def get(self, path: str, accept_encoding: str) -> Response:
        """The answer to a GET, which may take several turns of the reactor."""
        head = f"GET {path} HTTP/1.1\r\nHost: server\r\nAuthorization: Bearer admin\r\n"
        client = self.server.connect()
        client.send(f"{head}Accept-Encoding: {accept_encoding}\r\n\r\n".encode())
        self.clock.advance(0)
        (answer,) = client.responses()
        return answer

    def test_compressed(self) -> None:
        """An object, a list and a document of 128 KiB or more; their content is the same."""
        data = {"a": base64.b64encode(b"x" * (128 << 10)).decode()}
        secrets = "/api/v1/namespaces/default/secrets"
        self.answer("POST", secrets, {"metadata": {"name": "large"}, "data": data}, code=201)
        for path in (f"{secrets}/large", secrets, f"{secrets}/large?pretty=true", "/openapi/v2"):
            plain, packed = self.ask("GET", path), self.get(path, self.GZIP)
            self.assertNotIn("content-encoding", plain.headers)
            self.assertEqual(packed.headers["content-encoding"], "gzip", path)
            for name in ("content-type", "cache-control", "etag"):
                self.assertEqual(packed.headers.get(name), plain.headers.get(name))
            self.assertLess(len(packed.body), len(plain.body) // 2)
            self.assertEqual(gzip.decompress(packed.body), plain.body)

    def test_not_compressed(self) -> None:
        """Short answers, those to other methods and those to clients that do not accept it."""
        data = {"a": base64.b64encode(b"x" * (128 << 10)).decode()}
        secrets = "/api/v1/namespaces/default/secrets"
        created = {"metadata": {"name": "large"}, "data": data}
        answers = [self.ask("POST", secrets, created, headers=[("Accept-Encoding", "gzip")])]
        answers.append(self.get(MACHINES, self.GZIP))
        for coding in ("identity", "gzip;q=0", "gzip; q=0.0", "br, x-gzip2", ""):
            answers.append(self.get(f"{secrets}/large", coding))
        for answer in answers:
            self.assertIn(answer.code, (200, 201))
            self.assertNotIn("content-encoding", answer.headers)
            answer.json()
