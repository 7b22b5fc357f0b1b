"""
Tests for :mod:`twisted_exec.apiserver.consoles.recording_rules`.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.consoles.policies_support import GROUP, PolicyTestCase
from tests.apiserver.support import MERGE
from tests.recording.support import signer
from twisted_exec.api.kinds import CONSOLERECORDINGS, Object
from twisted_exec.apiserver.consoles.recording_rules import MOST_OPEN, MOST_RETAINED
from twisted_exec.recording.proof_lines import HeadContent

RECORDINGS = f"{GROUP}/consolerecordings"


def head(block: int = 1, offset: int = 100, chain: str = "ab", *, closed: bool = False) -> str:
    """A signed head of the recording r-1."""
    made = HeadContent("r-1", block, chain * 32, offset, 1_700_000_000_000, closed)
    return made.encode(signer().sign(made)).decode().rstrip("\n")


class RecordingTestCase(PolicyTestCase):
    """Jane edits, bob administers, and both are under the policy p."""

    def make(self, name: str = "r", by: str = "jane", **spec: Any) -> Object:
        """A recording that a user creates."""
        body = {"metadata": {"name": name}, "spec": {"machine": "vm-1", **spec}}
        made: Object = self.answer("POST", RECORDINGS, body, user=by, code=201)
        return made

    def make_required(self, name: str = "r", *policies: str) -> None:
        """A recording that the server creates for policies."""
        made = self.make(name, "admin")
        made["spec"] |= {"policies": list(policies or ("p",)), "endsWithSessions": True}
        self.successResultOf(self.storage.update(CONSOLERECORDINGS.resource, made))

    def patch(self, body: Object, user: str = "admin", code: int = 200, at: str = "r") -> Any:
        path = f"{RECORDINGS}/{at}"
        return self.answer("PATCH", path, body, user=user, code=code, content_type=MERGE)


class CreationTests(RecordingTestCase):
    """Recordings of users."""

    def test_by_server(self) -> None:
        """The server sets the machine's UID and pool and the user, whatever the user says."""
        made = self.make(
            machineUID="x", pool="b", user="eve", policies=["p"], endsWithSessions=True, ended=True
        )
        self.assertEqual(
            made["spec"],
            {
                "machine": "vm-1",
                "machineResource": "machines.compute.ironcore.dev",
                "machineUID": self.machine["metadata"]["uid"],
                "pool": "pool-a",
                "user": "jane",
                "input": "masked",
                "retentionDays": 30,
            },
        )

    def test_no_machine(self) -> None:
        """A recording is of a machine that exists and has a pool."""
        body: Object = {"metadata": {"name": "r"}, "spec": {"machine": "vm-2"}}
        self.refused(404, "POST", RECORDINGS, body)
        self.make_machine("vm-2", "")
        message = self.refused(409, "POST", RECORDINGS, body)
        self.assertIn('"vm-2" is not bound to a pool yet', message)
        self.assertIn("set spec.machinePoolRef", message)

    def test_most_open(self) -> None:
        """Users have a limit of open recordings of one machine; those of sessions do not count."""
        self.make_required("of-sessions")
        for number in range(MOST_OPEN):
            self.make(f"r-{number}")
        body: Object = {"metadata": {"name": "s"}, "spec": {"machine": "vm-1"}}
        message = self.refused(403, "POST", RECORDINGS, body, user="jane")
        self.assertIn('"vm-1" has 16 open recordings, the limit: end one of them first', message)
        self.patch({"spec": {"ended": True}}, "jane", at="r-0")
        self.make("s")

    def test_most(self) -> None:
        """Users have a limit of all recordings of one machine that are retained."""
        made = self.make()
        made["spec"]["ended"] = True
        for number in range(MOST_RETAINED - 2):
            each = {
                **made,
                "metadata": {**made["metadata"], "name": f"r-{number}", "uid": f"u-{number}"},
            }
            self.successResultOf(self.storage.create(CONSOLERECORDINGS.resource, each))
        self.make("last")
        body: Object = {"metadata": {"name": "s"}, "spec": {"machine": "vm-1"}}
        message = self.refused(403, "POST", RECORDINGS, body, user="jane")
        self.assertIn('"vm-1" has 1000 recordings, the limit: delete one of them first', message)

    def test_ended(self) -> None:
        """The server notes when a recording was ended, and by which user."""
        self.make()
        ended = self.patch({"spec": {"ended": True}}, "jane")["spec"]
        self.assertIn("endedTime", ended)
        self.assertEqual(ended["endedReason"], 'user "jane" ended it')
        self.patch({"spec": {"endedTime": None, "endedReason": None, "reason": "x"}}, "jane")

    def test_rights(self) -> None:
        """``edit`` creates and ends, ``admin`` deletes; others see nothing."""
        self.make()
        self.refused(403, "DELETE", f"{RECORDINGS}/r", user="jane")
        self.patch({"status": {"phase": "Closed"}}, "jane", 403, "r/status")
        self.bind("someone", "view")
        self.refused(403, "GET", RECORDINGS, user="no-node")
        self.answer("DELETE", f"{RECORDINGS}/r", user="bob")


