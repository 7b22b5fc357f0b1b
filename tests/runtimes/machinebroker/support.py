"""
Support for tests of the broker: a target in memory with a fast poollet, and a broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.trial.unittest import TestCase

from tests.contracts.machine_runtime import machine
from tests.runtimes.support import pause
from twisted_exec.api import kinds
from twisted_exec.api.dialects import IRONCORE, Dialect
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import StreamLinks
from twisted_exec.kube.interfaces import Object
from twisted_exec.runtimes.machinebroker.objects import BrokerIdentity, BrokerPlace
from twisted_exec.runtimes.machinebroker.service import MachineBroker
from twisted_exec.runtimes.machinebroker.tokens import MemoryLedger, Tokens, new_key
from twisted_exec.testing.cluster import MemoryCluster

reactor: Any = _reactor
MACHINES = kinds.MACHINES.resource
CLASSES, POOLS = kinds.MACHINECLASSES.resource, kinds.MACHINEPOOLS.resource
NAMESPACE = "from-a"
CLASS = "small"
POOL = "pool-b"


def pool(name: str = POOL, *, allocatable: str = "10", labels: Any = None) -> Object:
    """A pool that has machines of the class."""
    return {
        "apiVersion": POOLS.api_version,
        "kind": POOLS.kind,
        "metadata": {"name": name, "labels": labels or {}},
        "status": {"allocatable": {f"{IRONCORE.capacity_prefix}{CLASS}": allocatable}},
    }


def machine_class(name: str = CLASS) -> Object:
    """Build a machine class of the target."""
    return {
        "apiVersion": CLASSES.api_version,
        "kind": CLASSES.kind,
        "metadata": {"name": name},
        "capabilities": {"cpu": "2", "memory": "1Gi"},
    }


def connected(name: str = "data", **more: Any) -> pb.Volume:
    """A volume that is connected to."""
    access = pb.VolumeConnection(
        driver="ceph",
        handle=f"handle-{name}",
        attributes={"monitors": "m1"},
        effective_storage_bytes=1 << 30,
        **more,
    )
    return pb.Volume(name=name, device="odb", connection=access)


def interface(name: str = "net") -> pb.NetworkInterface:
    """A network interface."""
    attributes = {"rawNICLabels": "{}"}
    return pb.NetworkInterface(
        name=name, network_id="provider://n1", ips=["10.0.0.1", "fd00::1"], attributes=attributes
    )


class Target:
    """The target: objects in memory, and a poollet that does at once what they say."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.client = self.cluster.client()
        self.runs = True
        """The poollet does its work."""
        self.cluster.put((CLASSES, "", CLASS), machine_class())
        self.cluster.put((POOLS, "", POOL), pool())

    def start(self) -> None:
        """Start before the broker's watches, to get each change first."""
        self.client.watch(MACHINES, self._changed, resource_version=str(self.cluster.version))

    def _changed(self, event: str, obj: Object) -> None:
        if not self.runs or event == "DELETED":
            return
        if obj["metadata"].get("deletionTimestamp"):
            reactor.callLater(0, self._let_go, obj)
            return
        if "finalizers" not in obj["metadata"]:
            # It is told again by this.
            self._patch(obj, {"metadata": {"finalizers": [IRONCORE.finalizer]}})
            return
        state = "Shutdown" if obj["spec"].get("power") == "Off" else "Running"
        expected = {"state": state, "observedGeneration": obj["metadata"]["generation"]}
        if obj.get("status") == expected:
            return
        self._patch(obj, {"status": expected}, subresource="status")
        self.happened(obj, state)

    def _let_go(self, obj: Object) -> None:
        """The machine is no more."""
        if (MACHINES, NAMESPACE, obj["metadata"]["name"]) in self.cluster.objects:
            self._patch(obj, {"metadata": {"finalizers": None}})

    def _patch(self, obj: Object, patch: Object, **more: Any) -> None:
        metadata = obj["metadata"]
        self.client.patch(MACHINES, metadata["name"], patch, metadata["namespace"], **more)

    def happened(self, obj: Object, reason: str, **more: Any) -> None:
        """An Event about a machine."""
        count = sum(1 for key in self.cluster.objects if key[0] == kinds.EVENTS.resource)
        metadata = obj["metadata"]
        event = {
            "metadata": {"name": f"e-{count}"},
            "involvedObject": {
                "kind": "Machine",
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "reason": reason,
            "message": f"it is {reason}",
            "type": "Normal",
            "lastTimestamp": "2026-01-01T00:00:00Z",
            **more,
        }
        self.client.create(kinds.EVENTS.resource, event, metadata["namespace"])

    def object(self, name: str) -> Object:
        """Read a machine from the target."""
        return self.cluster.objects[(MACHINES, NAMESPACE, name)]


class BrokerCase(TestCase):
    """Brokers of one target."""

    def setUp(self) -> None:
        self.target = Target()
        self.started = False

    def pause(self) -> Any:
        return pause()

    async def until(self, condition: Callable[[], Any]) -> None:
        while not condition():
            await pause()

    async def make_runtime(self, **options: Any) -> MachineBroker:
        """A broker that knows its target."""
        place = options.pop("place", None) or self.place()
        options.setdefault("identity", BrokerIdentity(own=True))
        options.setdefault("tokens", Tokens(new_key, MemoryLedger()))
        links = StreamLinks(
            exec_url=lambda token: f"https://broker.example/exec/{token}",
            log_url=lambda token: f"https://broker.example/log/{token}",
        )
        options.setdefault("links", links)
        client = options.pop("client", None) or self.target.client
        broker = MachineBroker(client, place, clock=reactor, **options)
        broker.start()
        self.addCleanup(broker.stop)
        await broker.cache.when_synced()
        if not self.started:
            self.started = True
            self.target.start()
        return broker

    def place(self, dialect: Dialect = IRONCORE, **more: Any) -> BrokerPlace:
        return BrokerPlace(dialect, NAMESPACE, **{"source": "a", "pool": POOL, **more})

    async def made(self, broker: MachineBroker, name: str = "x", **options: Any) -> pb.Machine:
        """A machine through the broker."""
        request = options.pop("wanted", None) or machine(name, CLASS, **options)
        answer = await broker.create_machine(pb.CreateMachineRequest(machine=request))
        return answer.machine

    async def refusal(self, call: Any) -> Any:
        from twisted_exec.api.status import APIError

        try:
            answer = await call
        except APIError as error:
            return error
        self.fail(f"the call answered {answer!r}")

    def requests(self, *verbs: str) -> list[tuple[str, str, str, str]]:
        """The requests to the target."""
        return [each for each in self.target.cluster.requests if each[0] in verbs]
