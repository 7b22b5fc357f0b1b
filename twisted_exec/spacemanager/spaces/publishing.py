"""
A ClusterProfile for a Space that has been Ready, if the hub has ClusterProfiles.

The profile contains no credentials. Profiles of others are left alone.

Source: ``kubernetes-sigs/cluster-inventory-api``, ``apis/v1alpha1`` and the README of its plugin
``kubeconfig-secretreader``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api import spaces
from twisted_exec.api.conditions import ConditionValue, with_conditions
from twisted_exec.api.kinds.clusterprofiles import CLUSTERPROFILES, HEALTHY, MANAGER_LABEL
from twisted_exec.api.status import AlreadyExists, APIError, Conflict, NotFound
from twisted_exec.api.times import timestamp
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.runs import StoppingParts
from twisted_exec.kube.informers import Change, Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.spacemanager.spaces.naming import provider_of
from twisted_exec.spacemanager.spaces.secrets import SELECTOR, labels_of, owner_of, owner_uid

PROFILES = CLUSTERPROFILES.resource
GONE_SECONDS = 10.0
"""Interval for checking whether an API that disappeared is back."""
SERVED_SECONDS = 600.0
"""Interval for checking whether the hub has the API."""
ACCESS = "kubeconfig-secretreader"
EXEC_EXTENSION = "client.authentication.k8s.io/exec"
_PREFERRED = (spaces.EXTERNAL, spaces.IN_CLUSTER)


def profile_of(space: Object, version: str, current: Object | None, now: float) -> Object:
    """
    Return the ClusterProfile of a Space, with its status.

    :param version: version of the API server; empty to keep the current one.
    :param current: the existing profile, whose other metadata and status stay.
    """
    before: Object = (current or {}).get("metadata") or {}
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
        "status": _status(space, version, (current or {}).get("status") or {}, now),
    }


def _status(space: Object, version: str, current: Object, now: float) -> Object:
    status = dict(current)
    conditions = {HEALTHY: _healthy(space)}
    status["conditions"] = with_conditions(
        current.get("conditions") or [], conditions, timestamp(now)
    )
    if version:
        status["version"] = {"kubernetes": version}
    status["accessProviders"] = _access(space)
    return status


def _healthy(space: Object) -> ConditionValue:
    for condition in space["status"].get("conditions") or ():
        if condition["type"] == spaces.PHYSICAL_SPACE_READY:
            return (condition["status"], condition["reason"], condition["message"])
    return ("Unknown", "NotProbed", "nobody has looked yet")


def _access(space: Object) -> Sequence[Object]:
    status = space["status"]
    ends = {end["viewpoint"]: end for end in status.get(spaces.ENDPOINTS) or ()}
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


class Publishing:
    """
    Maintains the profiles, while the API is served.

    :param now: seconds since the epoch.
    """

    def __init__(
        self,
        hub: IKubeClient,
        clock: IReactorTime,
        now: Callable[[], float],
        changed: Change,
        appeared: Callable[[], None] = lambda: None,
    ) -> None:
        self._hub, self._clock, self._now, self._changed = hub, clock, now, changed
        self._appeared, self._pause = appeared, SERVED_SECONDS
        self._was_missing = False
        self._copy: Reflector | None = None
        self._loop = PokedLoop(self._look, clock)
        self._stopping = StoppingParts()

    @property
    def served(self) -> bool:
        return self._copy is not None and self._copy.synced

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> Deferred[Any]:
        ending: list[Deferred[Any]] = [self._loop.stop()]
        if self._copy is not None:
            ending.append(self._copy.stop())
        ending.append(self._stopping.over())
        return DeferredList(ending)

    async def _look(self) -> float:
        try:
            await self._hub.list(PROFILES, label_selector=SELECTOR)
        except APIError:
            self._was_missing = True
            return self._pause
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
        return inf

    def _missing(self) -> None:
        copy, self._copy = self._copy, None
        if copy is not None:
            self._stopping.add(copy.stop())
            self._was_missing, self._pause = True, GONE_SECONDS
            self._loop.poke(self._pause)

    def get(self, namespace: str, name: str) -> Object | None:
        """Return a profile of ours as last observed."""
        existing = self._copy.get(name, namespace) if self._copy is not None else None
        return existing if existing is not None and owner_uid(existing) else None

    async def keep(self, space: Object, version: str) -> str:
        """
        Create or update the profile of a Space.

        :return: a message for the Space's user if that is impossible, or empty.
        """
        current = self.get(space["metadata"]["namespace"], space["metadata"]["name"])
        if not self.served:
            return ""
        if current is not None and owner_uid(current) != space["metadata"]["uid"]:
            await self.drop(current)  # it belongs to an earlier Space of that name
            current = None
        if current is None and (space.get("status") or {}).get("Phase") != spaces.READY:
            return ""
        desired = profile_of(space, version, current, self._now())
        try:
            return await self._put(desired, current)
        except Conflict:
            return ""  # the watch brings the new version, and with it a retry
        except NotFound as refused:
            if not refused.details.get("name"):  # the API is missing, not the object
                self._missing()
            return ""

    async def _put(self, desired: Object, current: Object | None) -> str:
        namespace, stored = desired["metadata"]["namespace"], current
        if current is None:
            try:
                stored = await self._hub.create(PROFILES, desired, namespace)
            except AlreadyExists:
                name = desired["metadata"]["name"]
                return (
                    f"ClusterProfile {name} exists and was not created for this Space, so it is left alone:"
                    " delete it, or give the Space another name"
                )
        elif any(desired[part] != current.get(part) for part in ("metadata", "spec")):
            stored = await self._hub.update(PROFILES, desired, namespace)
        assert stored is not None
        if (stored.get("status") or {}) != desired["status"]:
            update = {**stored, "status": desired["status"]}
            await self._hub.update(PROFILES, update, namespace, subresource="status")
        return ""

    async def drop(self, profile: Object) -> None:
        """Delete a profile of ours; a missing one is no failure."""
        metadata = profile["metadata"]
        try:
            await self._hub.delete(
                PROFILES, metadata["name"], metadata["namespace"], uid=metadata["uid"]
            )
        except (NotFound, Conflict):
            pass
