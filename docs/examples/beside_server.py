"""
A controller beside an embedded API server: each Machine gets a label with its class.

    twistd -ny docs/examples/beside_server.py

It starts one_application.py, and the controller as a client of that API server.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from twisted.application.service import IServiceCollection, Service
from twisted.internet import reactor
from twisted.internet.defer import Deferred, DeferredList

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import one_application

from twisted_exec.clients import (
    IRONCORE,
    ClientConfig,
    KubeClient,
    Material,
    Reflector,
    WorkQueue,
)
from twisted_exec.stores import Key, key_of

MACHINES, LABEL = IRONCORE.workload, "lab.example.org/class"


class ClassLabels(Service):
    """Follows the machines, and labels those whose label is missing or wrong."""

    def __init__(self, client: KubeClient, clock: Any) -> None:
        self._client = client
        self._queue: WorkQueue[Key] = WorkQueue(self._label, clock)
        self._machines = Reflector(client, MACHINES, clock, on_change=self._changed)

    def startService(self) -> None:
        super().startService()
        self._machines.start()  # it lists again and again until the API server answers

    def stopService(self) -> Deferred[Any]:
        super().stopService()
        return DeferredList([self._machines.stop(), self._queue.stop()])

    def _changed(self, before: Any, after: Any) -> None:
        if after is not None:
            self._queue.add(key_of(after))

    async def _label(self, key: Key) -> None:  # the queue calls it again if it fails
        namespace, name = key
        machine = self._machines.get(name, namespace)
        if machine is None:
            return
        class_name = machine["spec"]["machineClassRef"]["name"]
        if machine["metadata"].get("labels", {}).get(LABEL) != class_name:
            labels = {"metadata": {"labels": {LABEL: class_name}}}
            await self._client.patch(MACHINES, name, labels, namespace)


pki = one_application.pki
user = pki.issue_user("class-labels", ["system:masters"], replace=True)  # or a role of its own
client = KubeClient(
    ClientConfig(
        one_application.URL,
        ca=Material(path=pki.serving_ca),
        certificate=Material(path=user.certificate),
        key=Material(path=user.key),
    ),
    reactor,
)
application = one_application.application
ClassLabels(client, reactor).setServiceParent(IServiceCollection(application))
