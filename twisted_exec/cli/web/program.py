"""
The run of ``twisted-exec web``.

Every user of this computer can read the arguments of processes, and the URL has a secret.  So the
browser gets the name of a file that leads there, and that only this user can read.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from html import escape
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds.reviews import SELFSUBJECTREVIEWS
from twisted_exec.api.status import APIError, NotFound, Unauthorized
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.console.terminal import TerminalInput, nonblocking
from twisted_exec.cli.explanations import explain
from twisted_exec.cli.failures import failed
from twisted_exec.cli.messages import one_line
from twisted_exec.cli.options import chosen_context, follow_config
from twisted_exec.cli.suggestion import explain_with_hint
from twisted_exec.cli.web.forwarding import AGENT
from twisted_exec.cli.web.login import VALID_SECONDS
from twisted_exec.cli.web.server import LocalServer
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.kubeconfig.credentials import settled
from twisted_exec.kube.machine_requests import opened_among
from twisted_exec.program.descriptors import raise_descriptor_limit

_CHECK_SECONDS = 5.0

_PAGE = """\
<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>Web console</title>
<a href="{url}">Open the web console</a>
"""

_PREFIX = "twisted-exec-web-"
_DISPLAYS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")

_SNAPS = Path("/var/lib/snapd")


async def serve(options: argparse.Namespace, reactor: Any) -> None:
    """
    Serve the page until the reactor stops.

    :raises APIError: there is no such machine, or the port is not free.
    :raises KubeConfigError: there are no usable credentials.
    """
    context = chosen_context(options)
    reloading = follow_config(options, context)
    config = reloading.current()
    # A plugin may ask the user here, in the terminal, but not later.
    await settled(config, reactor, interactive=sys.stdin.isatty())
    place: dict[str, Any] = {
        "cluster": context if context and not options.server else config.server,
        "namespace": config.namespace,
    }
    if options.machine is not None:
        place["machine"] = await _machine(options, config, reactor)
    raise_descriptor_limit()  # a terminal in the page and its watch have two each
    server = LocalServer(reloading.current, place, reactor, timeout_seconds=options.request_timeout)
    await server.listen(options.port)
    reactor.addSystemEventTrigger(
        "before", "shutdown", lambda: Deferred.fromCoroutine(server.close())
    )
    url = server.new_url()
    opens_browser = not options.no_browser and has_browser(os.environ)
    cluster, seconds = one_line(place["cluster"]), f"{VALID_SECONDS:.0f} seconds"
    if opens_browser:
        print(f"The web console of {cluster} opens in your browser; its URL is", flush=True)
    else:
        print(f"To use the web console of {cluster}, open this URL in a browser:", flush=True)
    _show(url)
    print(f"It works once, for {seconds}. Enter shows a new one, Ctrl-C ends.", flush=True)

    def show_another() -> None:
        _show(server.new_url())
        print(f"It works once, for {seconds}.", flush=True)

    enter = Enter(0, show_another, reactor)
    enter.start()
    reactor.addSystemEventTrigger("before", "shutdown", enter.stop)
    if opens_browser:
        _open_browser(url, reactor)
    await _report_refusal(options, config, reactor)
    await Deferred()  # until the reactor stops


async def _report_refusal(options: argparse.Namespace, config: ClientConfig, reactor: Any) -> None:
    seconds = options.request_timeout or _CHECK_SECONDS
    client = CommandClient(config, reactor, timeout_seconds=seconds, agent=AGENT)
    try:
        await client.create(SELFSUBJECTREVIEWS.resource, {})
    except APIError as refusal:
        if refusal.code == Unauthorized.code:  # of anything else the page says enough
            failed("web", explain(refusal, config=config))
    except KubeConfigError:
        pass
    finally:
        await client.close()


def _show(url: str) -> None:
    print(f"    {url}", flush=True)


def _open_browser(url: str, reactor: Any) -> None:
    page = BrowserPage(url)
    reactor.callLater(VALID_SECONDS, page.remove)
    reactor.addSystemEventTrigger("before", "shutdown", page.remove)
    page.open()


async def _machine(
    options: argparse.Namespace, config: ClientConfig, reactor: Any
) -> dict[str, str]:
    name = options.machine.name
    machine = {"namespace": config.namespace, "name": name}
    seconds = options.request_timeout or _CHECK_SECONDS
    client = CommandClient(config, reactor, timeout_seconds=seconds, agent=AGENT)

    async def read(_: ClientConfig, dialect: Dialect) -> Dialect:
        await client.get(dialect.workload, name, config.namespace)
        return dialect

    try:
        dialect = await opened_among(read, config, reactor, options.among, seconds, None)
    except APIError as refusal:
        if refusal.code != NotFound.code:
            return machine  # the page says why, and goes on when it can
        message = await explain_with_hint(refusal, config, name, reactor, "open")
        raise APIError(message, code=refusal.code, reason=refusal.reason) from None
    finally:
        await client.close()
    resource = dialect.workload
    return machine | {
        "group": resource.group,
        "version": resource.version,
        "resource": resource.plural,
    }


def has_browser(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Return whether a browser would open in a window."""
    return platform == "darwin" or any(environ.get(name) for name in _DISPLAYS)


def _new_directory(snaps: Path) -> Path:
    """
    Return a new directory that only this user can read.

    A browser in a Snap has a ``/tmp`` of its own, and reads no hidden files of the home directory.
    """
    if snaps.is_dir():
        with suppress(OSError, RuntimeError):  # there is no home directory, or none to write to
            return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=Path.home()))
    return Path(tempfile.mkdtemp(prefix=_PREFIX))


class BrowserPage:
    """
    A file that leads to a URL.

    :ivar path: the file, in a directory of its own that only this user can read.
    """

    def __init__(self, url: str, snaps: Path = _SNAPS) -> None:
        self.path = _new_directory(snaps) / "console.html"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(_PAGE.format(url=escape(url)))

    def open(self) -> None:
        """Open it, in a thread: some browsers return only when they are closed."""
        arguments = (self.path.as_uri(),)
        threading.Thread(target=webbrowser.open, args=arguments, daemon=True).start()

    def remove(self) -> None:
        shutil.rmtree(self.path.parent, ignore_errors=True)


class Enter:
    """Calls ``pressed`` for each Enter, while the program is in the foreground."""

    def __init__(self, fd: int, pressed: Callable[[], None], reactor: Any) -> None:
        self._fd, self._pressed, self._reactor = fd, pressed, reactor
        self._open = ExitStack()
        self._input: TerminalInput | None = None

    def start(self) -> None:
        """Start reading, if the descriptor can be waited for."""
        if os.isatty(self._fd):
            # In the background a read would stop the program; ignored, the read fails instead.
            signal.signal(signal.SIGTTIN, signal.SIG_IGN)
            signal.signal(signal.SIGCONT, lambda *_: self._reactor.callFromThread(self._read))
        with suppress(OSError):
            self._fd = self._open.enter_context(nonblocking(self._fd, os.O_RDONLY))
            self._read()

    def stop(self) -> None:
        if self._input is not None:
            self._input.stop()
        self._input = None
        self._open.close()

    def _read(self) -> None:
        if self._input is None:
            self._input = TerminalInput(self._fd, self._received, self._ended, self._reactor)
            try:
                self._input.startReading()
            except OSError:  # epoll does not wait for files
                self._ended()

    def _received(self, data: bytes) -> None:
        if b"\n" in data:
            self._pressed()

    def _ended(self) -> None:
        self._input = None
