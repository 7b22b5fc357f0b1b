"""
Base of controllers that carry objects to the machine runtime, and its reports back.

One loop sends the objects of the pool when they change; another lists the runtime's reports, with
calls that wait. A report is acknowledged after it is handled. A runtime that was restarted gets the
objects again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface.interface import InterfaceClass

from twisted_exec.api.status import APIError, NotImplementedByBackend, ServiceUnavailable
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.queue import Again, WorkQueue
from twisted_exec.kube.informers import Reflector

SEND_DELAY_SECONDS = 0.2
"""Changes within this time are sent together."""
WAIT_SECONDS = 20
"""Longest wait of a call for the next report."""
SHORT_SECONDS = 1.0
"""A runtime that answers earlier, and without a report, does not wait for reports."""
AGAIN_SECONDS = 1.0
"""From an unexpected failure of a report's handling to the next attempt."""
UNSUPPORTED_SECONDS = 60
"""Interval of calls to a runtime without the service."""
MOST_FAILING = 256
"""Reports that are kept because their handling fails unexpectedly."""


@dataclass(frozen=True)
class RuntimeReports:
    """
    Answer of the runtime to a list call.

    :param instance: of the runtime; numbers begin anew with each.
    :param generation: of the objects that it has, or empty.
    :param reports: messages with a ``number``, in order.
    """

    instance: str
    generation: str
    reports: Sequence[Any]


class RuntimeController:
    """
    Base of the controllers of alerts and of recordings.

    :param synced: returns whether everything else that the runtime needs is known.
    :param metrics: of the program's queues.
    """

    label: ClassVar[str]
    service: ClassVar[InterfaceClass]
    no_service: ClassVar[str]
    _log = Logger()

    def __init__(
        self,
        runtime: object,
        clock: IReactorTime,
        copy: Reflector,
        synced: Callable[[], bool],
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        self._runtime, self._clock = runtime, clock
        self._copy, self._synced = copy, synced
        self._is_supported = self.service.providedBy(runtime)
        self._sent = ""
        self._instance, self._acknowledged = "", 0
        self._problem = ""
        self._stopped = True
        self._failing: dict[Hashable, Any] = {}
        """Reports whose handling failed unexpectedly, the newest of each key."""
        name = self.label.replace(" ", "-")
        self._sending = PokedLoop(
            self._send_all, clock, soon_seconds=SEND_DELAY_SECONDS, metrics=metrics.of(name)
        )
        self._polling = PokedLoop(self._poll, clock, metrics=metrics.of(f"{name}-reports"))
        self._retrying: WorkQueue[Hashable] = WorkQueue(
            self._handle_again, clock, self._not_handled, metrics=metrics.of(f"{name}-reports")
        )

    # Implemented by subclasses.

    async def _send(self, sent: str) -> str:
        """
        Send the objects to the runtime, unless their generation is ``sent``.

        :return: their generation.
        :raises APIError: the runtime does not take them.
        """
        raise NotImplementedError

    async def _list_reports(self, instance: str, acknowledged: int) -> RuntimeReports:
        raise NotImplementedError

    async def _handle(self, report: Any) -> None:
        """:raises APIError: the API server fails; the report is handled again."""
        raise NotImplementedError

    def _key(self, report: Any) -> Hashable:
        """Return what a later report with the same key replaces."""
        raise NotImplementedError

    def _failed(self, report: Any, why: str) -> None:
        """Tell users of the object that a report is about that it cannot be handled."""
        raise NotImplementedError

    async def _unsupported(self) -> None:
        """
        Handle a runtime without the service.

        :raises APIError: the API server fails; the runtime is called again soon.
        """

    # The lifecycle.

    def start(self) -> None:
        """Start, once the runtime is known."""
        if not self._stopped:
            return
        self._stopped = False
        self._instance, self._acknowledged = "", 0
        self._copy.start()
        self._retrying.start()
        self._polling.start(None)
        self._sending.start(SEND_DELAY_SECONDS)

    def stop(self) -> Deferred[Any]:
        """Stop; fires when no request is pending."""
        self._stopped = True
        self._failing.clear()
        parts = (self._sending, self._polling, self._retrying, self._copy)
        return DeferredList([each.stop() for each in parts])

    def _provider(self) -> Any:
        if not self.service.providedBy(self._runtime):
            raise NotImplementedByBackend(self.no_service)
        return self._runtime

    # Objects to the runtime.

    def _send_soon(self) -> None:
        self._sending.poke()

    async def _send_all(self) -> None:
        if not (self._copy.synced and self._synced()):
            raise Again
        try:
            self._sent = await self._send(self._sent)
        except APIError as error:
            raise await self._refusal(error) from None
        self._is_supported, self._problem = True, ""
        self._polling.poke()

    async def _refusal(self, error: APIError) -> APIError:
        """Return the error of the runtime for the loop, which waits accordingly."""
        if error.code != NotImplementedByBackend.code:
            self._warn("the machine runtime", error)
            return error
        self._is_supported = False
        try:
            await self._unsupported()
        except APIError as failure:
            self._warn("the API server", failure)
            return failure
        return ServiceUnavailable(error.message, retry_after_seconds=UNSUPPORTED_SECONDS)

    def _warn(self, where: str, error: APIError) -> None:
        if error.message != self._problem:
            self._problem = error.message
            message = "{label}: {where}: {why}"
            self._log.warn(message, label=self.label, where=where, why=error.message)

    # Reports from the runtime.

    async def _poll(self) -> float:
        if not self._sent or not self._is_supported:
            return inf  # until the objects are sent
        began = self._clock.seconds()
        try:
            answer = await self._list_reports(self._instance, self._acknowledged)
        except APIError as error:
            refusal = await self._refusal(error)
            if not self._is_supported:  # only sending shows that another runtime took its place
                self._send_again()
            raise refusal from None
        if answer.instance != self._instance:
            self._instance, self._acknowledged = answer.instance, 0
        if answer.generation != self._sent:
            self._send_again()  # the runtime was restarted
        new = [each for each in answer.reports if each.number > self._acknowledged]
        for report in new:
            await self._handle_or_keep(report)
            self._acknowledged = report.number
        if not new and self._clock.seconds() - began < SHORT_SECONDS:
            raise Again  # the runtime does not wait
        return 0.0

    def _send_again(self) -> None:
        self._sent = ""
        self._send_soon()

    async def _handle_or_keep(self, report: Any) -> None:
        key = self._key(report)
        if key in self._failing:  # in order, as they may be states of one object
            self._failing[key] = report
            self._retrying.add(key)
            return
        try:
            await self._handle(report)
        except APIError as error:
            self._warn("the API server", error)
            raise
        except CancelledError:
            raise
        except Exception:
            # The reports behind it do not wait.
            if len(self._failing) >= MOST_FAILING:
                self._log.failure("{label}: a report is dropped", label=self.label)
                return
            self._failing[key] = report
            self._retrying.add_after(key, AGAIN_SECONDS)

    async def _handle_again(self, key: Hashable) -> None:
        report = self._failing[key]
        await self._handle(report)
        if self._failing.get(key) is report:
            del self._failing[key]

    def _not_handled(self, key: Hashable, error: APIError, failures: int) -> None:
        if failures == 1:
            self._failed(self._failing[key], f"{self.label}: {error.message}")
