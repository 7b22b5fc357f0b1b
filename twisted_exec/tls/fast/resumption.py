"""
TLS sessions that a client resumes.

OpenSSL does not verify a resumed session's certificate again.  Such a session is resumed only for
ten minutes after a full verification, with the same CA, and before its certificate expires.  Its
certificate is checked again if the name or the check is another.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime

from OpenSSL import SSL

from twisted_exec.tls import pem
from twisted_exec.tls.fast import openssl
from twisted_exec.tls.fast.names import is_usable

RESUMED_SECONDS = 600.0
"""How long after its server was verified in full a session is resumed."""
KEPT_SECONDS = 5.0
"""How long a session is kept instead of a newer one with the same verification."""

_SESSIONS_KEPT = 256


def can_resume() -> bool:
    """Return whether this process can tell a resumed session from a new one."""
    return is_usable("resumption", openssl.owners())


@dataclass
class _Resumable:
    session: SSL.Session
    rules: object
    verified: float
    expires: datetime
    since: float


_ServerKey = tuple[SSL.Context, str]
_resumable: OrderedDict[_ServerKey, _Resumable] = OrderedDict()


class TLSResumption:
    """
    Resumes the last session with a server, and keeps the next one.

    :param server: the context of the connection and the server's name.
    :param rules: settings that check the server's certificate, compared by identity.
    """

    def __init__(self, server: _ServerKey, rules: object) -> None:
        self._server, self._rules, self._verified = server, rules, time.monotonic()
        self._offered: _Resumable | None = None

    def offer(self, connection: SSL.Connection) -> None:
        """Offer the last session to the server, if its verification still counts."""
        last = _resumable.get(self._server)
        if last is None:
            return
        if self._verified - last.verified > RESUMED_SECONDS or last.expires <= datetime.now(UTC):
            del _resumable[self._server]
            return
        connection.set_session(last.session)
        self._offered = last

    def note_resumption(self, connection: SSL.Connection) -> bool:
        """Take note whether the server has resumed the offered session, and return it."""
        if self._offered is None or not openssl.lib.SSL_session_reused(connection._ssl):
            return False
        # The age counts from the full verification, however often the session is resumed.
        self._verified = self._offered.verified
        return True

    def is_accepted(self) -> bool:
        """Return whether the same rules have accepted the certificate of the offered session."""
        return self._offered is not None and self._offered.rules is self._rules

    def keep(self, connection: SSL.Connection) -> None:
        """Keep the session of a connection that ends, unless an equally good one is kept."""
        last, now = _resumable.get(self._server), time.monotonic()
        if last is not None and last.verified >= self._verified and now - last.since < KEPT_SECONDS:
            return  # a thousand connections may end at once
        certificate = pem.peer_leaf(connection)
        session = connection.get_session()
        if session is None or certificate is None:
            return
        _resumable[self._server] = _Resumable(
            session, self._rules, self._verified, certificate.not_valid_after_utc, now
        )
        _resumable.move_to_end(self._server)
        if len(_resumable) > _SESSIONS_KEPT:
            _resumable.popitem(last=False)
