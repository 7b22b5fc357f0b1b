"""
Machines shown as Pods, so that kubectl's Pod commands work on them.

A Pod has one container, the console, and a node named after its machine's pool. A running machine
on a silent pool has phase Unknown: its workload may still be running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from twisted.internet import defer
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from twisted_exec.api.conditions import condition_of, unplaced
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLE, PODS, Object, image_of
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Expired
from twisted_exec.auth.interfaces import Decision, IRulesAuthorizer, User
from twisted_exec.auth.rbac import CONSOLE_LOG_READER, CONSOLE_USER, smallest_role
from twisted_exec.auth.rules import ALL, Attributes, Rule
from twisted_exec.program.turns import ShortTurns
from twisted_exec.storage.base import ReadOnlyStorage
from twisted_exec.storage.history import History, Key, key_of, table_of, versioned
from twisted_exec.storage.interfaces import (
    ADDED,
    DELETED,
    MODIFIED,
    Event,
    IStorage,
    IWatch,
    Listing,
)
from twisted_exec.storage.interfaces import Object as StoredObject

_OPEN = {"create": ("create", "exec"), "get": ("create", "exec")}
"""A browser opens a WebSocket with GET, which must need no lesser permission."""

_NEEDED: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "": {verb: (verb, "") for verb in ("get", "list", "watch")},
    "status": {"get": ("get", "status")},
    "attach": _OPEN,
    "exec": _OPEN,
    "console": {verb: (verb, "console") for verb in ("observe", "drive", "takeover")},
    "log": {"get": ("get", "log")},
}
"""By the Pod's subresource and verb: verb and subresource for the machine."""

_GRANTS_NOTHING = "pods here are machines, seen by clients that know only pods"

_ROLES_TO_OPEN = f"; for kubectl logs {CONSOLE_LOG_READER}, for kubectl attach {CONSOLE_USER}"
"""kubectl reads the Pod first: a user who gets only the role for that would be refused again."""


class PodNames:
    """
    Maps names of Pods to names of machines.

    Machines of the first dialect are Pods of the same name; others append the dialect's name, such
    as ``vm-1.spheric``.
    """

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        self.dialects = tuple(dialects)
        self._suffixes = {f".{dialect.name}": dialect for dialect in self.dialects[1:]}

    def pod(self, dialect: Dialect, machine: str) -> str:
        """Return the Pod's name for a machine."""
        return machine if dialect == self.dialects[0] else f"{machine}.{dialect.name}"

    def machine(self, pod: str) -> tuple[Dialect, str]:
        """Return the dialect and name of the machine that a Pod's name stands for."""
        name, dot, suffix = pod.partition(".")
        dialect = self._suffixes.get(dot + suffix)
        return (self.dialects[0], pod) if dialect is None else (dialect, name)


@implementer(IRulesAuthorizer)
class PodsAuthorizer:
    """
    Decides for Pods as for their machines; passes everything else on.

    A Pod has no permissions of its own: reading a Pod is reading its machine, attaching to it is
    opening the machine's console. Rules for ``pods`` grant nothing.
    """

    def __init__(self, authorizer: IRulesAuthorizer, names: PodNames) -> None:
        self._authorizer, self._names = authorizer, names

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        if not is_pod(attributes):
            return self._decide(attributes)
        return Deferred.fromCoroutine(self._authorize(attributes))

    async def _authorize(self, attributes: Attributes) -> Decision:
        decision = Decision(False, f"{_GRANTS_NOTHING}, and are read-only")
        for each in machine_attributes(attributes, self._names):
            decision = _explained(await self._decide(each), each)
            if decision.visibility is not None:
                # It judges machines, and would be given their Pods: a machine of another name.
                decision = Decision(False, f"{_GRANTS_NOTHING}; you may see some machines only")
            if not decision.allowed:
                break
        return decision

    def _decide(self, attributes: Attributes) -> Deferred[Decision]:
        decided: Deferred[Decision] = self._authorizer.authorize(attributes)
        return decided

    def rules_for(self, user: User, namespace: str) -> Deferred[tuple[Rule, ...]]:
        current: Deferred[tuple[Rule, ...]] = self._authorizer.rules_for(user, namespace)
        return current.addCallback(lambda rules: tuple(dict.fromkeys(self._with_pods(rules))))

    def _with_pods(self, rules: tuple[Rule, ...]) -> Iterator[Rule]:
        for rule in rules:
            remaining = _without_pods(rule)
            if remaining is not None:
                yield remaining
            if not _says_all(rule):
                yield from self._pods_of(rule, rules)

    def _pods_of(self, rule: Rule, rules: tuple[Rule, ...]) -> Iterator[Rule]:
        if not rule.resource_names:
            # For all Pods: each dialect needs such a rule.
            first, *others = self._names.dialects
            yield from _rules_of(
                {
                    key
                    for key in _allowed(rule, first)
                    if all(_any_allows(rules, dialect, key) for dialect in others)
                }
            )
            return
        for dialect in self._names.dialects:
            pods = tuple(self._names.pod(dialect, name) for name in rule.resource_names)
            yield from _rules_of(_allowed(rule, dialect), pods)


