"""
Imported Spaces: users supply the credentials, and the manager creates and deletes no control plane.

As in upstream's design, deleting the object while its control plane lives usually brings it back,
unless it has the annotation ``space.twisted-exec.dev/forget: "true"``. A finalizer holds the
deleted object until a probe shows whether the control plane lives.

Users' Secrets are only read in the Space's own namespace: write access to Spaces must not give
access to other Secrets.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred

from twisted_exec.api import spaces
from twisted_exec.api.conditions import ConditionValue
from twisted_exec.api.kinds.secrets import SECRETS, value_of
from twisted_exec.api.spaces import CREDENTIALS_VALID, PHYSICAL_SPACE_READY, SYNCED
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    BadRequest,
    Forbidden,
    Invalid,
    NotFound,
)
from twisted_exec.kube.informers import Key, key_of
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.spacemanager.spaces import secrets
from twisted_exec.spacemanager.spaces.naming import type_of, viewpoints_of
from twisted_exec.spacemanager.spaces.observation import ProbeResult, Tell
from twisted_exec.spacemanager.spaces.probes import Probe
from twisted_exec.spacemanager.spaces.secrets import labels_of, written_for
from twisted_exec.spacemanager.spaces.status import events, explained, finished, kept_condition
from twisted_exec.spacemanager.spaces.worker import SpaceChanged, SpaceContext, delete_ours
from twisted_exec.spaces import kubeconfigs
from twisted_exec.spaces.secrets import SpaceSecrets
from twisted_exec.spaces.space_view import SecretRef

RECORD_TYPE = "space.twisted-exec.dev/import-record"
RECORD_PREFIX = "space-import-"
_RECORD_KEY = "space.json"
_KEPT = ("labels", "annotations")
_NOT_KEPT = (spaces.FORGET, spaces.ROTATE)


def references(space: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """
    Return the Secrets of an imported Space, by viewpoint.

    Upstream's users wrote them into ``status``, which applies if ``spec`` names none.
    """
    for part in ("spec", "status"):
        section = space.get(part) or {}
        named = {
            viewpoint: section[key]
            for viewpoint, key in spaces.REFERENCES.items()
            if viewpoint in viewpoints_of(space) and (section.get(key) or {}).get("name")
        }
        if named:
            return named
    return {}


def elsewhere(space: Mapping[str, Any], reference: Mapping[str, Any]) -> str:
    """Return why a Secret must not be read, or empty."""
    own = space["metadata"]["namespace"]
    target = reference.get("namespace") or own
    if target == own:
        return ""
    name = reference["name"]
    return f"secret {target}/{name} is not in the Space's own namespace: copy it to {own}, and name that"


@dataclass(frozen=True)
class ImportedCredentials:
    """The user's credentials for a Space."""

    contents: Mapping[str, bytes]
    endpoints: Mapping[str, Mapping[str, str]]
    problem: tuple[str, str] | None = None


def credentials_of(space: Object, existing: Mapping[str, Object | None]) -> ImportedCredentials:
    """Read the credentials of a Space."""
    named, problem = references(space), None
    contents: dict[str, bytes] = {}
    endpoints = {}
    if not named:
        keys = " or ".join(f"spec.{key}" for key in spaces.REFERENCES.values())
        message = f"an imported Space says where its kubeconfig is: name a Secret in {keys}"
        return ImportedCredentials({}, {}, ("NoSecret", message))
    for viewpoint, reference in named.items():
        if why := elsewhere(space, reference):
            problem = ("SecretElsewhere", why)
        elif (secret := existing.get(viewpoint)) is None:
            where = f"{space['metadata']['namespace']}/{reference['name']}"
            message = (
                f'secret {where} is not there: make it, with the key "{spaces.KUBECONFIG_KEY}"'
            )
            problem = ("SecretMissing", message)
        else:
            try:
                content = kubeconfigs.read(secret)
                config = kubeconfigs.config_of(content, kubeconfigs.source_of(secret))
            except KubeConfigError as error:
                problem = ("Unusable", str(error))
                continue
            contents[viewpoint] = content
            endpoints[viewpoint] = kubeconfigs.endpoint_of(config, viewpoint)
    return ImportedCredentials(contents, endpoints, problem)


