"""
One page of Chromium: what a user does in it, and everything that goes wrong in it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, gatherResults

from .abstract_page import AbstractPage
from .devtools import DevTools, DevToolsError, Message
from .keys import key_event

reactor: Any = _reactor

_DOMAINS = ("Page", "Runtime", "Network", "Log", "Audits", "DOM")


@dataclass
class Transfer:
    """
    One response.

    :ivar size: bytes on the wire, with the headers.
    """

    url: str
    status: int = 0
    size: int = 0
    headers: dict[str, str] = field(default_factory=dict)


class Page(AbstractPage):
    """
    A tab of Chromium.

    :param context: identifies the profile, if it is not the default one.
    :ivar transfers: responses by the request's id.
    :ivar frames: all messages of WebSockets that arrived, in order.
    """

    def __init__(self, devtools: DevTools, target: str, context: str = "") -> None:
        super().__init__()
        self._devtools, self._target, self._session = devtools, target, ""
        self._context = context
        self.transfers: dict[str, Transfer] = {}
        self.frames: list[bytes] = []
        self._recorders: dict[str, Callable[[str], None]] = {}

    async def attach(self) -> None:
        """Begin to receive the page's events."""
        attached = await self.browser("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        self._devtools.listen(self._session, self._event)
        for domain in _DOMAINS:
            await self.call(f"{domain}.enable")
        # The page believes that its user looks at it, whichever page has the focus.
        await self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def browser(self, method: str, **parameters: object) -> Deferred[Message]:
        """Send a command to the browser."""
        return self._devtools.call(method, **parameters)

    def call(self, method: str, **parameters: object) -> Deferred[Message]:
        """Send a command to the page."""
        return self._devtools.call(method, self._session, **parameters)

    # What happens in the page.

    def _event(self, method: str, event: Message) -> None:
        handler = getattr(self, "_" + method.replace(".", "_"), None)
        if handler is not None:
            handler(event)

    def _Runtime_consoleAPICalled(self, event: Message) -> None:
        words = [str(each.get("value", each.get("description"))) for each in event["args"]]
        self.messages.append(f"{event['type']}: {' '.join(words)}")

    def _Runtime_exceptionThrown(self, event: Message) -> None:
        self.exceptions.append(_described(event["exceptionDetails"]))

    def _Log_entryAdded(self, event: Message) -> None:
        entry = event["entry"]
        self.messages.append(f"{entry['level']}: {entry['text']} {entry.get('url', '')}")

    def _Audits_issueAdded(self, event: Message) -> None:
        issue = event["issue"]
        if issue["code"] == "ContentSecurityPolicyIssue":
            self.violations.append(
                json.dumps(issue["details"]["contentSecurityPolicyIssueDetails"])
            )

    def _Network_requestWillBeSent(self, event: Message) -> None:
        self.transfers[event["requestId"]] = Transfer(event["request"]["url"])

    def _Network_responseReceived(self, event: Message) -> None:
        response = event["response"]
        # A page of another page's making is attached when its first request is under way.
        transfer = self.transfers.setdefault(event["requestId"], Transfer(response["url"]))
        transfer.status = response["status"]
        transfer.headers = {name.lower(): value for name, value in response["headers"].items()}

    def _Network_loadingFinished(self, event: Message) -> None:
        if event["requestId"] in self.transfers:
            self.transfers[event["requestId"]].size = event["encodedDataLength"]

    def _Network_webSocketFrameReceived(self, event: Message) -> None:
        frame = event["response"]
        data = frame["payloadData"]
        self.frames.append(base64.b64decode(data) if frame["opcode"] == 2 else data.encode())

    def _Page_javascriptDialogOpening(self, event: Message) -> None:
        self.dialogs.append(f"{event['type']}: {event['message']}")
        self.call("Page.handleJavaScriptDialog", accept=event["type"] == "beforeunload")

    def _Runtime_bindingCalled(self, event: Message) -> None:
        self._recorders[event["name"]](event["payload"])

    # Scripts.

    async def evaluate(self, expression: str) -> Any:
        result = await self.call(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        if "exceptionDetails" in result:
            raise DevToolsError(_described(result["exceptionDetails"]))
        return result["result"].get("value")

    async def before_scripts(self, script: str) -> None:
        await self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    async def record(self, name: str, receiver: Callable[[str], None]) -> None:
        self._recorders[name] = receiver
        await self.call("Runtime.addBinding", name=name)

    # What a user does.

    async def goto(self, url: str) -> None:
        result = await self.call("Page.navigate", url=url)
        if result.get("errorText"):
            raise DevToolsError(f"{url}: {result['errorText']}")

    async def reload(self) -> None:
        # The browser answers at once, and the document before stays until the new one has arrived.
        await self.evaluate("self.isOfTheDocumentBefore = true")
        await self.call("Page.reload")
        await self.until("!self.isOfTheDocumentBefore")

    async def click_at(self, x: float, y: float) -> None:
        # All at once: while the test waits for an answer, the page could move what is to be clicked.
        await gatherResults(
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=x,
                y=y,
                button="none" if kind == "mouseMoved" else "left",
                clickCount=1,
            )
            for kind in ("mouseMoved", "mousePressed", "mouseReleased")
        )

    async def press(self, key: str) -> None:
        event = key_event(key)
        kind = "keyDown" if "text" in event else "rawKeyDown"
        await self.call("Input.dispatchKeyEvent", type=kind, **event)
        event.pop("text", None)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    async def insert(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def resize(self, width: int, height: int) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        # The browser answers before the page has the size.
        await self.until(f"innerWidth === {width} && innerHeight === {height}")

    async def set_touch(self, enabled: bool = True) -> None:
        """Let a finger be the main pointer, as on a phone."""
        await self.call("Emulation.setTouchEmulationEnabled", enabled=enabled, maxTouchPoints=5)

    async def drag(self, x: float, *heights: float) -> None:
        """Put a finger down at the first height, move it to the others, and lift it."""
        kinds = ("touchStart", *["touchMove"] * (len(heights) - 1))
        for kind, y in zip(kinds, heights, strict=True):
            points = [{"x": x, "y": y}]
            await self.call("Input.dispatchTouchEvent", type=kind, touchPoints=points)
        await self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    async def allow(self, *permissions: str) -> None:
        """Grant permissions that a browser would ask its user for, such as ``clipboard-read``."""
        origin = await self.evaluate("location.origin")
        context = {"browserContextId": self._context} if self._context else {}
        for name in permissions:
            permission = {"name": name, "allowWithoutSanitization": False}
            await self.browser(
                "Browser.setPermission",
                permission=permission,
                setting="granted",
                origin=origin,
                **context,
            )

    async def set_offline(self, offline: bool) -> None:
        """Cut the page off from the network, or connect it again; open WebSockets stay open."""
        await self._set_network(offline=offline)

    async def block(self, *urls: str) -> None:
        """Let requests for these URLs fail, in which ``*`` is any text; without arguments none fails."""
        await self.call("Network.setBlockedURLs", urls=list(urls))

    async def delay(self, milliseconds: int) -> None:
        """Delay each response."""
        await self._set_network(latency=milliseconds)

    async def _set_network(self, *, offline: bool = False, latency: int = 0) -> None:
        await self.call(
            "Network.emulateNetworkConditions",
            offline=offline,
            latency=latency,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )

    async def set_dark(self, dark: bool) -> None:
        """Prefer dark colours, or light colours."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def screenshot(self) -> bytes:
        """Return a PNG of the window."""
        shot = await self.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)
        return base64.b64decode(shot["data"])

    async def close(self) -> None:
        await self.browser("Target.closeTarget", targetId=self._target)

    # Figures.

    def received_bytes(self, prefix: str = "") -> int:
        """Return how many bytes of responses came from URLs that begin with ``prefix``."""
        return sum(each.size for each in self.transfers.values() if each.url.startswith(prefix))


def _described(details: Message) -> str:
    exception = details.get("exception", {})
    return str(exception.get("description") or exception.get("value") or details["text"])
