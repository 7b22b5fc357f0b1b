"""
From rates to counters, without I/O.

A leaf's metrics API tells how much processor time something took *per second*, over a window that
ended at a moment.  A kubelet tells how much it took *in all* since a moment, and whoever reads it
(metrics-server, Prometheus) makes a rate of two such readings.  So what a leaf tells is added up here:

* The count begins where the first window begins, with next to nothing, and that is its start time:
  a kubelet's start time, too, is "the time at which data collection was (re)started".
* With each new moment it grows by the newest rate times the time since the moment before.  A reader who
  comes with each moment gets the leaf's own rates back; one who comes less often, the newest.
* A thing that was started again, or was not looked at for long, is counted anew, with a later start.
* A moment that is known already, or is older, changes nothing.

No count ever falls without a later start.  Two replicas count each for itself, from different starts;
readers who compare starts, as metrics-server does for containers, never take the difference of two
replicas for more than was used.

Sources: ``k8s.io/metrics/pkg/apis/metrics/v1beta1``; ``k8s.io/kubelet/pkg/apis/stats/v1alpha1``;
``pkg/storage/{pod,node,types}.go`` of metrics-server.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass

NANOSECONDS = 10**9

LEAST = 1000
"""
Core-nanoseconds that a count begins with.  Whatever runs has used something, though a rate may be
rounded to nothing; readers take a count of 0 for one that is missing, and drop the whole Pod.
"""

LONGEST_SECONDS = 600
"""Between two moments; what was used in a longer time nobody knows."""


@dataclass(frozen=True)
class Sample:
    """
    What a leaf tells of one thing.

    :param at: the end of the window, in nanoseconds since the epoch.
    :param window: its length, in nanoseconds.
    :param nanocores: processor time per time in it, in billionths.
    :param memory_bytes: the working set.
    """

    at: int
    window: int
    nanocores: int
    memory_bytes: int


@dataclass(frozen=True)
class Counted:
    """
    One thing as a kubelet tells it.

    :param started: when the count began, in nanoseconds since the epoch.
    :param core_nanoseconds: used since then.
    :param since: not before when it can have used anything, as its leaf told.
    """

    started: int
    core_nanoseconds: int
    sample: Sample
    since: int = 0


class Counts:
    """What has been counted of a leaf, by whatever names its things."""

    def __init__(self) -> None:
        self._counted: dict[Hashable, Counted] = {}

    def __len__(self) -> int:
        return len(self._counted)

    def take(self, key: Hashable, sample: Sample, since: int = 0) -> Counted:
        """
        The count of a thing, with a sample that may be new.

        :param since: when the thing was started, in nanoseconds since the epoch; 0 where that is
            not known.
        """
        previous = self._counted.get(key)
        if previous is None:
            counted = _begun(sample, since)
        elif previous.since != since and sample.at >= previous.sample.at:
            counted = _begun(sample, since, previous.sample.at)
        else:
            counted = _gone_on(previous, sample)
        self._counted[key] = counted
        return counted

    def keep(self, keys: Collection[Hashable]) -> None:
        """Forget all others."""
        for key in self._counted.keys() - set(keys):
            del self._counted[key]


def _begun(sample: Sample, since: int, after: int = 0) -> Counted:
    started = min(max(sample.at - sample.window, since, after), sample.at)
    used = sample.nanocores * (sample.at - started) // NANOSECONDS
    return Counted(started, LEAST + used, sample, since)


def _gone_on(previous: Counted, sample: Sample) -> Counted:
    elapsed = sample.at - previous.sample.at
    if elapsed <= 0:
        return previous
    if elapsed > LONGEST_SECONDS * NANOSECONDS:
        return _begun(sample, previous.since, previous.sample.at)
    used = previous.core_nanoseconds + sample.nanocores * elapsed // NANOSECONDS
    return Counted(previous.started, used, sample, previous.since)
