"""
One column in a page of a real browser; see ``tests/clients/scripts.py`` for what it prints.

The page comes from a server here, so it has an origin that is not the API server's; it
tells that server what it saw.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import quote

SECONDS = 120
PAGE = (Path(__file__).parent / "page.html").read_bytes()


class _Handler(BaseHTTPRequestHandler):
    """Gives the page, and takes what it says."""

    told: list[tuple[str, bytes]] = []

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/" else 404, PAGE if self.path == "/" else b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/said":  # and there is more to come
            sys.stdout.buffer.write(body)
            sys.stdout.flush()
        else:
            self.told.append((self.path, body))
        self._answer(200, b"")

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Standard output is for what the page says."""


def main() -> None:
    column, machine, mark = sys.argv[2:]
    facts = {
        "column": column,
        "machine": machine,
        "mark": mark,
        "server": os.environ["SERVER"],
        "token": os.environ["TOKEN"],
        "namespace": os.environ["NAMESPACE"],
    }
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    server.timeout = SECONDS
    url = f"http://127.0.0.1:{server.server_port}/#{quote(json.dumps(facts))}"
    profile = tempfile.mkdtemp()
    browser = subprocess.Popen(
        [
            sys.argv[1],
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--ignore-certificate-errors", f"--user-data-dir={profile}", url),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not _Handler.told and browser.poll() is None:
            server.handle_request()
    finally:
        browser.kill()
        browser.wait(SECONDS)
        shutil.rmtree(profile, ignore_errors=True)
    (path, said), *_ = _Handler.told or [("/failed", b"the browser said nothing")]
    sys.stdout.buffer.write(said)
    sys.exit(0 if path == "/done" else 1)


if __name__ == "__main__":
    main()
