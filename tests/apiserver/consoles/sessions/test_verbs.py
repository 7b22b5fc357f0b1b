"""
Tests for :mod:`twisted_exec.apiserver.consoles.sessions.verbs` and
:mod:`twisted_exec.api.kinds.consolesessions`.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred

from tests.apiserver.consoles.support import ADA, RESOURCE, Carried, ObjectsCase
from tests.apiserver.support import MERGE, APITestCase
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.consoles.sessions.foreign import RENEW_SECONDS
from twisted_exec.apiserver.consoles.sessions.objects import LOOK_SECONDS
from twisted_exec.apiserver.consoles.sessions.verbs import SessionVerbs
from twisted_exec.apiserver.serving.query import WriteOptions
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.auth.interfaces import User
from twisted_exec.streaming.interfaces import SESSION_DELETED, Ending

SESSIONS = "/apis/console.twisted-exec.dev/v1alpha1/namespaces/default/consolesessions"


class DeletionTests(ObjectsCase):
    """Deleting an object ends its session."""

    def test_ends(self) -> None:
        """The session ends and names the deleting user; its object is not created again."""
        one, two = self.begin(1), self.begin(2)
        name = next(
            each["metadata"]["name"] for each in self.stored() if each["spec"]["session"] == "s-1"
        )
        self.delete(name)
        told = f"ada deleted the console session {name}"
        ending = Ending(SESSION_DELETED, told, user="ada")
        self.assertEqual((one.endings, two.endings), ([ending], []))
        one.over()
        self.pass_time(120)
        self.assertEqual([each["spec"]["session"] for each in self.stored()], ["s-2"])

    def test_29_ended_at_another_server(self) -> None:
        """Whichever server it is deleted at, the one that carries the session ends it."""
        others, _ = self.server("two")
        other = Carried(others, 7).begin()
        one = self.begin()
        (name,) = (
            each["metadata"]["name"] for each in self.stored() if each["spec"]["session"] == "s-7"
        )
        self.delete(name)
        self.assertEqual((len(other.endings), one.endings), (1, []))

    def test_while_it_is_renewed(self) -> None:
        """A late renewal neither recreates an object nor removes the deleting user."""
        one = self.begin()
        (obj,) = self.stored()
        noted = json.loads(json.dumps(obj))
        noted["status"]["endedBy"] = "ada"
        self.successResultOf(self.storage.update(RESOURCE, noted))
        self.assertEqual([each.reason for each in one.endings], [SESSION_DELETED])
        self.pass_time(RENEW_SECONDS)
        self.assertEqual(self.stored()[0]["status"]["endedBy"], "ada")
        one.over()
        self.assertEqual(self.stored(), [])

    def test_before_it_is_known_to_be_made(self) -> None:
        """An object may be watched, and deleted, before the create call returns."""
        made: list[Deferred[Object]] = []
        create = self.storage.create

        def slow(resource: Any, obj: Object) -> Deferred[Object]:
            answer: Deferred[Object] = Deferred()
            made.append(answer)
            create(resource, obj).addCallback(lambda stored: kept.append(stored))
            return answer

        kept: list[Object] = []
        self.patch(self.storage, "create", slow)
        one = self.begin()
        self.delete(kept[0]["metadata"]["name"])
        self.assertEqual([each.reason for each in one.endings], [SESSION_DELETED])
        one.over()
        made[0].callback(kept[0])
        self.assertEqual((self.stored(), self.kept()), ([], 0))

    def test_by_mistake(self) -> None:
        """An object that is deleted without a user is created again; the session continues."""
        one = self.begin()
        (obj,) = self.stored()
        self.successResultOf(self.storage.delete(RESOURCE, obj))
        self.pass_time(LOOK_SECONDS)
        self.assertEqual([each["spec"]["session"] for each in self.stored()], ["s-1"])
        self.assertEqual(one.endings, [])
        one.over()
        self.assertEqual(self.stored(), [])

    def test_dry_run(self) -> None:
        """A dry run ends no session."""
        each = self.begin()
        (obj,) = self.stored()
        verbs = SessionVerbs(self.storage, [], self.clock.seconds)
        target = RequestTarget(kinds.CONSOLESESSIONS, "default", obj["metadata"]["name"])
        asked = verbs.delete(ADA, target, WriteOptions(dry_run=True), {})
        self.successResultOf(Deferred.fromCoroutine(asked))
        self.assertEqual((self.stored(), each.endings), ([obj], []))

    def test_name_on_a_terminal(self) -> None:
        """A user's name is printed on one line."""
        each = self.begin()
        (obj,) = self.stored()
        self.delete(obj["metadata"]["name"], User("a\x1b[2J\nb"))
        self.assertTrue(each.endings[0].message.startswith("a [2J b deleted"))

    def test_namespace(self) -> None:
        """A missing namespace gets no object, and the session ends normally."""
        each = self.begin(namespace="nowhere")
        self.pass_time(30)
        self.assertEqual(self.stored(), [])
        each.over()
        self.assertEqual(self.kept(), 0)