def is_pod(attributes: Attributes) -> bool:
    """Return whether a request is about a Pod, or about Pods."""
    return attributes.group == PODS.resource.group and attributes.resource == PODS.resource.plural


def machine_attributes(attributes: Attributes, names: PodNames) -> tuple[Attributes, ...]:
    """
    Return the requests for machines that a request for Pods stands for.

    :return: empty when nothing can allow the request; else all of them must be allowed.
    """
    if attributes.verb == "create" and not attributes.subresource and attributes.name in _NEEDED:
        # kubectl auth can-i create pods/exec sends the subresource as the name.
        attributes = replace(attributes, subresource=attributes.name, name="")
    if not attributes.name:
        every = ((dialect, _of_machines(attributes, dialect)) for dialect in names.dialects)
        return tuple(each for _, each in every if each is not None)
    dialect, name = names.machine(attributes.name)
    each = _of_machines(replace(attributes, name=name), dialect)
    return () if each is None else (each,)


def _of_machines(attributes: Attributes, dialect: Dialect) -> Attributes | None:
    required = _NEEDED.get(attributes.subresource, {}).get(attributes.verb)
    if required is None:
        return None
    verb, subresource = required
    return replace(
        attributes,
        verb=verb,
        group=dialect.group,
        version=dialect.version,
        resource=dialect.workload.plural,
        subresource=subresource,
    )


def _explained(decision: Decision, attributes: Attributes) -> Decision:
    if decision.allowed or decision.hidden:
        return decision
    needed = f"{attributes.verb} {attributes.resource}"
    needed += f"/{attributes.subresource}" if attributes.subresource else ""
    message = f"a pod here is a machine: this needs {needed} in API group {attributes.group}"
    role = smallest_role(
        attributes.verb, attributes.group, attributes.resource, attributes.subresource
    )
    if role:
        message += f" (the default role {role} suffices{_ROLES_TO_OPEN if role == 'view' else ''})"
    return Decision(False, f"{message}; {decision.reason}" if decision.reason else message)


def _without_pods(rule: Rule) -> Rule | None:
    if PODS.resource.group not in rule.api_groups and ALL not in rule.api_groups:
        return rule
    pods = PODS.resource.plural
    remaining = tuple(each for each in rule.resources if each.partition("/")[0] != pods)
    if len(remaining) == len(rule.resources):
        return rule
    return replace(rule, resources=remaining) if remaining else None


def _says_all(rule: Rule) -> bool:
    return ALL in rule.api_groups and ALL in rule.resources


_Key = tuple[str, str]
"""A verb, and a subresource of Pods."""
_KEYS: tuple[_Key, ...] = tuple(
    (verb, subresource) for subresource, needed in _NEEDED.items() for verb in sorted(needed)
)


def _allowed(rule: Rule, dialect: Dialect) -> set[_Key]:
    return {key for key in _KEYS if _allows(rule, dialect, key)}


def _allows(rule: Rule, dialect: Dialect, key: _Key) -> bool:
    name = rule.resource_names[0] if rule.resource_names else ""
    verb, subresource = key
    attributes = Attributes(User(""), verb, name=name, subresource=subresource)
    needed = _of_machines(attributes, dialect)
    return needed is not None and rule.allows(needed)


def _any_allows(rules: tuple[Rule, ...], dialect: Dialect, key: _Key) -> bool:
    return any(not rule.resource_names and _allows(rule, dialect, key) for rule in rules)


