"""
Output of a runtime's answers, for people and scripts.

In tables, texts of the runtime become one line without control characters.  JSON and YAML are
protobuf's JSON format of ironcore's revision, with secrets replaced by their size.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import yaml
from google.protobuf.json_format import MessageToDict

from twisted_exec.api import quantity
from twisted_exec.api.times import human, timestamp
from twisted_exec.cli.table import NONE, table
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.protos.event_pb2 import Event
from twisted_exec.iri.protos.machine_pb2 import MachineState

FORMATS = ("table", "json", "yaml")

_NANOSECONDS = 1_000_000_000
_NO_ZEROS = 10
_SECRETS = ("ignitionData",)
_SECRET_MAPS = ("secretData", "encryptionData")


def document(message: Any, form: str) -> str:
    """Return a message, or a list of messages, as JSON or YAML."""
    document = (
        [MessageToDict(item) for item in message]
        if isinstance(message, list)
        else MessageToDict(message)
    )
    _hide(document)
    if form == "json":
        return json.dumps(document, indent=2) + "\n"
    text: str = yaml.safe_dump(document, sort_keys=False)
    return text


def _hide(document: Any) -> None:
    if isinstance(document, list):
        for item in document:
            _hide(item)
    if not isinstance(document, dict):
        return
    for key, value in document.items():
        if key in _SECRETS and isinstance(value, str):
            document[key] = _sized(value)
        elif key in _SECRET_MAPS and isinstance(value, dict):
            document[key] = {name: _sized(secret) for name, secret in value.items()}
        else:
            _hide(value)


def _sized(encoded: str) -> str:
    return f"<{len(encoded.rstrip('=')) * 3 // 4} bytes>"


def version(answer: pb.VersionResponse) -> str:
    return table(["NAME", "VERSION"], [[str(answer.runtime_name), str(answer.runtime_version)]])


def status(answer: pb.StatusResponse) -> str:
    """Return the table of a runtime's classes."""
    rows = []
    for status in answer.machine_class_status:
        resources = dict(status.machine_class.capabilities.resources)
        cpu, memory = resources.pop("cpu", None), resources.pop("memory", None)
        rows.append(
            [
                status.machine_class.name,
                NONE if cpu is None else str(cpu),
                NONE if memory is None else quantity.binary(memory),
                ",".join(f"{name}={value}" for name, value in sorted(resources.items())),
                str(status.quantity),
            ]
        )
    return table(["CLASS", "CPU", "MEMORY", "OTHER", "QUANTITY"], rows)


def machines(items: Iterable[pb.Machine], now: float) -> str:
    """
    :param now: seconds since the epoch.
    """
    rows = [
        [
            machine.metadata.id,
            _label(machine, "-namespace"),
            _label(machine, "-name"),
            getattr(machine.spec, "class"),
            state(machine.status.state),
            "Off" if machine.spec.power else "On",
            _age(machine.metadata.created_at, now),
        ]
        for machine in items
    ]
    return table(["ID", "NAMESPACE", "NAME", "CLASS", "STATE", "POWER", "AGE"], rows)


def events(items: Iterable[Event]) -> str:
    rows = [
        [
            timestamp(event.spec.event_time / _NANOSECONDS) if event.spec.event_time > 0 else NONE,
            event.spec.type,
            event.spec.reason,
            event.spec.involved_object_meta.id,
            event.spec.message,
        ]
        for event in items
    ]
    return table(["TIME", "TYPE", "REASON", "MACHINE", "MESSAGE"], rows)


def state(number: int) -> str:
    """Return the name of a machine's state without prefix, or its number."""
    try:
        name = str(MachineState.Name(number))
    except ValueError:
        return str(int(number))
    return name.removeprefix("MACHINE_").capitalize()


def _label(machine: pb.Machine, ending: str) -> str:
    """
    Return a poollet's label of a machine by the end of its name; prefixes differ between projects.

    ``downward-api`` labels come from users.
    """
    for name, value in sorted(machine.metadata.labels.items()):
        if name.endswith(ending) and not name.startswith("downward-api."):
            return str(value)
    return NONE


def _age(nanoseconds: int, now: float) -> str:
    return human(now - nanoseconds / _NANOSECONDS) if nanoseconds > 0 else NONE
