"""
CertificateSigningRequests of poollets and node servers: they see and create only their own.
"""

from __future__ import annotations

from collections.abc import Collection

from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS, Object
from twisted_exec.api.kinds.certificates import request_of
from twisted_exec.api.status import TooManyRequests
from twisted_exec.apiserver.signing.csr import subject_of
from twisted_exec.auth.interfaces import User
from twisted_exec.storage.interfaces import IStorage

LIMIT_REQUESTS = 50
"""CertificateSigningRequests of one poollet or node server at a time."""


def is_requested_by(request: Object, user: User) -> bool:
    """Return whether a user has created a CertificateSigningRequest."""
    return bool(request["spec"].get("username") == user.name)


def asks_for(csr: Object, user: str, signers: Collection[str]) -> bool:
    """Return whether the certificate would name this user, and come from one of these signers."""
    try:
        subject = subject_of(request_of(csr))
    except ValueError:
        return False
    return csr["spec"]["signerName"] in signers and subject.common_name == user


async def check_limit(storage: IStorage, user: User, label: str) -> None:
    """
    Bound what a client can store that keeps asking, because its clock or its addresses are wrong.

    :param label: of the client, for the message.
    :raises TooManyRequests: the user has :data:`LIMIT_REQUESTS` already.
    """
    listing = await storage.list(CERTIFICATESIGNINGREQUESTS.resource)
    if sum(is_requested_by(each, user) for each in listing.items) >= LIMIT_REQUESTS:
        raise TooManyRequests(
            f"{label} has {LIMIT_REQUESTS} certificate signing requests already: they go an hour "
            "after they were decided"
        )