def _rules_of(allowed: set[_Key], names: tuple[str, ...] = ()) -> Iterator[Rule]:
    resource = PODS.resource
    by_verbs: dict[tuple[str, ...], list[str]] = {}
    for subresource in _NEEDED:
        verbs = tuple(verb for verb, of in _KEYS if of == subresource and (verb, of) in allowed)
        if verbs:
            name = f"{resource.plural}/{subresource}" if subresource else resource.plural
            by_verbs.setdefault(verbs, []).append(name)
    for verbs, resources in by_verbs.items():
        yield Rule(verbs, (resource.group,), tuple(resources), names)


_PHASES = {
    "": "Pending",
    "Pending": "Pending",
    "Running": "Running",
    "Suspended": "Running",
    "Terminating": "Running",
    "Shutdown": "Succeeded",
    "Stopped": "Succeeded",
    "Terminated": "Succeeded",
}
"""Pod phases by machine state, for all dialects."""

_COPIED_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
)
_HOST_TYPES = ("InternalIP", "ExternalIP")


@dataclass(frozen=True)
class Host:
    """
    The pool's contribution to the Pod.

    :param silent: why the state of the pool's machines is unknown, or empty.
    """

    address: str = ""
    silent: str = ""


NOWHERE = Host()
"""For a machine without a pool."""


def host_of(name: str, pool: Object | None, noun: str) -> Host:
    """Return the pool's contribution to its machines' Pods."""
    if not name:
        return NOWHERE
    if pool is None:
        return Host(silent=f'{noun} "{name}" does not exist')
    status = pool.get("status", {})
    return Host(_address(status), _silence(f'{noun} "{name}"', status))


def _address(status: Object) -> str:
    by_type = {each["type"]: each["address"] for each in reversed(status.get("addresses", []))}
    return next((by_type[each] for each in _HOST_TYPES if each in by_type), "")


def _silence(pool: str, status: Object) -> str:
    # Foreign poollets may set no Ready condition.
    ready = condition_of({"status": status}, "Ready")
    if ready.get("status", "True") == "True":
        return ""
    reason = ready.get("message") or ready.get("reason") or "no reason given"
    return f"{pool} is not ready: {reason}"


def pod_of(machine: Object, host: Host, dialect: Dialect, name: str) -> Object:
    """Convert a machine; the result shares parts with it."""
    metadata = {
        key: machine["metadata"][key] for key in _COPIED_METADATA if key in machine["metadata"]
    }
    metadata["name"] = name
    metadata["ownerReferences"] = [_owner(machine)]
    resource = PODS.resource
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        "spec": _spec(machine, dialect),
        "status": _status(machine, host, dialect),
    }


def _owner(machine: Object) -> Object:
    return {
        "apiVersion": machine["apiVersion"],
        "kind": machine["kind"],
        "name": machine["metadata"]["name"],
        "uid": machine["metadata"]["uid"],
        "controller": True,
    }


def _image(machine: Object, dialect: Dialect) -> str:
    return image_of(machine, dialect) or dialect.class_name(machine)


def _spec(machine: Object, dialect: Dialect) -> Object:
    image = _image(machine, dialect)
    console = {"name": CONSOLE, "image": image, "stdin": True, "tty": True}
    # Every Pod in Kubernetes has at least an empty securityContext; kubectl debug relies on it.
    spec: Object = {"containers": [console], "restartPolicy": "Never", "securityContext": {}}
    if pool := dialect.pool_name(machine):
        spec["nodeName"] = pool
    if tolerations := machine.get("spec", {}).get("tolerations"):
        spec["tolerations"] = tolerations
    return spec


def _status(machine: Object, host: Host, dialect: Dialect) -> Object:
    observed = machine.get("status", {})
    phase = _PHASES.get(observed.get("state", ""), "Unknown")
    lost = bool(host.silent) and phase == "Running"
    status: Object = {"phase": "Unknown" if lost else phase}
    if lost:
        status |= {"reason": "NodeLost", "message": host.silent}
    ready = condition_of(machine, "Ready")
    reachable = phase == "Running" and not lost and ready.get("status", "True") == "True"
    status["conditions"] = _conditions(machine, reachable, ready, dialect)
    status["containerStatuses"] = [_console(machine, phase, reachable, ready, dialect)]
    if host.address:
        status |= {"hostIP": host.address, "hostIPs": [{"ip": host.address}]}
    return status | {"qosClass": "BestEffort"}


