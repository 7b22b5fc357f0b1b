"""
The machines one finds after the first start.

They are made once: who deletes or changes them keeps what they did.  So what was made
is written down, and only what never was is made; a machine whose class the
runtime did not offer so far (QEMU was not installed) is still to come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError
from twisted_exec.iri.interfaces import IMachineRuntime
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.interfaces import IKubeClient, Object

NAMESPACE = "default"
SHELL, VM = "demo-shell", "demo-vm"
PTY, QEMU = "pty", "qemu"

_LOOK_EVERY_SECONDS = 0.1

_log = Logger()


@dataclass(frozen=True)
class Wanted:
    """An object to make once."""

    resource: Resource
    body: Object

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.body["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Its namespace, empty when the kind has none."""
        return NAMESPACE if self.resource.namespaced else ""

    @property
    def label(self) -> str:
        """How it is written down, such as ``machines/demo-shell``."""
        return f"{self.resource.plural}/{self.name}"


def wanted(dialect: Dialect, pool: str, offered: Collection[str]) -> list[Wanted]:
    """
    The classes and machines for what the runtime offers.

    :param offered: names of the runtime's classes.
    """
    objects: list[Wanted] = []
    for class_name, machine, memory in ((PTY, SHELL, "64Mi"), (QEMU, VM, "128Mi")):
        if class_name in offered:
            objects.append(_class(dialect, class_name, memory))
            objects.append(_machine(dialect, machine, class_name, pool))
    return objects


def _class(dialect: Dialect, name: str, memory: str) -> Wanted:
    return _object(dialect.workload_class, name, {"capabilities": {"cpu": "1", "memory": memory}})


def _machine(dialect: Dialect, name: str, class_name: str, pool: str) -> Wanted:
    spec = {
        dialect.class_reference: {"name": class_name},
        dialect.pool_reference: {"name": pool},
        "power": "On",
    }
    return _object(dialect.workload, name, {"spec": spec})


def _object(resource: Resource, name: str, rest: dict[str, Any]) -> Wanted:
    metadata = {"name": name}
    if resource.namespaced:
        metadata["namespace"] = NAMESPACE
    head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    return Wanted(resource, {**head, **rest})


async def create_missing(
    client: IKubeClient, objects: Iterable[Wanted], created: Collection[str]
) -> set[str]:
    """
    Make what never was made.

    :param created: the labels of what was.
    :return: the labels of all that was ever made.
    :raises APIError: one could not be made.
    """
    labels = set(created)
    for each in objects:
        if each.label in labels:
            continue
        try:
            await client.create(each.resource, each.body, each.namespace)
            _log.info("created {label}", label=each.label)
        except APIError as error:
            # Killed between making and writing down, or made by the user: both are fine.
            if error.reason != "AlreadyExists":
                raise
        labels.add(each.label)
    return labels


async def to_try(client: IKubeClient, dialect: Dialect) -> str:
    """
    The name of the machine whose console to suggest: of those that are there, the real one first.

    :raises APIError: the API server cannot be asked.
    """
    listed = await client.list(dialect.workload, NAMESPACE)
    names = [str(each["metadata"]["name"]) for each in listed["items"]]
    return next((name for name in (VM, SHELL, *names) if name in names), SHELL)


async def until_running(
    client: IKubeClient,
    runtime: IMachineRuntime,
    dialect: Dialect,
    name: str,
    clock: IReactorTime,
) -> None:
    """
    Wait until a machine runs; one that was deleted or is to be off is not waited for.

    What the API server says may be of an earlier run, so the runtime is asked, too.

    :raises APIError: one of them cannot be asked.
    """
    while not await _is_settled(client, runtime, dialect, name):
        await deferLater(clock, _LOOK_EVERY_SECONDS)


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
    if machine.get("status", {}).get("state") != "Running":
        return False
    selector = {dialect.uid_label: machine["metadata"]["uid"]}
    found = await runtime.list_machines(
        pb.ListMachinesRequest(filter=pb.MachineFilter(label_selector=selector))
    )
    return any(each.status.state == pb.MACHINE_RUNNING for each in found.machines)
