"""Tests for :mod:`twisted_exec.spacemanager.providers.kcp.workspaces`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.kinds import SERVICEACCOUNTS
from twisted_exec.api.spaces import OWNER
from twisted_exec.api.status import BadRequest, Invalid
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.interfaces import BUILDING, GOING, USABLE, Physical, SpaceRequest
from twisted_exec.spacemanager.providers.kcp.workspaces import (
    check_name,
    space_info,
    within,
    workspace,
    workspaces,
)

RED = Physical("red", "root:org")


def found(phase: str, *, metadata: Any = None, spec: Any = None, **status: Any) -> Object:
    """Return a Workspace as kcp 0.32 does."""
    about = {
        "name": "red",
        "uid": "u-1",
        "resourceVersion": "42",
        "annotations": {OWNER: "space-1", "experimental.tenancy.kcp.io/owner": "{}"},
        **(metadata or {}),
    }
    ready = {"cluster": "2xkvk3gvg1n9", "URL": "https://h/clusters/root:org:red"}
    return {
        "metadata": about,
        "spec": ready if spec is None else spec,
        "status": {"phase": phase, **status},
    }


class PathTests(SynchronousTestCase):
    """Request paths."""

    def test_workspaces(self) -> None:
        """A Workspace is requested from its parent."""
        self.assertEqual(
            workspaces("root:org").path(name="red"),
            "/clusters/root:org/apis/tenancy.kcp.io/v1alpha1/workspaces/red",
        )

    def test_within(self) -> None:
        """Other resources are requested from the workspace itself."""
        accounts = within("2xkvk3gvg1n9", SERVICEACCOUNTS.resource)
        self.assertEqual(
            accounts.path("ns", "a", "token"),
            "/clusters/2xkvk3gvg1n9/api/v1/namespaces/ns/serviceaccounts/a/token",
        )


class SeenTests(SynchronousTestCase):
    """Tests for :func:`space_info`."""

    def test_ready(self) -> None:
        """A Ready workspace is usable; its UID is the name of its logical cluster."""
        info = space_info(found("Ready"), RED)
        self.assertEqual((info.state, info.reason, info.message), (USABLE, "", ""))
        self.assertEqual((info.uid, info.version, info.owner), ("2xkvk3gvg1n9", "42", "space-1"))

    def test_states(self) -> None:
        """Each phase of old and new kcp releases maps to a state."""
        expected = {
            "": BUILDING,
            "Scheduling": BUILDING,
            "Initializing": BUILDING,
            "Unavailable": BUILDING,
            "Inactive": BUILDING,
            "SomethingNew": BUILDING,
            "Ready": USABLE,
            "Terminating": GOING,
            "Deleting": GOING,
        }
        for phase, state in expected.items():
            self.assertEqual(space_info(found(phase), RED).state, state, phase)

    def test_going(self) -> None:
        """A workspace with a deletionTimestamp is never usable, even in phase Ready."""
        info = space_info(
            found("Ready", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), RED
        )
        self.assertEqual(info.state, GOING)

    def test_no_url(self) -> None:
        """A Ready workspace without a URL is still building."""
        self.assertEqual(space_info(found("Ready", spec={}), RED).state, BUILDING)

    def test_messages(self) -> None:
        """The message says on one line what the workspace waits for."""
        info = space_info(found("Initializing", initializers=["root:a", "root:b\nc"]), RED)
        self.assertEqual(info.message, "waiting for initializers: root:a, root:b c")
        complaint = {"type": "WorkspaceScheduled", "status": "False", "message": "no\nshard"}
        info = space_info(found("Scheduling", conditions=[complaint]), RED)
        self.assertEqual((info.reason, info.message), ("Scheduling", "no shard"))
        self.assertIn("core.kcp.io/inactive", space_info(found("Inactive"), RED).message)
        info = space_info(found("Terminating", terminators=["root:t"]), RED)
        self.assertEqual(info.message, "waiting for terminators: root:t")

    def test_content_remains(self) -> None:
        """
        During deletion, the message says what remains; other conditions are ignored.
        """
        conditions = [
            {"type": "WorkspaceInitialized", "status": "False", "message": "initializers exist"},
            {"type": "WorkspaceContentDeleted", "status": "False", "message": "namespaces\nremain"},
        ]
        deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        info = space_info(found("Ready", metadata=deleted, conditions=conditions), RED)
        self.assertEqual((info.state, info.reason, info.message), (GOING, "", "namespaces remain"))
        info = space_info(found("Ready", metadata=deleted, conditions=conditions[:1]), RED)
        self.assertEqual(info.message, "")

    def test_strange(self) -> None:
        """Fields of unexpected types cause no error."""
        strange: list[Object] = [
            {"metadata": {"name": "red"}},
            {"metadata": {"name": "red"}, "spec": [], "status": 7},
            found("Ready", conditions="x", initializers={}),
            found("Initializing", conditions=[7, {"status": "False"}], initializers=7),
            found("Ready", metadata={"annotations": None}),
        ]
        for each in strange:
            self.assertEqual(space_info(each, RED).physical, RED)
        self.assertEqual(space_info(strange[-1], RED).owner, "")


class WantedTests(SynchronousTestCase):
    """Tests for :func:`workspace` and :func:`check_name`."""

    def test_default(self) -> None:
        """The default type is universal; the annotation has the owner's UID."""
        made = workspace("red", SpaceRequest("space-1"))
        self.assertEqual(made["spec"], {"type": {"name": "universal", "path": "root"}})
        self.assertEqual(made["metadata"]["annotations"], {OWNER: "space-1"})

    def test_type(self) -> None:
        """The path of a type is root by default."""
        made = workspace("red", SpaceRequest("o", {"type": "organization"}))
        self.assertEqual(made["spec"]["type"], {"name": "organization", "path": "root"})
        made = workspace("red", SpaceRequest("o", {"type": "lab", "typePath": "root:org"}))
        self.assertEqual(made["spec"]["type"], {"name": "lab", "path": "root:org"})

    def test_bad_parameters(self) -> None:
        """Unknown or invalid parameters are refused by name."""
        for parameters in (
            {"size": "1"},
            {"typePath": "root"},
            {"type": "A"},
            {"type": "a", "typePath": "a/b"},
        ):
            with self.assertRaises(BadRequest) as caught:
                workspace("red", SpaceRequest("o", parameters))
            self.assertIn(max(parameters), caught.exception.message)

    def test_names(self) -> None:
        """Names and paths follow kcp's rules, so that they never lead elsewhere."""
        for good in (RED, Physical("1-a"), Physical("a" * 63, "root:a:b")):
            check_name(good)
        for name, parent in (
            ("a" * 64, ""),
            ("a.b", ""),
            ("-a", ""),
            ("a:b", ""),
            ("a", "root/../x"),
            ("a", "root:"),
            ("a", "Root"),
            ("a", "*"),
        ):
            with self.assertRaises(Invalid):
                check_name(Physical(name, parent))
