"""
A running deployment that tests use one after another, as :mod:`tests.shared` describes.

After each test, all objects that it has created are deleted.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection
from contextlib import suppress

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from tests import procfs
from tests import shared as programs
from twisted_exec.api.kinds import DELETEDCONSOLES, Object, served
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.loader import load

from .consoles import watch
from .deployment import Deployment, pause, settled

PROGRAMS = ("poollet", "api", "runtime")
"""In the order of a stop; each has an audit log with its name."""
_ERROR = re.compile(rb"#(?:error|critical)\].*|Traceback .*")
_UNSTEADY = ("leases", "events")
"""Kinds whose objects the programs themselves write at any time."""
_UNSTEADY_METADATA = {"resourceVersion", "managedFields"}
_Objects = dict[tuple[Resource, str, str], Object]


class Shared(programs.SharedPrograms):
    """A deployment, and its objects after the start."""

    def __init__(self, deployment: Deployment) -> None:
        super().__init__()
        self.deployment = deployment
        self._resources = [
            each.resource
            for each in served(deployment.dialects)
            if each.stored and each.resource.plural not in _UNSTEADY
        ]

    async def start(self) -> None:
        """Start the programs; fires when they have settled."""
        await self.deployment.start()
        self._objects = await self.all_objects()
        # The first machine of a runtime opens sockets for all later ones, and the first console leaves a spare
        # connection to each next hop.
        await self.deployment.create_machine("first", "shell")
        screen = await watch(self.deployment.admin, "first")
        await screen.ask(b"echo $((6*7))\n", rb"42\r\n")
        await screen.leave()
        await self._without_new_objects()
        await self.deployment.client.close()
        started = {name: getattr(self.deployment, name) for name in PROGRAMS}
        await settled(lambda: sum(procfs.open_sockets(each.pid) for each in started.values()))
        self.started(started)

    def resume(self) -> None:
        """Begin a test's use: show the programs' output and audit logs as after the start."""
        super().resume()
        for name in self.programs:
            os.truncate(self.deployment.path(f"{name}.audit"), 0)
        self.deployment.client = KubeClient(load(self.deployment.admin), reactor)

    async def stop(self) -> None:
        await self.deployment.stop()

    def remove_files(self) -> None:
        shutil.rmtree(self.deployment.sockets, ignore_errors=True)

    async def restore(self) -> list[str]:
        """Delete the objects that the test has created; return all other differences."""
        try:
            return await self._restore()
        except APIError as error:
            return [str(error)]

    async def _restore(self) -> list[str]:
        for name, program in self.programs.items():
            if getattr(self.deployment, name) is not program or program.pid != self.pids[name]:
                return [f"{name} was started again"]
            if program.exit_code is not None:
                return [f"{name} has ended"]
            if error := _ERROR.search(self.printed(name)):
                return [f"{name} has logged: {error[0].decode(errors='replace')}"]
        objects = await self._without_new_objects()
        found = [
            f"{resource.qualified} {name} differs"
            for resource, namespace, name in self._objects.keys() | objects.keys()
            if objects.get((resource, namespace, name))
            != self._objects.get((resource, namespace, name))
        ]
        await self.deployment.client.close()
        state = self.deployment.path("runtime-state")
        if not await self.until(lambda: not procfs.machines_of(state)):
            found.append("a machine's process runs")
        if not await self.until(lambda: not self.connected()):
            found.append(f"more connections of {', '.join(self.connected())}")
        return found

    async def all_objects(self, resources: Collection[Resource] = ()) -> _Objects:
        """Return all objects, or those of some resources, without what changes by itself."""
        found = {}
        for resource in resources or self._resources:
            for item in (await self.deployment.client.list(resource))["items"]:
                metadata = item["metadata"]
                kept = {key: metadata[key] for key in metadata.keys() - _UNSTEADY_METADATA}
                key = (resource, metadata.get("namespace", ""), metadata["name"])
                found[key] = {**item, "metadata": kept, "status": None}
        return found

    async def _without_new_objects(self) -> _Objects:
        """Delete new objects, machines first; return all objects once those are gone."""
        workload = self.deployment.dialect.workload
        deadline = reactor.seconds() + self.restore_seconds
        objects = await self.all_objects()
        while new := objects.keys() - self._objects.keys():
            if reactor.seconds() > deadline:
                break
            for resource, namespace, name in [key for key in new if key[0] == workload] or new:
                with suppress(APIError):  # it is being deleted already
                    await self.deployment.client.delete(resource, name, namespace)
            await pause()
            # A deleted machine leaves a DeletedConsole. Each list costs both processes CPU time.
            again = {DELETEDCONSOLES.resource, *(resource for resource, _, _ in new)}
            rest = {key: each for key, each in objects.items() if key[0] not in again}
            objects = rest | await self.all_objects(again)
        return objects


async def take(directory: str) -> Shared:
    """
    Return this process's deployment, with all programs alive.

    :param directory: of a new deployment.
    """
    return await programs.take(Shared, lambda: Shared(Deployment(os.path.abspath(directory))))


async def deployment(test: TestCase) -> Deployment:
    """
    Return a running deployment for a test, which may create any objects and end any program.

    Call this first in ``setUp``, because cleanups run in reverse order.
    """
    directory = os.path.abspath(test.mktemp())
    shared = await programs.use(test, Shared, lambda: Shared(Deployment(directory)))
    return shared.deployment
