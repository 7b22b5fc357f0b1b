"""
Two who say where a Node is reached: who overwrites us is noticed, told of, and given way to.

We write ever less often then: two who write in turns would help nobody, and each write makes every
copy of the Node in the root's cluster another one.
"""

from __future__ import annotations

from twisted_exec.kube.informers.reflector import Backoff
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.nodes.plan import is_our_address

ADDRESS_CONFLICT = 3
"""How often somebody may write other addresses before we write less often."""
FIRST_SECONDS = 10.0
LONGEST_SECONDS = 300.0


class AddressConflict:
    """
    Whether somebody else writes where we are said to be, and how often we answer.

    :param own: how many addresses are ours.
    :ivar quiet_until: nothing of it is written before.
    """

    def __init__(self, own: int) -> None:
        self.quiet_until = 0.0
        self._own, self._times = own, 0
        self._written: Object | None = None
        self._before = ""
        self._backoff = Backoff(FIRST_SECONDS, LONGEST_SECONDS)

    def wrote(self, stored: Object, before: str) -> None:
        """
        We did.

        :param before: the version that the Node had until then.
        """
        self._written, self._before = stored.get("status") or {}, before

    def is_reported(self, observed: Object, now: float) -> bool:
        """Somebody has overwritten us, once more than may be by accident."""
        if self._written is None or now < self.quiet_until:
            return False
        # A copy may be as old as what we changed; it is not older, or we had got a conflict.
        if observed["metadata"].get("resourceVersion") == self._before:
            return False
        if is_our_address(observed.get("status") or {}, self._written, self._own):
            return False
        self._written, self._times = None, self._times + 1
        if self._times < ADDRESS_CONFLICT:
            return False
        self.quiet_until = now + self._backoff.pause()
        return True
