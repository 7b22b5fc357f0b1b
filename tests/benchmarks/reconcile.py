"""
Cost of an idle poollet with 2 000 machines; and the time from ``kubectl apply`` until
100 machines run, against the runtime alone.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import grpc
from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from tests import procfs
from tests.flows.deployment import Deployment, machine, machine_class, run_reactor
from tests.flows.programs import Program, start
from twisted_exec.api import kinds
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.revisions import revision
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.interfaces import Object

HELD = 2000
MADE = 100
IDLE_SECONDS = 60.0
_PARALLEL = 50
_AT_ONCE = 16
_MACHINES = kinds.MACHINES.resource


class _Watched:
    """Machines as one who watches sees them: asking again and again would be work, too."""

    def __init__(self, deployment: Deployment, wanted: int) -> None:
        self._running: set[str] = set()
        self._wanted = wanted
        self.all_run: Deferred[None] = Deferred()
        self.reflector = Reflector(
            deployment.client, _MACHINES, reactor, namespace="default", on_change=self._changed
        )
        self.reflector.start()

    def _changed(self, before: Object | None, after: Object | None) -> None:
        if after is not None and (after.get("status") or {}).get("state") == "Running":
            self._running.add(after["metadata"]["name"])
            if len(self._running) == self._wanted and not self.all_run.called:
                self.all_run.callback(None)


def _pid(program: Program) -> int:
    assert program.transport is not None
    pid = program.transport.pid
    assert isinstance(pid, int)
    return pid


async def _idle_cost(poollet: Program) -> float:
    """Of a core, in per cent."""
    await deferLater(reactor, 10.0)
    before = procfs.cpu_seconds(_pid(poollet))
    await deferLater(reactor, IDLE_SECONDS)
    return (procfs.cpu_seconds(_pid(poollet)) - before) / IDLE_SECONDS * 100


async def held(directory: Path) -> None:
    """A pool of many machines that are as wanted."""
    deployment = Deployment(str(directory))
    runtime = start([sys.executable, "-m", "tests.benchmarks.idle_runtime", deployment.iri_target])
    try:
        await deployment.start_api()
        await runtime.until(rb"ready")
        await deployment.client.create(
            kinds.MACHINECLASSES.resource, machine_class("shell", "64Mi")
        )
        await deployment.start_poollet()
        empty = await _idle_cost(deployment.poollet)
        watched = _Watched(deployment, HELD)
        began = time.perf_counter()
        for first in range(0, HELD, _PARALLEL):
            numbers = range(first, first + _PARALLEL)
            objects = [machine(f"m-{number:05}", "shell") for number in numbers]
            await gatherResults(
                [deployment.client.create(_MACHINES, one, "default") for one in objects]
            )

        await watched.all_run
        await watched.reflector.stop()
        took = time.perf_counter() - began
        full = await _idle_cost(deployment.poollet)
        size = procfs.resident_bytes(_pid(deployment.poollet)) / 1e6
        print(f"  {HELD} machines run {took:.1f} s after the first was made")
        print(f"  CPU of an idle poollet: {full:.2f} % of a core; {empty:.2f} % without machines")
        print(f"  it holds {size:.0f} MB")
    finally:
        await runtime.stop()
        await deployment.stop()


def _alone(target: str) -> float:
    """Seconds that the runtime takes to make machines that run, asked for directly."""
    with grpc.insecure_channel(target) as channel:

        def call(name: str) -> Any:
            known = revision("ironcore").call(name)
            return channel.unary_unary(
                known.path,
                request_serializer=known.encode_request,
                response_deserializer=known.decode_response,
            )

        create, listed, delete = (
            call("create_machine"),
            call("list_machines"),
            call("delete_machine"),
        )
        began = time.perf_counter()
        waiting = []
        for _ in range(MADE):
            if len(waiting) >= _AT_ONCE:
                waiting.pop(0).result()
            wanted = pb.Machine()
            setattr(wanted.spec, "class", "shell")
            waiting.append(create.future(pb.CreateMachineRequest(machine=wanted)))
        made = [each.result() for each in waiting]
        while True:
            found = listed(pb.ListMachinesRequest()).machines
            if sum(one.status.state == pb.MACHINE_RUNNING for one in found) == MADE:
                break
            time.sleep(0.01)
        took = time.perf_counter() - began
        for one in found:
            delete(pb.DeleteMachineRequest(machine_id=one.metadata.id))
    assert made
    return took


async def made(directory: Path) -> None:
    """Machines of shells, each a process in a terminal of its own."""
    deployment = Deployment(str(directory), unix_streams=True)
    manifest = directory / "machines.json"
    items = [machine(f"m-{number:03}", "shell") for number in range(MADE)]
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    kubectl = shutil.which("kubectl")
    assert kubectl is not None, "kubectl is not on the path"
    try:
        await deployment.start()
        alone = await deferToThread(_alone, deployment.iri_target)
        argv = [kubectl, f"--kubeconfig={deployment.admin}", "apply", "-f", str(manifest)]
        watched = _Watched(deployment, MADE)
        began = time.perf_counter()
        applied: Deferred[Any] = deferToThread(
            subprocess.run, argv, check=True, capture_output=True
        )
        await watched.all_run
        took = time.perf_counter() - began
        await watched.reflector.stop()
        await applied
        print(
            f"  {MADE} machines: {took:.2f} s from kubectl apply, {alone:.2f} s by the runtime "
            f"alone ({took / alone:.2f}x)"
        )
    finally:
        await deployment.stop()


def main(directory: Path) -> None:
    """Run the whole benchmark."""

    async def measured() -> None:
        print("A poollet and its machines")
        for name, measure in (("made", made), ("held", held)):
            scratch = directory / name
            scratch.mkdir()
            await measure(scratch)

    run_reactor(measured)
