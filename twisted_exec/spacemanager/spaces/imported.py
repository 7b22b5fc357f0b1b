"""
Imported Spaces: somebody gave us credentials, and what they lead to is not ours to make or to delete.

It is probed again and again.  Who deletes the object while what it stands for lives gets it back, as upstream's
design has it; whoever means it says so first (annotation ``space.twisted-exec.dev/forget: "true"``).  A finalizer
holds what is deleted until it is known whether it lives; then what is made anew is written down, in a Secret without
any credentials, and only then the object goes.  So whoever is killed in between leaves enough for whoever is next.

Secrets of users are read, in the Space's own namespace alone: who may make a Space there may not read others'.
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
from twisted_exec.spacemanager.probes.verdicts import ProbeResult
from twisted_exec.spacemanager.spaces import secrets
from twisted_exec.spacemanager.spaces.naming import viewpoints_of
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
    Which Secrets an imported Space names, by viewpoint.

    Upstream had users write them into ``status``; that counts while ``spec`` names none.
    """
    for part in ("spec", "status"):
        told = space.get(part) or {}
        found = {
            viewpoint: told[key]
            for viewpoint, key in spaces.REFERENCES.items()
            if viewpoint in viewpoints_of(space) and (told.get(key) or {}).get("name")
        }
        if found:
            return found
    return {}


def elsewhere(space: Mapping[str, Any], reference: Mapping[str, Any]) -> str:
    """Why a Secret that is named is not read, or empty."""
    own = space["metadata"]["namespace"]
    told = reference.get("namespace") or own
    if told == own:
        return ""
    name = reference["name"]
    return (
        f"secret {told}/{name} is not in the Space's own namespace: copy it to {own}, and name that"
    )


@dataclass(frozen=True)
class ImportedCredentials:
    """
    What users gave for a Space.

    :param contents: kubeconfigs that can be used, by viewpoint.
    :param endpoints: what of them is no secret.
    :param problem: reason and message of what is the matter, or ``None``.
    """

    contents: Mapping[str, bytes]
    endpoints: Mapping[str, Mapping[str, str]]
    problem: tuple[str, str] | None = None


def given(space: Object, found: Mapping[str, Object | None]) -> ImportedCredentials:
    """
    What is to be had.

    :param found: the Secrets that it names, by viewpoint; ``None`` for one that is not there.
    """
    named, problem = references(space), None
    contents: dict[str, bytes] = {}
    endpoints = {}
    if not named:
        keys = " or ".join(f"spec.{key}" for key in spaces.REFERENCES.values())
        told = f"an imported Space says where its kubeconfig is: name a Secret in {keys}"
        return ImportedCredentials({}, {}, ("NoSecret", told))
    for viewpoint, reference in named.items():
        if why := elsewhere(space, reference):
            problem = ("SecretElsewhere", why)
        elif (secret := found.get(viewpoint)) is None:
            where = f"{space['metadata']['namespace']}/{reference['name']}"
            told = f'secret {where} is not there: make it, with the key "{spaces.KUBECONFIG_KEY}"'
            problem = ("SecretMissing", told)
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
    space: Object, told: ImportedCredentials, probed: ProbeResult | None, now: float
) -> Object:
    """The status of an imported Space, as it is to be."""
    known: Object = space.get("status") or {}
    status, own = dict(known), space["metadata"]["namespace"]
    for viewpoint, key in spaces.REFERENCES.items():
        reference = references(space).get(viewpoint)
        usable = reference is not None and not elsewhere(space, reference)
        status[key] = (
            {"name": reference["name"], "namespace": own} if usable and reference else None
        )
    # What a user wrote there is their word, and stays while it is the only one.
    if told.problem is not None and told.problem[0] == "SecretElsewhere" and not told.contents:
        status |= {key: known.get(key) for key in spaces.REFERENCES.values()}
    status[spaces.ENDPOINTS] = list(told.endpoints.values())
    if value := (space["metadata"].get("annotations") or {}).get(spaces.ROTATE):
        status["rotated"] = value
    conditions = {
        CREDENTIALS_VALID: _valid(known, told, probed, now),
        PHYSICAL_SPACE_READY: _ready(known, told, probed),
        SYNCED: ("False", *told.problem) if told.problem else ("True", "Synced", ""),
    }
    return finished(space, status, conditions, now)