def status_of(
    space: Object, credentials: ImportedCredentials, probed: ProbeResult | None, now: float
) -> Object:
    """Return the desired status of an imported Space."""
    current: Object = space.get("status") or {}
    status, own = dict(current), space["metadata"]["namespace"]
    for viewpoint, key in spaces.REFERENCES.items():
        reference = references(space).get(viewpoint)
        usable = reference is not None and not elsewhere(space, reference)
        status[key] = (
            {"name": reference["name"], "namespace": own} if usable and reference else None
        )
    # References that a user wrote into the status stay while they are the only ones.
    if (
        credentials.problem is not None
        and credentials.problem[0] == "SecretElsewhere"
        and not credentials.contents
    ):
        status |= {key: current.get(key) for key in spaces.REFERENCES.values()}
    status[spaces.ENDPOINTS] = list(credentials.endpoints.values())
    if value := (space["metadata"].get("annotations") or {}).get(spaces.ROTATE):
        status["rotated"] = value
    conditions = {
        CREDENTIALS_VALID: _valid(space, credentials, probed, now),
        PHYSICAL_SPACE_READY: _ready(current, credentials, probed),
        SYNCED: ("False", *credentials.problem) if credentials.problem else ("True", "Synced", ""),
    }
    return finished(space, status, conditions, now)


def _valid(
    space: Object, credentials: ImportedCredentials, probed: ProbeResult | None, now: float
) -> ConditionValue:
    if not credentials.contents:
        assert credentials.problem is not None
        return ("False", *credentials.problem)
    if probed is None:
        return kept_condition(space.get("status") or {}, CREDENTIALS_VALID)
    own, named = space["metadata"]["namespace"], references(space)
    usable = dict.fromkeys(f"{own}/{named[each]['name']}" for each in credentials.contents)
    return explained(probed, "", now, f"put them into secret {' and '.join(usable)}")


def _ready(
    current: Object, credentials: ImportedCredentials, probed: ProbeResult | None
) -> ConditionValue:
    if not credentials.contents:
        return ("Unknown", "NoCredentials", "there are no credentials to look with")
    return kept_condition(current, PHYSICAL_SPACE_READY) if probed is None else probed.ready


def is_forgotten(space: Mapping[str, Any]) -> bool:
    """Return whether the user wants a deleted Space to stay deleted."""
    return (space["metadata"].get("annotations") or {}).get(spaces.FORGET) == "true"


def _texts(obj: Any) -> dict[str, str]:
    texts = obj if isinstance(obj, dict) else {}
    return {key: value for key, value in texts.items() if isinstance(value, str)}


def record_name(space: str) -> str:
    """Return the name of the Secret that records a Space."""
    return f"{RECORD_PREFIX}{space}"


def record_of(space: Object) -> Object:
    """Return the Secret that records a Space."""
    metadata = space["metadata"]
    notes = metadata.get("annotations") or {}
    metadata_copy = {
        "labels": metadata.get("labels") or {},
        "annotations": {key: value for key, value in notes.items() if key not in _NOT_KEPT},
    }
    # References in the status would be lost: a new object starts without a status.
    named = {
        spaces.REFERENCES[each]: dict(reference) for each, reference in references(space).items()
    }
    document = json.dumps(
        {"metadata": metadata_copy, "spec": {**(space.get("spec") or {}), **named}}
    )
    return {
        "apiVersion": SECRETS.resource.api_version,
        "kind": SECRETS.resource.kind,
        "metadata": {
            "name": record_name(metadata["name"]),
            "namespace": metadata["namespace"],
            "labels": labels_of(space),
        },
        "type": RECORD_TYPE,
        "data": {_RECORD_KEY: base64.b64encode(document.encode()).decode("ascii")},
    }


def is_record(secret: Mapping[str, Any]) -> bool:
    """Return whether a Secret is a record of ours."""
    name = written_for(secret)
    return bool(name) and secret["metadata"]["name"] == record_name(name) and _is_typed(secret)


def _is_typed(secret: Mapping[str, Any]) -> bool:
    return secret.get("type") == RECORD_TYPE


