"""
The OpenAPI documents of one server.

Version 3 is served per group and version, generated from the kinds' schemas.  kubectl before 1.29
and a kube-apiserver in front request version 2 (:mod:`.v2`), kubectl in a binary form.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Any

from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.serving.openapi import operations, schemas
from twisted_exec.apiserver.serving.openapi.binary import encoded
from twisted_exec.apiserver.serving.openapi.v2 import joined
from twisted_exec.apiserver.serving.registry import Registry


class OpenAPI:
    """
    The documents of one server, rendered when a client first requests them.

    Most servers are never asked for version 2, which takes longer than the rest of the start.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def _contents(self) -> dict[str, Object]:
        return {
            path_of(group, version): document(self._registry, group, version)
            for group, versions in self._registry.groups.items()
            for version in versions
        }

    @cached_property
    def _documents(self) -> dict[str, bytes]:
        return {path: _rendered(content) for path, content in self._contents().items()}

    @cached_property
    def v2(self) -> bytes:
        """``GET /openapi/v2`` as JSON."""
        return _rendered(joined(self._contents().values()))

    @cached_property
    def v2_binary(self) -> bytes:
        """The same as protobuf."""
        return encoded(joined(self._contents().values()))

    def index(self) -> Object:
        """``GET /openapi/v3``.  Hashes in the URLs let clients cache the documents."""
        return {
            "paths": {
                path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={hash_of(text)}"}
                for path, text in self._documents.items()
            }
        }

    def of(self, path: str) -> bytes | None:
        """``GET /openapi/v3/PATH``, such as ``apis/GROUP/VERSION``; JSON."""
        return self._documents.get(path)


def _rendered(content: Object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def hash_of(text: bytes) -> str:
    """Return the hash that identifies a document's content: 32 hexadecimal digits."""
    return hashlib.sha256(text).hexdigest()[:32].upper()


def path_of(group: str, version: str) -> str:
    """``apis/GROUP/VERSION``, or ``api/v1``."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


def document(registry: Registry, group: str, version: str) -> Object:
    """Return one OpenAPI v3 document."""
    paths: dict[str, Any] = {}
    components: dict[str, Any] = dict(schemas.COMMON)
    for kind in registry.of(group, version):
        components |= schemas.of(kind)
        paths |= operations.paths(kind)
    return {
        "openapi": "3.0.0",
        "info": {"title": "twisted-exec", "version": "v1"},
        "paths": paths,
        "components": {"schemas": components},
    }
