"""
Tests for :mod:`twisted_exec.apiserver.restriction.exposed`: the agent of another cluster.
"""

from __future__ import annotations

from tests.apiserver.chain import EXEC, POD, WEBSOCKET, ChainTestCase
from tests.apiserver.support import ALL_MACHINES, MACHINES, MERGE, PODS, APITestCase
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object
from twisted_exec.api.kinds.pods.machine_pods import EXPOSED_LABEL
from twisted_exec.api.users import EXPOSED
from twisted_exec.streaming.interfaces import REVOKED

REVIEWS = "/apis/authorization.k8s.io/v1"
TABLE = (("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"),)


class ExposedTestCase(APITestCase):
    """Two machines, of which one is exposed, and a user ``leaf`` of the group."""

    pods_view = True

    def setUp(self) -> None:
        super().setUp()
        self.make_pool("pool-a")
        self.make_machine("shown")
        self.make_machine("hidden")
        self.expose("shown")

    def expose(self, name: str, value: str | None = "true") -> Object:
        patch = {"metadata": {"labels": {EXPOSED_LABEL: value}}}
        stored: Object = self.answer("PATCH", f"{MACHINES}/{name}", patch, content_type=MERGE)
        return stored

    def seen(self, path: str) -> list[str]:
        listing = self.answer("GET", path, user="leaf")
        return [each["metadata"]["name"] for each in listing["items"]]


class SeeTests(ExposedTestCase):
    """Reading machines and their Pods."""

    def test_lists(self) -> None:
        """Lists of machines and of their Pods have the exposed ones only."""
        for path in (MACHINES, ALL_MACHINES, PODS, "/api/v1/pods"):
            self.assertEqual(self.seen(path), ["shown"])

    def test_tables(self) -> None:
        """A list as a table has the same rows."""
        rows = self.answer("GET", PODS, user="leaf", headers=TABLE)["rows"]
        self.assertEqual([row["cells"][0] for row in rows], ["shown"])

    def test_selected(self) -> None:
        """A selector selects among the exposed machines."""
        self.assertEqual(self.seen(f"{MACHINES}?fieldSelector=metadata.name%3Dhidden"), [])
        self.assertEqual(self.seen(f"{PODS}?fieldSelector=metadata.name%3Dhidden"), [])
        self.assertEqual(self.seen(f"{MACHINES}?labelSelector=%21{EXPOSED_LABEL}"), [])

    def test_pages(self) -> None:
        """A page does not reveal the number of other machines."""
        page = self.answer("GET", f"{MACHINES}?limit=1", user="leaf")
        self.assertEqual(len(page["items"]), 1)
        self.assertNotIn("continue", page["metadata"])
        self.assertNotIn("remainingItemCount", page["metadata"])

    def test_one(self) -> None:
        """A hidden machine gets the same 404, word for word, as a machine that does not exist."""
        self.answer("GET", f"{MACHINES}/shown", user="leaf")
        self.answer("GET", f"{PODS}/shown", user="leaf")
        for path in (MACHINES, PODS):
            messages = [
                self.refused(404, "GET", f"{path}/{name}", user="leaf")
                for name in ("hidden", "nobody")
            ]
            self.assertEqual(messages[0].replace("hidden", "X"), messages[1].replace("nobody", "X"))

    def test_old_versions(self) -> None:
        """A machine that was exposed is shown as it was then, and not as it is now."""
        version = self.answer("GET", MACHINES)["metadata"]["resourceVersion"]
        watching = self.watch(f"{MACHINES}?watch=1&resourceVersion={version}", user="leaf")
        self.expose("shown", None)
        patch = {"metadata": {"annotations": {"secret": "now"}}}
        self.answer("PATCH", f"{MACHINES}/shown", patch, content_type=MERGE)
        late = self.watch(f"{MACHINES}?watch=1&resourceVersion={version}", user="leaf")
        for each in (watching, late):
            (event,) = each.events()
            self.assertEqual(event["type"], "DELETED")
            self.assertNotIn("annotations", event["object"]["metadata"])

    def test_announced(self) -> None:
        """The initial events of a watch are those of exposed machines."""
        query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true"
        query += "&resourceVersionMatch=NotOlderThan"
        for path in (MACHINES, PODS):
            events = self.watch(f"{path}?{query}", user="leaf").events()
            self.assertEqual([each["type"] for each in events], ["ADDED", "BOOKMARK"])
            self.assertEqual(events[0]["object"]["metadata"]["name"], "shown")

    def test_watch(self) -> None:
        """A watch follows the label."""
        for path in (MACHINES, PODS):
            watching = self.watch(f"{path}?watch=1", user="leaf")
            self.assertEqual(watching.names(), [("ADDED", "shown")])
            self.expose("hidden")
            self.assertEqual(watching.names(), [("ADDED", "hidden")])
            self.expose("hidden", "false")
            self.assertEqual(watching.names(), [("DELETED", "hidden")])
            patch = {"metadata": {"labels": {"more": "told"}}}
            self.answer("PATCH", f"{MACHINES}/hidden", patch, content_type=MERGE)
            self.assertEqual(watching.names(), [])

    def test_values(self) -> None:
        """No value of the label but ``true`` exposes a machine."""
        for value in ("True", "1", "", "yes", "false"):
            self.expose("hidden", value)
            self.assertEqual(self.seen(MACHINES), ["shown"])


