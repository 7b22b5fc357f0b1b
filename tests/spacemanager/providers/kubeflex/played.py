"""
A fake of KubeFlex's manager and of the cluster controllers that it relies on: each :meth:`turn`
takes their next step.

It writes the same as the real manager for each type: namespaces with a controller's ownerReference,
Secrets with the real names and keys, a ``secretRef`` that is set while Ready is still False and may
name a key that is never written, and conditions with new times at each reconcile.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.spacemanager.providers.cluster_world import ClusterWorld, as_mapping, kubeconfig
from twisted_exec.api.kinds import NAMESPACES, SECRETS, Kind
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.providers.kubeflex.controlplanes import CONTROLPLANES, namespace_of

FINALIZER = "kflex.kubestellar.org/finalizer"
KIND = Kind(CONTROLPLANES, "controlplane", has_status=True, counts_generation=True)

SECRETS_OF: dict[str, tuple[str, str, str]] = {
    "k8s": ("admin-kubeconfig", "kubeconfig", "kubeconfig-incluster"),
    "vcluster": ("vc-vcluster", "config", "config-incluster"),
    "k3s": ("k3s-config", "config", "config-incluster"),
    "ocm": ("multicluster-controlplane-kubeconfig", "kubeconfig", ""),
    "host": ("admin-kubeconfig", "kubeconfig", "kubeconfig-incluster"),
    "external": ("admin-kubeconfig", "kubeconfig", "kubeconfig-incluster"),
}
"""By type: the Secret, its external key and its in-cluster key in ``status.secretRef``."""
DANGLING = ("host", "external")
"""Types whose external key is named in the status, but never written."""
LATE = ("vcluster", "k3s")
"""Types whose in-cluster key is written only after Ready is True."""


class PlayedKubeFlex:
    """
    :param world: the world with the cluster.
    :ivar held: nothing becomes ready, and deletions do not finish.
    :ivar down: the manager does not run; the cluster's controllers do.
    """

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self.held = self.down = False
        self._looks = 0
        self._secrets = 0

    def turn(self) -> None:
        """Take the next step for every object."""
        self._looks += 1
        for namespace in list(self._world.all(NAMESPACES)):
            self._collect(namespace)
        if not self.down:
            for controlplane in list(self._world.all(KIND)):
                self._reconcile(controlplane)

    def _collect(self, namespace: Object) -> None:
        """Garbage collector and namespace controller: first Terminating, then gone with all in it."""
        name = namespace["metadata"]["name"]
        if namespace["metadata"].get("deletionTimestamp"):
            for secret in list(self._world.all(SECRETS)):
                if secret["metadata"]["namespace"] == name:
                    self._world.drop(SECRETS, secret["metadata"]["name"], name)
            self._world.drop(NAMESPACES, name)
            return
        living = {each["metadata"]["uid"] for each in self._world.all(KIND)}
        owners = {each["uid"] for each in namespace["metadata"].get("ownerReferences") or ()}
        if owners and not owners & living and not self.held:
            going = {**namespace["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
            self._world.put(NAMESPACES, name, {**namespace, "metadata": going})

    def _reconcile(self, controlplane: Object) -> None:
        metadata = controlplane["metadata"]
        name, finalizers = metadata["name"], metadata.get("finalizers") or []
        if metadata.get("deletionTimestamp"):
            if not self.held:
                self._world.drop(KIND, name)
        elif FINALIZER not in finalizers:
            self._world.put(KIND, name, {**controlplane, "metadata": {"finalizers": [FINALIZER]}})
        elif self._make_namespace(controlplane):
            self._make_ready(controlplane)

    def _make_namespace(self, controlplane: Object) -> bool:
        """Return whether the namespace is usable; an existing foreign namespace is too."""
        metadata, place = controlplane["metadata"], namespace_of(controlplane["metadata"]["name"])
        there = self._world.find(NAMESPACES, place)
        if there is None:
            owner = {
                "apiVersion": CONTROLPLANES.api_version,
                "kind": "ControlPlane",
                "name": metadata["name"],
                "uid": metadata["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
            self._world.put(NAMESPACES, place, {"metadata": {"ownerReferences": [owner]}})
            return False
        if there["metadata"].get("deletionTimestamp"):
            told = f'secrets "admin-kubeconfig" is forbidden: namespace {place} is being terminated'
            self._tell(controlplane, self._condition("Synced", "False", "ReconcileError", told))
            return False
        return True

    def _make_ready(self, controlplane: Object) -> None:
        name, type = controlplane["metadata"]["name"], controlplane["spec"]["type"]
        secret, external, within = SECRETS_OF[type]
        place = namespace_of(name)
        if self._world.find(SECRETS, secret, place) is None and not self._was_ready(controlplane):
            self.write_secret(name, type, late=False)
        reference = {"namespace": place, "name": secret, "key": external, "inClusterKey": within}
        status = "False" if self.held else "True"
        reason = "Unavailable" if self.held else "Available"
        was = self._was_ready(controlplane)
        self._tell(
            controlplane,
            self._condition("Synced", "True", "ReconcileSuccess"),
            self._condition("Ready", status, reason),
            secretRef=reference,
        )
        if was and type in LATE and self._lacks(place, secret, within):
            self.write_secret(name, type, late=True)

    def _was_ready(self, controlplane: Object) -> bool:
        told = as_mapping(controlplane.get("status")).get("conditions") or []
        return any(each["type"] == "Ready" and each["status"] == "True" for each in told)

    def _lacks(self, place: str, secret: str, key: str) -> bool:
        there = self._world.find(SECRETS, secret, place)
        return there is not None and key not in there["data"]

    def write_secret(self, name: str, type: str, late: bool) -> None:
        self._secrets += 1
        secret, external, within = SECRETS_OF[type]
        servers = {} if type in DANGLING else {external: f"https://{name}.localtest.me:9443"}
        if within and (late or type not in LATE):
            servers[within] = f"https://{name}.{namespace_of(name)}.svc.cluster.local"
        data = {
            key: kubeconfig(server, f"token-{name}-{self._secrets}-{key}")
            for key, server in servers.items()
        }
        self.put_secret(name, secret, data)

    def put_secret(self, name: str, secret: str, data: dict[str, Any]) -> None:
        """Store a Secret of a ControlPlane; values other than text are written as JSON."""
        encoded = {
            key: base64.b64encode(
                value.encode() if isinstance(value, str) else json.dumps(value).encode()
            ).decode()
            for key, value in data.items()
        }
        self._world.put(SECRETS, secret, {"data": encoded}, namespace_of(name))

    def _condition(self, type: str, status: str, reason: str, message: str = "") -> dict[str, str]:
        looked = f"2026-01-01T00:{self._looks // 60 % 60:02}:{self._looks % 60:02}Z"
        return {
            "type": type,
            "status": status,
            "reason": reason,
            "message": message,
            "lastUpdateTime": looked,
            "lastTransitionTime": looked,
        }

    def _tell(self, controlplane: Object, *conditions: dict[str, str], **more: Any) -> None:
        known = as_mapping(controlplane.get("status"))
        told = {each["type"]: each for each in known.get("conditions") or ()}
        told |= {each["type"]: each for each in conditions}
        status = {**known, **more, "conditions": list(told.values()), "observedGeneration": 1}
        name = controlplane["metadata"]["name"]
        self._world.put(KIND, name, {**controlplane, "status": status})
