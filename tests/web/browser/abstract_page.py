"""
A page in any browser: what a user does in it, and waits for.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet import reactor as _reactor

reactor: Any = _reactor

SECONDS = 540
"""How long a test waits for a condition; less than the test's timeout, whose failure does not show the page."""
# A navigation replaces the context of scripts; the condition is then asked of the new one.
_NAVIGATED = ("navigated", "context was destroyed", "Cannot find context", "Promise was collected")
# The promise is fulfilled as soon as the expression is true, and with null when the time is over.  Each
# change of the document, and each event that can change what no observer sees (values, focus, the
# address), is a reason to look; places of elements change without either, so it also looks now and then.
# An element that is not there yet is no fault, so a TypeError counts only when the time is over.
_UNTIL = """new Promise((resolve, reject) => {
    const events = ['input', 'change', 'focusin', 'focusout', 'hashchange', 'load', 'resize', 'message',
        'transitionend', 'animationend'];
    const end = (settle, value) => {
        observer.disconnect();
        events.forEach((each) => removeEventListener(each, look, true));
        clearTimeout(timer);
        clearInterval(looking);
        settle(value);
    };
    let problem = null;
    const look = () => {
        problem = null;
        try {
            const value = (%s);
            if (value) end(resolve, value);
        } catch (error) {
            if (error instanceof TypeError) problem = error;
            else end(reject, error);
        }
    };
    const timer = setTimeout(() => problem ? end(reject, problem) : end(resolve, null), %d);
    const looking = setInterval(() => look(), 500);
    const observer = new MutationObserver(look);
    observer.observe(document, {subtree: true, childList: true, characterData: true, attributes: true});
    events.forEach((each) => addEventListener(each, look, true));
    look();
})"""
_SETTLED = """(async () => {
    let [before, same] = ['', 0];
    while (same < 20) {
        await new Promise(requestAnimationFrame);
        const value = JSON.stringify(%s);
        same = value === before ? same + 1 : 0;
        before = value;
    }
    return JSON.parse(before);
})()"""
# A point of an element that is enabled and not covered, after it has been scrolled into view.  Until the click is
# over, a click on anything else does nothing: the page may move the element away before the browser gets the click.
_AIM = """((element) => {
    if (!element?.matches(':not(:disabled)')) return null;
    element.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'});
    const {left, top, width, height, bottom} = element.getBoundingClientRect();
    const [x, y] = %s;
    const hit = document.elementFromPoint(x, y);
    if (!hit || !(element.contains(hit) || hit.contains(element))) return null;
    const aim = self.aim = {over: new AbortController(), hasMissed: false};
    const guard = (event) => {
        if (!event.isTrusted) return; // the page itself clicks on another element
        aim.hasMissed ||= !element.contains(event.target) && event.target !== hit;
        if (aim.hasMissed) {
            event.preventDefault();
            event.stopImmediatePropagation();
        } else if (event.type === 'click') aim.over.abort();
    };
    for (const each of ['pointerdown', 'mousedown', 'pointerup', 'mouseup', 'click'])
        addEventListener(each, guard, {capture: true, signal: aim.over.signal});
    return [x, y];
})(%s)"""
_CENTRE = "[left + width / 2, top + height / 2]"
# Whether the click has missed; a document that the click has opened knows of none.
_MISSED = "(() => { self.aim?.over.abort(); return Boolean(self.aim?.hasMissed); })()"
_CLICKS = 20
# Waits and acts in one step: the page may replace the element between two.
_FOCUS = "((element) => element?.offsetParent && (element.focus(), true))(%s)"


class PageError(Exception):
    """The browser refused a command, or the page threw an exception."""


def _is_navigation(error: PageError) -> bool:
    return any(each in str(error) for each in _NAVIGATED)


