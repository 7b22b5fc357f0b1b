"""
An attachment that reports its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zope.interface import directlyProvides, providedBy

from twisted_exec.streaming.interfaces import (
    Break,
    IAttachment,
    IAttachmentTransport,
    Role,
    TerminalSize,
)
from twisted_exec.wire.session_terms import Terms


class NotifyingAttachment:
    """Wraps an attachment and reports its end to ``ended``."""

    _inner: Any

    def __init__(self, inner: IAttachment, ended: Callable[[], None]) -> None:
        self._inner, self._ended = inner, ended
        directlyProvides(self, *providedBy(inner))

    @property
    def inner(self) -> Any:
        return self._inner

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

    def said(self, text: str) -> None:
        self._inner.said(text)

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
