"""
One page of a browser: what a user does in it, and everything that goes wrong in it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, TimeoutError

from .devtools import DevTools, DevToolsError, Message
from .keys import key_event

reactor: Any = _reactor

SECONDS = 30
"""How long a test waits for a condition."""
_DOMAINS = ("Page", "Runtime", "Network", "Log", "Audits", "DOM")
# A navigation replaces the context of scripts; the condition is then asked of the new one.
_NAVIGATED = ("navigated", "context was destroyed", "Cannot find context", "Promise was collected")
# The promise is fulfilled as soon as the expression is true.  Each change of the document, and each
# event that can change what no observer sees (values, focus, the address), is a reason to look.
_UNTIL = """new Promise((resolve, reject) => {
    const events = ['input', 'change', 'focusin', 'focusout', 'hashchange', 'load', 'resize', 'message'];
    const look = () => {
        try {
            const value = (%s);
            if (!value) return;
            observer.disconnect();
            events.forEach((each) => removeEventListener(each, look, true));
            resolve(value);
        } catch (error) { reject(error); }
    };
    const observer = new MutationObserver(look);
    observer.observe(document, {subtree: true, childList: true, characterData: true, attributes: true});
    events.forEach((each) => addEventListener(each, look, true));
    look();
})"""
# The centre of an element, after it has been scrolled into view.
_CENTRE = """((element) => {
    if (!element) throw Error('no such element: ' + %(selector)s);
    element.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'});
    const {left, top, width, height} = element.getBoundingClientRect();
    const [x, y] = [left + width / 2, top + height / 2];
    const hit = document.elementFromPoint(x, y);
    if (!hit || !(element.contains(hit) || hit.contains(element)))
        throw Error(%(selector)s + ' is covered by ' + (hit ? hit.outerHTML.slice(0, 200) : 'nothing'));
    return [x, y];
})(document.querySelector(%(selector)s))"""


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


class Page:
    """
    A tab.

    :param context: identifies the profile, if it is not the default one.
    :ivar messages: texts of the console, each with its type, such as ``error: ...``.
    :ivar exceptions: exceptions that no script has caught.
    :ivar violations: violations of the content security policy.
    :ivar transfers: responses by the request's id.
    :ivar dialogs: texts of ``alert`` and its like, which are dismissed.
    :ivar frames: all messages of WebSockets that arrived, in order.
    """

    def __init__(self, devtools: DevTools, target: str, context: str = "") -> None:
        self._devtools, self._target, self._session = devtools, target, ""
        self._context = context
        self.messages: list[str] = []
        self.exceptions: list[str] = []
        self.violations: list[str] = []
        self.dialogs: list[str] = []
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
        """
        Return the value of an expression, or of the promise that it is, as JSON has it.

        :raises DevToolsError: it threw an exception.
        """
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

    async def until(self, expression: str, *, seconds: float = SECONDS) -> Any:
        """
        Wait until an expression is true, also across navigations.

        :return: its value.
        :raises AssertionError: it was not true in time; the message shows the page.
        """
        waiting = Deferred.fromCoroutine(self._until(expression))
        waiting.addTimeout(seconds, reactor)
        try:
            return await waiting
        except TimeoutError:
            raise AssertionError(
                f"not true within {seconds} s: {expression}\n{await self.report()}"
            ) from None

    async def _until(self, expression: str) -> Any:
        while True:
            try:
                return await self.evaluate(_UNTIL % expression)
            except DevToolsError as error:
                if not any(each in str(error) for each in _NAVIGATED):
                    raise

    async def report(self) -> str:
        """Return the page's text and everything that went wrong in it."""
        text = await self.evaluate("document.body ? document.body.innerText : ''")
        wrong = [*self.messages, *self.exceptions, *self.violations, *self.dialogs]
        return "\n".join([await self.evaluate("location.href"), text, *wrong])

    async def before_scripts(self, script: str) -> None:
        """Run a script in each document of the page before the document's own scripts."""
        await self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    async def record(self, name: str, receiver: Callable[[str], None]) -> None:
        """Give scripts a function ``name(text)`` that calls ``receiver``; it outlives documents."""
        self._recorders[name] = receiver
        await self.call("Runtime.addBinding", name=name)

    # What a user does.

    async def goto(self, url: str) -> None:
        """
        Open a URL; fires when the document has been received.

        :raises DevToolsError: there was no answer.
        """
        result = await self.call("Page.navigate", url=url)
        if result.get("errorText"):
            raise DevToolsError(f"{url}: {result['errorText']}")

    async def reload(self) -> None:
        await self.call("Page.reload")

    async def click(self, selector: str) -> None:
        """Wait for an element that is not disabled, and click in its centre."""
        quoted = json.dumps(selector)
        await self.until(f"document.querySelector({quoted})?.matches(':not(:disabled)')")
        await self.click_at(*await self.evaluate(_CENTRE % {"selector": quoted}))

    async def click_at(self, x: float, y: float) -> None:
        """Click at a point of the window."""
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = "none" if kind == "mouseMoved" else "left"
            await self.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1
            )

    async def type(self, text: str) -> None:
        """Type into the element that has the focus; a line feed is the Enter key."""
        for character in text:
            await self.press("Enter" if character == "\n" else character)

    async def press(self, key: str) -> None:
        """Press a key, such as ``a``, ``Enter`` or ``Control+Shift+C``."""
        event = key_event(key)
        kind = "keyDown" if "text" in event else "rawKeyDown"
        await self.call("Input.dispatchKeyEvent", type=kind, **event)
        event.pop("text", None)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    async def focus(self, selector: str) -> None:
        """Wait until an element is visible, and give it the focus."""
        quoted = json.dumps(selector)
        await self.until(f"document.querySelector({quoted})?.offsetParent")
        await self.evaluate(f"document.querySelector({quoted}).focus()")

    async def resize(self, width: int, height: int) -> None:
        """Give the window another size, in CSS pixels."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

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
