"""
A running deployment that tests use one after another: most tests take less time than its start and stop.

Each process that runs tests keeps at most one.  Between tests the programs run, but the reactor has
neither their output nor a connection, because trial wants it empty.  After each test, all objects that it
has created are deleted.  If anything else differs from the start, or the test has failed, the deployment
is stopped, and the next test starts another.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from twisted.internet import reactor
from twisted.python import log
from twisted.trial.unittest import TestCase

from tests import procfs
from twisted_exec.api.kinds import DELETEDCONSOLES, Object, served
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.loader import load

from .deployment import Deployment, pause, settled
from .programs import Program

RESTORE_SECONDS = 20.0
STOP_SECONDS = 10.0
PROGRAMS = ("poollet", "api", "runtime")
"""In the order of a stop; each has an audit log with its name."""
_ERROR = re.compile(rb"#(?:error|critical)\].*|Traceback .*")
_UNSTEADY = ("leases", "events")
"""Kinds whose objects the programs themselves write at any time."""
_UNSTEADY_METADATA = {"resourceVersion", "managedFields"}
_Objects = dict[tuple[Resource, str, str], Object]


class Shared:
    """
    A deployment, and its state after the start.

    :ivar in_use: a test has it.
    :ivar differences: why the deployment was stopped after a test; empty while it is kept.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.differences: list[str] = []
        self.in_use = True
        self._resources = [
            each.resource
            for each in served(deployment.dialects)
            if each.stored and each.resource.plural not in _UNSTEADY
        ]

    async def start(self) -> None:
        """Start the programs; fires when they have settled."""
        await self.deployment.start()
        self._programs: dict[str, Program] = {
            name: getattr(self.deployment, name) for name in PROGRAMS
        }
        self.pids = {name: program.pid for name, program in self._programs.items()}
        self._objects = await self.all_objects()
        # The first machine of a runtime opens sockets for all later ones.
        await self.deployment.create_machine("first", "shell")
        await self._without_new_objects()
        await self.deployment.client.close()
        await settled(lambda: sum(map(procfs.open_sockets, self.pids.values())))
        self._sockets = {name: procfs.open_sockets(pid) for name, pid in self.pids.items()}
        self._printed = {name: len(each.output) for name, each in self._programs.items()}

    def resume(self) -> None:
        """Begin a test's use: show the programs' output and audit logs as after the start."""
        self.in_use = True
        for name, program in self._programs.items():
            program.resume(self._printed[name])
            os.truncate(self.deployment.path(f"{name}.audit"), 0)
        self.deployment.client = KubeClient(load(self.deployment.admin), reactor)

    async def give_back(self, passed: bool) -> None:
        """End a test's use: keep the deployment if it is as after the start, or else stop it."""
        self.in_use = False
        try:
            self.differences = await self.restore() if passed else ["the test failed"]
        except APIError as error:
            self.differences = [str(error)]
        await self.deployment.client.close()
        if self.differences:
            log.msg(f"the shared deployment is stopped: {'; '.join(self.differences)}")
            await self.deployment.stop()
            return
        for program in self._programs.values():
            program.pause()
        _kept.append(self)

    async def restore(self) -> list[str]:
        """Delete the objects that the test has created; return all other differences."""
        for name, program in self._programs.items():
            if getattr(self.deployment, name) is not program or program.pid != self.pids[name]:
                return [f"{name} was started again"]
            if program.exit_code is not None:
                return [f"{name} has ended"]
            if error := _ERROR.search(program.output, self._printed[name]):
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
        if not await _until(lambda: not procfs.machines_of(state)):
            found.append("a machine's process runs")
        if not await _until(lambda: not self._connected()):
            found.append(f"more connections of {', '.join(self._connected())}")
        return found

    def _connected(self) -> list[str]:
        return [
            name
            for name, pid in self.pids.items()
            if procfs.open_sockets(pid) > self._sockets[name]
        ]

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
        deadline = reactor.seconds() + RESTORE_SECONDS
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


async def _until(condition: Callable[[], bool]) -> bool:
    """Fires with whether the condition holds before :data:`RESTORE_SECONDS` have passed."""
    deadline = reactor.seconds() + RESTORE_SECONDS
    while not condition():
        if reactor.seconds() > deadline:
            return False
        await pause()
    return True


_kept: list[Shared] = []


async def take(directory: str) -> Shared:
    """
    Return this process's deployment, with all programs alive.

    :param directory: of a new deployment.
    """
    while _kept:
        shared = _kept.pop()
        shared.resume()
        if all(map(procfs.is_alive, shared.pids.values())):
            return shared
        shared.in_use = False
        await shared.deployment.stop()
    shared = Shared(Deployment(os.path.abspath(directory)))
    try:
        await shared.start()
    except BaseException:
        await shared.deployment.stop()
        raise
    shared.resume()
    return shared


async def deployment(test: TestCase) -> Deployment:
    """
    Return a running deployment for a test, which may create any objects and end any program.

    Call this first in ``setUp``, because cleanups run in reverse order.
    """
    shared = await take(test.mktemp())

    async def give_back() -> None:
        await shared.give_back(test._passed)

    test.addCleanup(give_back)
    return shared.deployment


@atexit.register
def _stop() -> None:
    """Stop the programs at the end of this process, whose reactor does not run any more."""
    for shared in _kept:
        for pid in shared.pids.values():
            _end(pid)
        shutil.rmtree(shared.deployment.sockets, ignore_errors=True)


def _end(pid: int) -> None:
    deadline = time.monotonic() + STOP_SECONDS
    with suppress(ChildProcessError):  # it has ended, and another process may have its id
        if os.waitpid(pid, os.WNOHANG) == (0, 0):
            os.kill(pid, signal.SIGTERM)
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