class DoTests(ExposedTestCase):
    """Consoles, logs and writes."""

    def test_console(self) -> None:
        """
        A request for the console of an exposed machine reaches its pool; for other machines it gets
        404.
        """
        for path in (f"{MACHINES}/{{}}/exec", f"{PODS}/{{}}/attach?stdin=1", f"{PODS}/{{}}/exec"):
            for method in ("GET", "POST"):
                message = self.refused(503, method, path.format("shown"), user="leaf")
                self.assertIn("no usable address", message)
                self.refused(404, method, path.format("hidden"), user="leaf")
                self.refused(404, method, path.format("nobody"), user="leaf")

    def test_log(self) -> None:
        """The same is true for the log."""
        for path in (f"{MACHINES}/{{}}/log", f"{PODS}/{{}}/log"):
            message = self.refused(503, "GET", path.format("shown"), user="leaf")
            self.assertIn("no usable address", message)
            self.refused(404, "GET", path.format("hidden"), user="leaf")

    def test_nothing_else(self) -> None:
        """All writes are refused, also to exposed machines and to their label."""
        path = f"{MACHINES}/shown"
        patch = {"metadata": {"labels": {EXPOSED_LABEL: "true"}}}
        self.refused(403, "PATCH", f"{MACHINES}/hidden", patch, user="leaf", content_type=MERGE)
        self.refused(403, "PATCH", path, patch, user="leaf", content_type=MERGE)
        self.refused(403, "PUT", path, {}, user="leaf")
        self.refused(403, "POST", MACHINES, {"metadata": {"name": "x"}}, user="leaf")
        self.refused(403, "DELETE", path, user="leaf")
        self.refused(403, "DELETE", MACHINES, user="leaf")
        self.refused(403, "PATCH", f"{path}/status", {}, user="leaf", content_type=MERGE)
        self.refused(403, "GET", f"{path}/status", user="leaf")

    def test_other_kinds(self) -> None:
        """For other kinds roles decide; without a role everything is refused."""
        for path in (
            "/api/v1/nodes",
            "/api/v1/namespaces/default/secrets",
            "/apis/compute.ironcore.dev/v1alpha1/machinepools",
            "/apis/console.twisted-exec.dev/v1alpha1/namespaces/default/consolesessions",
        ):
            self.refused(403, "GET", path, user="leaf")

    def test_wider_role(self) -> None:
        """A role that is too wide shows no more machines."""
        self.bind("leaf", "admin")
        self.assertEqual(self.seen(MACHINES), ["shown"])
        self.assertEqual(self.seen(PODS), ["shown"])
        self.refused(404, "POST", f"{MACHINES}/hidden/exec", user="leaf")
        self.refused(404, "GET", f"{MACHINES}/hidden", user="leaf")
        self.refused(403, "DELETE", f"{MACHINES}/hidden", user="leaf")
        self.answer("GET", "/api/v1/namespaces/default/secrets", user="leaf")

    def test_masters_are_not_asked(self) -> None:
        """Other users see what their roles allow."""
        listing = self.answer("GET", MACHINES)
        self.assertEqual(len(listing["items"]), 2)
        self.refused(403, "GET", MACHINES, user="bob")

    def test_review(self) -> None:
        """A review says the same as a request."""

        def allowed(verb: str, name: str, subresource: str = "", group: str = "") -> bool:
            attributes = {
                "namespace": "default",
                "verb": verb,
                "group": group,
                "resource": "machines" if group else "pods",
                "subresource": subresource,
                "name": name,
            }
            review = {"spec": {"resourceAttributes": attributes}}
            path = f"{REVIEWS}/selfsubjectaccessreviews"
            answer = self.answer("POST", path, review, user="leaf", code=201)
            return bool(answer["status"]["allowed"])

        for group in ("", "compute.ironcore.dev"):
            self.assertTrue(allowed("create", "shown", "exec", group))
            self.assertTrue(allowed("get", "shown", "log", group))
            self.assertTrue(allowed("list", "", "", group))
            self.assertFalse(allowed("create", "hidden", "exec", group))
            self.assertFalse(allowed("create", "", "exec", group))
            self.assertFalse(allowed("get", "hidden", "log", group))
            self.assertFalse(allowed("update", "shown", "", group))

    def test_rules(self) -> None:
        """A SelfSubjectRulesReview has no rules about machines, as none could express the limit."""
        self.bind("leaf", "admin")
        path = f"{REVIEWS}/selfsubjectrulesreviews"
        answer = self.answer(
            "POST", path, {"spec": {"namespace": "default"}}, user="leaf", code=201
        )
        resources = {
            each for rule in answer["status"]["resourceRules"] for each in rule["resources"]
        }
        self.assertIn("secrets", resources)
        self.assertEqual([each for each in resources if each.startswith(("machines", "pods"))], [])

    def test_impersonation(self) -> None:
        """Impersonating the group brings its limits, and a member cannot leave it by impersonation."""
        headers = (("Impersonate-User", "x"), ("Impersonate-Group", EXPOSED))
        listing = self.answer("GET", MACHINES, headers=headers)
        self.assertEqual([each["metadata"]["name"] for each in listing["items"]], ["shown"])
        self.refused(403, "GET", MACHINES, user="leaf", headers=(("Impersonate-User", "admin"),))


class SessionTests(ChainTestCase):
    """A console that is open."""

    async def setUp(self) -> None:
        self.token_file = self.mktemp()
        with open(self.token_file, "w") as stream:
            stream.write(f"leaf,leaf,20,{EXPOSED}\n")
        await super().setUp()

    async def test_label_goes(self) -> None:
        """It ends as soon as its machine loses the label, without waiting for the next review."""
        _, port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        await self.label("true")
        ends = [
            await self.open(path=path, user="", headers=(*WEBSOCKET, BEARER))
            for path in (EXEC, f"{POD}/attach?stdin=1")
        ]
        await self.label("no")
        await self.until(lambda: all(each.lost for each in ends))
        await self.until(lambda: len(self.ends()) == 2)
        self.assertEqual({reason for reason, _ in self.ends()}, {REVOKED})
        message = await self.refused(404, user="", headers=(*WEBSOCKET, BEARER))
        self.assertIn(EXPOSED_LABEL, message)

    async def label(self, value: str) -> None:
        patch = {"metadata": {"labels": {EXPOSED_LABEL: value}}}
        await self.admin.patch(kinds.MACHINES.resource, "vm", patch, "default")


BEARER = (b"Authorization", b"Bearer leaf")