def _console(
    machine: Object, phase: str, reachable: bool, ready: Object, dialect: Dialect
) -> Object:
    status: Object = {
        "name": CONSOLE,
        "image": _image(machine, dialect),
        "imageID": "",
        "ready": reachable,
        "started": phase == "Running",
        "restartCount": 0,
        "state": _container_state(machine, phase, ready, dialect.noun),
        "lastState": {},
    }
    if machine_id := machine.get("status", {}).get(dialect.id_field):
        status["containerID"] = machine_id
    return status


def _conditions(machine: Object, reachable: bool, ready: Object, dialect: Dialect) -> list[Object]:
    scheduled = {"type": "PodScheduled", "status": "True"}
    if not dialect.pool_name(machine):
        scheduled |= {
            "status": "False",
            "reason": "Unschedulable",
            "message": unplaced(machine, dialect.noun, dialect.pool_noun),
        }
    readiness: Object = {"status": str(reachable)}
    if not reachable:
        readiness |= {key: ready[key] for key in ("reason", "message") if ready.get(key)}
    if str(reachable) == ready.get("status"):
        readiness |= _at("lastTransitionTime", ready)
    return [scheduled, *({"type": name, **readiness} for name in ("ContainersReady", "Ready"))]


def _at(key: str, condition: Object) -> Object:
    moved = condition.get("lastTransitionTime")
    return {key: moved} if moved else {}


def _container_state(machine: Object, phase: str, ready: Object, noun: str) -> Object:
    if phase == "Running":
        started = _at("startedAt", ready) if ready.get("status") == "True" else {}
        return {"running": started}
    if phase == "Succeeded":
        state: Object = {"exitCode": 0, "reason": "Completed"}
        if machine.get("spec", {}).get("power") == "Off":
            state["message"] = f"the {noun} is powered off: set its spec.power to On"
        return {"terminated": state | _at("finishedAt", ready)}
    waiting = {"reason": ready.get("reason") or phase}
    if ready.get("message"):
        waiting["message"] = ready["message"]
    return {"waiting": waiting}


READ_ONLY = "pods here are machines, seen by clients that know only pods, and are read-only"


_Take = Callable[[Event], None]
_Apply = Callable[[str, StoredObject, int], None]
"""Called with the type of a change, the Pod, and the version."""


class _Machines:
    def __init__(self, dialect: Dialect, names: PodNames, pools: Listing) -> None:
        self._dialect, self._names = dialect, names
        self._pools = {pool["metadata"]["name"]: pool for pool in pools.items}
        self._hosts: dict[str, Host] = {}
        self._machines: dict[str, dict[Key, StoredObject]] = {}

    def first(self, machine: StoredObject) -> StoredObject:
        self._keep(machine)
        sources = (machine, self._pools.get(self._pool(machine)))
        versions = [int(each["metadata"]["resourceVersion"]) for each in sources if each]
        return versioned(self._pod(machine), max(versions))

    def _pod(self, machine: StoredObject) -> StoredObject:
        name = self._names.pod(self._dialect, machine["metadata"]["name"])
        return pod_of(machine, self._host(self._pool(machine)), self._dialect, name)

    def _pool(self, machine: StoredObject) -> str:
        return self._dialect.pool_name(machine)

    def _host(self, name: str) -> Host:
        if name not in self._hosts:
            self._hosts[name] = host_of(name, self._pools.get(name), self._dialect.pool_noun)
        return self._hosts[name]

    def _keep(self, machine: StoredObject) -> None:
        self._machines.setdefault(self._pool(machine), {})[key_of(machine)] = machine

    def _drop(self, machine: StoredObject) -> None:
        pool = self._pool(machine)
        machines = self._machines[pool]
        del machines[key_of(machine)]
        if not machines:
            del self._machines[pool]
            self._hosts.pop(pool, None)

    def followed(self, apply: _Apply) -> tuple[tuple[Resource, _Take], ...]:
        return (
            (self._dialect.workload, partial(self._machine_changed, apply)),
            (self._dialect.pool, partial(self._pool_changed, apply)),
        )

    def _machine_changed(self, apply: _Apply, event: Event) -> None:
        if event.previous is not None:
            self._drop(event.previous)
        if event.type != DELETED:
            self._keep(event.obj)
        apply(event.type, self._pod(event.obj), event.version)

    def _pool_changed(self, apply: _Apply, event: Event) -> None:
        name = event.obj["metadata"]["name"]
        if event.type == DELETED:
            self._pools.pop(name, None)
        else:
            self._pools[name] = event.obj
        if name not in self._machines:
            return
        before = self._host(name)
        del self._hosts[name]
        # Most changes of a pool are heartbeats.
        if self._host(name) != before:
            for machine in list(self._machines[name].values()):
                apply(MODIFIED, self._pod(machine), event.version)


