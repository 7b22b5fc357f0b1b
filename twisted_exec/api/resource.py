"""
Resources of an API server, with their paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote


@dataclass(frozen=True)
class Resource:
    """One resource, as an API server serves it."""

    group: str
    """API group; empty for the core group."""
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @cached_property  # stores need it with each read and write
    def api_version(self) -> str:
        """``GROUP/VERSION``, or ``v1`` in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def qualified(self) -> str:
        """Name for messages, such as ``machines.compute.ironcore.dev``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """
        Return the percent-encoded URL path.  Without ``namespace``, the path of a namespaced
        resource is that of all namespaces.
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if namespace and self.namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(quote(subresource, safe="/"))
        return "/".join(parts)
