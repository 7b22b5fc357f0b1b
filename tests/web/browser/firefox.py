"""
A headless Firefox with a private profile, driven by WebDriver BiDi.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol

from tests import needs
from tests.flows import programs
from tests.flows.deployment import pause

from .abstract_page import PageError
from .actions import Actions, ActionsPage
from .bidi import BiDi, Message

reactor: Any = _reactor

_PREFERENCES = {
    "app.normandy.enabled": False,
    "app.update.disabledForTesting": True,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "security.default_personal_cert": "Select Automatically",
    "toolkit.telemetry.server": "",
}
_COMMITTED = "browsingContext.navigationCommitted"
_POLICY = "Content-Security-Policy"
_LEFT = re.compile(r"The connection to (\S+) was interrupted while the page was loading\.")
"""Firefox also reports a WebSocket that was still connecting when its page was left."""
_UNCONNECTED = re.compile(
    r"Firefox can.t establish a connection to the server at ws\S+watch=true\S*"
)
"""Firefox reports so also a watch that its page ends before it is connected, as when a view is left."""
# Firefox cannot report an exception without a stack, such as a rejection that is no Error.
_EVALUATED = """(async () => {
    try { return JSON.stringify({value: await (%s)}); }
    catch (error) { return JSON.stringify({error: String(error)}); }
})()"""


class Firefox:
    """
    One browser process.

    :param profile: its directory, whose certificates the browser uses; without it the browser has an
        empty one, and accepts the certificate of any server.
    """

    def __init__(self, *, profile: str = "") -> None:
        self._directory = tempfile.mkdtemp(prefix="exec-firefox-")
        self._trusts_any = not profile
        self._profile = Path(profile or f"{self._directory}/profile")
        self._pages: dict[str, FirefoxPage] = {}

    async def start(self) -> None:
        """Fires when the browser answers."""
        program = needs.firefox_program()
        assert program is not None, needs.firefox()
        self._profile.mkdir(exist_ok=True)
        lines = [
            f"user_pref({json.dumps(name)}, {json.dumps(value)});\n"
            for name, value in _PREFERENCES.items()
        ]
        (self._profile / "user.js").write_text("".join(lines))
        options = ("--headless", "--no-remote", "--remote-debugging-port=0")
        environment = {"HOME": self._directory, "TMPDIR": self._directory}
        # A process group, so that one signal ends the browser's many processes.
        words = ["setsid", program, *options, f"--profile={self._profile}"]
        self._program = programs.start(words, env=environment)
        listens = await self._program.until(rb"WebDriver BiDi listening on ws://127.0.0.1:(\d+)\s")
        port = int(listens[1])
        self._bidi = BiDi(f"127.0.0.1:{port}", self._event)
        await connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", port), self._bidi)
        await self._bidi.opened
        capabilities = {"alwaysMatch": {"acceptInsecureCerts": self._trusts_any}}
        await self._bidi.call("session.new", capabilities=capabilities)
        events = ["log.entryAdded", "script.message"]
        events += ["browsingContext.userPromptOpened", _COMMITTED]
        await self._bidi.call("session.subscribe", events=events)

    async def page(
        self, *, width: int = 1280, height: int = 800, private: bool = False
    ) -> FirefoxPage:
        """Open an empty page; a private one has storage of its own."""
        options = {}
        if private:
            made = await self._bidi.call("browser.createUserContext")
            options["userContext"] = made["userContext"]
        made = await self._bidi.call("browsingContext.create", type="tab", **options)
        page = self._pages[made["context"]] = FirefoxPage(self._bidi, made["context"])
        await page.resize(width, height)
        return page

    async def urls(self) -> list[str]:
        """Return the URLs of all open pages, sorted."""
        tree = await self._bidi.call("browsingContext.getTree")
        return sorted(each["url"] for each in tree["contexts"])

    async def page_at(self, url: str) -> FirefoxPage:
        """Fires with the page that another page has opened, once its URL begins with this."""
        while True:
            tree = await self._bidi.call("browsingContext.getTree")
            for each in tree["contexts"]:
                if each["url"].startswith(url):
                    page = FirefoxPage(self._bidi, each["context"])
                    return self._pages.setdefault(each["context"], page)
            await pause()

    def _event(self, method: str, event: Message) -> None:
        context = event.get("context") or event.get("source", {}).get("context")
        if context in self._pages:
            self._pages[context].event_received(method, event)

    async def stop(self) -> None:
        """Kill the browser with all its processes."""
        if hasattr(self, "_program") and self._program.exit_code is None:
            os.killpg(self._program.pid, signal.SIGKILL)
            while self._program.exit_code is None:
                await pause()
        shutil.rmtree(self._directory, ignore_errors=True)


class FirefoxPage(ActionsPage):
    """A tab of Firefox, whose ``messages`` are only warnings and errors."""

    def __init__(self, bidi: BiDi, context: str) -> None:
        super().__init__()
        self._bidi, self._context = bidi, context
        self._receivers: dict[str, Callable[[str], None]] = {}
        self._answers: list[Deferred[Message]] = []
        self._left: list[str] = []

    def event_received(self, method: str, event: Message) -> None:
        """Keep what went wrong in the page, and pass on what its scripts report."""
        if method == _COMMITTED:
            answers, self._answers = self._answers, []
            for answer in answers:
                if not answer.called:
                    answer.errback(PageError("navigated"))
        elif method == "script.message":
            self._receivers[event["channel"]](event["data"]["value"])
        elif method == "browsingContext.userPromptOpened":
            self.dialogs.append(f"{event['type']}: {event['message']}")
        elif event["type"] == "javascript" and event["level"] == "error":
            found = self.violations if event["text"].startswith(_POLICY) else self.exceptions
            if left := _LEFT.fullmatch(event["text"]):
                self._left.append(f" the server at {left[1]}.")
            elif _UNCONNECTED.fullmatch(event["text"]):
                self.messages.append(event["text"])
            else:
                found.append(event["text"])
            found[:] = [each for each in found if not each.endswith(tuple(self._left))]
        else:
            self.messages.append(f"{event['level']}: {event['text']}")

    async def evaluate(self, expression: str) -> Any:
        evaluated = self._bidi.call(
            "script.evaluate",
            expression=_EVALUATED % expression,
            target={"context": self._context},
            awaitPromise=True,
            userActivation=True,
        )
        # Firefox never answers when the document is replaced meanwhile.
        answer: Deferred[Message] = Deferred()
        self._answers.append(answer)
        evaluated.addBoth(lambda result: answer.called or answer.callback(result))
        result = await answer
        if answer in self._answers:
            self._answers.remove(answer)
        if result["type"] == "exception":
            raise PageError(result["exceptionDetails"]["text"])
        answer = json.loads(result["result"]["value"])
        if "error" in answer:
            raise PageError(answer["error"])
        return answer.get("value")

    async def goto(self, url: str) -> None:
        await self._bidi.call(
            "browsingContext.navigate", context=self._context, url=url, wait="interactive"
        )

    async def reload(self) -> None:
        await self._bidi.call("browsingContext.reload", context=self._context, wait="none")

    async def before_scripts(self, script: str) -> None:
        declaration = f"() => {{ {script} }}"
        await self._preload(declaration, [])

    async def record(self, name: str, receiver: Callable[[str], None]) -> None:
        self._receivers[name] = receiver
        channel = {"type": "channel", "value": {"channel": name}}
        await self._preload(f"(report) => {{ self.{name} = report; }}", [channel])

    async def _preload(self, declaration: str, arguments: list[Message]) -> None:
        await self._bidi.call(
            "script.addPreloadScript",
            functionDeclaration=declaration,
            arguments=arguments,
            contexts=[self._context],
        )

    async def _perform(self, actions: Actions) -> None:
        await self._bidi.call("input.performActions", context=self._context, actions=actions)

    async def resize(self, width: int, height: int) -> None:
        await self._bidi.call(
            "browsingContext.setViewport",
            context=self._context,
            viewport={"width": width, "height": height},
        )