def trimmed(secret: Object) -> Object:
    """Reduce a Secret with our labels to the parts that are used."""
    return secrets.trimmed(secret, record_type=RECORD_TYPE, record_key=_RECORD_KEY)


def made_anew(record: Object) -> Object | None:
    """
    Return the Space from a record; ``None`` if the record is invalid.

    Users with write access to Secrets could forge a record, so it only creates imported Spaces.
    """
    try:
        document = json.loads(value_of(record, _RECORD_KEY) or b"")
        metadata: Object = {key: _texts(document["metadata"].get(key)) for key in _KEPT}
        spec = {**document["spec"], "Type": spaces.IMPORTED}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    metadata |= {"name": written_for(record), "namespace": record["metadata"]["namespace"]}
    return {
        "apiVersion": spaces.SPACES.api_version,
        "kind": spaces.SPACES.kind,
        "metadata": {**metadata, "finalizers": [spaces.FINALIZER]},
        "spec": spec,
    }


TROUBLE_SECONDS = 15.0
"""Interval for rereading Secrets that are unusable or whose credentials were rejected."""
_NO_PLACE = (Forbidden.code, NotFound.code, Invalid.code, BadRequest.code)
"""Errors in a namespace that is being deleted, or for an object that is not a valid Space."""


class ImportedWorker:
    """
    Processes one imported Space.

    :param record: the record of a deleted Space.
    """

    def __init__(
        self,
        around: SpaceContext,
        key: Key,
        space: Object | None,
        record: Object | None,
        probe: Probe,
    ) -> None:
        self.space = space
        self.probed: ProbeResult | None = None
        self._around, self._key, self._record, self._probe = around, key, record, probe
        self._told: list[Tell] = []

    async def run(self) -> float | None:
        """
        Process the Space.

        :return: seconds until the next check; ``None`` to wait for events.
        """
        try:
            if self.space is None:
                return await self._make_anew()
            if self.space["metadata"].get("deletionTimestamp"):
                return await self._going(self.space)
            return await self._keep(self.space)
        except SpaceChanged:
            return None
        finally:
            if self.space is not None:
                for each in self._told:
                    self._around.record(self.space, each.type, each.reason, each.message)

    # The Space exists.

    async def _keep(self, space: Object) -> float | None:
        await self._drop_record()
        space = await self._set_finalizers(space, keep=True)
        credentials = await self._given(space)
        what = f"the kubeconfig of space {'/'.join(self._key)}"
        phase = (space.get("status") or {}).get("Phase")
        self.probed = self._around.probes.look(
            self._key,
            credentials.contents,
            what,
            f"/{self._key[0]}",
            was_well=phase == spaces.READY,
        )
        before = space.get("status") or {}
        after = status_of(space, credentials, self.probed, self._around.now())
        if after != before:
            stored = {**space, "status": after}
            self.space = await self._there(
                self._around.hub.update(spaces.SPACES, stored, self._key[0], subresource="status")
            )
        self._told += events(before, after)
        if after.get("rotated") != before.get("rotated"):
            message = "an imported Space's credentials are its user's: put new ones into its Secret"
            self._told.append(Tell("Warning", "CannotRotate", message))
        refused = self.probed is not None and self.probed.is_refused
        return TROUBLE_SECONDS if credentials.problem or refused else None

    async def _given(self, space: Object) -> ImportedCredentials:
        secrets: dict[str, Object | None] = {}
        for viewpoint, reference in references(space).items():
            if not elsewhere(space, reference):
                secrets[viewpoint] = await self._secret(reference["name"])
        return credentials_of(space, secrets)

    async def _secret(self, name: str) -> Object | None:
        try:
            return await self._around.hub.get(SECRETS.resource, name, self._key[0])
        except NotFound:
            return None

    # The Space is being deleted.

    async def _going(self, space: Object) -> float | None:
        if spaces.FINALIZER not in (space["metadata"].get("finalizers") or ()):
            await self._set_finalizers(space, keep=False)
            return None
        if is_forgotten(space):
            await self._drop_record()
            reason, message = "Forgotten", "it is let go; what it stands for was not touched"
        elif await self._lives(space) and await self._write_record(space):
            reason, message = (
                "MadeAnew",
                (
                    "what it stands for lives, so the Space is made anew; to let it go for good, annotate it with "
                    f"{spaces.FORGET}=true before it is deleted"
                ),
            )
        else:
            await self._drop_record()
            reason, message = "LetGo", "what it stands for cannot be reached with its credentials"
        await self._set_finalizers(space, keep=False)
        self._told.append(Tell("Normal", reason, message))
        return None

    async def _lives(self, space: Object) -> bool:
        credentials = await self._given(space)
        if not credentials.contents:
            return False
        result = await self._probe(
            credentials.contents, f"the kubeconfig of space {'/'.join(self._key)}"
        )
        return result.lives

    async def _write_record(self, space: Object) -> bool:
        """Create the record. :return: whether it exists."""
        if self._record is not None:
            return True
        form = record_of(space)
        try:
            self._record = await self._around.hub.create(SECRETS.resource, form, self._key[0])
        except AlreadyExists:
            existing = await self._secret(record_name(self._key[1]))
            self._record = existing if existing is not None and is_record(existing) else None
        except APIError as error:
            if error.code not in _NO_PLACE:
                raise
        return self._record is not None

    async def _set_finalizers(self, space: Object, *, keep: bool) -> Object:
        current = list(space["metadata"].get("finalizers") or ())
        ours = (spaces.FINALIZER, spaces.OLD_FINALIZER)
        desired = [each for each in current if each not in ours]
        if keep:
            desired = [each for each in current if each != spaces.OLD_FINALIZER]
            desired += [] if spaces.FINALIZER in desired else [spaces.FINALIZER]
        if desired == current:
            return space
        metadata = space["metadata"]
        named = {"resourceVersion": metadata["resourceVersion"], "uid": metadata["uid"]}
        patch = {"metadata": {**named, "finalizers": desired}}
        self.space = await self._there(
            self._around.hub.patch(spaces.SPACES, self._key[1], patch, self._key[0])
        )
        return self.space

    async def _there(self, request: Awaitable[Object]) -> Object:
        try:
            return await request
        except NotFound:
            raise SpaceChanged from None

    # The Space is gone.

    async def _make_anew(self) -> float | None:
        if self._record is None:
            return None
        space = made_anew(self._record)
        if space is not None:
            try:
                await self._around.hub.create(spaces.SPACES, space, self._key[0])
            except AlreadyExists:
                pass  # a user was faster, or we created it before
            except APIError as error:
                if error.code not in _NO_PLACE:
                    raise
        await self._drop_record()
        return None

    async def _drop_record(self) -> None:
        if self._record is not None:
            await delete_ours(self._around.hub, self._record)
            self._record = None