class RequiredTests(RecordingTestCase):
    """Recordings that a policy required."""

    def test_protected(self) -> None:
        """Users under the policy neither end, change nor delete its recordings."""
        self.make_required()
        for user, body in (
            ("jane", {"spec": {"ended": True}}),
            ("bob", {"spec": {"retentionDays": 1}}),
            ("bob", {"metadata": {"ownerReferences": []}}),
            ("bob", {"metadata": {"labels": {"a": "b"}}}),
        ):
            self.assertIn("ConsolePolicy", self.patch(body, user, 403)["message"])
        message = self.refused(403, "DELETE", f"{RECORDINGS}/r", user="bob")
        self.assertIn('ConsolePolicy "default/p" requires this recording', message)
        self.assertIn('user "bob" cannot delete it', message)
        self.refused(403, "DELETE", RECORDINGS, user="bob")
        self.answer("GET", f"{RECORDINGS}/r")

    def test_editor(self) -> None:
        """Users who may update every one of its policies may."""
        self.make_required("r", "p", "q")
        self.bind("bob", "console-policy-editor")
        self.patch({"spec": {"ended": True}}, "bob")
        self.answer("DELETE", f"{RECORDINGS}/r", user="bob")


class HeadTests(RecordingTestCase):
    """The newest signed head, which a poollet reports."""

    user = "pool-a"

    def setUp(self) -> None:
        super().setUp()
        self.make()

    def report(self, code: int = 200, **status: Any) -> Any:
        return self.patch({"status": status}, self.user, code, "r/status")

    def test_grows(self) -> None:
        """A later head replaces the stored one, until the recording is closed."""
        for at, text in enumerate((head(), head(2, 200), head(3, 200), head(4, 200, closed=True))):
            stored = self.report(epoch="e", head=text, message=str(at))["status"]
            self.assertEqual(stored["head"], text)
        message = self.report(422, epoch="e", head=head(5, 300))["message"]
        self.assertIn("must not change after the recording was closed", message)
        self.report(epoch="e", message="stored elsewhere")

    def test_goes_back(self) -> None:
        """An earlier head, another chain, another journal, or none: refused."""
        self.report(epoch="e", head=head(2, 200))
        for status, problem in (
            ({"head": head(1, 100)}, "must continue the stored head, which is at block 2"),
            ({"head": head(3, 100)}, "offset 200: the recording was cut, or made anew"),
            ({"head": head(2, 200, "cd")}, "must continue"),
            ({"head": head(3, 300), "epoch": "f"}, "must be of the same recording and journal"),
            ({"epoch": "f"}, "a recording has one journal"),
            ({"head": None}, "must be one line"),
            ({"head": "nonsense"}, "must be one line"),
            ({"head": head(3, 300)[:-9]}, "must be one line"),
        ):
            self.assertIn(problem, self.report(422, **status)["message"])
