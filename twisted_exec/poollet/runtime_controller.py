"""
Base of controllers that carry objects to the machine runtime, and its reports back.

One loop sends the objects of the pool when they change; another lists the runtime's reports, with
calls that wait. A report is acknowledged after it is handled. A runtime that was restarted gets the
objects again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface.interface import InterfaceClass

from twisted_exec.api.status import APIError, NotImplementedByBackend
from twisted_exec.control.backoff import Backoff
from twisted_exec.kube.informers import Reflector

SEND_DELAY_SECONDS = 0.2
"""Changes within this time are sent together."""
WAIT_SECONDS = 20
"""Longest wait of a call for the next report."""
SHORT_SECONDS = 1.0
"""A runtime that answers earlier, and without a report, does not wait for reports."""
UNSUPPORTED_SECONDS = 60.0
"""Interval of calls to a runtime without the service."""
_IDLE_SECONDS = 1.0


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
    """

    label: ClassVar[str]
    service: ClassVar[InterfaceClass]
    no_service: ClassVar[str]
    _log = Logger()

    def __init__(
        self, runtime: object, clock: Any, copy: Reflector, synced: Callable[[], bool]
    ) -> None:
        self._runtime, self._clock = runtime, clock
        self._copy, self._synced = copy, synced
        self._is_supported = self.service.providedBy(runtime)
        self._sent = ""
        self._is_dirty = True
        self._sending: Deferred[None] | None = None
        self._send_call: IDelayedCall | None = None
        self._polling: Deferred[None] | None = None
        self._problem = ""
        self._stopped = True

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
        self._copy.start()
        self._polling = Deferred.fromCoroutine(self._poll()).addErrback(self._failed)
        self._send_soon()

    def stop(self) -> Deferred[Any]:
        """Stop; fires when no request is pending."""
        self._stopped = True
        if self._send_call is not None and self._send_call.active():
            self._send_call.cancel()
            self._send_call = None
        running = [each for each in (self._sending, self._polling) if each]
        for each in running:
            each.cancel()
        return DeferredList([*running, self._copy.stop()])

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("{label}", failure, label=self.label)

    def _provider(self) -> Any:
        if not self.service.providedBy(self._runtime):
            raise NotImplementedByBackend(self.no_service)
        return self._runtime

    # Objects to the runtime.

    def _send_soon(self) -> None:
        self._is_dirty = True
        if self._send_call is None and not self._stopped:
            self._send_call = self._clock.callLater(SEND_DELAY_SECONDS, self._begin_sending)

    def _begin_sending(self) -> None:
        self._sending = Deferred.fromCoroutine(self._send_all()).addErrback(self._failed)
        self._sending.addBoth(self._was_sent)

    def _was_sent(self, _: object) -> None:
        # Only now: the first steps of a sending may change objects, before ``_sending`` is set.
        self._sending = self._send_call = None
        if self._is_dirty:
            self._send_soon()

    async def _send_all(self) -> None:
        backoff = Backoff()
        while not (self._copy.synced and self._synced()):
            await deferLater(self._clock, backoff.pause())
        backoff.reset()
        while self._is_dirty:
            self._is_dirty = False
            try:
                self._sent = await self._send(self._sent)
            except APIError as error:
                self._is_dirty = True
                await self._pause(error, backoff)
            else:
                self._is_supported, self._problem = True, ""

    async def _pause(self, error: APIError, backoff: Backoff) -> None:
        seconds = UNSUPPORTED_SECONDS
        if error.code == NotImplementedByBackend.code:
            self._is_supported = False
            try:
                await self._unsupported()
            except APIError as failure:
                self._warn("the API server", failure)
                seconds = backoff.pause()
        else:
            self._warn("the machine runtime", error)
            seconds = backoff.pause()
        await deferLater(self._clock, seconds)

    def _warn(self, where: str, error: APIError) -> None:
        if error.message != self._problem:
            self._problem = error.message
            message = "{label}: {where}: {why}"
            self._log.warn(message, label=self.label, where=where, why=error.message)

    # Reports from the runtime.

    async def _poll(self) -> None:
        backoff, instance, acknowledged = Backoff(), "", 0
        while not self._stopped:
            if not self._sent or not self._is_supported:
                await deferLater(self._clock, _IDLE_SECONDS)
                continue
            began = self._clock.seconds()
            try:
                answer = await self._list_reports(instance, acknowledged)
            except APIError as error:
                await self._pause(error, backoff)
                if not self._is_supported:  # only sending shows that another runtime took its place
                    self._sent = ""
                    self._send_soon()
                continue
            if answer.instance != instance:
                instance, acknowledged = answer.instance, 0
            if answer.generation != self._sent and self._sending is None:
                self._sent = ""  # the runtime was restarted
                self._send_soon()
                await deferLater(self._clock, SEND_DELAY_SECONDS)
            new = [each for each in answer.reports if each.number > acknowledged]
            try:
                for report in new:
                    await self._handle(report)
                    acknowledged = report.number
            except APIError as error:
                self._warn("the API server", error)
                await deferLater(self._clock, backoff.pause())
                continue
            if new or self._clock.seconds() - began >= SHORT_SECONDS:
                backoff.reset()
            else:  # a runtime that does not wait
                await deferLater(self._clock, backoff.pause())
