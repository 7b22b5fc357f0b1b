"""
WebKitGTK's MiniBrowser on a display of its own, driven by W3C WebDriver.

WebDriver has no events: what scripts report, and what goes wrong in the page, waits there until the next
command.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from typing import Any

from twisted.internet import reactor as _reactor

from tests import needs
from tests.flows import programs
from tests.flows.deployment import pause
from tests.interop.programs import free_port
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.transport import HTTPTransport, Request

from .abstract_page import SECONDS, PageError
from .actions import Actions, ActionsPage

reactor: Any = _reactor

_OPTIONS = {
    # A document has not been loaded when the command to open it returns: scripts of tests run at once.
    "pageLoadStrategy": "none",
    "acceptInsecureCerts": True,
    "timeouts": {"script": 2 * SECONDS * 1000},
}
_EVALUATED = """const done = arguments[arguments.length - 1];
(async () => (%s))().then(
    (value) => done({value: value === undefined ? null : value}),
    (error) => done({error: String(error)}),
);"""
# Listens from the first command to a document on.  A document that another one replaces goes on until then; its last
# reports wait in the storage.
_LISTEN = """(() => {
    const reports = (self.reportsOfTest ??= []);
    const report = (kind, text) => reports.push([kind, text]);
    reports.unshift(...JSON.parse(sessionStorage.getItem('reportsOfTest') ?? '[]'));
    sessionStorage.removeItem('reportsOfTest');
    addEventListener('pagehide', () =>
        sessionStorage.setItem('reportsOfTest', JSON.stringify(reports.splice(0))));
    addEventListener('securitypolicyviolation', (event) =>
        report('violation', `${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
    addEventListener('error', (event) => event.message && report('exception', event.message));
    addEventListener('unhandledrejection', (event) => report('exception', String(event.reason)));
    %s
})()"""


class WebKit:
    """A display, a driver and its only page: a driver has one session."""

    def __init__(self) -> None:
        self._directory = tempfile.mkdtemp(prefix="exec-webkit-")
        self._programs: list[programs.Program] = []

    async def start(self) -> None:
        """Fires when display and driver have started."""
        driver = needs.webkit_program()
        assert driver is not None, needs.webkit()
        screen = ("-screen", "0", "1400x1000x24", "-nolisten", "tcp")
        display = await self._run(["Xvfb", "-displayfd", "1", *screen]).until(rb"(\d+)\n")
        environment = {
            "DISPLAY": f":{display[1].decode()}",
            "GDK_BACKEND": "x11",
            "HOME": self._directory,
            "LIBGL_ALWAYS_SOFTWARE": "1",
            "NO_AT_BRIDGE": "1",
            "XDG_RUNTIME_DIR": self._directory,
        }
        port = free_port()
        self._run([driver, f"--port={port}", "--host=127.0.0.1"], environment)
        self._http = HTTPTransport(ClientConfig(f"http://127.0.0.1:{port}"), reactor)

    def _run(self, argv: list[str], environment: dict[str, str] | None = None) -> programs.Program:
        # A process group, so that one signal ends the browser's many processes.
        program = programs.start(["setsid", *argv], env=environment)
        self._programs.append(program)
        return program

    async def page(
        self, *, width: int = 1280, height: int = 800, private: bool = False
    ) -> WebKitPage:
        """Open the page, whose storage is always private."""
        while True:
            try:
                body = {"capabilities": {"alwaysMatch": _OPTIONS}}
                made = await self.command("POST", "/session", body)
                break
            except OSError:  # the driver does not listen yet
                await pause()
        page = WebKitPage(self, made["sessionId"])
        await page.resize(width, height)
        return page

    async def command(self, method: str, path: str, body: object) -> Any:
        """
        Send a command of W3C WebDriver.

        :raises PageError: it was refused.
        """
        data = json.dumps(body).encode() if method == "POST" else b""
        _, _, answer = await self._http.collect(
            Request(method, path, data), timeout_seconds=3 * SECONDS, limit_bytes=64 << 20
        )
        value = json.loads(answer)["value"]
        if isinstance(value, dict) and "error" in value and "stacktrace" in value:
            raise PageError(f"{value['error']}: {value['message']}")
        return value

    async def stop(self) -> None:
        """Kill all programs with their processes."""
        if hasattr(self, "_http"):
            await self._http.close()
        for program in reversed(self._programs):
            if program.exit_code is None:
                os.killpg(program.pid, signal.SIGKILL)
                await program.ended
        shutil.rmtree(self._directory, ignore_errors=True)


class WebKitPage(ActionsPage):
    """The page of a session."""

    def __init__(self, browser: WebKit, session: str) -> None:
        super().__init__()
        self._browser, self._session = browser, session
        self._scripts: list[str] = []
        self._receivers: dict[str, Callable[[str], None]] = {}

    async def _call(self, command: str, **parameters: object) -> Any:
        return await self._browser.command(
            "POST", f"/session/{self._session}/{command}", parameters
        )

    async def _run(self, expression: str) -> Any:
        answer = await self._call("execute/async", script=_EVALUATED % expression, args=[])
        if "error" in answer:
            raise PageError(answer["error"])
        return answer["value"]

    async def evaluate(self, expression: str) -> Any:
        value = await self._run(expression)
        await self._collect()
        return value

    async def _collect(self) -> None:
        """Keep what the page has reported since the last command."""
        for kind, text in await self._run("(self.reportsOfTest ?? []).splice(0)"):
            if kind in self._receivers:
                self._receivers[kind](text)
            else:
                (self.violations if kind == "violation" else self.exceptions).append(text)

    async def goto(self, url: str) -> None:
        await self._call("url", url=url)
        place = json.dumps(url.partition("#")[0])
        while not await self._run(f"location.href.startsWith({place})"):
            await pause()
        await self._listen()

    async def reload(self) -> None:
        await self._collect()
        await self._run("self.isOfTheDocumentBefore = true")
        await self._call("refresh")
        while await self._run("self.isOfTheDocumentBefore"):
            pass
        await self._listen()

    async def _listen(self) -> None:
        await self._run(_LISTEN % "\n".join(self._scripts))

    async def before_scripts(self, script: str) -> None:
        self._scripts.append(script)

    async def record(self, name: str, receiver: Callable[[str], None]) -> None:
        self._receivers[name] = receiver
        self._scripts.append(f"self.{name} = (text) => report({json.dumps(name)}, text);")

    async def _perform(self, actions: Actions) -> None:
        await self._call("actions", actions=actions)

    async def resize(self, width: int, height: int) -> None:
        await self._call("window/rect", width=width, height=height)
