"""
Logs that continue when the hops behind this hop are lost.

When a response is cut off, the reader of the frames (:mod:`twisted_exec.wire.log_frames`) opens the
log again at its last offset, and repeats that for a minute (:class:`.Retries`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import NamedTuple

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.logs import LogOptions
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    Conflict,
    Expired,
    Forbidden,
    InternalError,
    Unauthorized,
)
from twisted_exec.api.times import stamp
from twisted_exec.control import retries
from twisted_exec.control.retries import Retries
from twisted_exec.program.tasks import as_deferred
from twisted_exec.streaming.interfaces import INTERNAL, LINE_LOST, REVOKED, Ending
from twisted_exec.streaming.text.download import Download
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.log_frames import FrameDecoder, Framing, LogFrame
from twisted_exec.wire.resume import Position

OUTAGE_SECONDS = 60.0
"""Longest outage."""
_STABLE_SECONDS = 10.0
"""A silent log that was open for this time has survived the outage."""

RETRIED = retries.RETRIED | {Conflict.code}
"""Codes of refusals after which another attempt may succeed: a machine may move just now (409)."""

_REASONS = {Unauthorized.code: REVOKED, Forbidden.code: REVOKED, InternalError.code: INTERNAL}


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
    :param retried: codes of refusals after which another attempt may succeed.
    :param lost: called with the reason of each outage, and with ``None`` when the log continues.
    :param since_option: the reader's option that takes a time to begin with; empty if there is none.
    :ivar ending: why the log was given up; ``None`` if it was not.
    """

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
        retried: Collection[int] = RETRIED,
        lost: Callable[[str | None], None] = lambda why: None,
        since_option: str = "--since-time",
    ) -> None:
        self._options, self._again, self._clock = options, again, clock
        self._since_option = since_option
        self._has_frames, self._retried, self._report = has_frames, retried, lost
        self._download, self._framing = first
        self._last = LogFrame(b"", self._framing.start, 0, options.state or 0)
        self._decoder = FrameDecoder()
        self._received = 0  # bytes of text
        self._paused = False
        self._opened = 0.0
        self._outage: Retries[FramedText] | None = None  # that is not overcome yet
        self._deliver: Callable[[bytes], None] = _nothing
        self._ended: Callable[[bool], None] = _nothing

    @property
    def continue_option(self) -> str:
        """
        The reader's option that continues the log, such as ``--since-time=...``; may be empty.
        """
        if not (self._since_option and self._last.time_ns):
            return ""
        return f"{self._since_option}={stamp(self._last.time_ns)}"

    @property
    def position(self) -> Position:
        """Position behind the text that was delivered, where the log continues."""
        return Position(self._framing.epoch, self._last.offset)

    def following(self) -> LogOptions:
        """Return the options that follow the log behind the text that was delivered."""
        return replace(self._rest(), follow=True, to_offset=None)

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
        outage, self._outage = self._outage, None
        if outage is not None:
            outage.stop()

    def _listen(self) -> None:
        self._decoder, self._opened = FrameDecoder(), self._clock.seconds()
        if self._paused:
            self._download.pause()
        self._download.deliver(self._came, self._download_ended)

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
        self._outage = None
        text = frames[0].text
        if len(frames) > 1:
            text = b"".join([frame.text for frame in frames])
        self._received += len(text)
        if self._has_frames:
            self._deliver(b"".join(frame.encode() for frame in frames))
        elif text:
            self._deliver(text)

    def _download_ended(self, complete: bool) -> None:
        if complete and self._decoder.is_between:
            self._ended(True)
        else:
            self._lost("the connection was lost")

    def _lost(self, why: str) -> None:
        if self._options.limit_bytes == self._received:
            self._ended(True)
            return
        self.is_waiting = True
        self._report(why)
        is_stable = self._clock.seconds() - self._opened >= _STABLE_SECONDS
        if self._outage is not None and not is_stable:
            self._outage.refused(BadGateway(why))
            return
        self._outage = Retries(
            self._open_again,
            self._continue,
            self._give_up,
            self._clock,
            limit_seconds=OUTAGE_SECONDS,
            retried=self._retried,
        )
        self._outage.start()

    @as_deferred
    async def _open_again(self) -> FramedText:
        return await self._again(self._rest())

    def _rest(self) -> LogOptions:
        options, end = self._options, self._framing.end
        limit = options.limit_bytes
        return LogOptions(
            follow=options.follow and end is None,
            timestamps=options.timestamps,
            plain=options.plain,
            limit_bytes=None if limit is None else limit - self._received,
            from_offset=self._last.offset,
            to_offset=end,
            epoch=self._framing.epoch,
            state=self._last.state,
            frames=True,
        )

    def _continue(self, source: FramedText) -> None:
        self.is_waiting = False
        self._download, framing = source
        if framing.epoch != self._framing.epoch:
            if self._has_frames:  # the reader knows the old epoch only: let it ask again
                self._download.abort()
                self._give_up(Expired("the log began anew"))
                return
            self._framing = framing
            self._last = self._last._replace(offset=framing.start)
        self._report(None)
        self._listen()

    def _give_up(self, error: APIError) -> None:
        self._outage, self.is_waiting = None, False
        reason, message = _REASONS.get(error.code, LINE_LOST), error.message
        if reason == LINE_LOST and self.continue_option:
            message += f"; continue with {self.continue_option}"
        self.ending = Ending(reason, message)
        self._ended(False)


def _nothing(_: object) -> None:
    """Replaces the callbacks after the end."""


async def _no_more(options: LogOptions) -> FramedText:
    raise CancelledError
