"""
The user's input at the machine's end of a session.

It is buffered up to a limit while the attachment has paused it.  Beyond it the connection is not
read: sizes, pings and the client's leaving then wait, too.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.streaming.interfaces import (
    Break,
    IAttachment,
    IMessaging,
    IOperable,
    ITermsAttachment,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.input_notices import (
    MAY_NOT_SAY,
    MAY_OBSERVE,
    NO_BREAK,
    NO_MESSAGES,
    NO_ROLES,
    READ_ONLY,
    ToldNotices,
)
from twisted_exec.streaming.remotecommand.input_queue import (
    InputQueue,
    Item,
    pieces,
)
from twisted_exec.wire.marks import Notice
from twisted_exec.wire.resize import Message, SizeDecoder
from twisted_exec.wire.session_terms import Right, Terms
from twisted_exec.wire.stream_options import StreamOptions
from twisted_exec.wire.typed_keys import is_typed

_DELIVERIES_PER_SECOND = 10
"""Of input whose rate is limited."""


class UserInput:
    """
    The input of one session, counted in pieces (:mod:`twisted_exec.wire.resume`).

    A piece is settled when the attachment has it, or when it was discarded for good.

    :param used: is called when the user has sent keys, a request, or another size.
    :ivar on_settled: is called with the number of settled pieces when it changes.
    """

    def __init__(
        self,
        attachment: IAttachment,
        options: StreamOptions,
        clock: IReactorTime,
        *,
        terms: Terms,
        tell: Callable[[Notice], None],
        used: Callable[[], None],
        limit_bytes: int,
        set_full: Callable[[bool], None],
    ) -> None:
        self._attachment, self._options, self._clock = attachment, options, clock
        self.on_settled: Callable[[int], None] | None = None
        self.settled = self.bytes_to_machine = 0
        self._tell, self._used = tell, used
        self._queue = InputQueue(limit_bytes, self._deliver, set_full)
        self.hold_to(terms)
        self._sizes = SizeDecoder()
        self._size: TerminalSize | None = None  # the newest, until the next turn
        self._last_size: TerminalSize | None = None
        self._next_size: IDelayedCall | None = None
        self._is_over = self._is_closed = False
        self._told = ToldNotices(clock)

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def takes_input(self) -> bool:
        """Return whether input passes: there is stdin, and the user may drive."""
        return self._options.takes_input and self.may_drive

    # From the stream.

    def typed(self, data: bytes) -> None:
        if self._is_over:
            self._settle(len(data))
            return
        if data:  # some clients keep connections open with empty input
            self._used()
        if self.takes_input:
            self._put(data)
        else:
            self._settle(len(data))
            if is_typed(data):
                self._refuse()

    def control_received(self, data: bytes) -> None:
        for event in self._sizes.feed(data):
            if isinstance(event, Message):
                self._used()
                self._said(event.text)
            elif not isinstance(event, TerminalSize):
                self._used()
                self._wished(event)
            elif not self._options.read_only:
                # Some clients keep connections open with sizes, and each resumed stream begins with one.
                if self._last_size not in (None, event):
                    self._used()
                self._last_size = event
                self._size = event
                if self._next_size is None:  # not the second one of this turn
                    self._resize()

    def ended(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._put(None)

    # From the owner.

    def pause(self) -> None:
        self._queue.pause()

    def resume(self) -> None:
        self._queue.resume()

    def hold_to(self, terms: Terms) -> None:
        """
        Follow the terms of the session: drop waiting input of a user who may not drive any more, but not its end.

        The attachment limits the rate, which it can only between two deliveries.
        """
        self.may_drive = terms.right >= Right.DRIVE
        self._queue.most_bytes = -(-terms.input_rate // _DELIVERIES_PER_SECOND)
        if not self.may_drive and (dropped := self._queue.drop()):
            self._settle(dropped)

    def close(self) -> None:
        self._deliver_size()  # otherwise the machine keeps the size before
        self._is_closed = True
        self._queue.close()
        self.on_settled = None
        self._tell, self._used = _discard, _do_nothing
        if self._next_size is not None and self._next_size.active():
            self._next_size.cancel()

    # To the attachment.

    def _settle(self, number: int) -> None:
        self.settled += number
        if self.on_settled is not None:
            self.on_settled(self.settled)

    def _refuse(self) -> None:
        if self._options.read_only:
            self._tell_if_due(READ_ONLY)
        elif self._options.takes_input:
            if ITermsAttachment.providedBy(self._attachment):
                self._attachment.input_refused()
            else:
                self._tell_if_due(MAY_OBSERVE)

    def _tell_if_due(self, notice: Notice) -> None:
        if self._told.allow(notice):
            self._tell(notice)

    def _wished(self, wish: Item) -> None:
        if not self._options.takes_input or self._is_over:
            self._settle(1)
        elif self.takes_input or ITermsAttachment.providedBy(self._attachment):
            self._put(wish)  # also of a user who may only observe: the attachment says so
        else:
            self._settle(1)
            self._refuse()

    def _said(self, text: str) -> None:
        # Not behind the input: users talk about a machine that takes no input, and from sessions that
        # take none, too. And not counted: a runtime of an earlier release takes it for a size.
        if self._is_closed or self._is_over:
            return
        if not self.may_drive:
            self._tell_if_due(MAY_NOT_SAY)
        elif IMessaging.providedBy(self._attachment):
            self._attachment.said(text)
        else:
            self._tell_if_due(NO_MESSAGES)

    def _resize(self) -> None:
        self._next_size = self._clock.callLater(0, self._resize) if self._size is not None else None
        self._deliver_size()

    def _deliver_size(self) -> None:
        size, self._size = self._size, None
        if size is not None and not self._is_closed:
            self._attachment.window_changed(size)

    def _put(self, item: Item) -> None:
        self._deliver_size()  # it came before
        self._queue.put(item)

    def _deliver(self, item: Item) -> None:
        self._settle(pieces(item))
        if item is None:
            self._attachment.input_ended()
        elif isinstance(item, bytes):
            self.bytes_to_machine += len(item)
            self._attachment.data_received(item)
        elif IOperable.providedBy(self._attachment):
            self._attachment.wished(item)
        else:
            self._tell_if_due(NO_BREAK if isinstance(item, Break) else NO_ROLES)


def _do_nothing() -> None:
    """Do nothing."""


def _discard(_: object) -> None:
    """Do nothing."""
