"""
A faulty machine runtime: it wraps a real runtime and changes only the answers that a test
configures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail
from zope.interface import implementer

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.iri.interfaces import IMachineRuntime
from twisted_exec.iri.protos import machine_pb2 as pb

Change = Callable[[Any], Any]
"""Returns a changed answer for a true one."""


@implementer(IMachineRuntime)
class LyingRuntime:
    """
    A runtime that changes the answers of another.

    :param truth: provides :class:`~twisted_exec.iri.interfaces.IMachineRuntime`.
    :ivar lies: changes of answers, by method.
    :ivar silent: methods that never answer; ``{"*"}`` for all.
    :ivar dead: whether every call fails, as without a listener.
    """

    def __init__(self, truth: Any) -> None:
        self.truth = truth
        self.lies: dict[str, Change] = {}
        self.silent: set[str] = set()
        self.dead = False
        self.hanging: list[Deferred[Any]] = []

    def _call(self, name: str, request: Any, **facts: str) -> Deferred[Any]:
        if self.dead:
            return fail(ServiceUnavailable("the machine runtime cannot be reached"))
        if self.silent & {name, "*"}:
            self.hanging.append(Deferred())
            return self.hanging[-1]
        answer: Deferred[Any] = getattr(self.truth, name)(request, **facts)
        if name in self.lies:
            answer.addCallback(self.lies[name])
        return answer

    def version(self, request: Any) -> Deferred[Any]:
        return self._call("version", request)

    def list_events(self, request: Any) -> Deferred[Any]:
        return self._call("list_events", request)

    def list_machines(self, request: Any) -> Deferred[Any]:
        return self._call("list_machines", request)

    def create_machine(self, request: Any) -> Deferred[Any]:
        return self._call("create_machine", request)

    def delete_machine(self, request: Any) -> Deferred[Any]:
        return self._call("delete_machine", request)

    def update_machine_annotations(self, request: Any) -> Deferred[Any]:
        return self._call("update_machine_annotations", request)

    def update_machine_power(self, request: Any) -> Deferred[Any]:
        return self._call("update_machine_power", request)

    def attach_volume(self, request: Any) -> Deferred[Any]:
        return self._call("attach_volume", request)

    def detach_volume(self, request: Any) -> Deferred[Any]:
        return self._call("detach_volume", request)

    def update_volume(self, request: Any) -> Deferred[Any]:
        return self._call("update_volume", request)

    def attach_network_interface(self, request: Any) -> Deferred[Any]:
        return self._call("attach_network_interface", request)

    def detach_network_interface(self, request: Any) -> Deferred[Any]:
        return self._call("detach_network_interface", request)

    def status(self, request: Any) -> Deferred[Any]:
        return self._call("status", request)

    def exec(
        self, request: Any, *, user: str = "", machine_uid: str = "", session: str = ""
    ) -> Deferred[Any]:
        facts = {"user": user, "machine_uid": machine_uid, "session": session}
        return self._call("exec", request, **facts)


def crowd(number: int, **labels: str) -> Change:
    """A lie of lists: ``number`` additional machines with these labels."""

    def with_crowd(answer: pb.ListMachinesResponse) -> pb.ListMachinesResponse:
        response = pb.ListMachinesResponse()
        response.CopyFrom(answer)
        for index in range(number):
            machine = response.machines.add()
            machine.metadata.id = f"crowd-{index}"
            machine.metadata.labels.update(labels)
            machine.status.state = pb.MACHINE_RUNNING
        return response

    return with_crowd


def twice(answer: pb.ListMachinesResponse) -> pb.ListMachinesResponse:
    """A lie of lists: every machine appears twice."""
    return pb.ListMachinesResponse(machines=[*answer.machines, *answer.machines])


def nothing(answer: pb.ListMachinesResponse) -> pb.ListMachinesResponse:
    """A lie of lists: there are no machines."""
    return pb.ListMachinesResponse()


def in_state(*states: int) -> Change:
    """A lie of lists: all machines are in one state, each time in the next; the last stays."""
    left = list(states)

    def altered(answer: pb.ListMachinesResponse) -> pb.ListMachinesResponse:
        response = pb.ListMachinesResponse()
        response.CopyFrom(answer)
        state = left.pop(0) if len(left) > 1 else left[0]
        for machine in response.machines:
            machine.status.state = state  # type: ignore[assignment]
        return response

    return altered


def at(url: str) -> Change:
    """A lie of tokens: another URL of the console."""
    return lambda answer: pb.ExecResponse(url=url)
