"""
Input of a session's user on its way to the attachment: keys, requests and sizes of the terminal.

Keys and requests are *pieces*: each byte of the keys, each BREAK, each role request, and the end of
input.  A piece is settled when the attachment has it, or when it was discarded for good.

Of many sizes in one turn of the reactor the attachment gets the first and the last.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.streaming.interfaces import (
    Break,
    IAttachment,
    IOperable,
    ITermsAttachment,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.input_queue import InputQueue, Item, pieces
from twisted_exec.streaming.remotecommand.notices import (
    MAY_OBSERVE,
    NO_BREAK,
    NO_ROLES,
    READ_ONLY,
)
from twisted_exec.wire.remotecommand.messages import SizeDecoder
from twisted_exec.wire.stream_options import StreamOptions


class UserInput:
    """
    The input of one session.

    :param takes_input: whether input passes now.
    :param tell: shows a notice to the user.
    :param used: is called when the user has sent keys, a request, or another size than before.
    :param limit_bytes: input buffered while the attachment accepts none.
    :param set_full: is called with true when that limit is reached, and with false afterwards.
    :ivar takes_input: whether input passes now; the owner sets it, see also :meth:`drop`.
    :ivar settled: pieces of input that are settled.
    :ivar on_settled: is called with that number when it changes; ``None`` if the exact
        number does not matter.
    :ivar bytes_to_machine: delivered keys.
    """

    def __init__(
        self,
        attachment: IAttachment,
        options: StreamOptions,
        clock: IReactorTime,
        *,
        takes_input: bool,
        tell: Callable[[bytes], None],
        used: Callable[[], None],
        limit_bytes: int,
        set_full: Callable[[bool], None],
    ) -> None:
        self._attachment, self._options, self._clock = attachment, options, clock
        self.takes_input = takes_input
        self.on_settled: Callable[[int], None] | None = None
        self.settled = self.bytes_to_machine = 0
        self._tell, self._used = tell, used
        self._queue = InputQueue(limit_bytes, self._deliver, set_full)
        self._sizes = SizeDecoder()
        self._size: TerminalSize | None = None  # the newest, until the next turn
        self._last_size: TerminalSize | None = None
        self._next_size: IDelayedCall | None = None
        self._is_over = self._is_closed = False
        self._told: set[bytes] = set()  # notices that the user has had

    def __len__(self) -> int:
        """Return the number of items that wait."""
        return len(self._queue)

    # From the stream.

    def typed(self, data: bytes) -> None:
        """Handle keys."""
        if self._is_over:
            self._settle(len(data))
            return
        if data:  # some clients keep connections open with empty input
            self._used()
        if self.takes_input:
            self._put(data)
        else:
            self._settle(len(data))
            self._refuse()

    def control_received(self, data: bytes) -> None:
        """Handle bytes of the channel for sizes and requests."""
        for event in self._sizes.feed(data):
            if not isinstance(event, TerminalSize):
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
        """Handle the end of input."""
        if not self._is_over:
            self._is_over = True
            self._put(None)

    # From the owner.

    def pause(self) -> None:
        """Deliver nothing until :meth:`resume`."""
        self._queue.pause()

    def resume(self) -> None:
        """Deliver what waits."""
        self._queue.resume()

    def drop(self) -> None:
        """Drop waiting input, but not the end of input: the user may not drive any more."""
        if dropped := self._queue.drop():
            self._settle(dropped)

    def close(self) -> None:
        """Deliver nothing any more.  Waiting input is not settled."""
        self._is_closed = True
        self._queue.close()
        self.on_settled = None
        self._size = None
        self._tell, self._used = _ignore, _do_nothing
        if self._next_size is not None and self._next_size.active():
            self._next_size.cancel()

    # To the attachment.

    def _settle(self, number: int) -> None:
        self.settled += number
        if self.on_settled is not None:
            self.on_settled(self.settled)

    def _refuse(self) -> None:
        """
        Tell the user that input is dropped.

        As in Kubernetes, a client that did not request stdin and sends some gets no notice.
        """
        if self._options.read_only:
            self._tell_once(READ_ONLY)
        elif self._options.takes_input:
            if ITermsAttachment.providedBy(self._attachment):
                self._attachment.input_refused()
            else:
                self._tell_once(MAY_OBSERVE)

    def _tell_once(self, notice: bytes) -> None:
        if notice not in self._told:
            self._told.add(notice)
            self._tell(notice)

    def _wished(self, wish: Item) -> None:
        """Queue a request as input."""
        if not self._options.takes_input or self._is_over:
            self._settle(1)
        elif self.takes_input or ITermsAttachment.providedBy(self._attachment):
            self._put(wish)  # also of a user who may only observe: the attachment says so
        else:
            self._settle(1)
            self._refuse()

    def _resize(self) -> None:
        """Deliver the newest size, and the next one not before the next turn."""
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
            self._tell_once(NO_BREAK if isinstance(item, Break) else NO_ROLES)


def _ignore(_: bytes) -> None:
    """Do nothing."""


def _do_nothing() -> None:
    """Do nothing."""
