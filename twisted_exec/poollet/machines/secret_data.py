"""Secret data of a Machine: its ignition, and the credentials of its volumes."""

from __future__ import annotations

from twisted_exec.api.kinds.secrets import OPAQUE, value_of
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.poollet.machines.references import (
    IGNITION_NOT_READY,
    VOLUME_NOT_READY,
    Key,
    MissingReference,
    Object,
    ReferencedKinds,
    References,
)

IGNITION_KEY = "ignition.yaml"
"""Default key of an ignition in its Secret."""
MAX_IGNITION_BYTES = 1 << 20
"""The size limit of a whole Secret."""


def ignition_key(machine: Object) -> Key | None:
    """Return the Secret of the Machine's ignition, if the Machine names one."""
    name = (machine["spec"].get("ignitionRef") or {}).get("name")
    return (machine["metadata"].get("namespace", ""), name) if name else None


def ignition(machine: Object, domain: ReferencedKinds, references: References) -> bytes:
    """
    Return the Machine's ignition (first-boot configuration); empty if it names none.

    :raises MissingReference: the Secret is missing or not usable.
    """
    reference, key = (machine["spec"].get("ignitionRef") or {}), ignition_key(machine)
    if key is None:
        return b""
    entry = reference.get("key") or IGNITION_KEY
    secret = _read(key, references, IGNITION_NOT_READY, domain.ignition_type)
    content = _value(key, secret, entry, IGNITION_NOT_READY)
    if len(content) > MAX_IGNITION_BYTES:
        message = f"{_secret(key)} holds {len(content)} bytes; {MAX_IGNITION_BYTES} are possible"
        raise MissingReference(IGNITION_NOT_READY, message)
    return content


def with_secrets(
    volume: pb.Volume, access: Key | None, encryption: Key | None, references: References
) -> pb.Volume:
    """
    Return ``volume`` with its credentials, which messages do not quote.

    :raises MissingReference: a Secret is missing or unusable.
    """
    completed = pb.Volume()
    completed.CopyFrom(volume)
    for key, data in (
        (access, completed.connection.secret_data),
        (encryption, completed.connection.encryption_data),
    ):
        if key is not None:
            secret = _read(key, references, VOLUME_NOT_READY)
            for name in secret.get("data") or ():
                data[name] = _value(key, secret, name, VOLUME_NOT_READY)
    return completed


def _read(key: Key, references: References, reason: str, type: str = "") -> Object:
    secret = references.secrets.get(key, "was not read")
    if isinstance(secret, str):
        raise MissingReference(reason, f"{_secret(key)} {secret}")
    if type and secret.get("type") != type:
        message = f"{_secret(key)} is of type {secret.get('type') or OPAQUE}, not {type}"
        raise MissingReference(reason, message)
    return secret


def _value(key: Key, secret: Object, entry: str, reason: str) -> bytes:
    content = value_of(secret, entry)
    if content is None:
        raise MissingReference(reason, f"{_secret(key)} has no key {entry!r} that can be read")
    return content


def _secret(key: Key) -> str:
    return f"secret {key[0]}/{key[1]}"
