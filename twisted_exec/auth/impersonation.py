"""
Users who ask to be treated as someone else: ``kubectl --as``.

A request with ``Impersonate-User`` is answered as that user, groups, uid and extra, if
the one who sends it may ``impersonate`` each of them.  So an administrator sees what
someone else would see, and a proxy acts for its users with one credential of its own.
All of it is asked for, or nothing is granted: an unnoticed header would let the
request through with the *sender's* rights.
Source: ``k8s.io/apiserver/pkg/endpoints/filters/impersonation.go``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from twisted.web.http_headers import Headers

from twisted_exec.api.status import BadRequest, InternalError
from twisted_exec.auth.groups import (
    ANONYMOUS,
    SERVICE_ACCOUNT_PREFIX,
    UNAUTHENTICATED,
    with_authenticated,
)
from twisted_exec.auth.interfaces import Attributes, User
from twisted_exec.wire.upgrade import HeaderSet

VERB = "impersonate"

IMPERSONATION_HEADERS = HeaderSet.of(prefixes=["Impersonate-"])
_PREFIX = b"impersonate-"
_USER, _GROUP, _UID = b"Impersonate-User", b"Impersonate-Group", b"Impersonate-Uid"
_EXTRA_PREFIX = b"impersonate-extra-"
_KNOWN = frozenset({_USER.lower(), _GROUP.lower(), _UID.lower()})

_AUTHENTICATION = "authentication.k8s.io"


@dataclass(frozen=True)
class Impersonation:
    """
    Whom a request is to be answered as.

    :param user: that someone, with the groups that everyone of the kind has.
    :param needs: what the sender must be allowed, all of it.
    """

    user: User
    needs: tuple[Attributes, ...]


def impersonation(headers: Headers, sender: User) -> Impersonation | None:
    """
    Whom the ``Impersonate-`` headers of a request name.

    :param sender: who is authenticated.
    :return: ``None`` when they name nobody.
    :raises BadRequest: they are not UTF-8, name two users, or hold something unknown.
    :raises InternalError: groups, uid or extra without a user (what Kubernetes answers then).
    """
    name, uid = _single(headers, _USER), _single(headers, _UID)
    groups = tuple(group for line in headers.getRawHeaders(_GROUP, []) if (group := _text(line)))
    extra = _extra(headers)
    if not name:
        if groups or uid or extra:
            raise InternalError("requested groups, uid or extra without impersonating a user")
        return None
    user = User(name, _groups(name, groups), uid, extra)
    return Impersonation(user, tuple(_needs(sender, user, groups)))


def impersonates(headers: Headers) -> bool:
    """Whether any header asks to act as somebody else, be it malformed."""
    return any(name.lower().startswith(_PREFIX) for name, _ in headers.getAllRawHeaders())


def _needs(sender: User, user: User, groups: tuple[str, ...]) -> Iterator[Attributes]:
    account = _service_account(user.name)
    if account is None:
        yield Attributes(sender, VERB, resource="users", name=user.name)
    else:
        namespace, name = account
        yield Attributes(sender, VERB, resource="serviceaccounts", namespace=namespace, name=name)
    for group in groups:
        yield Attributes(sender, VERB, resource="groups", name=group)
    for key, values in user.extra.items():
        for value in values:
            yield Attributes(
                sender, VERB, _AUTHENTICATION, "v1", "userextras", subresource=key, name=value
            )
    if user.uid:
        yield Attributes(sender, VERB, _AUTHENTICATION, "v1", "uids", name=user.uid)


def _groups(name: str, asked: tuple[str, ...]) -> tuple[str, ...]:
    """
    The groups asked for, and those that come with being who one is.

    A service account for whom none are asked for gets its own.
    """
    account = _service_account(name)
    if account is not None and not asked:
        everyone = SERVICE_ACCOUNT_PREFIX.removesuffix(":") + "s"
        asked = (everyone, f"{everyone}:{account[0]}")
    if name == ANONYMOUS:
        return tuple(dict.fromkeys((*asked, UNAUTHENTICATED)))
    return with_authenticated(name, asked)


def _service_account(name: str) -> tuple[str, str] | None:
    """Namespace and name of a service account's user name."""
    namespace, colon, account = name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
    if not name.startswith(SERVICE_ACCOUNT_PREFIX) or not colon or ":" in account:
        return None
    return (namespace, account) if namespace and account else None


def _single(headers: Headers, name: bytes) -> str:
    lines = {_text(line) for line in headers.getRawHeaders(name, [])}
    if len(lines) > 1:
        raise BadRequest(f"more than one {name.decode('ascii')} header")
    return lines.pop() if lines else ""


def _extra(headers: Headers) -> dict[str, tuple[str, ...]]:
    extra: dict[str, tuple[str, ...]] = {}
    for name, lines in headers.getAllRawHeaders():
        lowered = name.lower()
        if lowered in _KNOWN or not lowered.startswith(_PREFIX):
            continue
        key = unquote(lowered.removeprefix(_EXTRA_PREFIX).decode("latin-1"))
        if not lowered.startswith(_EXTRA_PREFIX) or not key:
            # Not to be passed over: it was meant to narrow who is acting.
            raise BadRequest(f"unknown header {name.decode('latin-1')}")
        extra[key] = extra.get(key, ()) + tuple(_text(line) for line in lines)
    return extra


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise BadRequest("an Impersonate- header is not UTF-8") from None
