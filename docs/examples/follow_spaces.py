"""
Log the Spaces of a cluster, and the machines that appear and disappear in each.

    export KUBECONFIG=exec-state/admin.kubeconfig   # of the cluster that has the Spaces
    twistd -ny docs/examples/follow_spaces.py

The program watches the machines of every reachable Space for as long as the Space exists.  When the
credentials of a Space rotate, its client takes the new ones by itself.
"""

from __future__ import annotations

from typing import Any

from twisted.application.service import Application
from twisted.internet import reactor
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.clients import IRONCORE, KubeClient, Reflector, ReloadingConfig, SpaceClient
from twisted_exec.interfaces import ISpaceConnection, ISpaceListener


@implementer(ISpaceListener)
class Machines:
    """A watch of the machines in each Space."""

    log = Logger(namespace="machines")

    def __init__(self) -> None:
        self._reflectors: dict[ISpaceConnection, Reflector] = {}

    def engaged(self, space: ISpaceConnection) -> None:
        """Watch the machines of a Space that has become reachable."""

        def changed(before: Any, after: Any) -> None:
            name = (after or before)["metadata"]["name"]
            if before is None:
                self.log.info("{space}: machine {name}", space=space.name, name=name)
            elif after is None:
                self.log.info("{space}: machine {name} is gone", space=space.name, name=name)

        self.log.info("{space}: is reachable", space=space.name)
        machines = Reflector(
            space.client, IRONCORE.workload, reactor, of=str(space.name), on_change=changed
        )
        self._reflectors[space] = machines
        machines.start()

    def changed(self, space: ISpaceConnection) -> None:
        """The labels or credentials of a Space changed; the watch goes on."""
        self.log.info("{space}: has changed", space=space.name)

    def waiting_changed(self) -> None:
        """Spaces that cannot be reached yet are not logged."""

    def disengaged(self, space: ISpaceConnection, reason: str) -> None:
        """Stop the watch of a Space that is gone."""
        self.log.info("{reason}", reason=reason)
        self._reflectors.pop(space).stop()


followed = ReloadingConfig()
hub = KubeClient(followed.current(), reactor, renew=followed.current, agent="follow-spaces")

# All namespaces.  With fewer permissions: namespaces=["spaceprovider-default"].
spaces = SpaceClient(hub, reactor, agent="follow-spaces")
spaces.follow(Machines())

application = Application("follow-spaces")
spaces.setServiceParent(application)
