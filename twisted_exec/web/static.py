"""
Serve the page below ``/console/``.

The names of the files are listed at the start, and a request can only select one of them, so no
path of a request reaches the file system. ``index.html`` refers to the other files below a
directory whose name changes with them, so that browsers can keep these files.

A console prints what an attacker may have written, so the policy in the headers (:func:`protect`)
is the second line of defence behind the page's own code.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twisted.web import http
from twisted.web.http_headers import Headers

from twisted_exec.auth.dispatcher import GatedRoutes
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.paced import accepts_gzip
from twisted_exec.streaming.http.responses import respond, respond_json, respond_text
from twisted_exec.streaming.http.routes import with_head
from twisted_exec.streaming.http.site import Request

ROOT = "console"
"""First segment of the page's paths."""

DIRECTORY = Path(__file__).parent / "page"
"""Files of the page.  ``vendor`` below it is built with the wheel."""

VENDOR = "vendor/xterm.js"
"""The file without which the page has no terminal."""

CONTENT_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
}
"""Content types by suffix; files with other suffixes are not served."""

_INDEX, _CONFIG = "index.html", "config.json"
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_DEEPEST = 4
"""Segments of the longest name of a file, such as ``v-0123456789ab/views/log/lines.js``."""
_VERSION_PREFIX = "v-"
_REFERENCE = re.compile(rb'\b(href|src)="(?!data:)')
_SMALLEST_GZIP = 1 << 10

# xterm.js sets the style of its elements; the player's emulator is WebAssembly.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self' 'wasm-unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)

_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass
class _File:
    path: Path
    content_type: str
    stamp: tuple[int, int] | None = None
    body: bytes = b""
    compressed: bytes = b""
    digest: str = ""
    directory: str = ""

    def present(self) -> tuple[int, int]:
        status = self.path.stat()
        return status.st_size, status.st_mtime_ns

    def read(self, directory: str = "") -> None:
        """
        Read the file if it, or ``directory``, has changed.

        :param directory: prefix for the references in it; empty to leave them.
        """
        stamp = self.present()
        if stamp == self.stamp and directory == self.directory:
            return
        self.body, self.directory = self.path.read_bytes(), directory
        if directory:
            self.body = _REFERENCE.sub(rb'\1="%s/' % directory.encode(), self.body)
        smaller = gzip.compress(self.body, mtime=0) if len(self.body) >= _SMALLEST_GZIP else b""
        self.compressed = smaller if len(smaller) < len(self.body) else b""
        self.digest = hashlib.sha256(self.body).hexdigest()[:20]
        self.stamp = stamp


class Page:
    """
    The page and its configuration.

    :param config: returns the content of ``config.json``, without ``version`` and ``vendor``.
    """

    def __init__(
        self,
        config: Callable[[], Mapping[str, Any]],
        version: str,
        directory: Path = DIRECTORY,
    ) -> None:
        self._config, self._version = config, version
        self._files = {
            path.relative_to(directory).as_posix(): _File(path, CONTENT_TYPES[path.suffix])
            for path in sorted(directory.rglob("*"))
            if path.suffix in CONTENT_TYPES and path.is_file()
        }
        self._directory = ""

    @property
    def names(self) -> Sequence[str]:
        """The names of the files, relative to ``/console/``."""
        return list(self._files)

    def add_to(self, routes: GatedRoutes) -> None:
        """Add the routes to a server with a gate."""

        async def handle(context: RequestContext) -> None:
            self.respond(context.request, "/".join(context.segments[1:]))

        async def redirect(context: RequestContext) -> None:
            self.redirect(context.request)

        routes.add(_METHODS, f"/{ROOT}", redirect, is_open=True)
        routes.add(_METHODS, f"/{ROOT}/", handle, is_open=True)
        for depth in range(1, _DEEPEST + 1):
            pattern = "/".join(f"{{{number}}}" for number in range(depth))
            routes.add(_METHODS, f"/{ROOT}/{pattern}", handle, is_open=True)

    def redirect(self, request: Request) -> None:
        """Answer ``/console``: the page's own links are relative to ``/console/``."""
        protect(request.responseHeaders)
        # Relative, so that it also holds behind a proxy that adds a prefix.
        request.setHeader(b"Location", f"{ROOT}/".encode())
        respond_text(request, http.PERMANENT_REDIRECT, f"the console is at /{ROOT}/\n")

    def respond(self, request: Request, name: str) -> None:
        """
        Answer a request below ``/console/``.

        :param name: the rest of the path, decoded; empty for the page itself.
        """
        protect(request.responseHeaders)
        directory, _, rest = name.partition("/")
        # The directory of another release has the present files, for a page that has not been reloaded.
        is_other = rest not in ("", _INDEX) and directory.startswith(_VERSION_PREFIX)
        name = rest if is_other else name or _INDEX
        file = self._files.get(name)
        if file is None and name != _CONFIG:
            respond_text(request, http.NOT_FOUND, f"there is no /{ROOT}/{_shown(name)}\n")
        elif request.method not in (b"GET", b"HEAD"):
            request.setHeader(b"Allow", ", ".join(with_head(["GET"])).encode())
            respond_text(request, http.NOT_ALLOWED, f"/{ROOT}/{name} can only be read (GET)\n")
        elif file is None:
            request.setHeader(b"Cache-Control", b"no-store")
            respond_json(request, http.OK, self._document())
        else:
            if name == _INDEX:
                self._directory = self._present()
            _send(request, name, file, self._directory, is_kept=directory == self._directory)

    def _present(self) -> str:
        stamps: list[object] = [self._version]
        for name, file in self._files.items():
            with contextlib.suppress(OSError):
                stamps.append((name, file.present()))
        return _VERSION_PREFIX + hashlib.sha256(repr(stamps).encode()).hexdigest()[:12]

    def _document(self) -> dict[str, Any]:
        return {
            "version": self._version,
            "vendor": VENDOR in self._files,
            **self._config(),
        }


def _send(request: Request, name: str, file: _File, directory: str, *, is_kept: bool) -> None:
    try:
        file.read(directory if name == _INDEX else "")
    except OSError as problem:
        reason = os.strerror(problem.errno or 0)
        text = f"/{ROOT}/{name} cannot be read: {reason}; install twisted-exec again\n"
        respond_text(request, http.SERVICE_UNAVAILABLE, text)
        return
    compressed = bool(file.compressed) and accepts_gzip(request)
    request.setHeader(b"Vary", b"Accept-Encoding")
    # Elsewhere each use asks whether its copy is current: the names stay the same in the next release.
    kept = b"public, immutable, max-age=31536000" if is_kept else b"no-cache"
    request.setHeader(b"Cache-Control", kept)
    tag = f'"{file.digest}-gzip"' if compressed else f'"{file.digest}"'
    if request.setETag(tag.encode()) is http.CACHED:
        request.finish()
        return
    if compressed:
        request.setHeader(b"Content-Encoding", b"gzip")
    respond(request, http.OK, file.compressed if compressed else file.body, file.content_type)


def _shown(name: str) -> str:
    return ascii(name)[1:-1][:200]


def protect(headers: Headers) -> None:
    """Set the headers of a response."""
    for name, value in _HEADERS.items():
        headers.setRawHeaders(name, [value])
