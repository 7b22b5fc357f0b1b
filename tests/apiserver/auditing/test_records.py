"""
Tests for :mod:`twisted_exec.apiserver.auditing.records`.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.apiserver.auditing.test_policy import policy
from tests.apiserver.identity.test_credentials import TokenAuthenticator
from tests.apiserver.support import EVENTS as EVENTS_PATH
from tests.apiserver.support import (
    MACHINES,
    MERGE,
    NAMESPACES,
    APITestCase,
    event,
    machine,
)
from tests.docs import pages
from twisted_exec.api.status import Unauthorized
from twisted_exec.apiserver.auditing.policy import DEFAULT_POLICY, parse
from twisted_exec.apiserver.identity.credentials import Identities

REQUESTS = "/apis/console.twisted-exec.dev/v1alpha1/namespaces/default/consolerequests"
SECRETS = "/api/v1/namespaces/default/secrets"


class RecordTests(APITestCase):
    """Records of requests by the default policy."""

    policy = DEFAULT_POLICY

    def settings(self) -> dict[str, Any]:
        return {"audit_policy": self.policy}

    def last(self) -> dict[str, Any]:
        """The last record."""
        self.assertTrue(self.audit, "there is no record")
        return dict(self.audit[-1])

    def create(self, name: str = "vm") -> None:
        answer = self.ask("POST", MACHINES, machine(name))
        self.assertEqual(answer.code, 201, answer.body)

    def test_change(self) -> None:
        """A change is one record with user, verb, object, code and latency, without a body."""
        self.create()
        record = self.last()
        expected = {
            "hop": "apiserver",
            "event": "request",
            "user": "admin",
            "caller": "",
            "verb": "create",
            "resource": "machines.compute.ironcore.dev",
            "subresource": "",
            "namespace": "default",
            "name": "vm",
            "machine": "vm",
            "code": 201,
            "reason": "",
            "seconds": 0.0,
        }
        self.assertEqual({key: record[key] for key in expected}, expected)
        self.assertTrue(record["uid"])
        self.assertEqual(len(self.audit), 1)
        self.assertNotIn("small", json.dumps(record))

    def test_verbs(self) -> None:
        """Each kind of change has its verb; a status is a subresource."""
        self.create()
        answer = self.ask("GET", f"{MACHINES}/vm")
        self.ask("PUT", f"{MACHINES}/vm", answer.json())
        self.ask("PATCH", f"{MACHINES}/vm", {"metadata": {}}, content_type=MERGE)
        self.ask("PATCH", f"{MACHINES}/vm/status", {"status": {}}, content_type=MERGE)
        self.ask("DELETE", f"{MACHINES}/vm")
        self.ask("DELETE", MACHINES)
        self.assertEqual(
            [(each["verb"], each["subresource"], each["name"]) for each in self.audit],
            [
                ("create", "", "vm"),
                ("update", "", "vm"),
                ("patch", "", "vm"),
                ("patch", "status", "vm"),
                ("delete", "", "vm"),
                ("deletecollection", "", ""),
            ],
        )

    def test_reads(self) -> None:
        """Reads, Events and reviews have no record."""
        self.ask("GET", MACHINES)
        self.ask("GET", f"{MACHINES}/none")
        self.ask("POST", EVENTS_PATH, event("e"))
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        self.ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
        self.assertEqual(self.audit, [])

    def test_refused(self) -> None:
        """A refused change is on record with its code and message, also of an unknown user."""
        self.ask("POST", MACHINES, machine("vm"), user="bob")
        record = self.last()
        self.assertEqual((record["user"], record["code"]), ("bob", 403))
        self.assertIn('User "bob" cannot create', record["reason"])
        self.ask("DELETE", f"{MACHINES}/none")
        self.assertEqual((self.last()["name"], self.last()["code"]), ("none", 404))
        self.ask("POST", MACHINES, machine("vm"), user="nobody")
        self.assertEqual((self.last()["user"], self.last()["code"]), ("", 401))
        self.assertNotIn("nobody", json.dumps(self.last()))

    def test_impersonation(self) -> None:
        """The record has both users."""
        headers = [("Impersonate-User", "jane"), ("Impersonate-Group", "system:masters")]
        self.ask("POST", MACHINES, machine("vm"), headers=headers)
        self.assertEqual((self.last()["user"], self.last()["caller"]), ("jane", "admin"))

    def test_approval(self) -> None:
        """The record of an approval has both users: the approver and the user of the request."""
        self.make_machine("vm")
        self.bind("jane", "edit")
        spec = {"machine": "vm", "right": "drive", "reason": "INC-7"}
        body = {"apiVersion": "console.twisted-exec.dev/v1alpha1", "kind": "ConsoleRequest"}
        body |= {"metadata": {"name": "r"}, "spec": spec}
        self.answer("POST", REQUESTS, body, code=201, user="jane")
        self.assertEqual(self.last()["user"], "jane")
        self.assertNotIn("other_user", self.last())
        approved = {"status": {"approved": True}}
        self.answer("PATCH", f"{REQUESTS}/r/approval", approved, content_type=MERGE)
        record = self.last()
        self.assertEqual((record["verb"], record["subresource"]), ("patch", "approval"))
        self.assertEqual((record["user"], record["other_user"]), ("admin", "jane"))

    def test_session(self) -> None:
        """The response names its record."""
        answer = self.ask("POST", MACHINES, machine("vm"))
        self.assertEqual(answer.headers["audit-id"], self.last()["session"])

    def test_dry_run(self) -> None:
        """A dry run is marked."""
        self.ask("POST", f"{MACHINES}?dryRun=All", machine("vm"))
        self.assertIs(self.last()["dry_run"], True)

    def test_full_disk(self) -> None:
        """A sink that fails does not stop the request."""
        self.audit.record = _broken  # type: ignore[method-assign]
        self.create()
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)


def _broken(event: object) -> None:
    raise OSError(28, "No space left on device")


class BodyTests(RecordTests):
    """Records with bodies."""

    policy = parse(
        policy(
            {"level": "Request", "verbs": ["patch"], "omitManagedFields": True},
            {"level": "RequestResponse", "verbs": ["create", "update", "delete"]},
            {"level": "Metadata", "verbs": ["deletecollection"]},
        )
    )

    def test_change(self) -> None:
        """A record of the level RequestResponse has both bodies."""
        self.create()
        record = self.last()
        self.assertEqual(record["request_object"], machine("vm"))
        self.assertEqual(record["response_object"]["metadata"]["name"], "vm")

    def test_page(self) -> None:
        """The page of audit records lists the additional keys of requests."""
        sessions = pages.page("reference/observing")
        large = machine("vm")
        large["metadata"]["annotations"] = {"a": "x" * 40_000}
        self.ask("POST", f"{MACHINES}?dryRun=All", large)
        self.create()
        self.ask("DELETE", "/version")
        known = pages.first_column(pages.table(sessions, "Keys of every record"))
        found = {key for each in self.audit for key in each} - known
        table = pages.table(sessions, "Additional keys of a request record")
        self.assertEqual(pages.first_column(table) - {"path", "other_user"}, found)

    def test_request(self) -> None:
        """A record of the level Request has the body of the request only."""
        self.create()
        body = {"metadata": {"labels": {"a": "b"}, "managedFields": []}}
        self.ask("PATCH", f"{MACHINES}/vm", body, content_type=MERGE)
        self.assertEqual(self.last()["request_object"], {"metadata": {"labels": {"a": "b"}}})
        self.assertNotIn("response_object", self.last())

    def test_secret(self) -> None:
        """Whatever the policy says, the record of a Secret or a token has no body."""
        data = base64.b64encode(b"canary").decode()
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
        answer = self.ask("POST", SECRETS, {**secret, "data": {"a": data}})
        self.assertEqual(answer.code, 201, answer.body)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}}
        accounts = f"{NAMESPACES}/default/serviceaccounts"
        self.ask("POST", accounts, account)
        self.ask("POST", f"{accounts}/sa/token", {"spec": {}})
        text = json.dumps(self.audit)
        self.assertNotIn(data, text)
        for record in (self.audit[0], self.last()):
            self.assertNotIn("request_object", record)
            self.assertNotIn("response_object", record)
        self.assertEqual(self.last()["subresource"], "token")

    def test_large(self) -> None:
        """A body above the limit is left out, and the record says so."""
        large = machine("vm")
        large["metadata"]["annotations"] = {"a": "x" * 40_000}
        self.ask("POST", MACHINES, large)
        record = self.last()
        self.assertIs(record["truncated"], True)
        self.assertLess(len(json.dumps(record)), 2000)

    def test_not_json(self) -> None:
        """A body that is not JSON is recorded as text."""
        self.ask("POST", MACHINES, b"kind: \x1b[2J", content_type="application/yaml")
        self.assertEqual(self.last()["request_object"], "kind: \x1b[2J")
        self.assertEqual(self.last()["code"], 400)

    def test_reads(self) -> None:
        """Verbs that no rule names have no record; a sub-object is named by its path."""
        self.ask("GET", MACHINES)
        self.assertEqual(self.audit, [])


class OwnLoginTests(APITestCase):
    """Refused tokens of an application's authenticator, beside those of the server."""

    def settings(self) -> dict[str, Any]:
        return {"audit_policy": DEFAULT_POLICY}

    def setUp(self) -> None:
        self.own = TokenAuthenticator()
        self.own.problem = Unauthorized("the lab token has expired")
        self.identities = Identities(authenticators=[self.own])
        super().setUp()

    def test_refused(self) -> None:
        """Both are recorded for a change, with the reason and without the token, and not for a read."""
        for token, reason in (
            ("lab.canary", "the lab token has expired"),
            ("canary", "Unauthorized"),
        ):
            self.refused(401, "GET", MACHINES, user=token)
            self.assertEqual(self.audit, [])
            self.refused(401, "POST", MACHINES, machine("a"), user=token)
            (record,) = self.audit
            self.assertEqual((record["user"], record["code"], record["reason"]), ("", 401, reason))
            self.assertNotIn("canary", str(record))
            self.audit.clear()


class ReadTests(APITestCase):
    """A policy that records reads."""

    def settings(self) -> dict[str, Any]:
        return {"audit_policy": parse(policy({"level": "Metadata"}))}

    def test_reads(self) -> None:
        """get, list and paths without a resource are recorded."""
        self.ask("GET", f"{MACHINES}/none")
        self.ask("GET", MACHINES)
        self.ask("GET", "/version")
        self.assertEqual([each["verb"] for each in self.audit], ["get", "list", "get"])
        self.assertEqual(self.audit[-1]["path"], "/version")
