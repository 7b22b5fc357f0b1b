"""
Attempts of a compromised poollet or node server to get beyond its own objects.

Each has ``cluster-admin`` besides its own role, so that the restrictions alone refuse.
"""

from __future__ import annotations

import json
from typing import Any

from tests.apiserver.node_pods.test_verbs import pod
from tests.apiserver.support import (
    ALL_MACHINES,
    EVENTS,
    MACHINES,
    MERGE,
    NAMESPACES,
    PODS,
    POOL_GROUP,
    POOLS,
    RBAC,
    APITestCase,
    event,
)
from twisted_exec.api.kinds import MACHINES as MACHINE
from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.node_pods.kubelets import Kubelets

SECRETS = "/api/v1/namespaces/default/secrets"
ALL_SECRETS = "/api/v1/secrets"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
NODES = "/api/v1/nodes"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
OWN = "fieldSelector=spec.machinePoolRef.name%3Dpool-a"
APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
RESTRICTED = ("pool-a", "node-a")


class AttackCase(APITestCase):
    """The poollet of pool-a, and objects of pool-b."""

    user = "pool-a"

    def setUp(self) -> None:
        super().setUp()
        for name in ("pool-a", "pool-b"):
            self.make_pool(name)
        for name in ("mine", "theirs"):
            self.answer("POST", SECRETS, {"metadata": {"name": f"of-{name}"}}, code=201)
        self.mine = self.make_machine("mine", "pool-a", ignitionRef={"name": "of-mine"})
        self.theirs = self.make_machine("theirs", "pool-b", ignitionRef={"name": "of-theirs"})
        body = {
            "metadata": {"name": "everybody"},
            "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "Group", "name": "system:authenticated"}],
        }
        self.answer("POST", f"{RBAC}/clusterrolebindings", body, code=201)

    def send(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        return self.ask(method, path, body, user=self.user, **more)

    def check_absent(self, method: str, path: str, body: Any = None, **more: Any) -> None:
        """The answer is that for a machine which does not exist."""
        message = self.refused(404, method, path, body, user=self.user, **more)
        self.assertEqual(message, 'machines.compute.ironcore.dev "theirs" not found')

    def check_refused(self, method: str, path: str, body: Any = None, **more: Any) -> str:
        """The restriction refuses, and the message names nothing of others."""
        message = self.refused(403, method, path, body, user=self.user, **more)
        self.assertRegex(message, "the poollet of .* may not ")
        return message


class ReadTests(AttackCase):
    """Reading objects of others."""

    def test_selectors(self) -> None:
        """No other way to write a field selector shows Machines of another pool."""
        field = "spec.machinePoolRef.name"
        for selector in (
            f"{field}!=pool-a",
            f"{field}=pool-b",
            f"{field}!=pool-b",
            f"{field}=",
            "metadata.name=theirs",
            "metadata.name=mine",
        ):
            quoted = selector.replace("=", "%3D").replace("!", "%21").replace("\\", "%5C")
            for watch in ("", "&watch=true", "&watch"):
                self.check_refused("GET", f"{ALL_MACHINES}?fieldSelector={quoted}{watch}")
                self.check_refused("GET", f"{MACHINES}?fieldSelector={quoted}{watch}")

    def test_contradicting_selectors(self) -> None:
        """A second term, or a second parameter, selects fewer Machines and never more."""
        other = "spec.machinePoolRef.name%3Dpool-b"
        for query in (f"{OWN},{other}", f"{OWN}&fieldSelector={other}"):
            items = self.send("GET", f"{ALL_MACHINES}?{query}").json()["items"]
            self.assertNotIn("theirs", [each["metadata"]["name"] for each in items])

    def test_watch_of_a_machine_that_leaves(self) -> None:
        """The event of a Machine that left the pool has its last state there, and not the new one."""
        watch = self.watch(f"{ALL_MACHINES}?watch=1&{OWN}", user=self.user)
        watch.events()
        stored = self.stored(MACHINE, "mine")
        moved = {**stored["spec"], "machinePoolRef": {"name": "pool-b"}, "power": "Off"}
        self.successResultOf(self.storage.update(MACHINE.resource, {**stored, "spec": moved}))
        (event,) = watch.events()
        self.assertEqual(event["type"], "DELETED")
        self.assertEqual(event["object"]["spec"]["machinePoolRef"], {"name": "pool-a"})
        self.assertEqual(event["object"]["spec"].get("power"), stored["spec"].get("power"))

    def test_old_versions(self) -> None:
        """No resourceVersion shows a Secret that the poollet may not see."""
        version = self.answer("GET", ALL_SECRETS)["metadata"]["resourceVersion"]
        for query in (
            "resourceVersion=0",
            f"resourceVersion={version}",
            f"resourceVersion={version}&resourceVersionMatch=Exact",
            f"resourceVersion={version}&resourceVersionMatch=NotOlderThan",
            "limit=1",
        ):
            listing = self.send("GET", f"{ALL_SECRETS}?{query}").json()
            names = [each["metadata"]["name"] for each in listing["items"]]
            self.assertEqual(names, ["of-mine"], query)
            self.assertFalse(listing["metadata"].get("remainingItemCount"))
        for query in ("", "resourceVersion=0", f"resourceVersion={version}", "resourceVersion=1"):
            watch = self.watch(f"{ALL_SECRETS}?watch=1&{query}", user=self.user)
            self.assertNotIn("of-theirs", json.dumps(watch.events()))
        initial = (
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        )
        watch = self.watch(f"{ALL_SECRETS}?watch=1&{initial}", user=self.user)
        self.assertNotIn("of-theirs", json.dumps(watch.events()))
        for query in ("resourceVersion=0", f"resourceVersion={version}"):
            self.check_refused("GET", f"{SECRETS}/of-theirs?{query}")
            self.check_absent("GET", f"{MACHINES}/theirs?{query}")

    def test_borrowed_continue(self) -> None:
        """The continue token of an administrator continues the poollet's own list."""
        page = self.answer("GET", f"{ALL_SECRETS}?limit=1")
        token = page["metadata"]["continue"]
        items = self.send("GET", f"{ALL_SECRETS}?limit=5&continue={token}").json()["items"]
        self.assertNotIn("of-theirs", [each["metadata"]["name"] for each in items])
        self.check_refused("GET", f"{ALL_MACHINES}?limit=5&continue={token}")

    def test_spellings(self) -> None:
        """HEAD requests and other spellings of a path show no more."""
        for path in (f"{SECRETS}/of-theirs", f"{SECRETS}/of%2Dtheirs"):
            self.assertEqual(self.send("HEAD", path).code, 403)
        self.assertEqual(self.send("HEAD", f"{MACHINES}/theirs").code, 404)
        for path in (f"{SECRETS}/of-mine/../of-theirs", f"{SECRETS}/of-mine%2F..%2Fof-theirs"):
            self.assertIn(self.send("GET", path).code, (400, 403, 404))

    def test_tables(self) -> None:
        """Another form of the answer has the same rows."""
        accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
        table = self.send("GET", ALL_SECRETS, headers=[("Accept", accept)]).json()
        self.assertEqual([row["cells"][0] for row in table["rows"]], ["of-mine"])

    def test_existence(self) -> None:
        """A write tells no more of a Secret than a read: it may exist or not."""
        for name in ("of-theirs", "nowhere"):
            for method, body, kind in (
                ("PUT", {"metadata": {"name": name}}, "application/json"),
                ("PATCH", {"metadata": {"labels": {"a": "b"}}}, MERGE),
                ("PATCH", [{"op": "test", "path": "/kind", "value": "x"}], JSON_PATCH),
                ("DELETE", None, "application/json"),
            ):
                path = f"{SECRETS}/{name}"
                message = self.check_refused(method, path, body, content_type=kind)
                self.assertIn("no machine of it needs that", message)
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
            query = "?fieldManager=x&force=true"
            self.check_refused("PATCH", f"{SECRETS}/{name}{query}", body, content_type=APPLY)
            self.check_refused("POST", SECRETS, {"metadata": {"name": name}})

    def test_machines_of_others(self) -> None:
        """No request tells whether another pool has a machine of some name."""
        for method, rest, body, kind in (
            ("GET", "", None, MERGE),
            ("HEAD", "", None, MERGE),
            ("GET", "/status", None, MERGE),
            ("GET", "/exec", None, MERGE),
            ("GET", "/log", None, MERGE),
            ("GET", "/screen", None, MERGE),
            ("DELETE", "", None, "application/json"),
            ("DELETE", "", {"preconditions": {"uid": "x"}}, "application/json"),
            ("PUT", "", {}, "application/json"),
            ("PUT", "", {"spec": {"power": "x"}}, "application/json"),
            ("PUT", "/status", {"status": {"state": "Running"}}, "application/json"),
            ("PATCH", "", {"metadata": {"annotations": {"a": "b"}}}, MERGE),
            ("PATCH", "", {"metadata": {"resourceVersion": "1"}}, MERGE),
            ("PATCH", "", {"spec": 1}, MERGE),
            ("PATCH", "/status", {"status": {"state": "Running"}}, MERGE),
            ("PATCH", "", [{"op": "test", "path": "/kind", "value": "x"}], JSON_PATCH),
            ("PATCH", "?fieldManager=x&force=true", {"spec": {}}, APPLY),
            ("PATCH", "?fieldManager=x&force=true", {"spec": self.theirs["spec"]}, APPLY),
            ("PATCH", "/status?fieldManager=x&force=true", {"status": {}}, APPLY),
        ):
            answers = []
            for name in ("theirs", "nowhere"):
                sent = body
                if isinstance(body, dict) and method != "DELETE":
                    metadata = {**body.get("metadata", {}), "name": name}
                    sent = {"apiVersion": MACHINE.resource.api_version, "kind": "Machine", **body}
                    sent["metadata"] = metadata
                answer = self.send(method, f"{MACHINES}/{name}{rest}", sent, content_type=kind)
                answers.append((answer.code, answer.body.replace(name.encode(), b"NAME")))
            self.assertEqual(answers[0], answers[1], (method, rest, body))
            self.assertGreaterEqual(answers[0][0], 400)


class WriteTests(AttackCase):
    """Taking over objects of others."""

    def test_pool_of_a_machine(self) -> None:
        """No form of a write binds another pool's Machine to the own pool, or gives one away."""
        reference = {"machinePoolRef": {"name": "pool-a"}}
        apply: Object = {
            "apiVersion": MACHINE.resource.api_version,
            "kind": "Machine",
            "metadata": {"name": "theirs"},
            "spec": reference,
        }
        whole = {**self.theirs, "spec": {**self.theirs["spec"], **reference}}
        replace = [{"op": "replace", "path": "/spec/machinePoolRef/name", "value": "pool-a"}]
        for rest in ("", "/status"):
            path = f"{MACHINES}/theirs{rest}"
            self.check_absent("PATCH", path, {"spec": reference}, content_type=MERGE)
            self.check_absent("PATCH", path, replace, content_type=JSON_PATCH)
            query = "?force=true&fieldManager=x"
            response = self.send("PATCH", f"{path}{query}", apply, content_type=APPLY)
            self.assertIn(response.code, (404, 422))
            self.check_absent("PUT", path, whole)
        away = {"spec": {"machinePoolRef": {"name": "pool-b"}}}
        response = self.send("PATCH", f"{MACHINES}/mine", away, content_type=MERGE)
        self.assertIn(response.code, (403, 422))

    def test_status_only(self) -> None:
        """The status of the own Machine carries nothing else along."""
        labels = {"console.twisted-exec.dev/exposed": "true"}
        reference = {"apiVersion": "v1", "kind": "Secret", "name": "x", "uid": "u"}
        body = {
            "metadata": {"labels": labels, "ownerReferences": [reference]},
            "spec": {"ignitionRef": {"name": "of-theirs"}},
            "status": {"state": "Running"},
        }
        path = f"{MACHINES}/mine/status"
        self.answer("PATCH", path, body, user=self.user, content_type=MERGE)
        stored = self.stored(MACHINE, "mine")
        self.assertNotIn("labels", stored["metadata"])
        self.assertNotIn("ownerReferences", stored["metadata"])
        self.assertEqual(stored["spec"]["ignitionRef"], {"name": "of-mine"})

    def test_deletecollection(self) -> None:
        """It deletes no collections; the refusal neither deletes anything nor names an object."""
        for user in RESTRICTED:
            for path in (
                SECRETS,
                f"{SECRETS}?labelSelector=a%3Db",
                f"{SECRETS}?fieldSelector=metadata.name%3Dof-theirs",
                f"{MACHINES}?{OWN}",
                MACHINES,
                POOLS,
                EVENTS,
                REQUESTS,
                f"{NODES}?fieldSelector=metadata.name%3Dnode-a",
            ):
                message = self.refused(403, "DELETE", path, user=user)
                self.assertIn("may not delete collections", message)
                self.assertNotIn("of-", message)
        pools = self.answer("GET", POOLS)["items"]
        self.assertEqual(len(pools), 2)

    def test_events(self) -> None:
        """No Event is made to be about an object of others, by either API."""
        own = {"metadata": self.mine["metadata"], **MACHINE.resource.__dict__}
        about = {
            "apiVersion": MACHINE.resource.api_version,
            "kind": "Machine",
            "namespace": "default",
            "name": "mine",
            "uid": own["metadata"]["uid"],
        }
        body = event("e", involvedObject=about)
        self.answer("POST", EVENTS, body, user=self.user, code=201)
        other = {**about, "name": "theirs", "uid": self.theirs["metadata"]["uid"]}
        new = EVENTS.replace("/api/v1/", "/apis/events.k8s.io/v1/")
        self.check_refused("PATCH", f"{EVENTS}/e", {"involvedObject": other}, content_type=MERGE)
        complete = {
            "regarding": other,
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "x",
            "reportingInstance": "x",
            "action": "x",
        }
        self.check_refused("PATCH", f"{new}/e", complete, content_type=MERGE)
        # The name of the one with the UID of the other.
        self.check_refused("POST", EVENTS, event("f", involvedObject={**about, "name": "theirs"}))


class IdentityTests(AttackCase):
    """Becoming another user, to whom no restriction applies."""

    def test_impersonation(self) -> None:
        """Poollets and node servers impersonate no user, whatever roles allow."""
        for user in RESTRICTED:
            for headers in (
                [("Impersonate-User", "admin")],
                [("Impersonate-User", "admin"), ("Impersonate-Group", "system:masters")],
                [("Impersonate-User", "system:serviceaccount:default:robot")],
                [("Impersonate-User", "compute.ironcore.dev:system:machinepool:pool-b")],
            ):
                response = self.ask("GET", ALL_SECRETS, user=user, headers=headers)
                self.assertEqual(response.code, 403, response.body)
                self.assertIn("may not impersonate", response.json()["message"])

    def test_tokens(self) -> None:
        """They request no tokens of service accounts."""
        self.answer("POST", ACCOUNTS, {"metadata": {"name": "robot"}}, code=201)
        for user in RESTRICTED:
            path = f"{ACCOUNTS}/robot/token"
            message = self.refused(403, "POST", path, {"spec": {}}, user=user)
            self.assertIn("may not create serviceaccounts/token", message)

    def test_next_hop(self) -> None:
        """A SubjectAccessReview refuses the consoles of other poollets and node servers as well."""
        console: Object = {
            "verb": "create",
            "group": MACHINE.resource.group,
            "resource": "machines",
            "subresource": "exec",
            "namespace": "default",
            "name": "mine",
        }
        users = (
            ("compute.ironcore.dev:system:machinepool:pool-b", POOL_GROUP),
            ("system:node:node-a", "system:nodes"),
        )
        for user, group in users:
            spec = {"user": user, "groups": [group, "system:authenticated"]}
            for subresource in ("exec", "log"):
                attributes = {**console, "subresource": subresource}
                body = {"spec": {**spec, "resourceAttributes": attributes}}
                path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
                status = self.answer("POST", path, body, user=self.user, code=201)["status"]
                self.assertFalse(status["allowed"])
                self.assertIn("may not open the console", status["reason"])

    def test_rights(self) -> None:
        """They write no roles, and approve no certificates."""
        body = {
            "metadata": {"name": "x"},
            "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "User", "name": "x"}],
        }
        self.check_refused("POST", f"{RBAC}/clusterrolebindings", body)
        self.check_refused("POST", NAMESPACES, {"metadata": {"name": "x"}})


class StreamTests(AttackCase):
    """Consoles."""

    pods_view = True

    def test_consoles(self) -> None:
        """No console and no log, of any Machine, by either name."""
        for user in RESTRICTED:
            for name in ("mine", "theirs", "nowhere"):
                for method, path in (
                    ("POST", f"{MACHINES}/{name}/exec"),
                    ("GET", f"{MACHINES}/{name}/exec"),
                    ("GET", f"{MACHINES}/{name}/log"),
                    ("POST", f"{PODS}/{name}/attach?stdin=true"),
                    ("POST", f"{PODS}/{name}/exec?command=console&stdin=true"),
                    ("GET", f"{PODS}/{name}/log"),
                ):
                    message = self.refused(403, method, path, user=user)
                    self.assertIn("may not open the console", message)

    def test_pods(self) -> None:
        """The view of Machines as Pods does not tell which Machines there are."""
        for user in RESTRICTED:
            codes = {self.ask("GET", f"{PODS}/{name}", user=user).code for name in ("theirs", "x")}
            self.assertEqual(codes, {403})


class NodePodsTests(AttackCase):
    """Pods of Nodes, and their kubelets."""

    node_pods = True

    def setUp(self) -> None:
        super().setUp()
        for name in ("node-a", "node-b"):
            self.answer("POST", NODES, {"metadata": {"name": name}}, user=name, code=201)
        self.answer("POST", PODS, pod("web", "node-b"), code=201)
        self.answer("POST", PODS, pod("free"), code=201)

    def more(self) -> dict[str, Any]:
        return {"kubelets": Kubelets(self.forwarding())}

    def test_kubelets(self) -> None:
        """No kubelet is reached through the server, neither by its Node nor by a Pod."""
        for user in RESTRICTED:
            for path in ("node-b/proxy/pods", "node-a/proxy/metrics", "node-b/proxy/configz"):
                message = self.refused(403, "GET", f"{NODES}/{path}", user=user)
                self.assertIn("may not get nodes/proxy", message)
            for method, path in (
                ("POST", f"{PODS}/web/exec?command=id&stdout=true"),
                ("POST", f"{PODS}/web/attach?stdout=true"),
                ("POST", f"{PODS}/web/portforward?ports=80"),
                ("GET", f"{PODS}/web/log"),
            ):
                message = self.refused(403, method, path, user=user)
                self.assertIn("may not open the console", message)

    def test_binding(self) -> None:
        """Neither a poollet nor a node server binds a Pod, not even to its own Node."""
        body = {"metadata": {"name": "free"}, "target": {"kind": "Node", "name": "node-a"}}
        for user in RESTRICTED:
            message = self.refused(403, "POST", f"{PODS}/free/binding", body, user=user)
            self.assertIn('may not update pods "free"', message)
