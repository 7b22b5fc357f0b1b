"""
A user of the web console: a page that is logged in, and the terminals in it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from tests.flows.deployment import pause

from .abstract_page import AbstractPage
from .chromium import Profile

# Each write to a terminal is reported with its document and number, before the page's own modules run.
_RECORD_WRITES = """
const recordWrites = (main) => import(new URL('vendor/xterm.js', main.src)).then(({Terminal}) => {
    const write = Terminal.prototype.write;
    const terminals = [];
    self.terminals = terminals;
    Terminal.prototype.write = function (data, done) {
        if (!terminals.includes(this)) terminals.push(this);
        const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : data;
        const parts = [];
        for (let at = 0; at < bytes.length; at += 8192)
            parts.push(String.fromCharCode(...bytes.subarray(at, at + 8192)));
        reportWrite([performance.timeOrigin, terminals.indexOf(this), btoa(parts.join(''))].join(' '));
        return write.call(this, data, done);
    };
}, () => {});
// The state changes behind the document, and before its modules run; a browser may run this script only later.
if (location.pathname.startsWith('/console/')) {
    let hasBegun = false;
    const begin = () => {
        const main = document.readyState !== 'loading' && document.querySelector('script[type=module]');
        if (main && !hasBegun) recordWrites(main);
        hasBegun ||= !!main;
    };
    addEventListener('readystatechange', begin, true);
    begin();
}
"""
# The text of the visible terminal: its last lines, since a scrollback takes long to read.
_TEXT = """(() => {
    const terminal = (self.terminals || []).find((each) => each.element?.offsetParent);
    if (!terminal) return '';
    const {buffer: {active}} = terminal;
    const first = Math.max(0, active.length - 100);
    const lines = Array.from({length: active.length - first}, (_, index) => active.getLine(first + index));
    return lines.map((each) => (each.isWrapped ? '' : '\\n') + each.translateToString(true)).join('').trim();
})()"""
# The page's own handlers of the event come before this one: views that are loaded are shown then.
_GO = """new Promise((resolve) => {
    const before = location.href;
    addEventListener('hashchange', () => resolve(), {once: true});
    location.hash = %s;
    if (location.href === before) resolve();
})"""
_LOAD = """(async () => {
    const {src} = document.querySelector('script[type=module]');
    const load = (name) => import(new URL(name, src));
    const views = ['machines', 'logs', 'screen', 'recordings', 'events', 'sessions', 'alerts', 'requests'];
    await Promise.all(['terminal/workspace.js', ...views.map((each) => `views/${each}.js`)].map(load));
    await (await load('terminal/screen.js')).load();
})()"""
_SAYS = "new RegExp(%s).test(document.body?.innerText ?? '')"
# xterm.js draws into the document after it has changed its buffer, so each change is noticed.
_UNTIL_TEXT = """(() => { const text = %s; return new RegExp(%s).test(text) && text; })()"""
# The timers that take messages of consoles away never end.
_KEEP_MESSAGES = """(() => {
    const before = self.setTimeout;
    self.setTimeout = (act, ...more) => (/takeBack|#approval|#remove\\(/.test(act) ? 0 : before(act, ...more));
})()"""


AnyPage = TypeVar("AnyPage", bound=AbstractPage)


class Browser(Protocol[AnyPage]):
    """Chromium, or a browser of another make."""

    async def page(
        self, *, width: int = ..., height: int = ..., private: bool = ...
    ) -> AnyPage: ...


class User(Generic[AnyPage]):
    """
    :ivar page: the user's page.
    :ivar written: what each terminal got, by document and number; a reload begins a new document.
    """

    def __init__(self, page: AnyPage, url: str) -> None:
        self.page, self._url = page, url
        self.written: list[dict[int, list[bytes]]] = []
        self._documents: list[str] = []

    @classmethod
    async def visit(
        cls, browser: Browser[AnyPage], url: str, *, private: bool = True, **size: int
    ) -> User[AnyPage]:
        """Open the page in a new tab, with a profile of its own or with the browser's."""
        page = await browser.page(private=private, **size)
        user = cls(page, url)
        await page.record("reportWrite", user._written)
        await page.before_scripts(_RECORD_WRITES)
        await page.goto(url)
        return user

    def _written(self, report: str) -> None:
        document, number, data = report.split(" ")
        if document not in self._documents:
            self._documents.append(document)
            self.written.append({})
        written = self.written[self._documents.index(document)]
        written.setdefault(int(number), []).append(base64.b64decode(data))

    async def log_in(self, token: str) -> None:
        """Paste a token into the dialog."""
        await self.page.focus("dialog[open] input[type=password]")
        await self.page.insert(token)
        await self.page.press("Enter")
        await self.page.until("!document.querySelector('dialog[open]')")

    async def open(self, route: str) -> None:
        """Go to a route, such as ``machines/default/vm-1``; fires when the page has heard of it."""
        await self.page.evaluate(_GO % json.dumps("#/" + route))

    async def until_loaded(self) -> None:
        """Wait until the page has what its views need, which it then shows also without a server."""
        await self.page.evaluate(_LOAD)

    async def keep_messages(self) -> None:
        """Let messages of consoles stay that go after some seconds, so that a slow test sees them."""
        await self.page.before_scripts(_KEEP_MESSAGES)
        await self.page.evaluate(_KEEP_MESSAGES)

    async def text(self) -> str:
        """Return the text of the visible terminal."""
        return str(await self.page.evaluate(_TEXT))

    async def until_terminal(self, pattern: str) -> str:
        """Wait until the text of the visible terminal matches; return the text."""
        try:
            found = await self.page.until(_UNTIL_TEXT % (_TEXT, json.dumps(pattern)))
        except AssertionError as error:
            raise AssertionError(f"{error}\nterminal:\n{await self.text()}") from None
        return str(found)

    async def focus_terminal(self) -> None:
        """Wait for the visible terminal and give it the focus."""
        await self.page.focus_element(
            "[...document.querySelectorAll('.xterm-helper-textarea')].find((each) => each.offsetParent)"
        )

    async def until_terminal_focus(self) -> None:
        """Wait until the page has given the focus to a terminal."""
        await self.page.until("document.activeElement.matches('.xterm-helper-textarea')")

    async def type_line(self, line: str) -> None:
        """Type a line into the visible terminal."""
        await self.focus_terminal()
        await self.page.type(line + "\n")

    async def echo(self, word: str) -> None:
        """Let the shell in the visible terminal print a word with a number, such as ``word-42``."""
        await self.type_line(f"echo {word}-$((6*7))")
        await self.until_terminal(f"{word}-42")

    async def open_commands(self) -> None:
        """Open the dialog of the page's commands from a terminal."""
        await self.page.press("Control+]")
        await self.page.until("document.querySelector('dialog[open]')")

    async def until_more_output(self, size: int) -> None:
        """Wait until terminals have got this many bytes more."""
        size += self.written_bytes
        while self.written_bytes < size:
            await pause()
            # WebDriver reports what scripts do with the next command only.
            await self.page.until("true")

    async def until_documents(self, count: int) -> None:
        """Wait until terminals of this many documents have got output."""
        while len(self.written) < count:
            await pause()
            # WebDriver reports what scripts do with the next command only.
            await self.page.until("true")

    async def until_page(self, pattern: str) -> None:
        """Wait until the visible text of the document matches a regular expression."""
        await self.page.until(_SAYS % json.dumps(pattern))

    async def watch_page(self, pattern: str) -> Callable[[], Coroutine[Any, Any, Any]]:
        """Begin to wait for a text that may be visible only for some seconds; return what waits for it."""
        return await self.page.watch(_SAYS % json.dumps(pattern))

    async def click_text(self, selector: str, text: str) -> None:
        """Click on the first element with exactly this text or this label."""
        await self.page.click_element(
            f"""[...document.querySelectorAll({json.dumps(selector)})].find((each) => each.offsetParent &&
                [each.innerText.trim(), each.getAttribute('aria-label')].includes({json.dumps(text)}))"""
        )

    def faults(self) -> list[str]:
        """Return violations of the policy, exceptions and dialogs of the page."""
        page = self.page
        return [*page.violations, *page.exceptions, *page.dialogs]

    def pieces(self, document: int) -> list[bytes]:
        """Return the writes to the only terminal of a document."""
        (pieces,) = self.written[document].values()
        return pieces

    @property
    def written_bytes(self) -> int:
        """The size of everything that terminals got, in all documents."""
        return sum(map(self.written_bytes_of, range(len(self.written))))

    def written_bytes_of(self, document: int) -> int:
        """Return the size of everything that terminals got in one document."""
        return sum(len(each) for pieces in self.written[document].values() for each in pieces)


async def open_user(browser: Profile, url: str, token: str, **options: Any) -> User:
    """Visit the page and log in."""
    user = await User.visit(browser, url, **options)
    await user.log_in(token)
    return user
