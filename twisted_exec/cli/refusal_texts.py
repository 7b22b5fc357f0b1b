"""
Texts of programs that do not name the obstacle among the causes of a refusal.

The texts of each peer are captured in ``tests/captures/refusals.json``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from twisted_exec.api.missing_right import (
    NEVER_ALLOWED,
    MissingRight,
    message_without_remedy,
    missing_right,
    missing_rights,
)
from twisted_exec.api.obstacles import Obstacle
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError

RELEASE_0_2_0 = "twisted-exec 0.2.0"
KUBE_APISERVER = "kube-apiserver 1.33.1"
IRONCORE_APISERVER = "ironcore-apiserver 0.5.0"
ONMETAL_APISERVER = "onmetal-apiserver 0.1.1"

_OURS, _FOREIGN = (RELEASE_0_2_0,), (IRONCORE_APISERVER, ONMETAL_APISERVER)

DENIED = re.compile(
    r'User "(?P<user>[^"]+)" cannot (?P<verb>[a-z]+) resource "(?P<resource>[a-z]+)(?:/(?P<subresource>[a-z]+))?" '
    r'in API group "(?P<group>[^"]*)"(?: in the namespace "(?P<namespace>[-a-z0-9]+)")?'
)
"""
A right that a user lacks, in the words of :data:`KUBE_APISERVER` and :data:`RELEASE_0_2_0`, without a cause that
names it.
"""


@dataclass(frozen=True)
class KnownText:
    """
    A text that tells of an obstacle.

    :param peers: the programs and releases whose texts were captured.
    :param pattern: a regular expression that occurs in the text.
    :param source: the file of the peer that makes the text, if it was not captured.
    """

    peers: tuple[str, ...]
    pattern: str
    obstacle: Obstacle
    source: str = ""


TEXTS = (
    KnownText(_OURS, "is powered off", Obstacle.POWERED_OFF),
    KnownText(_OURS, " cannot start: ", Obstacle.CANNOT_START, "runtimes/service.py"),
    KnownText(_OURS, "is not running yet: ", Obstacle.CANNOT_START),
    KnownText(_OURS, "is not running yet$", Obstacle.NOT_RUNNING),
    KnownText(_OURS, "not found in pool ", Obstacle.NOT_IN_POOL, "poollet/admission.py"),
    KnownText(_OURS, "has no usable address", Obstacle.NO_ADDRESS),
    KnownText(_OURS, 'pool "', Obstacle.POOLLET_FAILED),
    KnownText(_FOREIGN, "^error dialing backend: ", Obstacle.POOLLET_FAILED),
    KnownText(_OURS, "the machine runtime", Obstacle.RUNTIME_FAILED),
    KnownText(_OURS, "its name is not known", Obstacle.NAME_UNKNOWN),
    KnownText(_OURS + _FOREIGN, "connection refused", Obstacle.CONNECTION_REFUSED),
    KnownText(_OURS, "no connection within", Obstacle.CONNECT_TIMEOUT),
    KnownText(_OURS, "no route to it", Obstacle.NO_ROUTE, "streaming/http/upgrade_client.py"),
    KnownText(_OURS, "certificate .* is refused: ", Obstacle.CERTIFICATE_REFUSED),
    KnownText(_OURS, "certificate is not valid for ", Obstacle.CERTIFICATE_OF_OTHER),
    KnownText(_OURS, "certificate is not that of the pool", Obstacle.CERTIFICATE_OF_OTHER),
    KnownText(_OURS, "does not accept this server's cred", Obstacle.CREDENTIALS_REFUSED),
)


def lacking_right(error: APIError) -> MissingRight | None:
    """
    Return the right that a user lacks, by the causes of a refusal or the words of another server.

    :return: ``None`` also if no role gives the right.
    """
    if (right := missing_right(error)) is not None:
        return right
    if any(each.get("reason") == NEVER_ALLOWED for each in error.causes):
        return None
    match = DENIED.search(error.message)
    return None if match is None else MissingRight(**match.groupdict(default=""))


def lacking_rights(error: APIError) -> list[MissingRight]:
    """Return the right that a user lacks now, after those of :func:`with_next_request`."""
    if rights := missing_rights(error):
        return rights
    return [] if (right := lacking_right(error)) is None else [right]


def with_next_request(
    refusal: APIError, verb: str, subresource: str, resource: Resource | None = None
) -> APIError:
    """
    Have a refusal name the right of a later request of the same command first; return the refusal.

    :param resource: of that request, if it is another one.
    """
    if (right := lacking_right(refusal)) is not None:
        refused = [] if missing_rights(refusal) else [right.cause(refusal.message)]
        refusal.message = message_without_remedy(refusal)
        needed = replace(right, verb=verb, subresource=subresource)
        if resource is not None:
            needed = replace(needed, group=resource.group, resource=resource.plural)
        causes = [needed.cause(refusal.message), *refused, *refusal.causes]
        refusal.details["causes"] = causes
    return refusal


def obstacles_in(text: str) -> tuple[Obstacle, ...]:
    """Return the obstacles that a text tells of, in the order of the table."""
    return tuple(known.obstacle for known in TEXTS if re.search(known.pattern, text))
