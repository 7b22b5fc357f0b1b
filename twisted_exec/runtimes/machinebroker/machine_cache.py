"""
The target's machines of ours, as a watch keeps them.

Machines are listed from here, however often a poollet asks, and never by a request for each.  What
this broker itself has changed is waited for: who is told that a machine was made finds it in the
next list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError, succeed
from twisted.logger import Logger

from twisted_exec.api.status import GatewayTimeout, NotFound, ServiceUnavailable
from twisted_exec.kube.informers.reflector import Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.runtimes.machinebroker.objects import Held, read
from twisted_exec.runtimes.machinebroker.target import Place

CURRENT_SECONDS = 5.0
"""How long a change of our own may take until the watch tells it."""

Condition = Callable[[Held | None], bool]


class Copy:
    """
    What the target has of this broker, or of others that keep their machines in the same place.

    :param gone: told of each machine that is no more.
    :param trouble: why the target cannot be asked, or empty.
    """

    _log = Logger()

    def __init__(
        self,
        client: IKubeClient,
        place: Place,
        clock: Any,
        gone: Callable[[Held], None] = lambda held: None,
        trouble: Callable[[], str] = lambda: "",
    ) -> None:
        self._place, self._clock, self._gone, self._trouble = place, clock, gone, trouble
        self._held: dict[str, Held] = {}
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
        """Follow the target until :meth:`stop`."""
        self._reflector.start()

    def stop(self) -> Deferred[None]:
        """Fires when nothing is under way any more."""
        return self._reflector.stop()

    def forget(self) -> None:
        """See :meth:`~twisted_exec.kube.informers.reflector.Reflector.forget`."""
        self._reflector.forget()

    def when_synced(self) -> Deferred[None]:
        """Fires when the copy was complete once."""
        return self._reflector.when_synced()

    def check(self) -> None:
        """
        :raises ServiceUnavailable: what is kept here is not what the target has.
        """
        why = self._trouble() or self._reflector.problem
        if why or not self._reflector.synced:
            why = why or "its machines are not known yet"
            raise ServiceUnavailable(f"the target cluster cannot be asked: {why}")

    def __iter__(self) -> Iterator[Held]:
        """The machines that are complete."""
        return iter([held for held in self._held.values() if held.complete])

    def of(self, uid: str) -> list[Held]:
        """The complete machines for the source's object with this UID."""
        found = (self._held[each] for each in sorted(self._ids.get(uid, ())))
        return [held for held in found if held.complete]

    def get(self, machine_id: str) -> Held:
        """
        :raises NotFound: nobody has this id.
        :raises ServiceUnavailable: as :meth:`check`.
        """
        self.check()
        held = self._held.get(machine_id)
        if held is None or not held.complete:
            raise NotFound("machines", machine_id)
        return held

    def until(self, obj: Object) -> Deferred[Held]:
        """
        Fires with a machine when the copy has it as ``obj``, or newer.

        :param obj: what the target answered to a change.
        """
        name, version = obj["metadata"]["name"], str(obj["metadata"].get("resourceVersion", ""))
        uid = str(obj["metadata"].get("uid", ""))

        def is_current(held: Held | None) -> bool:
            if held is None or held.uid != uid:
                return False
            return held.version == version or _newer(held.version, version)

        waiting = self._when(name, is_current, CURRENT_SECONDS, "the target's watch is late")
        return waiting.addCallback(lambda _: self._held[name])

    def until_gone(self, held: Held, seconds: float) -> Deferred[None]:
        """Fires when the object is no more, even if there is one of its name again."""
        told = f'machine "{held.id}" is still being deleted in the target cluster'
        return self._when(
            held.id, lambda other: other is None or other.uid != held.uid, seconds, told
        )

    def _when(self, name: str, condition: Condition, seconds: float, late: str) -> Deferred[None]:
        if condition(self._held.get(name)):
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
                self._keep(read(after, self._place))
            except ValueError as problem:
                self._log.warn(
                    "machine {name} of the target is passed over: {why}", name=name, why=problem
                )
        elif old is not None:
            self._gone(old)
        for condition, waiting in list(self._waiting.get(name, ())):
            if not waiting.called and condition(self._held.get(name)):
                waiting.callback(None)

    def _keep(self, held: Held) -> None:
        self._held[held.id] = held
        self._ids.setdefault(held.owner.uid, set()).add(held.id)

    def _forget(self, name: str) -> Held | None:
        old = self._held.pop(name, None)
        if old is not None:
            others = self._ids[old.owner.uid]
            others.discard(name)
            if not others:
                del self._ids[old.owner.uid]
        return old


def _newer(version: str, than: str) -> bool:
    """As Kubernetes compares versions of one resource; what is no number compares with nothing."""
    return version.isdigit() and than.isdigit() and int(version) > int(than)
