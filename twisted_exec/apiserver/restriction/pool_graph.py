"""
The pool graph: which Secrets, Volumes, NetworkInterfaces and so on the machines of each pool need.

A Volume or an interface that is claimed for one of the pool's machines counts as well, because its
poollet has to release it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLEALERTS, SECRETS, Object, ipam, routing, storage
from twisted_exec.api.kinds import networks as networking
from twisted_exec.api.resource import Resource
from twisted_exec.storage.follower import Followed, StoreFollower, listed_as_added
from twisted_exec.storage.history import key_of
from twisted_exec.storage.interfaces import DELETED, Event, IStorage

_SOON_SECONDS = 0.05
"""Delay of a notification; a burst of changes causes one."""

_POOLS = 1024
"""Pools whose latest changes are remembered though they have no machines, at most."""

Named = tuple[Resource, str, str]
"""Resource, namespace and name."""


@dataclass(frozen=True)
class _Change:
    version: int
    number: int


_EVERY = ""
"""Instead of a name: every object of a namespace."""
_NONE: Counter[Named] = Counter()
_NOTHING: tuple[str, frozenset[Named]] = "", frozenset()


class PoolGraph(StoreFollower):
    """
    The graph of one dialect's machines.

    It has no work queue: what a poollet may see changes with the machine itself.

    :ivar resources: of these a poollet sees only the objects that its machines need.
    """

    _log = Logger()

    def __init__(self, dialect: Dialect, store: IStorage, clock: IReactorTime) -> None:
        super().__init__(store, clock)
        self._dialect, self._clock = dialect, clock
        self._named: dict[str, Counter[Named]] = {}
        self._machines: dict[str, Object] = {}
        """By UID: the machines that have a pool."""
        self._namers: dict[Named, set[Named]] = {}
        self._needs: dict[Named, tuple[str, frozenset[Named]]] = {}
        self._listeners: list[Callable[[], None]] = []
        self._changes: dict[str, _Change] = {}  # the latest by pool
        self._change_of_all = self._forgotten_change = _Change(0, 0)
        self._number = 0
        self._most_changes = _POOLS
        self._notification: IDelayedCall | None = None
        self.resources = frozenset({SECRETS.resource, CONSOLEALERTS.resource})
        self._followed: list[tuple[Resource, Callable[[Event], None]]] = [
            (dialect.workload, self._machine_changed)
        ]
        if dialect.domain:
            self._know(dialect.domain)

    def _know(self, domain: str) -> None:
        volumes = storage.volumes(domain).resource
        interfaces, networks = (kind.resource for kind in networking.kinds(domain))
        prefixes = ipam.prefixes(domain).resource
        self._volumes, self._interfaces = volumes, interfaces
        self._networks, self._prefixes = networks, prefixes
        self.resources |= {volumes, interfaces, networks, prefixes}
        if self._dialect.routings:
            self._know_routings(domain)
        self._followed += [
            (volumes, partial(self._needy_changed, self._needs_of_volume, "claimRef")),
            (interfaces, partial(self._needy_changed, self._needs_of_interface, "machineRef")),
        ]

    def _know_routings(self, domain: str) -> None:
        self._addresses = routing.virtualips(domain).resource
        self.resources |= {self._addresses}
        for of, kind in zip(routing.routings(domain), routing.routed(domain), strict=True):
            self.resources |= {of.resource, kind.resource}
            needs = partial(self._needs_of_routing, kind.resource)
            take = partial(self._needy_changed, needs, "")
            self._followed.append((of.resource, partial(self._routing_changed, take)))

    def startService(self) -> None:
        self._change_of_all = _Change(self._storage.version(), self._number)
        super().startService()

    def followed(self) -> list[Followed]:
        return [
            Followed(resource, take, listed_as_added(take)) for resource, take in self._followed
        ]

    def stopService(self) -> Deferred[None]:
        if self._notification is not None and self._notification.active():
            self._notification.cancel()
        return super().stopService()

    def sees(self, pool: str, resource: Resource, namespace: str, name: str) -> bool:
        """Return whether the poollet of ``pool`` may see an object."""
        every = resource == CONSOLEALERTS.resource
        return self._sees(pool, (resource, namespace, _EVERY if every else name))

    def _sees(self, pool: str, named: Named) -> bool:
        named_by_machines = self._named.get(pool, _NONE)
        if named_by_machines[named] or self.is_own(pool, self._needs.get(named, _NOTHING)[0]):
            return True
        # Ends: references lead from machines outwards and never back.
        return any(self._sees(pool, namer) for namer in self._namers.get(named, ()))

    def is_own(self, pool: str, uid: str) -> bool:
        """Return whether a UID is that of one of the pool's machines."""
        machine = self._machines.get(uid)
        return machine is not None and self._dialect.pool_name(machine) == pool

    def since(self, pool: str) -> int:
        """Return the store's version since which the poollet of ``pool`` may see the same names."""
        return max(self._change_of(pool).version, self._change_of_all.version)

    def changes(self, pool: str) -> int:
        """Return a number that changes whenever the poollet of ``pool`` may see other names."""
        return max(self._change_of(pool).number, self._change_of_all.number)

    def _change_of(self, pool: str) -> _Change:
        return self._changes.get(pool, self._forgotten_change)

    @property
    def remembered_changes(self) -> int:
        """The number of pools whose latest change is remembered."""
        return len(self._changes)

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """
        Call ``listener`` shortly after a change of the objects that some poollet may see.

        :return: stops that.
        """
        self._listeners.append(listener)
        return partial(self._listeners.remove, listener)

    def _note(self, version: int, *pools: str) -> None:
        self._number += 1
        change = _Change(version, self._number)
        for pool in pools:
            self._changes[pool] = change
        if not pools:
            self._change_of_all = change
        if len(self._changes) > self._most_changes:
            self._forget_changes()
        if self._listeners and (self._notification is None or not self._notification.active()):
            self._notification = self._clock.callLater(_SOON_SECONDS, self._notify)

    def _forget_changes(self) -> None:
        """Forget the changes of pools without machines: users choose the names of pools."""
        version = self._forgotten_change.version
        for pool in [each for each in self._changes if each not in self._named]:
            version = max(version, self._changes.pop(pool).version)
        # Newer than all changes of these pools, so that no listener misses one.
        self._forgotten_change = _Change(version, self._number)
        self._most_changes = max(_POOLS, 2 * len(self._changes))

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    def _machine_changed(self, event: Event) -> None:
        uid = event.obj["metadata"]["uid"]
        machine = None if event.type == DELETED else event.obj
        before, names_before = self._needs_of(self._machines.pop(uid, None))
        now, names = self._needs_of(machine)
        if machine is not None and now:
            self._machines[uid] = machine
        if (before, names_before) == (now, names):
            return
        self._count(before, names_before, -1)
        self._count(now, names, 1)
        self._note(event.version, *{before, now} - {""})

    def _needs_of(self, machine: Object | None) -> tuple[str, tuple[Named, ...]]:
        """Return the pool of a machine, and the objects that it names."""
        if machine is None:
            return "", ()
        return self._dialect.pool_name(machine), tuple(self._needs_of_machine(machine))

    def _count(self, pool: str, named: Iterable[Named], by: int) -> None:
        if not pool:
            return
        counter = self._named.get(pool)
        if counter is None:
            counter = self._named[pool] = Counter()
        for each in named:
            count = counter.get(each, 0) + by
            if count > 0:
                counter[each] = count
            else:
                counter.pop(each, None)
        if not counter:
            del self._named[pool]

    def _needy_changed(
        self, needs: Callable[[Object], Iterator[Named]], claim: str, event: Event
    ) -> None:
        own, uid, named = self._of(event.obj), "", frozenset[Named]()
        if event.type != DELETED:
            named = frozenset(needs(event.obj))
            uid = event.obj.get("spec", {}).get(claim, {}).get("uid", "")
        before = self._needs.get(own, _NOTHING)
        if (uid, named) == before:
            return
        for each in before[1]:
            self._namers[each].discard(own)
            if not self._namers[each]:
                del self._namers[each]
        for each in named:
            self._namers.setdefault(each, set()).add(own)
        self._needs[own] = uid, named
        if self._needs[own] == _NOTHING:
            del self._needs[own]
        self._note(event.version)

    def _routing_changed(self, take: Callable[[Event], None], event: Event) -> None:
        own, named = self._of(event.obj), set[Named]()
        if event.type != DELETED:
            name = _name(event.obj, "networkRef")
            named = {(self._networks, own[1], name)}
        if self._namers.get(own, set()) != named:
            self._namers[own] = named
            self._note(event.version)
        if not named:
            del self._namers[own]
        take(event)

    def _needs_of_routing(self, routed: Resource, obj: Object) -> Iterator[Named]:
        yield routed, *key_of(obj)

    def _of(self, obj: Object) -> Named:
        resources = {resource.kind: resource for resource, _ in self._followed}
        return resources[obj["kind"]], *key_of(obj)

    def _needs_of_machine(self, machine: Object) -> Iterator[Named]:
        spec, (namespace, own) = machine.get("spec", {}), key_of(machine)
        yield CONSOLEALERTS.resource, namespace, _EVERY
        for key in ("ignitionRef", "imagePullSecret"):
            if name := _name(spec, key):
                yield SECRETS.resource, namespace, name
        if not self._dialect.domain:
            return
        for part in spec.get("volumes", []):
            if name := _name(part, "volumeRef") or _made_for(own, part):
                yield self._volumes, namespace, name
        for part in spec.get("networkInterfaces", []):
            if name := _name(part, "networkInterfaceRef") or _made_for(own, part):
                yield self._interfaces, namespace, name

    def _needs_of_volume(self, volume: Object) -> Iterator[Named]:
        access = volume.get("status", {}).get("access", {})
        encryption = volume.get("spec", {}).get("encryption", {})
        for holder in (access, encryption):
            if name := _name(holder, "secretRef"):
                yield SECRETS.resource, key_of(volume)[0], name

    def _needs_of_interface(self, interface: Object) -> Iterator[Named]:
        spec, (namespace, own) = interface.get("spec", {}), key_of(interface)
        if name := _name(spec, "networkRef"):
            yield self._networks, namespace, name
        if self._dialect.routings:
            virtual = spec.get("virtualIP", {})
            name = own if "ephemeral" in virtual else _name(virtual, "virtualIPRef")
            if name:
                yield self._addresses, namespace, name
        for index, source in enumerate(spec.get("ips", [])):
            if "ephemeral" in source:
                yield self._prefixes, namespace, f"{own}-{index}"


def _name(holder: Any, key: str) -> str:
    return str((holder.get(key) or {}).get("name", ""))


def _made_for(machine: str, part: Object) -> str:
    return f"{machine}-{part['name']}" if "ephemeral" in part else ""
