"""
What a runtime is given of Secrets: a machine's ignition, a volume's credentials.

Secrets are read when they are needed and kept no longer; no message holds any of one.
"""

from __future__ import annotations

from twisted_exec.api.kinds.secrets import OPAQUE, value_of
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.poollet.machines.references import (
    IGNITION_NOT_READY,
    VOLUME_NOT_READY,
    Around,
    Domain,
    Key,
    MissingReference,
    Object,
)

IGNITION_KEY = "ignition.yaml"
"""Where an ignition stands in its Secret unless the Machine says otherwise."""
MAX_IGNITION_BYTES = 1 << 20
"""As much as a Secret may hold at all."""


def ignition_key(machine: Object) -> Key | None:
    """The Secret of the Machine's ignition, if it names one."""
    name = (machine["spec"].get("ignitionRef") or {}).get("name")
    return (machine["metadata"].get("namespace", ""), name) if name else None


def ignition(machine: Object, domain: Domain, around: Around) -> bytes:
    """
    What the guest is to do at its first boot; empty when the Machine names none.

    :raises MissingReference: its Secret is not there, or not what it must be.
    """
    reference, key = (machine["spec"].get("ignitionRef") or {}), ignition_key(machine)
    if key is None:
        return b""
    entry = reference.get("key") or IGNITION_KEY
    secret = _read(key, around, IGNITION_NOT_READY, domain.ignition_type)
    found = _value(key, secret, entry, IGNITION_NOT_READY)
    if len(found) > MAX_IGNITION_BYTES:
        told = f"{_secret(key)} holds {len(found)} bytes; {MAX_IGNITION_BYTES} are possible"
        raise MissingReference(IGNITION_NOT_READY, told)
    return found


def with_secrets(
    volume: pb.Volume, access: Key | None, encryption: Key | None, around: Around
) -> pb.Volume:
    """
    ``volume`` with its credentials.

    :param access: the Secret of its access, if there is one.
    :param encryption: the Secret of its encryption, likewise.

    :raises MissingReference: a Secret is not there, or not what it must be.
    """
    made = pb.Volume()
    made.CopyFrom(volume)
    for key, given in (
        (access, made.connection.secret_data),
        (encryption, made.connection.encryption_data),
    ):
        if key is not None:
            secret = _read(key, around, VOLUME_NOT_READY)
            for name in secret.get("data") or ():
                given[name] = _value(key, secret, name, VOLUME_NOT_READY)
    return made


def _read(key: Key, around: Around, reason: str, type: str = "") -> Object:
    """
    A Secret.

    :param type: that it must be of; empty for any.
    :raises MissingReference: it is not there, cannot be read, or is another type's.
    """
    found = around.secrets.get(key, "was not read")
    if isinstance(found, str):
        raise MissingReference(reason, f"{_secret(key)} {found}")
    if type and found.get("type") != type:
        told = f"{_secret(key)} is of type {found.get('type') or OPAQUE}, not {type}"
        raise MissingReference(reason, told)
    return found


def _value(key: Key, secret: Object, entry: str, reason: str) -> bytes:
    found = value_of(secret, entry)
    if found is None:
        raise MissingReference(reason, f"{_secret(key)} has no key {entry!r} that can be read")
    return found


def _secret(key: Key) -> str:
    return f"secret {key[0]}/{key[1]}"
