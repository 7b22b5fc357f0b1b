"""
A cache of the broker's machines in the target, kept current by a watch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.status import GatewayTimeout, NotFound, ServiceUnavailable
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.runtimes.machinebroker.objects import CachedMachine, read
from twisted_exec.runtimes.machinebroker.place import BrokerPlace

CURRENT_SECONDS = 5.0
"""Time limit for this broker's changes to arrive by the watch."""

Condition = Callable[[CachedMachine | None], bool]


class MachineCache:
    """The machines of this broker and of other brokers with the same namespace and labels."""

    _log = Logger()

    def __init__(
        self,
        client: IKubeClient,
        place: BrokerPlace,
        clock: IReactorTime,
        deleted: Callable[[CachedMachine], None] = lambda entry: None,
        trouble: Callable[[], str] = lambda: "",
    ) -> None:
        self._place, self._clock, self._deleted, self._trouble = place, clock, deleted, trouble
        self._entries: dict[str, CachedMachine] = {}
        self._ids: dict[str, set[str]] = {}
        self._waiting: dict[str, list[tuple[Condition, Deferred[None]]]] = {}
        self._reflector = Reflector(
            client,
            place.machines,
            clock,
            namespace=place.namespace,
            label_selector=place.manager,
            on_change=self._changed,
        )

    def start(self) -> None:
        self._reflector.start()

    def stop(self) -> Deferred[None]:
        return self._reflector.stop()

    def forget(self) -> None:
        self._reflector.forget()

    def when_synced(self) -> Deferred[None]:
        """:return: fires when the cache has been complete once."""
        return self._reflector.when_synced()

    def check(self) -> None:
        """
        :raises ServiceUnavailable: the cache is not current; the message says why.
        """
        why = self._trouble() or self._reflector.problem
        if why or not self._reflector.synced:
            why = why or "its machines are not listed yet"
            raise ServiceUnavailable(f"the target cluster is not available: {why}")

    def __iter__(self) -> Iterator[CachedMachine]:
        return iter([entry for entry in self._entries.values() if entry.complete])

    def of(self, uid: str) -> list[CachedMachine]:
        """Return the complete machines for the source's Machine with this UID."""
        candidates = (self._entries[each] for each in sorted(self._ids.get(uid, ())))
        return [entry for entry in candidates if entry.complete]

    def get(self, machine_id: str) -> CachedMachine:
        """
        Return one machine.

        :raises NotFound: there is no complete machine with this id.
        :raises ServiceUnavailable: see :meth:`check`.
        """
        self.check()
        entry = self._entries.get(machine_id)
        if entry is None or not entry.complete:
            raise NotFound("machines", machine_id)
        return entry

    def until(self, obj: Object) -> Deferred[CachedMachine]:
        """
        Wait until the cache contains a change.

        :return: fires with the machine in this or a newer version; fails with
            :class:`GatewayTimeout` after :data:`CURRENT_SECONDS`.
        """
        name, version = obj["metadata"]["name"], str(obj["metadata"].get("resourceVersion", ""))
        uid = str(obj["metadata"].get("uid", ""))

        def is_current(entry: CachedMachine | None) -> bool:
            if entry is None or entry.uid != uid:
                return False
            return entry.version == version or _newer(entry.version, version)

        waiting = self._when(name, is_current, CURRENT_SECONDS, "the target's watch is late")
        return waiting.addCallback(lambda _: self._entries[name])

    def until_gone(self, entry: CachedMachine, seconds: float) -> Deferred[None]:
        """:return: fires when the object is deleted, even if there is a new one with its name."""
        message = f'machine "{entry.id}" is still being deleted in the target cluster'
        return self._when(
            entry.id, lambda other: other is None or other.uid != entry.uid, seconds, message
        )

    def _when(self, name: str, condition: Condition, seconds: float, late: str) -> Deferred[None]:
        if condition(self._entries.get(name)):
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        entry = condition, waiting
        self._waiting.setdefault(name, []).append(entry)

        def over(outcome: Any) -> Any:
            others = self._waiting.get(name, [])
            if entry in others:
                others.remove(entry)
            if not others:
                self._waiting.pop(name, None)
            return outcome

        def timed_out(failure: Any) -> None:
            failure.trap(TimeoutError)
            raise GatewayTimeout(late)

        waiting.addTimeout(seconds, self._clock).addErrback(timed_out)
        return waiting.addBoth(over)

    def _changed(self, before: Object | None, after: Object | None) -> None:
        obj = after or before
        assert obj is not None
        name = obj["metadata"]["name"]
        old = self._forget(name)
        if after is not None:
            try:
                self._store(read(after, self._place))
            except ValueError as problem:
                self._log.warn(
                    "machine {name} of the target is ignored: {why}", name=name, why=problem
                )
        elif old is not None:
            self._deleted(old)
        for condition, waiting in list(self._waiting.get(name, ())):
            if not waiting.called and condition(self._entries.get(name)):
                waiting.callback(None)

    def _store(self, entry: CachedMachine) -> None:
        self._entries[entry.id] = entry
        self._ids.setdefault(entry.owner.uid, set()).add(entry.id)

    def _forget(self, name: str) -> CachedMachine | None:
        old = self._entries.pop(name, None)
        if old is not None:
            others = self._ids[old.owner.uid]
            others.discard(name)
            if not others:
                del self._ids[old.owner.uid]
        return old


def _newer(version: str, than: str) -> bool:
    return version.isdigit() and than.isdigit() and int(version) > int(than)