class KindTests(APITestCase):
    """Permissions of clients."""

    def setUp(self) -> None:
        super().setUp()
        body = {
            "metadata": {"name": "vm-x"},
            "spec": {"session": "s", "user": "ann", "machine": "vm", "mode": "Watch"},
            "status": {"leaseDurationSeconds": 60, "bytesToUser": 7},
        }
        target = RequestTarget(kinds.CONSOLESESSIONS, "default")
        making = self.parts.verbs.create(ADA, target, body, WriteOptions())
        self.successResultOf(Deferred.fromCoroutine(making))

    def test_not_by_hand(self) -> None:
        """Clients cannot create or change them; the error names their source."""
        for method, path in (
            ("POST", SESSIONS),
            ("PUT", f"{SESSIONS}/vm-x"),
            ("PATCH", f"{SESSIONS}/vm-x"),
        ):
            told = self.refused(405, method, path, {}, content_type=MERGE)
            self.assertIn("console sessions are created by opening a console", told)

    def test_discovery(self) -> None:
        """Discovery lists the same verbs."""
        listing = self.answer("GET", "/apis/console.twisted-exec.dev/v1alpha1")
        (resource,) = (each for each in listing["resources"] if each["name"] == "consolesessions")
        expected = ["delete", "deletecollection", "get", "list", "watch"]
        self.assertEqual(resource["verbs"], expected)
        self.assertEqual(resource["shortNames"], ["sessions", "session"])
        paths = self.answer("GET", "/openapi/v3/apis/console.twisted-exec.dev/v1alpha1")["paths"]
        (item,) = (value for key, value in paths.items() if key.endswith("sessions/{name}"))
        self.assertEqual(set(item), {"get", "delete", "parameters"})

    def test_table(self) -> None:
        """The columns that people need, and the rest with -o wide."""
        accept = [("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")]
        table = self.answer("GET", SESSIONS, headers=accept)
        columns = [(each["name"], each["priority"]) for each in table["columnDefinitions"]]
        narrow = [name for name, priority in columns if not priority]
        self.assertEqual(
            narrow, ["Name", "Machine", "User", "Requested", "Role", "Away", "From", "Age"]
        )
        (row,) = table["rows"]
        self.assertEqual(row["cells"][5], "<none>")
        self.assertEqual(row["cells"][:5], ["vm-x", "vm", "ann", "Watch", "<none>"])

    def test_selected(self) -> None:
        """Field selectors select by machine and by user."""
        for field, count in (("spec.machine=vm", 1), ("spec.user=bob", 0)):
            found = self.answer("GET", f"{SESSIONS}?fieldSelector={field}")["items"]
            self.assertEqual(len(found), count)

    def test_rights(self) -> None:
        """``edit`` sees sessions; ending others' needs ``admin``."""
        self.bind("bob", "view")
        self.refused(403, "GET", SESSIONS, user="bob")
        self.bind("bob", "edit")
        self.assertEqual(len(self.answer("GET", SESSIONS, user="bob")["items"]), 1)
        self.refused(403, "DELETE", f"{SESSIONS}/vm-x", user="bob")
        self.bind("bob", "admin")
        status = self.answer("DELETE", f"{SESSIONS}/vm-x", user="bob")
        self.assertEqual(status["details"]["name"], "vm-x")
        self.assertEqual(self.answer("GET", SESSIONS)["items"], [])

    def test_collection(self) -> None:
        """All of a machine's sessions are ended at once, as ``kubectl delete --field-selector``."""
        self.answer("DELETE", f"{SESSIONS}?fieldSelector=spec.machine=other")
        self.assertEqual(len(self.answer("GET", SESSIONS)["items"]), 1)
        self.answer("DELETE", f"{SESSIONS}?fieldSelector=spec.machine=vm")
        self.assertEqual(self.answer("GET", SESSIONS)["items"], [])
