"""Tests for :mod:`twisted_exec.nodeserver.syncer.status`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.nodeserver.live import running
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.syncer.status import (
    LOST,
    desired_status,
    is_status_current,
    lost_status,
)

NOW = "2026-01-02T00:00:00Z"


def a_root(status: Object | None = None, **spec: object) -> Object:
    return {"metadata": {}, "spec": {"containers": [{"name": "main"}], **spec}, "status": status}


class StatusTests(SynchronousTestCase):
    """Tests for :func:`desired_status`."""

    def test_taken(self) -> None:
        """The root says what the leaf says, and that is then enough."""
        root = a_root()
        status = desired_status(root, {"status": running(root)})
        self.assertEqual(status["phase"], "Running")
        self.assertEqual(status["podIP"], "10.1.0.7")
        self.assertFalse(is_status_current(root, status))
        self.assertTrue(
            is_status_current(a_root(status), desired_status(a_root(status), {"status": status}))
        )

    def test_what_is_no_more(self) -> None:
        """Fields that the leaf no longer reports are removed."""
        root = a_root({"reason": "Evicted", "conditions": []})
        self.assertIsNone(desired_status(root, {"status": {"phase": "Pending"}})["reason"])

    def test_conditions_of_others(self) -> None:
        """Conditions that others have written into the root's Pod stay; a kubelet's go with it."""
        ready, mine = {"type": "Ready", "status": "False"}, {"type": "lb/ready", "status": "True"}
        root = a_root({"conditions": [ready, mine]})
        condition = {"type": "Initialized", "status": "True", "observedGeneration": 3}
        status = desired_status(root, {"status": {"conditions": [condition]}})
        self.assertEqual(status["conditions"], [{"type": "Initialized", "status": "True"}, mine])

    def test_gates(self) -> None:
        """A Pod whose gates are closed is not ready, whatever its leaf says."""
        gates = [{"conditionType": "lb/ready"}]
        leaf = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        (ready,) = desired_status(a_root({}, readinessGates=gates), leaf)["conditions"]
        self.assertEqual((ready["status"], ready["reason"]), ("False", "ReadinessGatesNotReady"))
        opened = a_root(
            {"conditions": [{"type": "lb/ready", "status": "True"}]}, readinessGates=gates
        )
        self.assertEqual(desired_status(opened, leaf)["conditions"][0]["status"], "True")


class LostTests(SynchronousTestCase):
    """Tests for :func:`lost_status`."""

    def test_lost(self) -> None:
        """A Pod whose Pod in the leaf is gone has failed, and nothing of it runs."""
        root = a_root(running(a_root()))
        status = lost_status(root, "one", NOW)
        self.assertEqual((status["phase"], status["reason"]), ("Failed", LOST))
        (container,) = status["containerStatuses"]
        self.assertEqual(container["state"]["terminated"]["exitCode"], 137)
        self.assertFalse(container["ready"])
        self.assertEqual(status["conditions"][0]["status"], "False")

    def test_what_had_ended(self) -> None:
        """A container that had ended keeps its own end."""
        ended = {"name": "main", "state": {"terminated": {"exitCode": 0}}}
        root = a_root({"containerStatuses": [ended]})
        self.assertEqual(lost_status(root, "one", NOW)["containerStatuses"], [ended])
