"""Tests for :mod:`twisted_exec.nodeserver.nodes.conditions`."""

from __future__ import annotations

from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.conditions import ConditionValue
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.nodes.conditions import (
    ALWAYS,
    EXEC,
    EXEC_READY,
    LEAF,
    LEAF_GRACE_SECONDS,
    NOT_PROBED,
    PREFERRED,
    READY,
    NodeObservation,
    conditions,
)
from twisted_exec.nodeserver.nodes.status import trim_node

YES: ConditionValue = ("True", "Fine", "")
WELL = NodeObservation(YES, YES, YES)
DOWN: ConditionValue = ("False", "LeafUnreachable", "cannot reach it")


def leaf_node(ready: str) -> Object:
    """A node of a leaf."""
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    return trim_node({"metadata": {"name": "w"}, "status": status})


class ExecReadyTests(SynchronousTestCase):
    """Tests for the condition ExecReady."""

    def told(self, observation: NodeObservation) -> ConditionValue:
        return conditions(observation, [], LEAF)[EXEC_READY]

    def test_all(self) -> None:
        """It is so when every part of the way is known to be open."""
        self.assertEqual(self.told(WELL)[0], "True")

    def test_each(self) -> None:
        """One part that is closed closes it, with that part's reason."""
        for closed in (
            replace(WELL, root=("False", "RootCannotReachUs", "x")),
            replace(WELL, leaf=DOWN),
            replace(WELL, allowed=("False", "ExecForbidden", "no")),
        ):
            self.assertEqual(self.told(closed)[0], "False")
        self.assertEqual(self.told(replace(WELL, leaf=DOWN))[1], "LeafUnreachable")

    def test_not_known(self) -> None:
        """An unknown state is never True."""
        self.assertEqual(self.told(NodeObservation())[:2], ("Unknown", NOT_PROBED))
        unknown = replace(WELL, root=("Unknown", "NotPermitted", "no"))
        self.assertEqual(self.told(unknown)[:2], ("Unknown", "NotPermitted"))

    def test_address(self) -> None:
        """An address that the root would not choose closes it, unless the root came all the same."""
        wrong = replace(WELL, not_chosen="dials Hostname w")
        self.assertEqual(conditions(wrong, [], LEAF)[PREFERRED][0], "True")
        self.assertEqual(self.told(wrong)[0], "True")
        not_asked = replace(wrong, root=("Unknown", "NotPermitted", "no"))
        self.assertEqual(self.told(not_asked), ("False", "AnotherAddressFirst", "dials Hostname w"))


class ReadyTests(SynchronousTestCase):
    """Tests for the condition Ready."""

    def ready(
        self, observation: NodeObservation, policy: str = LEAF, *nodes: Object
    ) -> ConditionValue:
        return conditions(observation, nodes, policy)[READY]

    def test_leaf(self) -> None:
        """By default as long as the leaf answers; a moment's silence changes nothing."""
        self.assertEqual(self.ready(WELL)[0], "True")
        silent = replace(WELL, leaf=DOWN, silent_seconds=LEAF_GRACE_SECONDS - 1)
        self.assertEqual(self.ready(silent)[:2], ("Unknown", NOT_PROBED))
        expired = replace(silent, silent_seconds=LEAF_GRACE_SECONDS)
        self.assertEqual(self.ready(expired), DOWN)

    def test_no_node_ready(self) -> None:
        """A leaf whose nodes all are not ready runs no Pods; one that shows none may."""
        self.assertEqual(self.ready(WELL, LEAF, leaf_node("Unknown"))[1], "LeafNodesNotReady")
        self.assertEqual(self.ready(WELL, LEAF, leaf_node("False"), leaf_node("True"))[0], "True")
        self.assertEqual(self.ready(WELL, LEAF)[0], "True")

    def test_exec(self) -> None:
        """By choice not while a stream is known to be impossible; not knowing is no reason."""
        closed = replace(WELL, allowed=("False", "ExecForbidden", "no"))
        self.assertEqual(self.ready(closed)[0], "True")
        self.assertEqual(self.ready(closed, EXEC)[:2], ("False", "ExecForbidden"))
        unknown = replace(WELL, root=("Unknown", "NotPermitted", "no"))
        self.assertEqual(self.ready(unknown, EXEC)[0], "True")

    def test_always(self) -> None:
        """By choice as long as we run, as Kosmos has it."""
        self.assertEqual(
            self.ready(replace(WELL, leaf=DOWN, silent_seconds=1e6), ALWAYS)[0], "True"
        )
