"""The stream of a session, as the registry of sessions sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zope.interface import Interface, implementer

if TYPE_CHECKING:
    from twisted_exec.streaming.interfaces import Ending
    from twisted_exec.wire.session_terms import Terms


class ISessionStream(Interface):
    """
    The stream that carries one session.

    The session calls it while the stream is up, and forgets it when the stream has reported its end
    with :meth:`~twisted_exec.streaming.sessions.registry.Session.over`.
    """

    def end(ending: Ending) -> None:
        """End the stream in the protocol's order, with the reason; bounded in time."""

    def cut() -> None:
        """End the stream now, without a reason for its user."""

    def counts() -> tuple[int, int]:
        """Return the bytes to the machine and to the user so far."""

    def hold_to(terms: Terms) -> bool:
        """Change the terms of the stream; return false if that is impossible."""

    def supersede() -> bool:
        """
        End the stream soon, because its user has resumed the session over another connection.

        :return: false if the stream does not end by this.
        """

    def transports() -> tuple[object, object]:
        """Return the transports to the user and to the machine; ``None`` for one without."""


@implementer(ISessionStream)
class SessionStream:
    """Defaults of a stream: nothing is counted, and its terms cannot change."""

    def end(self, ending: Ending) -> None:
        pass

    def cut(self) -> None:
        pass

    def counts(self) -> tuple[int, int]:
        return 0, 0

    def hold_to(self, terms: Terms) -> bool:
        return False

    def supersede(self) -> bool:
        return False

    def transports(self) -> tuple[object, object]:
        return None, None
