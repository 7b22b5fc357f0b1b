"""
Probes of kubeconfigs: requests that show whether a kubeconfig gives access.

Source: ``pkg/registry/authentication/selfsubjectreview`` of Kubernetes; an access review replaces
it on older servers.
"""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger

from twisted_exec.api.conditions import ConditionValue
from twisted_exec.api.kinds.reviews import SELFSUBJECTACCESSREVIEWS, SELFSUBJECTREVIEWS
from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import VIEWPOINTS
from twisted_exec.api.status import APIError, one_line
from twisted_exec.control.backoff import Backoff
from twisted_exec.control.metrics import QueueMetrics
from twisted_exec.control.queue import Again, WorkQueue
from twisted_exec.kube.informers import Key
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.transport import HTTPTransport, Request
from twisted_exec.spacemanager import PROGRAM
from twisted_exec.spacemanager.spaces.observation import (
    ProbeResult,
    may_verdict,
    ready_verdict,
    unreachable,
    unusable,
    version_of,
    who_verdict,
)
from twisted_exec.spacemanager.spaces.secrets import digest
from twisted_exec.spaces import kubeconfigs

SECONDS = 8.0
"""Timeout per request; each kubeconfig is probed with at most four."""
_LIMIT_BYTES = 64 << 10

Contents = Mapping[str, bytes]
"""Kubeconfigs by viewpoint."""
Probe = Callable[[Contents, str], Awaitable[ProbeResult]]
"""Probes kubeconfigs, given a name for messages.  The result also says what failed."""


def digest_of(contents: Contents) -> str:
    """Return a digest that identifies the kubeconfigs."""
    return digest(b"\0".join(part for each in sorted(contents.items()) for part in _parts(*each)))


def _parts(viewpoint: str, content: bytes) -> tuple[bytes, bytes]:
    return viewpoint.encode(), content


def prober(reactor: Any) -> Probe:
    """Return the real probe."""

    async def probe(contents: Contents, what: str) -> ProbeResult:
        stamp, worst = digest_of(contents), None
        for viewpoint in VIEWPOINTS:
            if viewpoint in contents:
                source = f"{what} ({viewpoint})"
                result = await _probe(contents[viewpoint], source, stamp, reactor)
                if result.answers:
                    return result
                worst = worst or result
        return worst or unreachable(stamp, "there is no kubeconfig")

    return probe


async def _probe(content: bytes, source: str, stamp: str, reactor: Any) -> ProbeResult:
    try:
        config = kubeconfigs.config_of(content, source)
    except KubeConfigError as error:
        return unusable(stamp, str(error))
    transport = HTTPTransport(
        config, reactor, connect_seconds=SECONDS, agent=PROGRAM, peer="the physical space"
    )
    try:
        return await _request_all(transport, stamp)
    except (APIError, KubeConfigError) as error:
        message = error.message if isinstance(error, APIError) else str(error)
        return unreachable(stamp, one_line(message)[:300])
    finally:
        transport.close()  # the connection is idle now


async def _request_all(transport: HTTPTransport, stamp: str) -> ProbeResult:
    valid = await _who(transport)
    if valid[0] != "True":
        unknown = ("Unknown", "NotProbed", "without access, readiness is unknown")
        return ProbeResult(stamp, valid, unknown if valid[0] == "False" else valid)
    ready = ready_verdict((await _get(transport, "/readyz"))[0])
    return ProbeResult(stamp, valid, ready, version_of(*await _get(transport, "/version")))


async def _who(transport: HTTPTransport) -> ConditionValue:
    verdict = who_verdict(*await _review(transport, SELFSUBJECTREVIEWS.resource, {}))
    if verdict is not None:
        return verdict
    review = {"spec": {"nonResourceAttributes": {"path": "/version", "verb": "get"}}}
    return may_verdict(*await _review(transport, SELFSUBJECTACCESSREVIEWS.resource, review))


async def _review(
    transport: HTTPTransport, resource: Resource, more: Mapping[str, Any]
) -> tuple[int, bytes]:
    review = {"apiVersion": resource.api_version, "kind": resource.kind, **more}
    body = json.dumps(review).encode()
    return await _ask(transport, Request("POST", resource.path(), body, repeatable=True))


