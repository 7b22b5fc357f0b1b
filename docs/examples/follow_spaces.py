"""
What Spaces there are, and what machines come and go in each of them.

    export KUBECONFIG=exec-state/admin.kubeconfig   # of the cluster that has the Spaces
    twistd -ny docs/examples/follow_spaces.py

For each Space that can be reached a copy of its machines is kept, for as long as the Space is there.  Its
credentials may be exchanged meanwhile: the client that is used here takes the new ones by itself.
"""

from __future__ import annotations

from typing import Any

from twisted.application.service import Application
from twisted.internet import reactor
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.kinds import MACHINES
from twisted_exec.interfaces import ISpaceConnection, ISpaceListener
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.following import FollowedConfig
from twisted_exec.kube.watch import Reflector
from twisted_exec.spaces.client import SpaceClient


@implementer(ISpaceListener)
class Machines:
    """The machines of all Spaces."""

    log = Logger(namespace="machines")

    def __init__(self) -> None:
        self._copies: dict[ISpaceConnection, Reflector] = {}

    def engaged(self, space: ISpaceConnection) -> None:
        """A Space can be reached: follow what is in it."""

        def changed(before: Any, after: Any) -> None:
            name = (after or before)["metadata"]["name"]
            if before is None:
                self.log.info("{space}: machine {name}", space=space.name, name=name)
            elif after is None:
                self.log.info("{space}: machine {name} is gone", space=space.name, name=name)

        self.log.info("{space}: is here", space=space.name)
        copy = Reflector(
            space.client, MACHINES.resource, reactor, of=str(space.name), on_change=changed
        )
        self._copies[space] = copy
        copy.start()

    def changed(self, space: ISpaceConnection) -> None:
        """Its labels or credentials are others; the copy goes on."""
        self.log.info("{space}: has changed", space=space.name)

    def disengaged(self, space: ISpaceConnection, reason: str) -> None:
        """It is there no more."""
        self.log.info("{reason}", reason=reason)
        self._copies.pop(space).stop()


followed = FollowedConfig()
hub = KubeClient(followed.current(), reactor, renew=followed.current, agent="follow-spaces")

# All namespaces; with less rights: namespaces=["spaceprovider-default"].
spaces = SpaceClient(hub, reactor, agent="follow-spaces")
spaces.follow(Machines())

application = Application("follow-spaces")
spaces.setServiceParent(application)
