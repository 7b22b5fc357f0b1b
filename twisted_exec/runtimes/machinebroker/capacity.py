"""
What the target offers: classes that its pools have machines of, and how many of each.

A poollet in front subtracts the machines that it has from what a runtime offers; the target's pools
have subtracted them already.  So what is told is what is left there and what we have there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger

from twisted_exec.api import quantity
from twisted_exec.api.selectors import parse_labels
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.informers.reflector import Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.runtimes.machinebroker.objects import Held
from twisted_exec.runtimes.machinebroker.target import Place

_LARGEST = 2**63 - 1


class TargetCapacity:
    """
    Follows the target's pools and classes.

    :param trouble: why the target cannot be asked, or empty.
    """

    _log = Logger()

    def __init__(
        self,
        client: IKubeClient,
        place: Place,
        clock: Any,
        trouble: Callable[[], str] = lambda: "",
    ) -> None:
        self._place, self._trouble = place, trouble
        dialect = place.dialect
        fields = f"metadata.name={place.pool}" if place.pool else ""
        self._selector = parse_labels("" if place.pool else selector_text(place.selector))
        self._pools = Reflector(client, dialect.pool, clock, field_selector=fields)
        self._classes = Reflector(client, dialect.workload_class, clock)

    def start(self) -> None:
        """Follow until :meth:`stop`."""
        for copy in (self._pools, self._classes):
            copy.start()

    def stop(self) -> Deferred[list[tuple[bool, None]]]:
        """Fires when nothing is under way any more."""
        return DeferredList([copy.stop() for copy in (self._pools, self._classes)])

    def forget(self) -> None:
        """See :meth:`~twisted_exec.kube.informers.reflector.Reflector.forget`."""
        for copy in (self._pools, self._classes):
            copy.forget()

    def check(self) -> None:
        """
        :raises ServiceUnavailable: what the target offers is not known.
        """
        for copy in (self._pools, self._classes):
            why = self._trouble() or copy.problem
            if why or not copy.synced:
                why = why or f"its {copy.resource.plural} are not known yet"
                raise ServiceUnavailable(f"the target cluster cannot be asked: {why}")

    def names(self) -> list[str]:
        """The classes that a machine can be of, sorted."""
        return sorted(self._offered())

    def status(self, held: Iterable[Held]) -> list[pb.MachineClassStatus]:
        """
        The classes with their capabilities and quantities.

        :param held: the machines that we have there.
        """
        ours = Counter(str(getattr(each.machine.spec, "class")) for each in held)
        return [
            pb.MachineClassStatus(
                machine_class=pb.MachineClass(
                    name=name, capabilities=pb.MachineClassCapabilities(resources=resources)
                ),
                quantity=min(left + ours[name], _LARGEST),
            )
            for name, (resources, left) in sorted(self._offered().items())
        ]

    def _offered(self) -> dict[str, tuple[dict[str, int], int]]:
        """What is left of each class, with what a machine of it has."""
        found: dict[str, tuple[dict[str, int], int]] = {}
        left = self._left()
        for each in self._classes:
            name = each["metadata"]["name"]
            if name not in left:
                continue
            try:
                found[name] = dict(_resources(each)), left[name]
            except (ValueError, AttributeError) as problem:
                self._log.warn("class {name} is not offered: {why}", name=name, why=problem)
        return found

    def _left(self) -> dict[str, int]:
        left: Counter[str] = Counter()
        for pool in self._pools:
            if not self._selector.matches(pool["metadata"].get("labels") or {}):
                continue
            status, prefix = pool.get("status") or {}, self._place.dialect.capacity_prefix
            quantities = {**(status.get("capacity") or {}), **(status.get("allocatable") or {})}
            for key, told in quantities.items():
                if key.startswith(prefix):
                    left[key.removeprefix(prefix)] += _whole(told)
        return left


def selector_text(selector: object) -> str:
    """Labels as a label selector writes them."""
    assert hasattr(selector, "items")
    return ",".join(f"{key}={value}" for key, value in selector.items())


def _resources(machine_class: Object) -> Iterator[tuple[str, int]]:
    for name, told in (machine_class.get("capabilities") or {}).items():
        amount = quantity.value(told)
        if not 0 <= amount <= _LARGEST:
            raise ValueError(f"{name} is {told}")
        yield name, amount


def _whole(told: object) -> int:
    try:
        return max(0, quantity.value(str(told)))
    except ValueError:
        return 0