class _View:
    def __init__(self, version: int) -> None:
        self.history = History()
        self.history.restore((), version, version)
        self._each: list[_Machines] = []
        self._early: list[tuple[Event, _Take]] | None = None

    async def add(
        self, source: _Machines, machines: Sequence[StoredObject], turns: ShortTurns
    ) -> None:
        table, version = table_of(PODS.resource), self.history.version
        for machine in machines:
            await turns.breathe()
            self.history.restore([(table, source.first(machine))], version, version)
        self._each.append(source)

    def follow(self, storage: IStorage, on_lost: Callable[[], None]) -> list[IWatch]:
        # Not by StoreFollower: a store of Pods needs each change of machines and pools once, in the order
        # of versions, from the version of its lists on.
        early = self._early = []
        watches: list[IWatch] = []
        for source in self._each:
            for resource, take in source.followed(self._apply):
                hear = partial(self._hear, take)
                since = self.history.version
                watches.append(storage.watch(resource, since, hear, on_lost=on_lost))
        self._early = None
        for event, take in sorted(early, key=lambda each: each[0].version):
            take(event)
        return watches

    def _hear(self, take: _Take, event: Event) -> None:
        if self._early is None:
            take(event)
        else:
            self._early.append((event, take))

    def _apply(self, change: str, pod: StoredObject, version: int) -> None:
        previous = self.history.find(PODS.resource, pod) if change != ADDED else None
        event = Event(change, versioned(pod, version), previous, version)
        self.history.apply(table_of(PODS.resource), event)


@implementer(IStorage)
class PodStorage(ReadOnlyStorage):
    """
    A read-only store of Pods.

    It follows the machines and pools of the underlying store; a watch from a version before the
    first request for Pods fails.
    """

    def __init__(self, storage: IStorage, names: PodNames, clock: IReactorTime) -> None:
        super().__init__(storage)
        self._names, self._clock = names, clock
        self._view: _View | None = None
        self._watches: list[IWatch] = []
        self._following = DeferredLock()

    def stopService(self) -> None:
        super().stopService()
        for watch in self._watches:
            watch.stop()
        self._watches, self._view = [], None

    def get(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[StoredObject]:
        return self._read(lambda history: history.get(resource, namespace, name), stale)

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: int | None = None,
        stale: bool = False,
    ) -> Deferred[Listing]:
        return self._read(lambda history: history.list(resource, namespace, version), stale)

    def watch(
        self,
        resource: Resource,
        since: int | None,
        on_event: Callable[[Event], None],
        namespace: str = "",
        on_lost: Callable[[], None] | None = None,
    ) -> IWatch:
        if self._view is None:
            # A few machines in this process are read at once; otherwise the client has to list first.
            self._following.run(self._follow).addErrback(lambda failure: None)
        since = self._storage.version() if since is None else since
        if self._view is None:
            raise Expired(f"too old resource version: {since} (pods have not been listed yet)")
        return self._history(self._view).watch(resource, since, on_event, namespace, on_lost)

    def _refusal(self, resource: Resource) -> str:
        return READ_ONLY

    def _read(self, read: Callable[[History], Any], stale: bool) -> Deferred[Any]:
        if self._view is not None and stale:
            return defer.execute(read, self._history(self._view))
        following = self._storage.current().addCallback(
            lambda _: self._view or self._following.run(self._follow)
        )
        return following.addCallback(lambda view: read(self._history(view)))

    def _history(self, view: _View) -> History:
        # The store's version also advances by other kinds, without changes to Pods.
        view.history.version = self._storage.version()
        return view.history

    async def _follow(self) -> _View:
        if self._view is None:
            version = self._storage.version()
            view, turns = _View(version), ShortTurns(self._clock)
            for dialect in self._names.dialects:
                machines = await self._storage.list(dialect.workload, version=version)
                pools = await self._storage.list(dialect.pool, version=version)
                await view.add(_Machines(dialect, self._names, pools), machines.items, turns)
            self._view = view
            self._watches = view.follow(self._storage, self._lost)
        return self._view

    def _lost(self) -> None:
        view, self._view = self._view, None
        for watch in self._watches:
            watch.stop()
        if view is not None:
            view.history.lose()
