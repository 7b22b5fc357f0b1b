"""
When the kubeconfigs of Spaces are probed, and what was found out last.

New ones at once, as soon as there is a turn: those of one provider share turns, so that one whose spaces are
all silent keeps no other's waiting.  What was found to be well is probed again now and then, spread over the
time; what was not, soon, and ever less often.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredList, DeferredSemaphore
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.kube.informers.reflector import Backoff, Key
from twisted_exec.spacemanager.probes.probe import Contents, Probe, digest_of
from twisted_exec.spacemanager.probes.verdicts import ProbeResult

PROBE_SECONDS = 600.0
"""Between two probes of what is well."""
FIRST_SECONDS, LONGEST_SECONDS = 2.0, 120.0
"""Between two probes of what is not."""
AT_ONCE = 8
"""Probes under way of one provider's Spaces."""


@dataclass
class _Kept:
    """What is known of one Space's kubeconfigs."""

    digest: str
    contents: Contents
    what: str
    provider: str
    backoff: Backoff
    in_no_hurry: bool = False
    was_away: bool = False
    found: ProbeResult | None = None
    timer: IDelayedCall | None = None
    running: Deferred[None] | None = None


class Probes:
    """
    :param changed: called with the Space of which something else was found.
    """

    _log = Logger()

    def __init__(
        self,
        probe: Probe,
        clock: Any,
        changed: Callable[[Key], None],
        rng: random.Random | None = None,
    ) -> None:
        self._probe, self._clock, self._changed = probe, clock, changed
        self._random = rng or random.Random()
        self._kept: dict[Key, _Kept] = {}
        self._slots: dict[str, DeferredSemaphore] = {}

    def __len__(self) -> int:
        return len(self._kept)

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
        What is known of a Space's kubeconfigs; of new ones nothing yet, and it is found out.

        :param what: to call it in messages.
        :param was_well: they were found to be well by somebody before us: there is no hurry.
        :param is_away: the provider says that what they lead to cannot be used.  When it can be, what was found before
            counts no more.
        """
        if not contents:
            self.forget(key)
            return None
        stamp, known = digest_of(contents), self._kept.get(key)
        if known is not None and known.digest == stamp:
            if known.in_no_hurry and not was_well:
                known.in_no_hurry = False  # it was well, and is not any more
                self.again(key)
            if known.was_away and not is_away:
                known.found = None
                self.again(key)
            known.was_away = is_away
            return known.found
        self.forget(key)
        backoff = Backoff(FIRST_SECONDS, LONGEST_SECONDS, self._random)
        kept = self._kept[key] = _Kept(stamp, contents, what, provider, backoff)
        kept.in_no_hurry = was_well
        self._begin_in(key, kept, self._random.uniform(0.0, PROBE_SECONDS) if was_well else 0.0)
        return None

    def is_refused(self, key: Key) -> bool:
        """A Space's credentials were found not to be good."""
        kept = self._kept.get(key)
        return kept is not None and kept.found is not None and kept.found.is_refused

    def again(self, key: Key) -> None:
        """Look now, for something may have become other."""
        kept = self._kept.get(key)
        if kept is not None and kept.timer is not None:
            kept.timer.reset(0.0)

    def forget(self, key: Key) -> None:
        """There is nothing to be probed any more."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._end(kept)

    def stop(self) -> Deferred[Any]:
        """Fires when no probe is under way."""
        ending = [kept.running for kept in self._kept.values() if kept.running is not None]
        for key in list(self._kept):
            self.forget(key)
        return DeferredList(ending)

    def _end(self, kept: _Kept) -> None:
        if kept.timer is not None:
            kept.timer.cancel()
            kept.timer = None
        if kept.running is not None:
            kept.running.cancel()

    def _begin_in(self, key: Key, kept: _Kept, seconds: float) -> None:
        kept.timer = self._clock.callLater(seconds, self._begin, key, kept)

    def _begin(self, key: Key, kept: _Kept) -> None:
        kept.timer, kept.in_no_hurry = None, False
        slots = self._slots.setdefault(kept.provider, DeferredSemaphore(AT_ONCE))
        running: Deferred[None] = slots.run(lambda: Deferred.fromCoroutine(self._once(key, kept)))
        kept.running = running
        running.addErrback(self._failed, key, kept).addBoth(self._over, kept)

    async def _once(self, key: Key, kept: _Kept) -> None:
        if self._kept.get(key) is not kept:
            return  # it waited for its turn, and is over
        found = await self._probe(kept.contents, kept.what)
        before, kept.found = kept.found, found
        if found.lives and found.ready[0] == "True":
            kept.backoff.reset()
            pause = PROBE_SECONDS * self._random.uniform(0.9, 1.1)
        else:
            pause = kept.backoff.pause()
        self._begin_in(key, kept, pause)
        if found != before:
            self._changed(key)

    def _failed(self, failure: Failure, key: Key, kept: _Kept) -> None:
        if failure.check(CancelledError) or self._kept.get(key) is not kept:
            return
        self._log.failure("probing space {key} failed", failure, key="/".join(key))
        self._begin_in(key, kept, PROBE_SECONDS)

    def _over(self, _: object, kept: _Kept) -> None:
        kept.running = None
        slots = self._slots.get(kept.provider)
        if slots is not None and slots.tokens == slots.limit:
            del self._slots[kept.provider]  # namespaces and providers come and go
