"""The target's capacity, as classes with a quantity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api import quantity
from twisted_exec.api.selectors import parse_labels
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.runtimes.machinebroker.objects import CachedMachine
from twisted_exec.runtimes.machinebroker.place import BrokerPlace

_LARGEST = 2**63 - 1
_MAX_LISTED = 5


class TargetCapacity:
    """
    Watches the target's pools and classes.

    A poollet subtracts its machines from the quantities of its runtime, but the target's pools have
    subtracted them already. So the broker reports the sum of what is left in the target and of its
    own machines.
    """

    _log = Logger()

    def __init__(
        self,
        client: IKubeClient,
        place: BrokerPlace,
        clock: IReactorTime,
        trouble: Callable[[], str] = lambda: "",
    ) -> None:
        self._place, self._trouble = place, trouble
        self._logged_shortage = ""
        dialect = place.dialect
        fields = f"metadata.name={place.pool}" if place.pool else ""
        self._selector = parse_labels("" if place.pool else selector_text(place.selector))
        self._pools = Reflector(client, dialect.pool, clock, field_selector=fields)
        self._classes = Reflector(client, dialect.workload_class, clock)

    def start(self) -> None:
        for reflector in (self._pools, self._classes):
            reflector.start()

    def stop(self) -> Deferred[list[tuple[bool, None]]]:
        return DeferredList([each.stop() for each in (self._pools, self._classes)])

    def forget(self) -> None:
        for reflector in (self._pools, self._classes):
            reflector.forget()

    def check(self) -> None:
        """
        :raises ServiceUnavailable: pools or classes are not current; the message says why.
        """
        for reflector in (self._pools, self._classes):
            why = self._trouble() or reflector.problem
            if why or not reflector.synced:
                why = why or f"its {reflector.resource.plural} are not listed yet"
                raise ServiceUnavailable(f"the target cluster is not available: {why}")

    def names(self) -> list[str]:
        return sorted(self._offered())

    def shortage(self) -> str:
        """Return why no class is offered, or empty. Valid while :meth:`check` passes."""
        if self._offered():
            return ""
        place, pool_kind = self._place, self._pools.resource.kind
        if not list(self._chosen_pools()):
            missing = f"the target has no {pool_kind}"
            if place.pool:
                return f'{missing} "{place.pool}" (--machine-pool-name)'
            if place.selector:
                return f"{missing} with labels {selector_text(place.selector)} (--machine-pool-selector)"
            return missing
        if left := self._left():
            names = ", ".join(sorted(left)[:_MAX_LISTED])
            return f"the target has no usable {self._classes.resource.kind} of those that its pools offer: {names}"
        pool = f'{pool_kind} "{place.pool}"' if place.pool else f"no {pool_kind}"
        offers = "offers no" if place.pool else "offers a"
        return f"{pool} of the target {offers} machine class; its poollet reports them in the pool's status"

    def status(self, machines: Iterable[CachedMachine]) -> list[pb.MachineClassStatus]:
        self._log_shortage()
        ours = Counter(str(getattr(each.machine.spec, "class")) for each in machines)
        return [
            pb.MachineClassStatus(
                machine_class=pb.MachineClass(
                    name=name, capabilities=pb.MachineClassCapabilities(resources=resources)
                ),
                quantity=min(left + ours[name], _LARGEST),
            )
            for name, (resources, left) in sorted(self._offered().items())
        ]

    def _log_shortage(self) -> None:
        why = self.shortage()
        if why and why != self._logged_shortage:
            self._log.warn("no machine class is offered: {why}", why=why)
        elif self._logged_shortage and not why:
            self._log.info("machine classes are offered again")
        self._logged_shortage = why

    def _offered(self) -> dict[str, tuple[dict[str, int], int]]:
        classes: dict[str, tuple[dict[str, int], int]] = {}
        left = self._left()
        for each in self._classes:
            name = each["metadata"]["name"]
            if name not in left:
                continue
            try:
                classes[name] = dict(_resources(each)), left[name]
            except (ValueError, AttributeError) as problem:
                self._log.warn("class {name} is not offered: {why}", name=name, why=problem)
        return classes

    def _chosen_pools(self) -> Iterator[Object]:
        for pool in self._pools:
            if self._selector.matches(pool["metadata"].get("labels") or {}):
                yield pool

    def _left(self) -> dict[str, int]:
        left: Counter[str] = Counter()
        for pool in self._chosen_pools():
            status, prefix = pool.get("status") or {}, self._place.dialect.capacity_prefix
            quantities = {**(status.get("capacity") or {}), **(status.get("allocatable") or {})}
            for key, text in quantities.items():
                if key.startswith(prefix):
                    left[key.removeprefix(prefix)] += _whole(text)
        return left


def selector_text(selector: object) -> str:
    """Return labels in the form of a label selector."""
    assert hasattr(selector, "items")
    return ",".join(f"{key}={value}" for key, value in selector.items())


def _resources(machine_class: Object) -> Iterator[tuple[str, int]]:
    for name, text in (machine_class.get("capabilities") or {}).items():
        amount = quantity.value(text)
        if not 0 <= amount <= _LARGEST:
            raise ValueError(f"{name} is {text}")
        yield name, amount


def _whole(text: object) -> int:
    try:
        return max(0, quantity.value(str(text)))
    except ValueError:
        return 0
