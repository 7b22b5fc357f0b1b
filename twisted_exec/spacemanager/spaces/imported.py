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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twisted_exec.api import spaces
from twisted_exec.api.conditions import ConditionValue
from twisted_exec.api.kinds.secrets import SECRETS, value_of
from twisted_exec.api.spaces import CREDENTIALS_VALID, PHYSICAL_SPACE_READY, SYNCED
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.spacemanager.spaces import secrets
from twisted_exec.spacemanager.spaces.naming import viewpoints_of
from twisted_exec.spacemanager.spaces.observation import ProbeResult
from twisted_exec.spacemanager.spaces.secrets import labels_of, written_for
from twisted_exec.spacemanager.spaces.status import explained, finished, kept_condition
from twisted_exec.spaces import kubeconfigs

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


def why_not_readable(space: Mapping[str, Any], reference: Mapping[str, Any]) -> str:
    """Return why the Secret of a reference must not be read; empty if it may be."""
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
        if why := why_not_readable(space, reference):
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
        usable = reference is not None and not why_not_readable(space, reference)
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


def trim_secret(secret: Object) -> Object:
    """Reduce a Secret with our labels to the parts that are used."""
    return secrets.trim_secret(secret, record_type=RECORD_TYPE, record_key=_RECORD_KEY)


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
