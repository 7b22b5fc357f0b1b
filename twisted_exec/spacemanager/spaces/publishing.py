"""
A ClusterProfile for each Space that has been Ready, where the hub has that API.

Who keeps an inventory of clusters reads there what there is, and maps the name of an access provider to a program
that reads the Space's Secret: no credentials are in it.  A profile is ours by its owner and its label; another one of
that name is left alone.

Source: ``kubernetes-sigs/cluster-inventory-api``, ``apis/v1alpha1`` and the README of its plugin
``kubeconfig-secretreader``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api import spaces
from twisted_exec.api.conditions import ConditionValue, with_conditions
from twisted_exec.api.kinds.clusterprofiles import CLUSTERPROFILES, HEALTHY, MANAGER_LABEL
from twisted_exec.api.status import AlreadyExists, APIError, Conflict, NotFound
from twisted_exec.api.times import timestamp
from twisted_exec.kube.informers.reflector import Change, Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.program.tasks import Running, Stopping
from twisted_exec.spacemanager.spaces.naming import provider_of
from twisted_exec.spacemanager.spaces.secrets import SELECTOR, labels_of, owner_of, owner_uid

PROFILES = CLUSTERPROFILES.resource
GONE_SECONDS = 10.0
"""Until it is looked again for the API that there was."""
SERVED_SECONDS = 600.0
"""Until it is seen again whether the hub has the API by now."""
ACCESS = "kubeconfig-secretreader"
EXEC_EXTENSION = "client.authentication.k8s.io/exec"
_PREFERRED = (spaces.EXTERNAL, spaces.IN_CLUSTER)


def profile_of(space: Object, version: str, known: Object | None, now: float) -> Object:
    """
    The ClusterProfile of a Space, with its status.

    :param version: of its API server; empty to leave what is known.
    :param known: the profile as it is; what others wrote beside ours stays.
    """
    before: Object = (known or {}).get("metadata") or {}
    name, labels = space["metadata"]["name"], labels_of(space)
    metadata: Object = {
        **before,
        "name": name,
        "namespace": space["metadata"]["namespace"],
        "labels": {**(before.get("labels") or {}), **labels, MANAGER_LABEL: spaces.MANAGER},
        "ownerReferences": [owner_of(space)],
    }
    return {
        "apiVersion": PROFILES.api_version,
        "kind": PROFILES.kind,
        "metadata": metadata,
        "spec": {
            "displayName": "/".join(filter(None, (provider_of(space), name))),
            "clusterManager": {"name": spaces.MANAGER},
        },
        "status": _status(space, version, (known or {}).get("status") or {}, now),
    }


def _status(space: Object, version: str, known: Object, now: float) -> Object:
    status = dict(known)
    told = {HEALTHY: _healthy(space)}
    status["conditions"] = with_conditions(known.get("conditions") or [], told, timestamp(now))
    if version:
        status["version"] = {"kubernetes": version}
    status["accessProviders"] = _access(space)
    return status


def _healthy(space: Object) -> ConditionValue:
    for one in space["status"].get("conditions") or ():
        if one["type"] == spaces.PHYSICAL_SPACE_READY:
            return (one["status"], one["reason"], one["message"])
    return ("Unknown", "NotProbed", "nobody has looked yet")


def _access(space: Object) -> Sequence[Object]:
    """One way to it, from outside if there is one; its credentials stay in the Secret."""
    status = space["status"]
    ends = {one["viewpoint"]: one for one in status.get(spaces.ENDPOINTS) or ()}
    for viewpoint in _PREFERRED:
        secret, end = status.get(spaces.REFERENCES[viewpoint]), ends.get(viewpoint)
        if secret and end and end.get("server"):
            return [{"name": ACCESS, "cluster": _cluster(end, secret)}]
    return []


def _cluster(end: Mapping[str, str], secret: Mapping[str, str]) -> Object:
    cluster: Object = {"server": end["server"]}
    if end.get("certificateAuthorityData"):
        cluster["certificate-authority-data"] = end["certificateAuthorityData"]
    if end.get("tlsServerName"):
        cluster["tls-server-name"] = end["tlsServerName"]
    where = {
        "name": secret["name"],
        "namespace": secret["namespace"],
        "key": spaces.KUBECONFIG_KEY,
    }
    cluster["extensions"] = [{"name": EXEC_EXTENSION, "extension": where}]
    return cluster


class Publishing(Running):
    """
    Keeps the profiles.

    :param now: seconds since the epoch.
    :param changed: told of each profile of ours that has become other.
    :param appeared: called when the hub has got the API that it had not: nothing is published yet.
    :ivar served: whether the hub has the API.
    """

    _log = Logger()

    def __init__(
        self,
        hub: IKubeClient,
        clock: Any,
        now: Callable[[], float],
        changed: Change,
        appeared: Callable[[], None] = lambda: None,
    ) -> None:
        self._hub, self._clock, self._now, self._changed = hub, clock, now, changed
        self._appeared, self._pause = appeared, SERVED_SECONDS
        self._was_missing = False
        self._copy: Reflector | None = None
        self._timer: IDelayedCall | None = None
        self._stopping = Stopping()

    @property
    def served(self) -> bool:
        return self._copy is not None and self._copy.synced

    def start(self) -> None:
        """Begin to look whether the hub has the API."""
        self._timer = None
        self._begin(self._look())

    def stop(self) -> Deferred[Any]:
        """Fires when nothing is under way; the profiles stay."""
        ending: list[Deferred[Any]] = [super().stop()]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._copy is not None:
            ending.append(self._copy.stop())
        ending.append(self._stopping.over())
        return DeferredList(ending)

    async def _look(self) -> None:
        try:
            await self._hub.list(PROFILES, label_selector=SELECTOR)
        except APIError:
            self._was_missing = True
            self._timer = self._clock.callLater(self._pause, self.start)
            return
        self._copy = Reflector(
            self._hub,
            PROFILES,
            self._clock,
            label_selector=SELECTOR,
            on_change=self._changed,
        )
        self._copy.start()
        if self._was_missing:
            self._was_missing = False
            self._copy.when_synced().addCallback(lambda _: self._appeared())

    def _missing(self) -> None:
        """The hub has not got the API any more: look for it until it is back."""
        copy, self._copy = self._copy, None
        if copy is not None:
            self._stopping.add(copy.stop())
            self._was_missing, self._pause = True, GONE_SECONDS
            self._timer = self._clock.callLater(self._pause, self.start)

    def _crashed(self, failure: Failure) -> None:
        self._log.failure("looking for ClusterProfiles failed", failure)

    def get(self, namespace: str, name: str) -> Object | None:
        """One of ours, as last seen: by its label, and by an owner, which a copy that somebody made has not."""
        found = self._copy.get(name, namespace) if self._copy is not None else None
        return found if found is not None and owner_uid(found) else None

    async def keep(self, space: Object, version: str) -> str:
        """
        Have the profile of a Space there, as it is to be.

        :return: why it is not, for whoever has the Space; or empty.
        :raises APIError: it could not be written; to be tried again.
        """
        known = self.get(space["metadata"]["namespace"], space["metadata"]["name"])
        status = space.get("status") or {}
        if not self.served or (known is None and status.get("Phase") != spaces.READY):
            return ""
        if known is not None and owner_uid(known) != space["metadata"]["uid"]:
            await self.drop(known)  # of an earlier Space of that name
            known = None
        wanted = profile_of(space, version, known, self._now())
        try:
            return await self._put(wanted, known)
        except Conflict:
            return ""  # it is told of in a moment, and looked at again
        except NotFound as refused:
            if not refused.details.get("name"):  # it is no object that is not there
                self._missing()
            return ""

    async def _put(self, wanted: Object, known: Object | None) -> str:
        namespace, stored = wanted["metadata"]["namespace"], known
        if known is None:
            try:
                stored = await self._hub.create(PROFILES, wanted, namespace)
            except AlreadyExists:
                name = wanted["metadata"]["name"]
                return f"there is a ClusterProfile {name} that is not ours, and is left alone"
        elif any(wanted[part] != known.get(part) for part in ("metadata", "spec")):
            stored = await self._hub.update(PROFILES, wanted, namespace)
        assert stored is not None
        if (stored.get("status") or {}) != wanted["status"]:
            told = {**stored, "status": wanted["status"]}
            await self._hub.update(PROFILES, told, namespace, subresource="status")
        return ""

    async def drop(self, profile: Object) -> None:
        """Delete one of ours; one that is gone is no failure."""
        metadata = profile["metadata"]
        try:
            await self._hub.delete(
                PROFILES, metadata["name"], metadata["namespace"], uid=metadata["uid"]
            )
        except (NotFound, Conflict):
            pass
