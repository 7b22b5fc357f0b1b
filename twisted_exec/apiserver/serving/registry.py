"""
The kinds that a server serves, by the names in URLs.
"""

from __future__ import annotations

from collections.abc import Iterable

from twisted_exec.api.kinds import Kind

READ = ("get", "list", "watch")
REMOVE = ("delete", "deletecollection")
_VERBS = {"GET": "get", "POST": "create"}
WRITE = ("create", "delete", "deletecollection", "patch", "update")


def verbs_of(kind: Kind, subresource: str = "") -> list[str]:
    """Verbs that discovery lists for a kind or its subresource."""
    if subresource in kind.connects:
        methods = kind.connects[subresource].methods
        return sorted(_VERBS[method] for method in methods)
    if subresource in kind.requests:
        return ["create"]
    if subresource in kind.texts:
        return ["get"]
    if subresource:
        return ["get"] if kind.read_only else ["get", "patch", "update"]
    if kind.read_only:
        return sorted(READ)
    if kind.server_made:
        return sorted(READ + REMOVE)
    return sorted(READ + WRITE) if kind.stored else ["create"]


def subresources_of(kind: Kind) -> list[str]:
    """The subresources of a kind, in order."""
    return sorted([*kind.connects, *kind.texts, *kind.requests, *kind.status_subresources])


class KindRegistry:
    """
    The kinds of one server, in the order given.

    :raises ValueError: two kinds have the same group, version and plural.
    """

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self.kinds = tuple(kinds)
        self._by_version: dict[tuple[str, str], list[Kind]] = {}
        plurals: dict[tuple[str, str, str], str] = {}
        for kind in self.kinds:
            resource = kind.resource
            version = (resource.group, resource.version)
            # Discovery would list both, while a path reaches only one of them.
            if other := plurals.get((*version, resource.plural)):
                raise ValueError(
                    f"{resource.plural} of {resource.api_version} is listed twice, as {other} and "
                    f"{resource.kind}; list a kind that several dialects share once per API group"
                )
            plurals[(*version, resource.plural)] = resource.kind
            self._by_version.setdefault(version, []).append(kind)

    @property
    def groups(self) -> dict[str, list[str]]:
        """Versions by group, preferred first; the core group has the empty name."""
        versions: dict[str, list[str]] = {}
        for group, version in self._by_version:
            versions.setdefault(group, []).append(version)
        return versions

    def of(self, group: str, version: str) -> list[Kind]:
        """The kinds of one group and version; empty when there is none."""
        return self._by_version.get((group, version), [])
