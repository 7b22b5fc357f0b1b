"""
The OpenAPI documents of one server: for ``kubectl explain``, validation by clients, and generated
clients.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Any

from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.serving.openapi.paths import paths_of
from twisted_exec.apiserver.serving.openapi.protobuf import to_protobuf
from twisted_exec.apiserver.serving.openapi.schemas import COMMON, schemas_of
from twisted_exec.apiserver.serving.openapi.version2 import to_version2
from twisted_exec.apiserver.serving.registry import KindRegistry


class OpenAPI:
    """The documents of one server, rendered when a client first requests them."""

    def __init__(self, registry: KindRegistry) -> None:
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
        return _rendered(to_version2(self._contents().values()))

    @cached_property
    def v2_binary(self) -> bytes:
        """The same as protobuf."""
        return to_protobuf(to_version2(self._contents().values()))

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


def document(registry: KindRegistry, group: str, version: str) -> Object:
    """Return one OpenAPI v3 document."""
    paths: dict[str, Any] = {}
    components: dict[str, Any] = dict(COMMON)
    for kind in registry.of(group, version):
        components |= schemas_of(kind)
        paths |= paths_of(kind)
    return {
        "openapi": "3.0.0",
        "info": {"title": "twisted-exec", "version": "v1"},
        "paths": paths,
        "components": {"schemas": components},
    }