async def _get(transport: HTTPTransport, target: str) -> tuple[int, bytes]:
    return await _ask(transport, Request("GET", target, repeatable=True))


async def _ask(transport: HTTPTransport, request: Request) -> tuple[int, bytes]:
    code, _, answer = await transport.collect(
        request, timeout_seconds=SECONDS, limit_bytes=_LIMIT_BYTES
    )
    return code, answer


PROBE_SECONDS = 600.0
"""Interval between probes of a healthy Space."""
FIRST_SECONDS, LONGEST_SECONDS = 2.0, 120.0
"""Limits of the back-off between probes of any other Space."""
AT_ONCE = 8
"""Limit for concurrent probes of one provider's Spaces, or of one namespace's imported Spaces."""


@dataclass
class _Entry:
    digest: str
    contents: Contents
    what: str
    provider: str
    in_no_hurry: bool = False
    was_away: bool = False
    result: ProbeResult | None = None


class ProbeSchedule:
    """
    Probes the kubeconfigs of Spaces.

    Concurrent probes are limited per provider, so that a provider whose spaces all time out does
    not delay others. Healthy spaces are probed again regularly, others sooner, with back-off.
    """

    _log = Logger()

    def __init__(
        self,
        probe: Probe,
        clock: Any,
        changed: Callable[[Key], None],
        rng: random.Random | None = None,
        metrics: QueueMetrics | None = None,
    ) -> None:
        self._metrics = metrics
        self._probe, self._clock, self._changed = probe, clock, changed
        self._random = rng or random.Random()
        self._entries: dict[Key, _Entry] = {}
        self._queues: dict[str, WorkQueue[Key]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def look(
        self,
        key: Key,
        contents: Contents,
        what: str,
        provider: str,
        *,
        was_well: bool = False,
        is_away: bool = False,
    ) -> ProbeResult | None:
        """
        Return the last result for a Space's kubeconfigs, or ``None``; a probe is scheduled if they
        are new.

        :param was_well: an earlier leader found them healthy, so the first probe is not urgent.
        :param is_away: there is no provider, or it reports that the physical space is not usable.
        """
        if not contents:
            self.forget(key)
            return None
        stamp, entry = digest_of(contents), self._entries.get(key)
        if entry is not None and entry.digest == stamp:
            if entry.in_no_hurry and not was_well:
                entry.in_no_hurry = False  # no longer healthy
                self.again(key)
            is_back, entry.was_away = entry.was_away and not is_away, is_away
            if is_back:
                entry.result = None
                self.again(key)
                return None
            return entry.result
        was_well = was_well and entry is None
        self.forget(key)
        entry = self._entries[key] = _Entry(stamp, contents, what, provider, was_well)
        seconds = self._random.uniform(0.0, PROBE_SECONDS) if was_well else 0.0
        self._queue_of(provider).add_after(key, seconds)
        return None

    def is_refused(self, key: Key) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.result is not None and entry.result.is_refused

    def again(self, key: Key) -> None:
        """Probe a Space now; a probe under way may be too early, so another follows it."""
        entry = self._entries.get(key)
        if entry is not None:
            self._queue_of(entry.provider).hurry(key)

    def forget(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            queue = self._queue_of(entry.provider)
            queue.forget(key, cancel=True)
            if not len(queue):
                del self._queues[entry.provider]  # or deleted providers would accumulate

    def stop(self) -> Deferred[Any]:
        """Stop all probes; fires when none is under way."""
        self._entries.clear()
        return DeferredList([each.stop() for each in self._queues.values()])

    def _queue_of(self, provider: str) -> WorkQueue[Key]:
        if provider not in self._queues:
            self._queues[provider] = WorkQueue(
                self._once,
                self._clock,
                workers=AT_ONCE,
                backoff=lambda: Backoff(FIRST_SECONDS, LONGEST_SECONDS, self._random),
                metrics=self._metrics,
            )
        return self._queues[provider]

    async def _once(self, key: Key) -> float | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.in_no_hurry = False
        before = entry.result
        entry.result = result = await self._probe(entry.contents, entry.what)
        if result != before:
            self._changed(key)
        if result.lives and result.ready[0] == "True":
            return PROBE_SECONDS * self._random.uniform(0.9, 1.1)
        raise Again