def _valid(
    known: Object, told: ImportedCredentials, probed: ProbeResult | None, now: float
) -> ConditionValue:
    if not told.contents:
        assert told.problem is not None
        return ("False", *told.problem)
    if probed is None:
        return kept_condition(known, CREDENTIALS_VALID)
    return explained(probed, "", now, "put them into the Secret")


def _ready(known: Object, told: ImportedCredentials, probed: ProbeResult | None) -> ConditionValue:
    if not told.contents:
        return ("Unknown", "NoCredentials", "there are no credentials to look with")
    return kept_condition(known, PHYSICAL_SPACE_READY) if probed is None else probed.ready


def is_forgotten(space: Mapping[str, Any]) -> bool:
    """Whether its user lets it go for good."""
    return (space["metadata"].get("annotations") or {}).get(spaces.FORGET) == "true"


def _texts(told: Any) -> dict[str, str]:
    texts = told if isinstance(told, dict) else {}
    return {key: value for key, value in texts.items() if isinstance(value, str)}


def record_name(space: str) -> str:
    """Of the Secret that a Space is made anew from."""
    return f"{RECORD_PREFIX}{space}"


def record_of(space: Object) -> Object:
    """What a Space is made anew from: nothing owns it, for its owner is about to go."""
    metadata = space["metadata"]
    notes = metadata.get("annotations") or {}
    kept = {
        "labels": metadata.get("labels") or {},
        "annotations": {key: value for key, value in notes.items() if key not in _NOT_KEPT},
    }
    # Upstream's users named their Secrets in the status, which a new object begins without.
    named = {spaces.REFERENCES[each]: dict(one) for each, one in references(space).items()}
    told = json.dumps({"metadata": kept, "spec": {**(space.get("spec") or {}), **named}})
    return {
        "apiVersion": SECRETS.resource.api_version,
        "kind": SECRETS.resource.kind,
        "metadata": {
            "name": record_name(metadata["name"]),
            "namespace": metadata["namespace"],
            "labels": labels_of(space),
        },
        "type": RECORD_TYPE,
        "data": {_RECORD_KEY: base64.b64encode(told.encode()).decode("ascii")},
    }


def is_record(secret: Mapping[str, Any]) -> bool:
    """Whether a Secret is a record of ours."""
    name = written_for(secret)
    return bool(name) and secret["metadata"]["name"] == record_name(name) and _is_typed(secret)


def _is_typed(secret: Mapping[str, Any]) -> bool:
    return secret.get("type") == RECORD_TYPE


def trimmed(secret: Object) -> Object:
    """What is kept of a Secret that has our labels."""
    return secrets.trimmed(secret, record_type=RECORD_TYPE, record_key=_RECORD_KEY)


def made_anew(record: Object) -> Object | None:
    """
    The Space that a record tells of; ``None`` when it tells of none.

    Whoever may write Secrets could write a record: so it makes imported Spaces and no others.
    """
    try:
        told = json.loads(value_of(record, _RECORD_KEY) or b"")
        metadata: Object = {key: _texts(told["metadata"].get(key)) for key in _KEPT}
        spec = {**told["spec"], "Type": spaces.IMPORTED}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    metadata |= {"name": written_for(record), "namespace": record["metadata"]["namespace"]}
    return {
        "apiVersion": spaces.SPACES.api_version,
        "kind": spaces.SPACES.kind,
        "metadata": {**metadata, "finalizers": [spaces.FINALIZER]},
        "spec": spec,
    }
