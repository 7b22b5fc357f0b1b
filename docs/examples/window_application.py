"""
Start the controller of MaintenanceWindows: ``twistd -ny window_application.py``.
"""

from __future__ import annotations

import time
from typing import Any

from twisted.application.service import Application, Service
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from window_controller import NAME, program

from twisted_exec.clients import KubeClient, ReloadingConfig

reactor: Any = _reactor
reactor.seconds = time.monotonic  # else a jump of the wall clock would end the leadership
config = ReloadingConfig()  # $KUBECONFIG, or the service account of a Pod
client = KubeClient(config.current(), reactor, renew=config.current, agent=NAME)
elected = program(client, reactor, time.time)


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


application = Application(NAME)
Elected().setServiceParent(application)
