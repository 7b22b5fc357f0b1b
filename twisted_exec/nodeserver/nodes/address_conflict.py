"""Conflicts with another writer of a Node's addresses."""

from __future__ import annotations

from twisted_exec.control.backoff import Backoff
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.nodes.plan import is_our_address

ADDRESS_CONFLICT = 3
"""Foreign writes before corrections become rarer."""
FIRST_SECONDS = 10.0
LONGEST_SECONDS = 300.0
CALM_SECONDS = 3600.0
"""After this time without foreign writes, earlier ones no longer count."""


class AddressConflict:
    """
    Detects another writer of a Node's addresses and spaces out our corrections.

    :ivar quiet_until: no correction is written before this time.
    """

    def __init__(self, own: int) -> None:
        self.quiet_until = 0.0
        self._own, self._times, self._seen_at = own, 0, 0.0
        self._written: Object | None = None
        self._before = ""
        self._backoff = Backoff(FIRST_SECONDS, LONGEST_SECONDS)

    def wrote(self, stored: Object, before: str) -> None:
        """
        Record a write of ours.

        :param before: the Node's resourceVersion until then.
        """
        self._written, self._before = stored.get("status") or {}, before

    def observe(self, observed: Object, now: float) -> bool:
        """Look for a foreign write, and count it; return whether to report a conflict."""
        if self._written is None or now < self.quiet_until:
            return False
        # The copy may still show the version before our write. It cannot be older, or the write
        # would have failed with a conflict.
        if observed["metadata"].get("resourceVersion") == self._before:
            return False
        if is_our_address(observed.get("status") or {}, self._written, self._own):
            return False
        if now - self._seen_at > CALM_SECONDS:
            self._times = 0
            self._backoff.reset()
        self._written, self._times, self._seen_at = None, self._times + 1, now
        if self._times < ADDRESS_CONFLICT:
            return False
        self.quiet_until = now + self._backoff.pause()
        return True
