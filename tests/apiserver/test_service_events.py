"""
Tests for Events as the API server keeps them, and for who may write them.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.support import EVENTS, MACHINES, MERGE, APITestCase, event
from twisted_exec.api.kinds import Object
from twisted_exec.api.times import timestamp

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


class EventTests(APITestCase):
    """Events of core/v1."""

    def test_kept(self) -> None:
        """A created Event can be read, and its count increased."""
        made = self.answer("POST", EVENTS, event("a", count=1), code=201)
        self.assertEqual(made["involvedObject"]["name"], "vm")
        self.answer("PATCH", f"{EVENTS}/a", {"count": 2}, content_type=MERGE)
        self.assertEqual(self.answer("GET", f"{EVENTS}/a")["count"], 2)

    def test_selected(self) -> None:
        """By what they are about, as ``kubectl describe`` and ``kubectl events`` ask."""
        self.answer("POST", EVENTS, event("a"), code=201)
        other = event("b", reason="Ended", type="Warning", source={"component": "x"})
        other["involvedObject"] |= {"name": "other", "uid": "u-2"}
        self.answer("POST", EVENTS, other, code=201)
        for selector, names in (
            ("involvedObject.name=vm,involvedObject.uid=u-1", "a"),
            ("involvedObject.name=vm,involvedObject.namespace=default", "a"),
            ("involvedObject.kind=Machine", "ab"),
            ("involvedObject.apiVersion=compute.ironcore.dev/v1alpha1", "ab"),
            ("type!=Normal", "b"),
            ("reason=Ended,source=x", "b"),
            ("reportingComponent=", "ab"),
            ("involvedObject.uid=", ""),
        ):
            query = selector.replace("=", "%3D")
            found = self.answer("GET", f"/api/v1/events?fieldSelector={query}")["items"]
            self.assertEqual("".join(item["metadata"]["name"] for item in found), names, selector)

    def table(self) -> Object:
        made: Object = self.answer("GET", EVENTS, headers=[("Accept", TABLE)])
        return made

    def test_table(self) -> None:
        """The columns are those of Kubernetes, the times are ages."""
        now = self.clock.seconds()
        told = {"firstTimestamp": timestamp(now - 600), "lastTimestamp": timestamp(now - 60)}
        source = {"component": "poollet", "host": "h"}
        self.answer("POST", EVENTS, event("a", **told, count=3, source=source), code=201)
        made = self.table()
        self.assertEqual(
            [(item["name"], item["priority"]) for item in made["columnDefinitions"]],
            [
                ("Last Seen", 0),
                ("Type", 0),
                ("Reason", 0),
                ("Object", 0),
                ("Subobject", 1),
                ("Source", 1),
                ("Message", 0),
                ("First Seen", 1),
                ("Count", 1),
                ("Name", 1),
            ],
        )
        (row,) = made["rows"]
        self.assertEqual(
            row["cells"],
            [
                "60s",
                "Normal",
                "Started",
                "machine/vm",
                "",
                "poollet, h",
                "it runs",
                "10m",
                "3",
                "a",
            ],
        )

    def test_series(self) -> None:
        """Events of the newer form tell their times elsewhere."""
        now = self.clock.seconds()
        new = {
            "eventTime": timestamp(now - 600),
            "series": {"count": 7, "lastObservedTime": timestamp(now - 5)},
            "reportingComponent": "poollet",
            "reportingInstance": "p-1",
            "action": "Start",
        }
        self.answer("POST", EVENTS, event("a", **new), code=201)
        (row,) = self.table()["rows"]
        self.assertEqual((row["cells"][0], row["cells"][7:9]), ("5s", ["10m", "7"]))
        self.assertEqual(row["cells"][5], "poollet")

    def test_bare(self) -> None:
        """An Event that tells nothing shows nothing."""
        self.answer(
            "POST",
            EVENTS,
            {"metadata": {"name": "a"}, "involvedObject": {"namespace": "default"}},
            code=201,
        )
        (row,) = self.table()["rows"]
        self.assertEqual(row["cells"], ["<unknown>", "", "", "", "", "", "", "<unknown>", "1", "a"])

    def causes(self, **told: Any) -> list[str]:
        body = event("a") | told
        status = self.answer("POST", EVENTS, body, code=422)
        return [f"{cause['field']}: {cause['message']}" for cause in status["details"]["causes"]]

    def test_refused(self) -> None:
        """Namespace and required fields of an Event."""
        elsewhere = event("a")["involvedObject"] | {"namespace": "other"}
        self.assertEqual(
            self.causes(involvedObject=elsewhere),
            ['involvedObject.namespace: Invalid value: "other": does not match event.namespace'],
        )
        self.assertEqual(
            self.causes(eventTime="2026-01-01T00:00:00.000001Z", message="x" * 1025),
            [
                "reportingComponent: Required value",
                "reportingInstance: Required value",
                "action: Required value",
                'message: Invalid value: "": can have at most 1024 characters',
            ],
        )
        self.assertEqual(
            self.causes(lastTimestamp="yesterday"),
            [
                'lastTimestamp: Invalid value: "yesterday": lastTimestamp in body must be of type '
                'date-time: "yesterday"'
            ],
        )

    def test_cluster_scoped(self) -> None:
        """Events about cluster-scoped objects are in ``default``."""
        body = event("a")
        body["involvedObject"] = {"kind": "MachinePool", "name": "pool-a"}
        self.answer("POST", EVENTS, body, code=201)
        self.answer("POST", "/api/v1/namespaces/kube-system/events", body, code=422)

    def test_roles(self) -> None:
        """``view`` sees them, ``edit`` writes them."""
        self.refused(403, "GET", EVENTS, user="jane")
        self.bind("jane", "view")
        self.answer("GET", EVENTS, user="jane")
        self.refused(403, "POST", EVENTS, event("a"), user="jane")
        self.bind("bob", "edit")
        self.answer("POST", EVENTS, event("a"), user="bob", code=201)


class NewerTests(APITestCase):
    """The same Events by events.k8s.io/v1."""

    NEW = "/apis/events.k8s.io/v1/namespaces/default/events"

    def new(self, name: str, **more: Any) -> Object:
        """An Event as newer clients write it."""
        old = event(name)
        return {
            "metadata": old["metadata"],
            "eventTime": "2023-11-14T22:13:00.000001Z",
            "reportingController": "example.com/controller",
            "reportingInstance": "controller-1",
            "action": "Start",
            "reason": "Started",
            "regarding": old["involvedObject"],
            "note": "it runs",
            "type": "Normal",
            **more,
        }

    def test_both_ways(self) -> None:
        """Events written by one API are read by the other, with its field names."""
        made = self.answer("POST", self.NEW, self.new("a"), code=201)
        self.assertEqual((made["apiVersion"], made["note"]), ("events.k8s.io/v1", "it runs"))
        old = self.answer("GET", f"{EVENTS}/a")
        self.assertEqual((old["apiVersion"], old["message"]), ("v1", "it runs"))
        self.assertEqual(old["involvedObject"], made["regarding"])
        self.assertEqual(old["reportingComponent"], "example.com/controller")
        self.assertEqual(old["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"])
        told = {"count": 2, "firstTimestamp": "2023-11-14T22:13:00Z", "source": {"component": "x"}}
        self.answer("POST", EVENTS, event("b", **told), code=201)
        new = self.answer("GET", f"{self.NEW}/b")
        self.assertEqual((new["deprecatedCount"], new["deprecatedSource"]), (2, {"component": "x"}))
        self.assertNotIn("message", new)

    def test_series(self) -> None:
        """A series is continued by a patch, as by client-go's recorder."""
        self.answer("POST", self.NEW, self.new("a"), code=201)
        series = {"series": {"count": 2, "lastObservedTime": "2023-11-14T22:13:10.000000Z"}}
        strategic = "application/strategic-merge-patch+json"
        told = self.answer("PATCH", f"{self.NEW}/a", series, content_type=strategic)
        self.assertEqual(told["series"]["count"], 2)
        (row,) = self.answer("GET", self.NEW, headers=[("Accept", TABLE)])["rows"]
        self.assertEqual(
            (row["cells"][0], row["cells"][3], row["cells"][8]), ("10s", "machine/vm", "2")
        )
        whole = self.answer("GET", f"{self.NEW}/a")
        self.assertEqual(self.answer("PUT", f"{self.NEW}/a", whole | {"note": "x"})["note"], "x")

    def test_lists_and_watches(self) -> None:
        """Selectors, watches and deletions are of this API as well."""
        watch = self.watch(f"{self.NEW}?watch=1&resourceVersion={self.storage.version()}")
        self.answer("POST", self.NEW, self.new("a"), code=201)
        self.answer("POST", EVENTS, event("b"), code=201)
        selector = "fieldSelector=regarding.name%3Dvm,reportingController%3Dexample.com/controller"
        found = self.answer("GET", f"/apis/events.k8s.io/v1/events?{selector}")
        self.assertEqual(found["apiVersion"], "events.k8s.io/v1")
        self.assertEqual([item["metadata"]["name"] for item in found["items"]], ["a"])
        self.answer("DELETE", f"{self.NEW}/b")
        self.refused(404, "GET", f"{EVENTS}/b")
        told = watch.events()
        self.assertEqual([each["type"] for each in told], ["ADDED", "ADDED", "DELETED"])
        self.assertEqual({each["object"]["apiVersion"] for each in told}, {"events.k8s.io/v1"})

    def test_refused(self) -> None:
        """Under the names of this API; what it has of the old one it need not complete."""
        self.answer("POST", self.NEW, self.new("a"), code=201)
        told = self.refused(409, "POST", self.NEW, self.new("a"))
        self.assertEqual(told, 'events.events.k8s.io "a" already exists')
        told = self.refused(404, "GET", f"{self.NEW}/none")
        self.assertEqual(told, 'events.events.k8s.io "none" not found')
        bare = {"metadata": {"name": "b"}, "regarding": {"namespace": "other"}}
        status = self.answer("POST", self.NEW, bare, code=422)
        self.assertEqual(
            [cause["field"] for cause in status["details"]["causes"]],
            [
                "regarding.namespace",
                "eventTime",
                "reportingController",
                "reportingInstance",
                "action",
                "reason",
            ],
        )
        old = event("c", firstTimestamp="2023-11-14T22:13:00Z")
        self.answer("POST", EVENTS, old, code=201)
        self.answer("PATCH", f"{self.NEW}/c", {"note": "x"}, content_type=MERGE)

    def test_fenced(self) -> None:
        """A poollet writes those of its own machines, by this API, too."""
        self.make_pool("pool-a")
        for name, pool, code in (("mine", "pool-a", 201), ("theirs", "pool-b", 403)):
            uid = self.make_machine(name, pool)["metadata"]["uid"]
            body = self.new(name)
            body["regarding"] |= {"name": name, "uid": uid}
            self.answer("POST", self.NEW, body, user="pool-a", code=code)

    def test_namespace(self) -> None:
        """They go with their namespace, once."""
        self.answer("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}}, code=201)
        body = self.new("a")
        body["regarding"]["namespace"] = "n"
        self.answer("POST", self.NEW.replace("default", "n"), body, code=201)
        self.answer("DELETE", "/api/v1/namespaces/n")
        self.refused(404, "GET", "/api/v1/namespaces/n")


class PoolletTests(APITestCase):
    """Events that the poollet of pool-a may record."""

    def setUp(self) -> None:
        super().setUp()
        self.make_pool("pool-a")
        for name, pool in (("mine", "pool-a"), ("theirs", "pool-b")):
            self.make_machine(name, pool)

    def about(self, name: str, /, **involved: Any) -> Object:
        body = event(name)
        uid = self.answer("GET", f"{MACHINES}/{name}")["metadata"]["uid"]
        body["involvedObject"] |= {"name": name, "uid": uid, **involved}
        return body

    def test_own_machines(self) -> None:
        """Events of its machines, made and counted on."""
        self.answer("POST", EVENTS, self.about("mine"), user="pool-a", code=201)
        self.answer("PATCH", f"{EVENTS}/mine", {"count": 2}, content_type=MERGE, user="pool-a")

    def test_own_pool(self) -> None:
        """Events of its pool."""
        body = event("pool")
        body["involvedObject"] = {
            "apiVersion": "compute.ironcore.dev/v1alpha1",
            "kind": "MachinePool",
            "name": "pool-a",
        }
        self.answer("POST", EVENTS, body, user="pool-a", code=201)
        body["metadata"]["name"] = "other"
        body["involvedObject"]["name"] = "pool-b"
        self.refused(403, "POST", EVENTS, body, user="pool-a")

    def test_others(self) -> None:
        """Nothing of other pools' machines, of what is not there, and of other kinds."""
        for body in (
            self.about("theirs"),
            self.about("mine", uid="another"),
            self.about("mine", uid=None),
            self.about("mine", name="nobody"),
            self.about("mine", kind="Namespace"),
        ):
            told = self.refused(403, "POST", EVENTS, body, user="pool-a")
            self.assertIn('the poollet of machine pool "pool-a" may not create events', told)

    def test_others_events(self) -> None:
        """Another's Event is not to be taken over, and its own not to be deleted."""
        self.answer("POST", EVENTS, self.about("theirs"), code=201)
        stolen = {"involvedObject": self.about("mine")["involvedObject"]}
        path = f"{EVENTS}/theirs"
        self.refused(403, "PATCH", path, stolen, content_type=MERGE, user="pool-a")
        self.answer("POST", EVENTS, self.about("mine"), user="pool-a", code=201)
        self.refused(403, "DELETE", f"{EVENTS}/mine", user="pool-a")
        self.refused(403, "GET", EVENTS, user="pool-a")


class ServiceTests(APITestCase):
    """The list that ``kubectl cluster-info`` asks for."""

    def test_none(self) -> None:
        """There are none, and none can be made."""
        path = "/api/v1/namespaces/kube-system/services"
        query = "labelSelector=kubernetes.io%2Fcluster-service%3Dtrue"
        found = self.answer("GET", f"{path}?{query}")
        self.assertEqual((found["kind"], found["items"]), ("ServiceList", []))
        self.refused(404, "GET", f"{path}/a")
        response = self.ask("POST", path, {"metadata": {"name": "a"}})
        self.assertEqual((response.code, response.headers["allow"]), (405, "GET"))
        (told,) = (
            item
            for item in self.answer("GET", "/api/v1")["resources"]
            if item["name"] == "services"
        )
        self.assertEqual(told["verbs"], ["get", "list", "watch"])
