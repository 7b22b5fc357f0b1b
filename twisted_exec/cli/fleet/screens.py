"""
The screens of many machines, each read again at a pace that follows its changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError
from twisted_exec.cli.explanations import hindrance
from twisted_exec.cli.fleet.tile_drawing import ScreenText
from twisted_exec.cli.messages import one_line
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.tls.errors import TLSConfigError

CONCURRENT = 8
"""Requests at the same time to one cluster."""
CHANGING_SECONDS = 1.0
"""Pause before the next look at a screen that has changed; it doubles while the screen stays the same."""
QUIET_SECONDS = 4.0
"""Longest pause before the next look."""
FAILED_SECONDS = 5.0
"""Pause after a look that failed."""
ECHO_SECONDS = 0.1
"""Delay of the next look after output that a user who types may wait for."""

Fetch = Callable[[int], "Deferred[ScreenText]"]
"""Returns the screen of a machine, by its index."""


@dataclass
class _Look:
    screen: ScreenText | None = None
    problem: str = ""
    seconds: float = CHANGING_SECONDS
    timer: IDelayedCall | None = None
    running: Deferred[ScreenText] | None = None
    is_stale: bool = False


class FleetScreens:
    """
    Looks at machines.

    :param changed: called with the index after each change.
    :param cluster_of: returns the name of a machine's cluster, by its index.  Each cluster has its own
        limit of concurrent requests.
    """

    def __init__(
        self,
        fetch: Fetch,
        clock: IReactorTime,
        changed: Callable[[int], None],
        cluster_of: Callable[[int], str] = lambda index: "",
    ) -> None:
        self._fetch, self._clock, self._changed = fetch, clock, changed
        self._cluster_of = cluster_of
        self._turns = defaultdict[str, DeferredSemaphore](partial(DeferredSemaphore, CONCURRENT))
        self._looks: dict[int, _Look] = {}
        self._shown: set[int] = set()

    def screen(self, index: int) -> tuple[ScreenText | None, str]:
        """Return the last screen of a machine, and the problem of the last look at it, or empty."""
        look = self._looks.get(index)
        return (None, "") if look is None else (look.screen, look.problem)

    @property
    def failed(self) -> int:
        """Number of machines whose last look failed."""
        return sum(bool(look.problem) for look in self._looks.values())

    def show(self, indices: Iterable[int]) -> None:
        """Look at these machines, and at no others."""
        before, self._shown = self._shown, set(indices)
        for index in before - self._shown:
            look = self._looks[index]
            _cancel(look)
        for index in self._shown - before:
            look = self._looks.setdefault(index, _Look())
            look.seconds = CHANGING_SECONDS
            self._look(index)

    def printed(self, index: int) -> None:
        """The machine has printed something that its user may wait for."""
        look = self._looks.get(index)
        if index not in self._shown or look is None:
            return
        look.seconds = CHANGING_SECONDS
        if look.running is not None:
            look.is_stale = True
        else:
            self._look_after(index, ECHO_SECONDS)

    def close(self) -> None:
        """Stop looking."""
        self.show(())

    def _look_after(self, index: int, seconds: float) -> None:
        look = self._looks[index]
        if look.timer is not None:
            if look.timer.getTime() <= self._clock.seconds() + seconds:
                return
            look.timer.cancel()
        look.timer = self._clock.callLater(seconds, self._look, index)

    def _look(self, index: int) -> None:
        look = self._looks[index]
        look.timer, look.is_stale = None, False
        turns = self._turns[self._cluster_of(index)]
        look.running = running = turns.run(self._fetch, index)
        running.addCallbacks(
            self._fetched, self._failed, callbackArgs=(index,), errbackArgs=(index,)
        )
        running.addErrback(lambda failure: failure.trap(CancelledError))

    def _fetched(self, screen: ScreenText, index: int) -> None:
        look = self._looks[index]
        is_same = look.screen == screen
        # Not a Backoff: nothing has failed, and a pause cut at random would only read more often.
        look.seconds = min(2 * look.seconds, QUIET_SECONDS) if is_same else CHANGING_SECONDS
        had_problem, look.problem = look.problem, ""
        look.screen = screen
        self._next(index, look.seconds)
        if not is_same or had_problem:
            self._changed(index)

    def _failed(self, failure: Failure, index: int) -> Failure | None:
        error = failure.value
        if isinstance(error, CancelledError):
            return failure
        if isinstance(error, APIError | KubeConfigError):
            problem = hindrance(error)
        elif isinstance(error, TLSConfigError | ValueError):
            problem = str(error)
        else:
            problem = f"internal error: {type(error).__name__}: {error}"
        self._looks[index].problem = one_line(problem)
        self._next(index, FAILED_SECONDS)
        self._changed(index)
        return None

    def _next(self, index: int, seconds: float) -> None:
        look = self._looks[index]
        look.running = None
        if index in self._shown:
            self._look_after(index, ECHO_SECONDS if look.is_stale else seconds)


def _cancel(look: _Look) -> None:
    running, look.running = look.running, None
    if running is not None:
        running.cancel()
    timer, look.timer = look.timer, None
    if timer is not None:
        timer.cancel()
