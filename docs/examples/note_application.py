r"""
Start the controller of MachineNotes as a program of its own.

    kubectl apply -f docs/examples/note_role.yaml
    twisted-exec pki user exec-state/pki --user note-controller --server $server \
        --kubeconfig note-controller.kubeconfig
    export KUBECONFIG=note-controller.kubeconfig
    PYTHONPATH=docs/examples twistd -ny docs/examples/note_application.py

``/metrics`` has its metrics, and ``/readyz`` says whether it can be elected.
"""

from __future__ import annotations

import os
import time
from typing import Any

from note_program import program
from twisted.application.internet import StreamServerEndpointService
from twisted.application.service import Application, Service
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString

from twisted_exec.api.resource import Resource
from twisted_exec.clients import IRONCORE, KubeClient, ReloadingConfig
from twisted_exec.program.health import Health
from twisted_exec.program.metrics import new_registry
from twisted_exec.streaming.http.routes import ProbeRoutes
from twisted_exec.streaming.http.site import Site
from twisted_exec.tls.fast.loop import use_monotonic_clock

NOTES = Resource("console.twisted-exec.dev", "v1alpha1", "machinenotes", "MachineNote")
METRICS = os.environ.get("METRICS_LISTEN", "tcp:9464:interface=127.0.0.1")

reactor: Any = _reactor
use_monotonic_clock(reactor)  # else a jump of the wall clock would end or delay the leadership
config = ReloadingConfig()  # $KUBECONFIG, or the service account of a Pod
client = KubeClient(config.current(), reactor, renew=config.current, agent="note-controller")
registry, health = new_registry(reactor), Health(reactor)
elected = program(client, NOTES, IRONCORE.workload, reactor, time.time, metrics=registry.queues)
health.add("leader-election", elected.probe)


class Elected(Service):
    """The controller, for ``twistd``."""

    def startService(self) -> None:
        """Take part in the election."""
        super().startService()
        elected.start()

    def stopService(self) -> Deferred[None]:
        """Fires when the Lease is released."""
        super().stopService()
        return elected.stop()


application = Application("note-controller")
Elected().setServiceParent(application)
site = Site(ProbeRoutes(health, registry), reactor)
StreamServerEndpointService(serverFromString(reactor, METRICS), site).setServiceParent(application)