class AbstractPage(ABC):
    """
    A tab.

    :ivar messages: texts of the console, each with its type, such as ``error: ...``.
    :ivar exceptions: exceptions that no script has caught.
    :ivar violations: violations of the content security policy.
    :ivar dialogs: texts of ``alert`` and its like, which are dismissed.
    """

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.exceptions: list[str] = []
        self.violations: list[str] = []
        self.dialogs: list[str] = []
        self._watched = 0

    # What a browser implements.

    @abstractmethod
    async def evaluate(self, expression: str) -> Any:
        """
        Return the value of an expression, or of the promise that it is, as JSON has it.

        :raises PageError: it threw an exception.
        """

    @abstractmethod
    async def goto(self, url: str) -> None:
        """
        Open a URL; fires when the document has been received.

        :raises PageError: there was no answer.
        """

    @abstractmethod
    async def reload(self) -> None:
        """Load the document again; fires when the new one has begun."""

    @abstractmethod
    async def before_scripts(self, script: str) -> None:
        """Run a script in each document of the page before the document's own scripts."""

    @abstractmethod
    async def record(self, name: str, receiver: Callable[[str], None]) -> None:
        """Give scripts a function ``name(text)`` that calls ``receiver``; it outlives documents."""

    @abstractmethod
    async def press(self, key: str) -> None:
        """Press a key, such as ``a``, ``Enter`` or ``Control+Shift+C``."""

    @abstractmethod
    async def click_at(self, x: float, y: float) -> None:
        """Click at a point of the window."""

    @abstractmethod
    async def resize(self, width: int, height: int) -> None:
        """Give the window another size, in CSS pixels."""

    # Scripts.

    async def until(self, expression: str, *, seconds: float = SECONDS) -> Any:
        """
        Wait until an expression is true, also across navigations.

        :return: its value.
        :raises AssertionError: it was not true in time; the message shows the page.
        """
        limit = reactor.seconds() + seconds
        while (left := limit - reactor.seconds()) > 0:
            try:
                value = await self.evaluate(_UNTIL % (expression, left * 1000))
            except PageError as error:
                if not _is_navigation(error):
                    raise
            else:
                if value is not None:
                    return value
        raise AssertionError(f"not true within {seconds} s: {expression}\n{await self.report()}")

    async def watch(self, expression: str) -> Callable[[], Coroutine[Any, Any, Any]]:
        """
        Begin to wait for an expression that may be true only for a moment.  The document must stay.

        :return: waits until the expression was true; fires with its value.
        """
        self._watched += 1
        place = f"self.watched{self._watched}"
        await self.evaluate(f"void ({place} = {_UNTIL % (expression, SECONDS * 1000)})")

        async def seen() -> Any:
            value = await self.evaluate(place)
            if value is None:
                raise AssertionError(f"was never true: {expression}\n{await self.report()}")
            return value

        return seen

    async def settled(self, expression: str) -> Any:
        """Return the value of an expression as soon as it has been the same in some frames."""
        return await self.evaluate(_SETTLED % expression)

    async def report(self) -> str:
        """Return the page's text and everything that went wrong in it."""
        text = await self.evaluate("document.body ? document.body.innerText : ''")
        wrong = [*self.messages, *self.exceptions, *self.violations, *self.dialogs]
        return "\n".join([await self.evaluate("location.href"), text, *wrong])

    # What a user does.

    async def click(self, selector: str) -> None:
        """Wait for an element, and click in its centre; see :meth:`click_element`."""
        await self.click_element(f"document.querySelector({json.dumps(selector)})")

    async def click_element(self, expression: str, place: str = _CENTRE) -> None:
        """
        Wait until an element is enabled and nothing covers it, and click on it.

        :param place: where, by the ``left``, ``top``, ``width``, ``height`` and ``bottom`` of the ``element``.
        """
        for _ in range(_CLICKS):
            await self.click_at(*await self.until(_AIM % (place, expression)))
            try:
                if not await self.evaluate(_MISSED):
                    return
            except PageError as error:
                if not _is_navigation(error):
                    raise
                return
        raise AssertionError(f"{_CLICKS} clicks missed: {expression}\n{await self.report()}")

    async def type(self, text: str) -> None:
        """Type into the element that has the focus; a line feed is the Enter key."""
        for character in text:
            await self.press("Enter" if character == "\n" else character)

    async def focus(self, selector: str) -> None:
        """Wait until an element is visible, and give it the focus; see :meth:`focus_element`."""
        await self.focus_element(f"document.querySelector({json.dumps(selector)})")

    async def focus_element(self, expression: str) -> None:
        """Wait until an element is visible, and give it the focus."""
        await self.until(_FOCUS % expression)

    async def insert(self, text: str) -> None:
        """Insert a text into the element that has the focus, as a paste does."""
        await self.type(text)
