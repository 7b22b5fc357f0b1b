"""
Notices to the user, as output: a line of their own in brackets.
"""

from __future__ import annotations

from twisted_exec.wire.remotecommand.messages import encode_notice
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE

_BEFORE, _BEHIND = encode_notice("|").split(b"|")


def text_of(notice: bytes) -> str:
    """Return the text of a notice that is output, in one line."""
    if notice.startswith(_BEFORE):
        notice = notice.removeprefix(_BEFORE).removesuffix(_BEHIND)
    text = notice.decode("utf-8", "replace")
    return " ".join(text.split()) if "\n" in text or "\r" in text else text


READ_ONLY = encode_notice("you are an observer; what you type is not sent")
"""
Notice to the user of a ``readOnly=true`` session who types.

Observers that asked for input get :meth:`.Floor.refusal` instead, which names the writer and
``~f``: they may take over.  The streaming layer knows no floor, and a read-only session can never
take over.
"""

MAY_OBSERVE = encode_notice(f"what you type is not sent: {MAY_ONLY_OBSERVE}")
"""Notice to a user without the right to drive who types."""

NO_BREAK = encode_notice("this console has no BREAK")
"""Notice for a BREAK that cannot be sent."""

NO_ROLES = encode_notice("this console has no roles: whoever is here may type")
"""Notice for a role request on a console without roles."""
