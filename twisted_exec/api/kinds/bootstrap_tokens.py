"""
Secrets with bootstrap tokens, for programs that have no credentials of their own yet.

The Secret ``bootstrap-token-ID`` in the namespace ``kube-system`` holds a token, with its expiry.
:mod:`twisted_exec.auth.bootstrap_tokens` authenticates users by them.

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
NAME_PREFIX = "bootstrap-token-"
"""Begins the name of a token's Secret."""
USER_PREFIX = "system:bootstrap:"
GROUP = "system:bootstrappers"

ID, SECRET, EXPIRATION = "token-id", "token-secret", "expiration"
DESCRIPTION, EXTRA_GROUPS = "description", "auth-extra-groups"
AUTHENTICATION = "usage-bootstrap-authentication"

REDACTED = "<secret contents redacted>"
"""Replaces the content of a Secret in messages."""

Values = Mapping[str, bytes]
"""The decoded content of a Secret."""

_TOKEN = re.compile(rb"([a-z0-9]{6})\.([a-z0-9]{16})")
_ID, _SECRET = re.compile(rb"[a-z0-9]{6}"), re.compile(rb"[a-z0-9]{16}")
_EXTRA_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")


def split_token(token: bytes) -> tuple[str, bytes] | None:
    """Split a token into its ID and secret; ``None`` for other tokens."""
    match = _TOKEN.fullmatch(token)
    return None if match is None else (match[1].decode("ascii"), match[2])


def expiry_of(values: Values) -> float | None:
    """
    Return the expiry in seconds since the epoch; ``None`` for a token that never expires.

    :raises ValueError: the expiry is malformed.
    """
    text = values.get(EXPIRATION, b"").decode("utf-8", "replace")
    if not text:
        return None
    if not times.is_moment(text):
        raise ValueError("must be an RFC 3339 time such as 2030-01-31T00:00:00Z")
    return times.seconds(text)


def is_expired(values: Values, now: float) -> bool:
    """Return whether a token has expired; a malformed expiry counts as expired."""
    try:
        end = expiry_of(values)
    except ValueError:
        return True
    return end is not None and now > end


def extra_groups(values: Values) -> tuple[str, ...]:
    """
    Return the token's groups in addition to :data:`GROUP`.

    :raises ValueError: a group could belong to other users.
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
    """Check a Secret of :data:`SECRET_TYPE`."""
    for key, pattern in ((ID, _ID), (SECRET, _SECRET)):
        if key not in values:
            yield fields.required(f"data[{key}]")
        elif not pattern.fullmatch(values[key]):
            detail = f"must match {pattern.pattern.decode('ascii')}"
            yield fields.invalid(f"data[{key}]", REDACTED, detail)
    expected = f"{NAME_PREFIX}{values.get(ID, b'').decode('utf-8', 'replace')}"
    if ID in values and name != expected:
        yield fields.invalid("metadata.name", name, f"must be {NAME_PREFIX} and the data's {ID}")
    for key, read in ((EXPIRATION, expiry_of), (EXTRA_GROUPS, extra_groups)):
        try:
            read(values)
        except ValueError as problem:
            yield fields.invalid(f"data[{key}]", REDACTED, str(problem))
