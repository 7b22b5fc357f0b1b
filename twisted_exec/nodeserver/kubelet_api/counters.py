"""CPU time that never decreases, counted from samples of its rate."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass

NANOSECONDS = 10**9

LEAST = 1000
"""
Initial value of a counter, in core-nanoseconds.  A running container has used something, even if
its rate is rounded to 0; readers treat a counter of 0 as missing and drop the whole Pod.
"""

LONGEST_SECONDS = 600
"""Limit between two samples; usage over a longer gap is unknown."""


@dataclass(frozen=True)
class Sample:
    """
    Usage of one container or node, as its leaf reports it.

    :param at: end of the window, in nanoseconds since the epoch.
    :param window: its length, in nanoseconds.
    :param nanocores: average CPU usage in it, in billionths of a core.
    """

    at: int
    window: int
    nanocores: int
    memory_bytes: int


@dataclass(frozen=True)
class Counter:
    """
    Usage of one container or node, as a kubelet reports it.

    :param started: start time of the counter, in nanoseconds since the epoch.
    :param core_nanoseconds: CPU time since then.
    :param since: when the container started according to its leaf, in nanoseconds since the epoch;
        0 if unknown.
    """

    started: int
    core_nanoseconds: int
    sample: Sample
    since: int = 0


class Counters:
    """
    The counters of a leaf.

    A leaf's metrics API reports CPU time *per second*, a kubelet the *total* since a start time, so
    the leaf's rates are integrated here. A container that restarted, or was not sampled for long,
    gets a new counter with a later start.

    Sources: ``k8s.io/metrics/pkg/apis/metrics/v1beta1``;
    ``k8s.io/kubelet/pkg/apis/stats/v1alpha1``.
    """

    def __init__(self) -> None:
        self._counted: dict[Hashable, Counter] = {}

    def __len__(self) -> int:
        return len(self._counted)

    def take(self, key: Hashable, sample: Sample, since: int = 0) -> Counter:
        """
        Return the counter of a container or node, updated with a sample.

        :param since: when it started, in nanoseconds since the epoch; 0 if unknown.
        """
        previous = self._counted.get(key)
        if previous is None:
            counted = _new_counter(sample, since)
        elif previous.since != since and sample.at >= previous.sample.at:
            counted = _new_counter(sample, since, previous.sample.at)
        else:
            counted = _advance(previous, sample)
        self._counted[key] = counted
        return counted

    def keep(self, keys: Collection[Hashable]) -> None:
        for key in self._counted.keys() - set(keys):
            del self._counted[key]


def _new_counter(sample: Sample, since: int, after: int = 0) -> Counter:
    started = min(max(sample.at - sample.window, since, after), sample.at)
    used = sample.nanocores * (sample.at - started) // NANOSECONDS
    return Counter(started, LEAST + used, sample, since)


def _advance(previous: Counter, sample: Sample) -> Counter:
    elapsed = sample.at - previous.sample.at
    if elapsed <= 0:
        return previous
    if elapsed > LONGEST_SECONDS * NANOSECONDS:
        return _new_counter(sample, previous.since, previous.sample.at)
    used = previous.core_nanoseconds + sample.nanocores * elapsed // NANOSECONDS
    return Counter(previous.started, used, sample, previous.since)
