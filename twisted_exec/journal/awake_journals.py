"""
The journals of a store that have a descriptor, or output in memory: few, although many may be in use.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from twisted_exec.journal.journal import Journal
from twisted_exec.journal.lifetime import Lifetime
from twisted_exec.program.descriptors import descriptor_limit

_QUIET_SECONDS, _QUIET_PASSES = 5.0, 12


class AwakeJournals:
    """
    Closes descriptors of the journals that were quiet the longest, and lets quiet journals rest.

    :param journals: by their keys, also those that are not awake.
    """

    def __init__(self, lifetime: Lifetime, journals: Mapping[str, Journal]) -> None:
        self._lifetime, self._journals = lifetime, journals
        self._written: OrderedDict[Journal, None] = OrderedDict()
        self._quiet_passes: dict[Journal, int] = {}
        self._open_limit = max(16, min(1024, descriptor_limit() // 8))

    def begin(self) -> None:
        self._lifetime.later(_QUIET_SECONDS, self._pass)

    def _pass(self) -> None:
        self.begin()
        before, self._quiet_passes = self._quiet_passes, {}
        for journal in self._journals.values():
            if journal.is_dirty or not journal.is_awake:
                continue
            self._quiet_passes[journal] = passes = before.get(journal, 0) + 1
            if passes >= _QUIET_PASSES:
                journal.rest()
                self._written.pop(journal, None)

    def changed(self, journal: Journal) -> None:
        """Close another descriptor, if this one is one too many."""
        self._written[journal] = None
        self._written.move_to_end(journal)
        if len(self._written) > self._open_limit:
            quiet, _ = self._written.popitem(last=False)
            quiet.close_descriptor()
