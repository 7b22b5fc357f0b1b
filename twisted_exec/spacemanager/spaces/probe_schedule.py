"""
The schedule of probes: each kubeconfig is probed again, less often while it cannot be reached.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.control.backoff import Backoff
from twisted_exec.control.metrics import QueueMetrics
from twisted_exec.control.queue import Again, WorkQueue
from twisted_exec.kube.informers import Key
from twisted_exec.spacemanager.spaces.observation import ProbeResult
from twisted_exec.spacemanager.spaces.probes import Contents, Probe, digest_of

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
        clock: IReactorTime,
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
