"""
Events about users who change the power of a machine: the runtime that carries it out knows no users.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from twisted_exec.api.kinds import Object
from twisted_exec.api.kinds.events import NORMAL
from twisted_exec.api.resource import Resource
from twisted_exec.apiserver.interfaces import UPDATE, Change, IAdmission
from twisted_exec.kube.recorder import Recorder

POWER_CHANGED = "PowerChanged"


@implementer(IAdmission)
class PowerChanges(Service):
    """
    Admits each write, and records an Event about a write that changes ``spec.power``.

    The write may still fail, or be tried again after a conflict, so the message says what the user has asked for.

    :param machines: the kinds of machines.
    :param recorder: it is stopped with this service.
    """

    def __init__(self, machines: Collection[Resource], recorder: Recorder) -> None:
        self._machines, self._recorder = machines, recorder

    def startService(self) -> None:
        super().startService()
        self._recorder.start()

    def stopService(self) -> Deferred[Any]:
        super().stopService()
        return self._recorder.stop()

    def admit(self, change: Change) -> Deferred[None]:
        is_of_machine = change.kind.resource in self._machines and not change.subresource
        if change.operation == UPDATE and is_of_machine and not change.dry_run:
            power = _power(change.new)
            if power != _power(change.old):
                message = f"{change.user.name} has asked to power the machine {power.lower()}"
                resource = change.kind.resource
                self._recorder.record(change.obj, NORMAL, POWER_CHANGED, message, resource=resource)
        return succeed(None)


def _power(machine: Object | None) -> str:
    return (machine or {}).get("spec", {}).get("power") or "On"
