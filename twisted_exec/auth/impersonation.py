"""
Impersonation of users by request headers, as by ``kubectl --as``.

An unknown impersonation header is an error: an ignored header would let the request through with
the *sender's* permissions. Source: ``k8s.io/apiserver/pkg/endpoints/filters/impersonation.go``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from twisted.web.http_headers import Headers

from twisted_exec.api.status import (
    BadRequest,
)
from twisted_exec.api.users import (
    ANONYMOUS,
    SERVICE_ACCOUNT_PREFIX,
    UNAUTHENTICATED,
    with_authenticated,
)
from twisted_exec.auth.interfaces import (
    User,
)
from twisted_exec.auth.rules import Attributes

VERB = "impersonate"

_PREFIX = b"impersonate-"
_USER, _GROUP, _UID = b"Impersonate-User", b"Impersonate-Group", b"Impersonate-Uid"
_EXTRA_PREFIX = b"impersonate-extra-"
_KNOWN = frozenset({_USER.lower(), _GROUP.lower(), _UID.lower()})

_AUTHENTICATION = "authentication.k8s.io"


@dataclass(frozen=True)
class Impersonation:
    """
    The impersonated user.

    :param needs: permissions that the sender needs, all of them.
    """

    user: User
    needs: tuple[Attributes, ...]


def impersonation(headers: Headers, sender: User) -> Impersonation | None:
    """
    Parse the ``Impersonate-`` headers of a request; ``None`` without such headers.

    :raises BadRequest: they are invalid.
    """
    name, uid = _single(headers, _USER), _single(headers, _UID)
    groups = tuple(group for line in headers.getRawHeaders(_GROUP, []) if (group := _text(line)))
    extra = _extra(headers)
    if not name:
        if groups or uid or extra:
            raise BadRequest(
                "Impersonate-Group, -Uid or -Extra needs Impersonate-User: name the user, too"
            )
        return None
    user = User(name, _groups(name, groups), uid, extra, impersonated_by=sender)
    return Impersonation(user, tuple(_needs(sender, user, groups)))


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


def _groups(name: str, requested: tuple[str, ...]) -> tuple[str, ...]:
    account = _service_account(name)
    if account is not None and not requested:
        everyone = SERVICE_ACCOUNT_PREFIX.removesuffix(":") + "s"
        requested = (everyone, f"{everyone}:{account[0]}")
    if name == ANONYMOUS:
        return tuple(dict.fromkeys((*requested, UNAUTHENTICATED)))
    return with_authenticated(name, requested)


def _service_account(name: str) -> tuple[str, str] | None:
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
            # Do not ignore it: it was meant to limit the impersonated user.
            raise BadRequest(f"unknown header {name.decode('latin-1')}")
        extra[key] = extra.get(key, ()) + tuple(_text(line) for line in lines)
    return extra


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise BadRequest("an Impersonate- header is not UTF-8") from None
