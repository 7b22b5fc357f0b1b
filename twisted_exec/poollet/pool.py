"""
Keep the MachinePool object registered, with its addresses, classes and heartbeat.

A heartbeat renews the pool's Lease and the condition Ready, which is True only if the runtime
answered. A deleted pool is registered again, because its machines still run here.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec import build
from twisted_exec.api.conditions import with_conditions
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.status import APIError, Conflict, Forbidden, GatewayTimeout, NotFound
from twisted_exec.api.times import timestamp
from twisted_exec.control.backoff import Backoff
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.metrics import QueueMetrics
from twisted_exec.control.queue import Again
from twisted_exec.iri.interfaces import IMachineRuntime
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.heartbeat_lease import Lease
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.poollet.class_matching import offered_for as offered_for
from twisted_exec.poollet.machines.conditions import READY

HEARTBEAT_SECONDS = 10.0
LOOK_SECONDS = 5.0
RUNTIME_SECONDS = 5.0
SOON_SECONDS = 0.2
_EARLY_SECONDS = 0.5
"""Timers fire a little early or late; heartbeats should rather be early."""

Address = tuple[str, str]
"""Address type, as in MachinePools, and address."""


def default_addresses(bound_host: str) -> list[Address]:
    """
    Return the addresses of this host, for a poollet without ``--addresses``.

    :param bound_host: the listening address; all zeros or empty for all addresses.
    """
    name = socket.gethostname()
    chosen = bound_host if _is_one_address(bound_host) else _own_address()
    addresses = [("InternalIP", chosen)] if chosen else []
    return [*addresses, ("InternalDNS", name), ("Hostname", name)]


def _is_one_address(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # UDP: chooses a route and sends nothing
            host_address = str(probe.getsockname()[0])
        except OSError:
            return ""
    address = ipaddress.ip_address(host_address)
    return "" if address.is_loopback or address.is_link_local else host_address


class Pool:
    """
    Keeps one MachinePool registered and up to date.

    :param on_runtime: called with the runtime's name at its first answer.
    :param on_current: called when the pool's status has become up to date.
    """

    _log = Logger()

    def __init__(
        self,
        client: IKubeClient,
        runtime: IMachineRuntime,
        clock: IReactorTime,
        *,
        dialect: Dialect,
        name: str,
        provider_id: str,
        machines: Callable[[], Iterable[Object]],
        classes: Callable[[], Iterable[Object]],
        pool: Callable[[], Object | None],
        on_runtime: Callable[[str], None],
        on_current: Callable[[], None] = lambda: None,
        on_offer: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.time,
        metrics: QueueMetrics | None = None,
    ) -> None:
        self._client, self._runtime, self._clock, self._now = client, runtime, clock, now
        self._dialect, self.name, self._provider_id = dialect, name, provider_id
        self._machines, self._classes, self._pool = machines, classes, pool
        self._on_runtime, self._on_current, self._on_offer = on_runtime, on_current, on_offer
        self.lease = Lease(client, dialect.lease_namespace, name, now)
        self.offered: pb.StatusResponse | None = None
        self._runtime_name = ""
        self._addresses: Sequence[Address] = ()
        self._port = 0
        self._next_beat = 0.0
        self._loop = PokedLoop(
            self._look,
            clock,
            LOOK_SECONDS,
            soon_seconds=SOON_SECONDS,
            refused=self._refused,
            backoff=lambda: Backoff(longest_seconds=HEARTBEAT_SECONDS),
            metrics=metrics,
        )
        self.problem = "the pool is not registered yet"
        self.runtime_problem = "the machine runtime has not answered yet"

    def start(self, addresses: Sequence[Address], port: int) -> None:
        """Register the pool and keep it up to date until :meth:`stop`."""
        self._addresses, self._port = addresses, port
        self._loop.start()

    def stop(self) -> Deferred[None]:
        """Stop; fires when nothing is under way."""
        return self._loop.stop()

    def poke(self) -> None:
        """Write the status soon, because something in it has changed."""
        self._next_beat = 0.0
        self._loop.poke()

    async def _look(self) -> None:
        """
        Ask the runtime and write changes to the API server.

        :raises Again: the runtime does not answer.
        :raises APIError: the API server does not.
        """
        answered = not self.runtime_problem
        try:
            offered = await self._ask_runtime()
            self._runtime_answers("")
        except APIError as error:
            offered = None
            self._runtime_answers(error.message)
        news = self._offers(offered) or answered != (offered is not None)
        if news or self.problem or self._clock.seconds() >= self._next_beat:
            # Set first: a change during the write gets a write of its own.
            self._next_beat = self._clock.seconds() + HEARTBEAT_SECONDS - _EARLY_SECONDS
            await self._write_status(offered)
            self._pool_checked("")
            await self.lease.renew()
        if offered is None:
            raise Again

    def _refused(self, error: APIError, failures: int) -> None:
        problem = error.message
        if error.code == Forbidden.code:
            role = self._dialect.pool_identity_group
            problem += (
                f"; use the kubeconfig that twisted-exec pki poollet --pool {self.name} writes, or bind "
                f"the ClusterRole {role} to this user"
            )
        self._pool_checked(problem)

    def _offers(self, offered: pb.StatusResponse | None) -> bool:
        if offered is None or offered == self.offered:
            return False
        self.offered = offered
        self._on_offer()
        return True

    async def _ask_runtime(self) -> pb.StatusResponse:
        try:
            if not self._runtime_name:
                pending = self._runtime.version(pb.VersionRequest())
                version = await pending.addTimeout(RUNTIME_SECONDS, self._clock)
                self._runtime_name = version.runtime_name or "unknown"
                self._on_runtime(self._runtime_name)
            status = self._runtime.status(pb.StatusRequest())
            return await status.addTimeout(RUNTIME_SECONDS, self._clock)
        except TimeoutError:
            raise GatewayTimeout("the machine runtime does not answer") from None

    def _runtime_answers(self, problem: str) -> None:
        if problem and problem != self.runtime_problem:
            self._log.warn("pool {name}: {why}", name=self.name, why=problem)
        self.runtime_problem = problem

    def _pool_checked(self, problem: str) -> None:
        if problem and problem != self.problem:
            self._log.warn("pool {name} cannot be kept current: {why}", name=self.name, why=problem)
        became_current = bool(self.problem) and not problem
        self.problem = problem
        if became_current:
            self._log.info("pool {name} is registered", name=self.name)
            self._on_current()

    async def _write_status(self, offered: pb.StatusResponse | None) -> None:
        pool = await self._registered()
        patch = {"status": self._status(pool.get("status") or {}, offered)}
        await self._client.patch(self._dialect.pool, self.name, patch, subresource="status")

    async def _registered(self) -> Object:
        pool = self._pool()
        if pool is None:
            try:
                pool = await self._client.get(self._dialect.pool, self.name)
            except APIError as error:
                if error.code != NotFound.code:
                    raise
                body = {"metadata": {"name": self.name}, "spec": {"providerID": self._provider_id}}
                return await self._client.create(self._dialect.pool, body)
        provider_id = (pool.get("spec") or {}).get("providerID", "")
        if not provider_id:
            patch = {"spec": {"providerID": self._provider_id}}
            return await self._client.patch(self._dialect.pool, self.name, patch)
        if provider_id != self._provider_id:
            raise Conflict(
                f'{self._dialect.pool.qualified} "{self.name}" has providerID {provider_id}, '
                f"not {self._provider_id}: another poollet's pool, or a wrong --provider-id"
            )
        return pool

    def _status(self, pool: Object, offered: pb.StatusResponse | None) -> Object:
        now = timestamp(self._now())
        status: Object = {
            "addresses": [{"type": kind, "address": address} for kind, address in self._addresses],
            "daemonEndpoints": {self._dialect.endpoint_field: {"port": self._port}},
        }
        if offered is None:
            ready = ("False", "RuntimeUnreachable", self.runtime_problem)
            status["state"] = "Error"
        else:
            ready = ("True", "HeartbeatReceived", f"exec-poollet {build()}")
            status["state"] = "Ready"
            status |= self._offer(pool, offered)
        conditions = with_conditions(pool.get("conditions") or [], {READY: ready}, now)
        for condition in conditions:
            if condition["type"] == READY:
                condition["lastUpdateTime"] = now
        status["conditions"] = conditions
        return status

    def _offer(self, pool: Object, offered: pb.StatusResponse) -> Object:
        quantities = {}
        for known_class in self._classes():
            match = offered_for(known_class, offered)
            if match is not None:
                quantities[known_class["metadata"]["name"]] = match.quantity
        prefix = self._dialect.capacity_prefix
        used = Counter(
            machine["spec"][self._dialect.class_reference]["name"] for machine in self._machines()
        )
        capacity = {prefix + name: str(number) for name, number in quantities.items()}
        free = {
            prefix + name: str(max(0, number - used[name])) for name, number in quantities.items()
        }
        listed = [{"name": name} for name in sorted(quantities)]
        field_name = self._dialect.classes_field
        return {
            **({field_name: listed} if field_name else {}),
            "capacity": _replacement_patch(pool.get("capacity") or {}, capacity),
            "allocatable": _replacement_patch(pool.get("allocatable") or {}, free),
        }


def _replacement_patch(existing: Mapping[str, Any], desired: Mapping[str, Any]) -> Object:
    """Return a merge patch whose result is exactly ``desired``."""
    return {**dict.fromkeys(existing), **desired}
