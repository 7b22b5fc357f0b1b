"""
Logs that continue when the hops behind this hop are lost.

When a response is cut off, the reader of the frames (:mod:`twisted_exec.wire.log_frames`) opens the
log again at its last offset, and repeats that for a minute.  A refusal that waiting does not change
ends the log.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import NamedTuple

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.logs import LogOptions
from twisted_exec.api.status import (
    APIError,
    BadRequest,
    Forbidden,
    Invalid,
    NotImplementedByBackend,
    Unauthorized,
)
from twisted_exec.api.times import stamp
from twisted_exec.streaming.interfaces import INTERNAL, LINE_LOST, REVOKED, Ending
from twisted_exec.streaming.text.download import Download
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.log_frames import FrameDecoder, Framing, LogFrame
from twisted_exec.wire.resume import Position

OUTAGE_SECONDS = 60.0
"""Longest outage."""
FIRST_SECONDS = 0.1
LONGEST_SECONDS = 1.0
"""The longest wait between two attempts."""
_STARTING_SECONDS = 10.0
"""How long a kube-apiserver may be starting, see :attr:`APIError.is_decided`."""
_STABLE_SECONDS = 10.0
"""A silent log that was open for this time has survived the outage."""

_REVOKED = (Unauthorized.code, Forbidden.code)
FINAL = (*_REVOKED, BadRequest.code, Invalid.code, NotImplementedByBackend.code)
"""Codes of refusals that waiting does not change."""


class FramedText(NamedTuple):
    """A response with frames, and the facts from its header."""

    download: Download
    framing: Framing


Again = Callable[[LogOptions], Awaitable[FramedText]]
"""Opens a log with these options; fails with an :class:`~twisted_exec.api.status.APIError`."""


class ResumedLog:
    """
    A log that goes on when its backend is lost.

    It is used like a :class:`~twisted_exec.streaming.text.download.Download`.

    :param again: opens the log again, and authorizes the user again.
    :param final: codes of refusals that end the log.
    :param lost: called with the reason of each outage, and with ``None`` when the log continues.
    :ivar ending: why the log was given up; ``None`` if it was not.
    """

    _log = Logger()
    is_waiting = False
    ending: Ending | None = None

    def __init__(
        self,
        first: FramedText,
        options: LogOptions,
        again: Again,
        clock: IReactorTime,
        *,
        has_frames: bool = False,
        final: Collection[int] = FINAL,
        lost: Callable[[str | None], None] = lambda why: None,
    ) -> None:
        self._options, self._again, self._clock = options, again, clock
        self._has_frames, self._final, self._report = has_frames, final, lost
        self._download, self._framing = first
        self._last = LogFrame(b"", self._framing.start, 0, options.state or 0)
        self._decoder = FrameDecoder()
        self._received = 0  # bytes of text
        self._paused = False
        self._opened = 0.0
        self._until: float | None = None  # the end of the outage that is not overcome yet
        self._delay = FIRST_SECONDS
        self._forbidden_at: float | None = None
        self._resuming: Deferred[None] | None = None
        self._timer: IDelayedCall | None = None
        self._deliver: Callable[[bytes], None] = _nothing
        self._ended: Callable[[bool], None] = _nothing

    @property
    def continue_option(self) -> str:
        """
        The option of kubectl that continues the log, such as ``--since-time=...``; may be empty.
        """
        return f"--since-time={stamp(self._last.time_ns)}" if self._last.time_ns else ""

    @property
    def position(self) -> Position:
        """Position behind the text that was delivered, where the log continues."""
        return Position(self._framing.epoch, self._last.offset)

    def deliver(self, data: Callable[[bytes], None], ended: Callable[[bool], None]) -> None:
        self._deliver, self._ended = data, ended
        self._listen()

    def pause(self) -> None:
        self._paused = True
        self._download.pause()

    def resume(self) -> None:
        self._paused = False
        self._download.resume()

    def abort(self) -> None:
        # Break reference cycles: their memory would wait for the garbage collector.
        self._deliver = self._ended = self._report = _nothing
        self._again = _no_more
        self._download.abort()
        resuming, self._resuming = self._resuming, None
        if resuming is not None:
            resuming.cancel()
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _listen(self) -> None:
        self._decoder, self._opened = FrameDecoder(), self._clock.seconds()
        if self._paused:
            self._download.pause()
        self._download.deliver(self._came, self._is_over)

    def _came(self, data: bytes) -> None:
        try:
            frames = self._decoder.feed(data)
        except RemoteProtocolError as problem:
            self._download.abort()
            self._lost(str(problem))
            return
        if not frames:
            return
        self._last = frames[-1]
        self._until, self._delay = None, FIRST_SECONDS
        text = frames[0].text
        if len(frames) > 1:
            text = b"".join([frame.text for frame in frames])
        self._received += len(text)
        if self._has_frames:
            self._deliver(b"".join(frame.encode() for frame in frames))
        elif text:
            self._deliver(text)

    def _is_over(self, complete: bool) -> None:
        if complete and self._decoder.is_between:
            self._ended(True)
        else:
            self._lost("the connection was lost")

    def _lost(self, why: str) -> None:
        if self._options.limit_bytes == self._received:
            self._ended(True)
            return
        now = self._clock.seconds()
        if self._until is None or now - self._opened >= _STABLE_SECONDS:
            self._until, self._delay = now + OUTAGE_SECONDS, FIRST_SECONDS
        self.is_waiting = True
        self._report(why)
        self._wait(why)

    def _wait(self, why: str) -> None:
        assert self._until is not None
        if self._clock.seconds() >= self._until:
            message = f"no connection within {OUTAGE_SECONDS:.0f} s: {why}"
            self._give_up(Ending(LINE_LOST, message))
            return
        # Spread: a poollet that comes back meets the followers of hundreds of machines.
        seconds = self._delay * random.uniform(0.75, 1)
        self._delay = min(2 * self._delay, LONGEST_SECONDS)
        # Not a coroutine that sleeps: its cancellation leaves reference cycles behind.
        self._timer = self._clock.callLater(seconds, self._try)

    def _try(self) -> None:
        self._timer = None
        self._resuming = Deferred.fromCoroutine(self._resume()).addErrback(self._failed)

    async def _resume(self) -> None:
        try:
            source = await self._again(self._rest())
        except APIError as error:
            self._resuming = None
            is_starting = self._may_be_starting(error)
            if error.code in self._final and not is_starting:
                reason = REVOKED if error.code in _REVOKED else LINE_LOST
                self._give_up(Ending(reason, error.message))
            else:
                self._wait(error.message)
        else:
            self._continue(source)

    def _may_be_starting(self, error: APIError) -> bool:
        # The first 403 may come from a server that is starting: the log is tried again for some
        # seconds.
        if error.code != Forbidden.code or error.is_decided:
            self._forbidden_at = None
            return False
        now = self._clock.seconds()
        if self._forbidden_at is None:
            self._forbidden_at = now
        return now - self._forbidden_at < _STARTING_SECONDS

    def _failed(self, failure: Failure) -> None:
        if self._again is _no_more:  # aborted
            return
        self._log.failure("a log could not be continued", failure)
        self._resuming = None
        self._give_up(Ending(INTERNAL, "internal error"))

    def _rest(self) -> LogOptions:
        options, end = self._options, self._framing.end
        limit = options.limit_bytes
        return LogOptions(
            follow=options.follow and end is None,
            timestamps=options.timestamps,
            plain=options.plain,
            without_hidden=options.without_hidden,
            limit_bytes=None if limit is None else limit - self._received,
            from_offset=self._last.offset,
            to_offset=end,
            epoch=self._framing.epoch,
            state=self._last.state,
            frames=True,
        )

    def _continue(self, source: FramedText) -> None:
        self._resuming, self.is_waiting, self._forbidden_at = None, False, None
        self._download, framing = source
        if framing.epoch != self._framing.epoch:
            if self._has_frames:  # the reader knows the old epoch only: let it ask again
                self._download.abort()
                self._give_up(Ending(LINE_LOST, "the log began anew"))
                return
            self._framing = framing
            self._last = self._last._replace(offset=framing.start)
        self._report(None)
        self._listen()

    def _give_up(self, ending: Ending) -> None:
        self._resuming, self.is_waiting = None, False
        if ending.reason == LINE_LOST and self.continue_option:
            message = f"{ending.message}; continue with {self.continue_option}"
            ending = replace(ending, message=message)
        self.ending = ending
        self._ended(False)


def _nothing(_: object) -> None:
    """Replaces the callbacks after the end."""


async def _no_more(options: LogOptions) -> FramedText:
    raise CancelledError
