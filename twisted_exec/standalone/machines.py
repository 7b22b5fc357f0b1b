"""
Classes, demo machines, and a permission of the poollet, created once.

So users can delete or change them.  The state directory records what was created.  A machine whose
class was unavailable (because QEMU was not installed) is created later.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CLUSTERROLEBINDINGS
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError
from twisted_exec.auth.default_roles import PERMISSION_WATCHER
from twisted_exec.control.polling import until
from twisted_exec.iri.interfaces import IMachineRuntime
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.program.config_file import ConfigError
from twisted_exec.runtimes.config import ClassConfig, load

NAMESPACE = "default"
SHELL, VM = "demo-shell", "demo-vm"
_OWN_SHELL = "my-shell"
PTY, QEMU = "pty", "qemu"

CLASSES = {
    "classes": [
        {
            "name": PTY,
            "driver": "pty",
            "command": ["/bin/sh", "-i"],
            "same_user": True,
            "capabilities": {"cpu": "1", "memory": "64Mi"},
        },
        {
            "name": QEMU,
            "driver": "qemu",
            "idle_seconds": 30,  # U-Boot polls its serial port for ever
            "capabilities": {"cpu": "1", "memory": "128Mi"},
        },
    ]
}
SHELLS = {"classes": CLASSES["classes"][:1]}
"""Configurations of the runtime: with and without virtual machines."""

_LOOK_EVERY_SECONDS = 0.1

_log = Logger()


@dataclass(frozen=True)
class DemoObject:
    """An object to create once."""

    resource: Resource
    body: Object

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return NAMESPACE if self.resource.namespaced else ""

    @property
    def label(self) -> str:
        """Entry in the record, such as ``machines/demo-shell``."""
        return f"{self.resource.plural}/{self.name}"


def load_classes(path: str | None) -> tuple[ClassConfig, ...]:
    """
    Read the file of ``--classes``: further classes besides the program's own.

    :raises ConfigError: the file is wrong, or a class has the name of one of the program's own.
    """
    classes = load(path) if path else ()
    for each in classes:
        if each.name in (PTY, QEMU):
            raise ConfigError(
                f"{path}: class {each.name!r} is one of this program's own; choose another name"
            )
    return tuple(classes)


def demo_objects(
    dialect: Dialect, pool: str, offered: Collection[str], further: Iterable[ClassConfig] = ()
) -> list[DemoObject]:
    """Return the classes and machines for the runtime's classes."""
    objects: list[DemoObject] = []
    for class_name, machine, memory in ((PTY, SHELL, "64Mi"), (QEMU, VM, "128Mi")):
        if class_name in offered:
            objects.append(_class(dialect, class_name, {"cpu": "1", "memory": memory}))
            objects.append(_machine(dialect, machine, class_name, pool))
    for each in further:
        if each.name in offered:
            capabilities = {name: str(amount) for name, amount in each.resources.items()}
            objects.append(_class(dialect, each.name, capabilities))
    return objects


def permission_binding(dialect: Dialect, pool: str) -> DemoObject:
    """Return the binding with which the poollet sees at once that a permission is withdrawn."""
    resource = CLUSTERROLEBINDINGS.resource
    user = dialect.pool_identity_prefix + pool
    body = {
        "roleRef": {"apiGroup": resource.group, "kind": "ClusterRole", "name": PERMISSION_WATCHER},
        "subjects": [{"apiGroup": resource.group, "kind": "User", "name": user}],
    }
    return _object(resource, f"{PERMISSION_WATCHER}-{pool}", body)


def _class(dialect: Dialect, name: str, capabilities: Mapping[str, str]) -> DemoObject:
    return _object(dialect.workload_class, name, {"capabilities": dict(capabilities)})


def _machine(dialect: Dialect, name: str, class_name: str, pool: str) -> DemoObject:
    spec = {
        dialect.class_reference: {"name": class_name},
        dialect.pool_reference: {"name": pool},
        "power": "On",
    }
    return _object(dialect.workload, name, {"spec": spec})


def _object(resource: Resource, name: str, rest: dict[str, Any]) -> DemoObject:
    metadata = {"name": name}
    if resource.namespaced:
        metadata["namespace"] = NAMESPACE
    head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    return DemoObject(resource, {**head, **rest})


async def create_missing(
    client: IKubeClient, objects: Iterable[DemoObject], created: Collection[str]
) -> set[str]:
    """
    Create the objects that were never created.

    :return: the labels to record.
    :raises APIError: an object cannot be created.
    """
    labels = set(created)
    for each in objects:
        if each.label in labels:
            continue
        try:
            await client.create(each.resource, each.body, each.namespace)
            _log.info("created {label}", label=each.label)
        except APIError as error:
            # Killed before it was recorded, or created by the user: both are fine.
            if error.reason != "AlreadyExists":
                raise
        labels.add(each.label)
    return labels


async def console_commands(
    client: IKubeClient, dialect: Dialect, pool: str
) -> tuple[str, str, str]:
    """
    Return three commands, of which the last two open the console of a machine.

    Without machines, the first command creates a shell.

    :raises APIError: the request failed.
    """
    listed = await client.list(dialect.workload, NAMESPACE)
    names = [str(each["metadata"]["name"]) for each in listed["items"]]
    if names:
        name = next(name for name in (VM, SHELL, *names) if name in names)
        first = f"kubectl get {dialect.workload.plural}"
    else:
        name = _OWN_SHELL
        body = json.dumps(_machine(dialect, name, PTY, pool).body, separators=(",", ":"))
        first = f"echo {shlex.quote(body)} | kubectl create -f -"
    return first, f"kubectl console {name}", f"twisted-exec web {name}"


async def until_running(
    client: IKubeClient,
    runtime: IMachineRuntime,
    dialect: Dialect,
    name: str,
    clock: IReactorTime,
) -> None:
    """
    Wait until a machine runs, cannot start, or is deleted or powered off.

    The API server's status may be from an earlier run, so this checks the runtime, too.

    :raises APIError: a request failed.
    """
    await until(lambda: _is_settled(client, runtime, dialect, name), clock, _LOOK_EVERY_SECONDS)


async def _is_settled(
    client: IKubeClient, runtime: IMachineRuntime, dialect: Dialect, name: str
) -> bool:
    try:
        machine = await client.get(dialect.workload, name, NAMESPACE)
    except APIError as error:
        if error.code == 404:
            return True
        raise
    if machine.get("spec", {}).get("power") == "Off" or "deletionTimestamp" in machine["metadata"]:
        return True
    selector = {dialect.uid_label: machine["metadata"]["uid"]}
    response = await runtime.list_machines(
        pb.ListMachinesRequest(filter=pb.MachineFilter(label_selector=selector))
    )
    is_running = machine.get("status", {}).get("state") == "Running"
    return any(
        is_running if each.status.state == pb.MACHINE_RUNNING else _cannot_start(each)
        for each in response.machines
    )


def _cannot_start(machine: pb.Machine) -> bool:
    """Return whether the runtime has tried to start a machine, and has logged why it could not."""
    return any(each.type == "Ready" for each in machine.status.machine_conditions)
