"""
The target of a request for stored objects.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted_exec.api.kinds import Kind


@dataclass(frozen=True)
class RequestTarget:
    """Target of a request.  ``namespace`` is empty for cluster-scoped kinds."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
