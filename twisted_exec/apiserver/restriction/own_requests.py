"""
Of CertificateSigningRequests, those of whoever looks: all that poollets and node servers see.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from zope.interface import implementer

from twisted_exec.api.kinds import Object
from twisted_exec.api.kinds.certificates import request_of
from twisted_exec.apiserver.restriction.filtered_storage import IVisibility
from twisted_exec.apiserver.signing.csr import subject_of
from twisted_exec.auth.interfaces import User

MOST_REQUESTS = 50
"""Certificate signing requests of one poollet or node server at a time."""


@implementer(IVisibility)
class OwnRequests:
    """The certificates that a user asks for."""

    def __init__(self, user: User) -> None:
        self._user = user

    def sees(self, obj: Object) -> bool:
        """As :meth:`IVisibility.sees`."""
        return bool(obj["spec"].get("username") == self._user.name)

    def since(self) -> int:
        """As :meth:`IVisibility.since`."""
        return 0

    def follow(self, changed: Callable[[], None]) -> Callable[[], None]:
        """As :meth:`IVisibility.follow`; it is always the same."""
        return lambda: None


def asks_for(csr: Object, user: str, signers: Collection[str]) -> bool:
    """Whether the certificate would name this user, and be signed by those who check that."""
    try:
        subject = subject_of(request_of(csr))
    except ValueError:
        return False
    return csr["spec"]["signerName"] in signers and subject.common_name == user