class ImportedSecrets:
    """
    The Secrets of imported Spaces.

    They are watched by name, so that the manager receives no other Secrets of the user's namespace.
    """

    def __init__(self, hub: IKubeClient, clock: Any, changed: Callable[[Key], None]) -> None:
        self._changed = changed
        self._users: dict[SecretRef, dict[Key, None]] = {}
        self._secrets = SpaceSecrets(hub, clock, (), self._secret_changed, labelled=False)

    def space_changed(self, before: Object | None, after: Object | None) -> None:
        """Watch the Secrets of a changed Space."""
        old, new = _secrets_of(before), _secrets_of(after)
        key = key_of(after or before or {})
        for ref in new - old:
            self._users.setdefault(ref, {})[key] = None
            self._secrets.add_user(ref)
        for ref in old - new:
            self._secrets.remove_user(ref)
            del self._users[ref][key]
            if not self._users[ref]:
                del self._users[ref]

    def stop(self) -> Deferred[Any]:
        """Stop all watches."""
        return self._secrets.stop()

    def _secret_changed(self, ref: SecretRef) -> None:
        if self._secrets.get(ref) is None and not self._secrets.is_gone(ref):
            return  # the watch has only started
        for key in self._users.get(ref, ()):
            self._changed(key)


def _secrets_of(space: Object | None) -> set[SecretRef]:
    if space is None or type_of(space) != spaces.IMPORTED:
        return set()
    return {
        SecretRef(space["metadata"]["namespace"], str(reference["name"]))
        for reference in references(space).values()
        if not elsewhere(space, reference)
    }
