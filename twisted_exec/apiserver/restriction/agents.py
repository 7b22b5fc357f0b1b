"""
Limits that node servers and poollets share: actions that no agent needs, and numbers of certificate signing requests.
"""

from __future__ import annotations

from collections.abc import Collection

from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS, Object
from twisted_exec.api.kinds.certificates import request_of
from twisted_exec.api.status import TooManyRequests
from twisted_exec.apiserver.signing.requests import subject_of
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.rules import Attributes
from twisted_exec.storage.interfaces import IStorage

CONSOLES = ("exec", "attach", "portforward", "log", "console", "content")
"""Subresources that show, or carry, what a machine or a Pod prints."""

LIMIT_REQUESTS = 50
"""CertificateSigningRequests of one poollet or node server at a time."""


def forbidden_action(attributes: Attributes, noun: str = "") -> str:
    """
    Return the action of a request that no poollet or node server needs; empty if there is none.
    """
    resource = attributes.resource
    if attributes.verb == "impersonate":
        return f'impersonate {resource} "{attributes.name}"'
    if attributes.subresource in CONSOLES:
        return f"open the console of {f'{noun} {attributes.name}'.strip()}"
    if attributes.subresource in ("token", "proxy"):
        return f'{attributes.verb} {resource}/{attributes.subresource} of "{attributes.name}"'
    # Admission would refuse each object by its name, which the client may not know.
    return f"delete collections of {resource}" if attributes.verb == "deletecollection" else ""


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
    Limit the number of certificate signing requests of a client.

    :raises TooManyRequests: the user has :data:`LIMIT_REQUESTS` already.
    """
    listing = await storage.list(CERTIFICATESIGNINGREQUESTS.resource)
    if sum(is_requested_by(each, user) for each in listing.items) >= LIMIT_REQUESTS:
        raise TooManyRequests(
            f"{label} has {LIMIT_REQUESTS} certificate signing requests already: each is deleted "
            "an hour after its certificate or refusal, at the latest after a day"
        )
