"""
When streams of Nodes' Pods end from this side: the Pod is gone, or its Node.

A Pod that is only asked to end goes on until its kubelet says that it is gone, and so do its streams, as
everywhere in Kubernetes.
"""

from __future__ import annotations

from twisted.application.service import Service

from twisted_exec.api.kinds import NODE_PODS, NODES
from twisted_exec.storage.interfaces import DELETED, Event, IStorage, IWatch
from twisted_exec.streaming.interfaces import MACHINE_DELETED, POOL_DELETED, Ending
from twisted_exec.streaming.sessions import Sessions


class NodePodEndings(Service):
    """
    Ends sessions of Pods and Nodes that are gone.

    :param storage: started before this service is.
    """

    def __init__(self, storage: IStorage, sessions: Sessions) -> None:
        self._storage, self._sessions = storage, sessions
        self._watches: list[IWatch] = []

    def startService(self) -> None:
        """Follow the store."""
        super().startService()
        watch = self._storage.watch
        self._watches = [
            watch(NODE_PODS.resource, None, self._pod_changed),
            watch(NODES.resource, None, self._node_changed),
        ]

    def stopService(self) -> None:
        """Follow no longer."""
        super().stopService()
        for watch in self._watches:
            watch.stop()

    def _pod_changed(self, event: Event) -> None:
        if event.type == DELETED:
            uid = event.obj["metadata"]["uid"]
            told = f'pod "{event.obj["metadata"]["name"]}" was deleted'
            ending = Ending(MACHINE_DELETED, told)
            self._sessions.end(lambda subject: subject.uid == uid, ending)

    def _node_changed(self, event: Event) -> None:
        if event.type == DELETED:
            name, resource = event.obj["metadata"]["name"], NODE_PODS.resource.qualified
            ending = Ending(POOL_DELETED, f'node "{name}" was deleted')
            self._sessions.end(
                lambda subject: subject.pool == name and subject.resource == resource, ending
            )
