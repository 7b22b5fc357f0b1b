"""
Tests for :mod:`twisted_exec.apiserver.machine_pods.conversion`.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import schema
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.kinds import PODS, Object
from twisted_exec.api.strategy import full_schema
from twisted_exec.apiserver.machine_pods.conversion import NOWHERE, Host, host_of, pod_of

NOUN = "machine pool"
SINCE = "2026-11-20T05:00:00Z"


def ready(status: str, **more: str) -> Object:
    """A condition Ready."""
    return {"type": "Ready", "status": status, "lastTransitionTime": SINCE, **more}


def machine(state: str = "", *, conditions: Any = (), pool: str = "pool-a", **spec: Any) -> Object:
    """A machine as the store has it."""
    bound = {"machinePoolRef": {"name": pool}} if pool else {}
    return {
        "apiVersion": "compute.ironcore.dev/v1alpha1",
        "kind": "Machine",
        "metadata": {
            "name": "vm",
            "namespace": "default",
            "uid": "u-1",
            "resourceVersion": "7",
            "generation": 2,
            "creationTimestamp": SINCE,
            "labels": {"a": "b"},
            "annotations": {"c": "d"},
            "finalizers": ["x/y"],
        },
        "spec": {"machineClassRef": {"name": "small"}, "power": "On", **bound, **spec},
        "status": {**({"state": state} if state else {}), "conditions": list(conditions)},
    }


def pool(*conditions: Object, addresses: Any = ()) -> Object:
    """A pool as the store has it."""
    return {
        "metadata": {"name": "pool-a"},
        "status": {
            "conditions": list(conditions),
            "addresses": [{"type": kind, "address": address} for kind, address in addresses],
        },
    }


def as_pod(obj: Object, host: Host) -> Object:
    """A machine of ironcore as a Pod of its name."""
    return pod_of(obj, host, IRONCORE, obj["metadata"]["name"])


class PodTests(SynchronousTestCase):
    """Tests for :func:`pod_of`."""

    def pod(self, *args: Any, host: Host = NOWHERE, **more: Any) -> Object:
        """A Pod, which must be one by our own schema."""
        pod = as_pod(machine(*args, **more), host)
        self.assertEqual(schema.check(full_schema(PODS), pod), [])
        self.assertEqual(list(schema.unknown_fields(full_schema(PODS), pod)), [])
        return pod

    def container(self, *args: Any, **more: Any) -> Object:
        """Its container's status."""
        (status,) = self.pod(*args, **more)["status"]["containerStatuses"]
        return dict(status)

    def test_identity(self) -> None:
        """Name, uid, version, labels are the machine's; it says whose view it is."""
        metadata = self.pod("Running")["metadata"]
        (owner,) = metadata.pop("ownerReferences")
        self.assertEqual((owner["kind"], owner["name"], owner["uid"]), ("Machine", "vm", "u-1"))
        self.assertEqual(
            metadata,
            {
                "name": "vm",
                "namespace": "default",
                "uid": "u-1",
                "resourceVersion": "7",
                "creationTimestamp": SINCE,
                "labels": {"a": "b"},
                "annotations": {"c": "d"},
            },
        )

    def test_deleted(self) -> None:
        """A machine that is being deleted is a Pod that is."""
        obj = machine("Running")
        obj["metadata"] |= {"deletionTimestamp": SINCE, "deletionGracePeriodSeconds": 0}
        self.assertEqual(as_pod(obj, NOWHERE)["metadata"]["deletionTimestamp"], SINCE)

    def test_console(self) -> None:
        """One container with a terminal; its image is the machine's, or else its class."""
        (console,) = self.pod()["spec"]["containers"]
        self.assertEqual(console, {"name": "console", "image": "small", "stdin": True, "tty": True})
        disk = {"name": "root", "localDisk": {"image": "registry/os:1"}}
        (console,) = self.pod(volumes=[disk])["spec"]["containers"]
        self.assertEqual(console["image"], "registry/os:1")

    def test_security_context(self) -> None:
        """There is one: ``kubectl debug`` looks into it without looking for it."""
        self.assertEqual(self.pod()["spec"]["securityContext"], {})

    def test_node(self) -> None:
        """The pool is the node; without one it is not scheduled."""
        self.assertEqual(self.pod()["spec"]["nodeName"], "pool-a")
        pod = self.pod(pool="")
        self.assertNotIn("nodeName", pod["spec"])
        self.assertEqual(pod["status"]["conditions"][0]["reason"], "Unschedulable")

    def test_phases(self) -> None:
        """A machine's state is a phase."""
        for state, phase in (
            ("", "Pending"),
            ("Pending", "Pending"),
            ("Running", "Running"),
            ("Terminating", "Running"),
            ("Shutdown", "Succeeded"),
            ("Terminated", "Succeeded"),
            ("Confused", "Unknown"),
        ):
            self.assertEqual(self.pod(state)["status"]["phase"], phase, state)

    def test_running(self) -> None:
        """It is ready, since when, and under which id."""
        pod = as_pod(machine("Running", conditions=[ready("True")]), Host("10.0.0.1"))
        status = pod["status"]
        (console,) = status["containerStatuses"]
        self.assertEqual((console["ready"], console["started"]), (True, True))
        self.assertEqual(console["state"], {"running": {"startedAt": SINCE}})
        self.assertNotIn("containerID", console)
        self.assertEqual(
            [(each["type"], each["status"]) for each in status["conditions"]],
            [("PodScheduled", "True"), ("ContainersReady", "True"), ("Ready", "True")],
        )
        self.assertEqual((status["hostIP"], status["hostIPs"]), ("10.0.0.1", [{"ip": "10.0.0.1"}]))

    def test_id(self) -> None:
        """A runtime's id of a machine has the form of a container's."""
        obj = machine("Running")
        obj["status"]["machineID"] = "x://1"
        (console,) = as_pod(obj, NOWHERE)["status"]["containerStatuses"]
        self.assertEqual(console["containerID"], "x://1")

    def test_foreign_poollet(self) -> None:
        """A poollet that sets no condition is believed; since when is not known."""
        console = self.container("Running")
        self.assertEqual((console["ready"], console["state"]), (True, {"running": {}}))

    def test_not_ready(self) -> None:
        """A running machine that is not ready says why."""
        condition = ready("False", reason="Booting", message="it boots")
        pod = self.pod("Running", conditions=[condition])
        self.assertEqual(
            pod["status"]["conditions"][-1],
            {
                "type": "Ready",
                "status": "False",
                "reason": "Booting",
                "message": "it boots",
                "lastTransitionTime": SINCE,
            },
        )

    def test_waiting(self) -> None:
        """A pending one tells what its poollet tells."""
        condition = ready("False", reason="MachineClassUnknown", message="no class small")
        self.assertEqual(
            self.container("Pending", conditions=[condition])["state"],
            {"waiting": {"reason": "MachineClassUnknown", "message": "no class small"}},
        )
        self.assertEqual(self.container()["state"], {"waiting": {"reason": "Pending"}})

    def test_off(self) -> None:
        """A machine that is powered off has terminated, with a hint how to start it."""
        state = self.container("Shutdown", conditions=[ready("False")], power="Off")["state"]
        self.assertEqual(state["terminated"]["exitCode"], 0)
        self.assertEqual(state["terminated"]["finishedAt"], SINCE)
        self.assertIn("spec.power to On", state["terminated"]["message"])
        self.assertNotIn("message", self.container("Shutdown")["state"]["terminated"])

    def test_silent_pool(self) -> None:
        """On a silent pool running machines have phase Unknown; powered off ones keep theirs."""
        host = Host(silent="the pool is silent")
        status = self.pod("Running", conditions=[ready("True")], host=host)["status"]
        self.assertEqual(
            (status["phase"], status["reason"], status["message"]),
            ("Unknown", "NodeLost", "the pool is silent"),
        )
        self.assertFalse(status["containerStatuses"][0]["ready"])
        self.assertEqual(status["conditions"][-1]["status"], "False")
        self.assertEqual(self.pod("Shutdown", host=host)["status"]["phase"], "Succeeded")


class HostTests(SynchronousTestCase):
    """Tests for :func:`host_of`."""

    def test_address(self) -> None:
        """An IP address, the internal one first; names are none."""
        addresses = (("Hostname", "h"), ("ExternalIP", "1.2.3.4"), ("InternalIP", "10.0.0.1"))
        self.assertEqual(host_of("pool-a", pool(addresses=addresses), NOUN), Host("10.0.0.1"))
        self.assertEqual(host_of("pool-a", pool(addresses=addresses[:2]), NOUN), Host("1.2.3.4"))
        self.assertEqual(host_of("pool-a", pool(addresses=addresses[:1]), NOUN), Host())

    def test_silent(self) -> None:
        """A pool that is not ready, or is not there, says nothing about its machines."""
        self.assertEqual(host_of("pool-a", pool(ready("True")), NOUN), Host())
        told = host_of("pool-a", pool(ready("Unknown", message="not heard of")), NOUN).silent
        self.assertEqual(told, 'machine pool "pool-a" is not ready: not heard of')
        self.assertIn('machine pool "pool-a" does not exist', host_of("pool-a", None, NOUN).silent)
        self.assertEqual(host_of("", None, NOUN), NOWHERE)
