"""
Attachments between a stream of the stream server and the attachment of a machine's console.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zope.interface import directlyProvides, providedBy

from twisted_exec.iri.request_cache import LiveStream
from twisted_exec.streaming.interfaces import (
    RESUMED,
    Break,
    Ending,
    IAttachment,
    IAttachmentTransport,
    IMarkTransport,
    Position,
    Role,
    TerminalSize,
)
from twisted_exec.wire.session_terms import Terms

if TYPE_CHECKING:
    from twisted_exec.runtimes.serving.kept_sessions import KeptSession

_SUPERSEDED = Ending(RESUMED, "this session goes on over another connection")


class NotifyingAttachment:
    """
    Wraps an attachment and reports its end to ``ended``.

    It provides the interfaces of the attachment.
    """

    _inner: Any

    def __init__(self, inner: IAttachment, ended: Callable[[], None]) -> None:
        self._inner, self._ended = inner, ended
        directlyProvides(self, *providedBy(inner))

    @property
    def inner(self) -> Any:
        """The attachment."""
        return self._inner

    def continue_with(self, inner: IAttachment) -> None:
        """Pass everything on to another attachment from now on."""
        self._inner = inner
        directlyProvides(self, *providedBy(inner))

    def attached(self, transport: IAttachmentTransport) -> None:
        self._inner.attached(transport)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def window_changed(self, size: TerminalSize) -> None:
        self._inner.window_changed(size)

    def input_ended(self) -> None:
        self._inner.input_ended()

    def wished(self, wish: Break | Role) -> None:
        self._inner.wished(wish)

    @property
    def bytes_to_machine(self) -> int:
        return int(self._inner.bytes_to_machine)

    def admit(self, terms: Terms) -> None:
        self._inner.admit(terms)

    def input_refused(self) -> None:
        self._inner.input_refused()

    def terms_changed(self, terms: Terms) -> None:
        self._inner.terms_changed(terms)

    def detached(self, reason: str) -> None:
        self._ended()
        self._inner.detached(reason)


class Connection:
    """
    One stream of a kept session, for which it is the attachment.

    It passes on calls as long as it is the session's present stream.  It provides the interfaces of
    the session's attachment.

    :param keys: the keys that resume the session until the user sends something over this stream,
        by their digest, each with the session id of its stream.
    :param key: the digest of this stream's key.
    :param settled: settled pieces of input before this stream; ``None`` if unknown.
    :param live: ends the stream.
    :param ended: is called at the end of the stream.
    """

    _transport: IMarkTransport | None = None

    def __init__(
        self,
        session: KeptSession,
        keys: dict[bytes, str],
        key: bytes,
        settled: int | None,
        live: LiveStream,
        ended: Callable[[], None],
    ) -> None:
        self.keys, self._settled_before = keys, settled
        self._key, self._is_heard = key, False
        self._session, self._live, self._ended = session, live, ended
        self._inner: Any = session.attachment
        self._sent_before = int(self._inner.bytes_to_machine)
        self._sent: int | None = None  # once the stream is over
        directlyProvides(self, *providedBy(self._inner))

    @property
    def _is_present(self) -> bool:
        return self._session.connection is self

    @property
    def settled(self) -> int | None:
        """Settled pieces of the session's input; ``None`` if the client may not know what they mean."""
        if self._transport is None or (self._settled_before is None and not self._is_heard):
            return self._settled_before
        return int(self._transport.settled)

    def cut(self, why: str) -> None:
        """Cut the stream: the session goes on over another connection."""
        self._live.cut(why)

    def supersede(self) -> None:
        """End the stream: the session has a newer one."""
        self._stop()
        self._live.end(_SUPERSEDED)

    def _stop(self) -> None:
        self._sent = self.bytes_to_machine
        self._transport = None

    # IResumableAttachment and IOperable

    @property
    def bytes_to_machine(self) -> int:
        """Input of this stream that the machine got."""
        if self._sent is not None:
            return self._sent
        return int(self._inner.bytes_to_machine) - self._sent_before

    def admit(self, terms: Terms) -> None:
        self._inner.admit(terms)

    def check(self, position: Position) -> None:
        self._inner.check(position)

    def attached(self, transport: IMarkTransport) -> None:
        self._transport = transport
        self._session.connected(self, is_resumed=False)
        self._inner.attached(transport)

    def resumed(self, transport: IMarkTransport, position: Position) -> None:
        self._transport = transport
        self._session.connected(self, is_resumed=True)
        self._inner.resumed(transport, position)

    def heard(self) -> None:
        if self._is_present:
            self._is_heard = True
            self.keys = {self._key: self.keys[self._key]}
            self._session.use_keys(self.keys)
            self._inner.heard()

    def answered(self) -> None:
        if self._is_present:
            self._inner.answered()

    def data_received(self, data: bytes) -> None:
        if self._is_present:
            self._inner.data_received(data)

    def window_changed(self, size: TerminalSize) -> None:
        if self._is_present:
            self._inner.window_changed(size)

    def input_ended(self) -> None:
        if self._is_present:
            self._inner.input_ended()

    def wished(self, wish: Break | Role) -> None:
        if self._is_present:
            self._inner.wished(wish)

    def input_refused(self) -> None:
        if self._is_present:
            self._inner.input_refused()

    def terms_changed(self, terms: Terms) -> None:
        if self._is_present:
            self._inner.terms_changed(terms)

    def away(self) -> None:
        self._ended()
        if self._is_present:
            self._session.lost(self)
            self._stop()

    def detached(self, reason: str) -> None:
        self._ended()
        if self._sent is None:  # not superseded
            self._stop()
            if self._is_present or self._session.connection is None:
                self._session.give_up(reason)
