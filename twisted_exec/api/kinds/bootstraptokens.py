"""
Bootstrap tokens: Secrets by which programs are known that have no credential of their own yet.

A token is ``ID.SECRET``, six and sixteen small letters and digits; the Secret ``bootstrap-token-ID``
of the namespace ``kube-system`` holds both parts, until when it is good, and which groups come with
it.  Here is what such a Secret says; whether one is right is found out by who asks.

Sources: ``k8s.io/cluster-bootstrap/token/{api,util}`` and
``pkg/apis/kubeadm/bootstraptoken/v1/utils.go`` of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from twisted_exec.api import fields, times
from twisted_exec.api.fields import Cause

NAMESPACE = "kube-system"
SECRET_TYPE = "bootstrap.kubernetes.io/token"
PREFIX = "bootstrap-token-"
USER_PREFIX = "system:bootstrap:"
GROUP = "system:bootstrappers"

ID, SECRET, EXPIRATION = "token-id", "token-secret", "expiration"
DESCRIPTION, EXTRA_GROUPS = "description", "auth-extra-groups"
AUTHENTICATION = "usage-bootstrap-authentication"

HIDDEN = "<secret contents redacted>"
"""What messages have in place of what a Secret holds."""

Values = Mapping[str, bytes]
"""What a Secret holds."""

_TOKEN = re.compile(rb"([a-z0-9]{6})\.([a-z0-9]{16})")
_ID, _SECRET = re.compile(rb"[a-z0-9]{6}"), re.compile(rb"[a-z0-9]{16}")
_EXTRA_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")


def parts_of(token: bytes) -> tuple[str, bytes] | None:
    """Id and secret of a token; ``None`` for one of another kind."""
    found = _TOKEN.fullmatch(token)
    return None if found is None else (found[1].decode("ascii"), found[2])


def expires(values: Values) -> float | None:
    """
    Until when the token is good, in seconds since the epoch; ``None`` for ever.

    :raises ValueError: nobody can tell.
    """
    text = values.get(EXPIRATION, b"").decode("utf-8", "replace")
    if not text:
        return None
    if not times.is_moment(text):
        raise ValueError("must be a time as RFC 3339 writes it, such as 2030-01-31T00:00:00Z")
    return times.seconds(text)


def is_expired(values: Values, now: float) -> bool:
    """Whether it is good no more; so is one of which nobody can tell."""
    try:
        end = expires(values)
    except ValueError:
        return True
    return end is not None and now > end


def extra_groups(values: Values) -> tuple[str, ...]:
    """
    The groups that come with it besides :data:`GROUP`, in order.

    :raises ValueError: one could be the group of somebody else.
    """
    text = values.get(EXTRA_GROUPS, b"").decode("utf-8", "replace")
    groups = tuple(sorted(set(text.split(",")))) if text else ()
    for group in groups:
        if not _EXTRA_GROUP.fullmatch(group):
            raise ValueError(
                f"each of the groups, joined by commas, must match {_EXTRA_GROUP.pattern}"
            )
    return groups


def causes_of(name: str, values: Values) -> Iterator[Cause]:
    """
    What is wrong with a Secret of :data:`SECRET_TYPE`.

    :param name: of the Secret.
    """
    for key, pattern in ((ID, _ID), (SECRET, _SECRET)):
        if key not in values:
            yield fields.required(f"data[{key}]")
        elif not pattern.fullmatch(values[key]):
            told = f"must match {pattern.pattern.decode('ascii')}"
            yield fields.invalid(f"data[{key}]", HIDDEN, told)
    wanted = f"{PREFIX}{values.get(ID, b'').decode('utf-8', 'replace')}"
    if ID in values and name != wanted:
        yield fields.invalid("metadata.name", name, f"must be {PREFIX} and the data's {ID}")
    for key, read in ((EXPIRATION, expires), (EXTRA_GROUPS, extra_groups)):
        try:
            read(values)
        except ValueError as problem:
            yield fields.invalid(f"data[{key}]", HIDDEN, str(problem))
