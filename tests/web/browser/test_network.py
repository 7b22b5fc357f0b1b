"""
Consoles in a real browser over bad networks: offline, behind an expired login, in two tabs, through the
browser's history, and over a slow link.
"""

from __future__ import annotations

from tests.flows.deployment import pause
from twisted_exec.api import kinds

from .base import WebTestCase
from .layout import faults_of
from .steps import PLAYED, VM
from .user import User

SESSIONS = kinds.CONSOLESESSIONS.resource
PANEL = ".panel:not([hidden])"
SLOW_BYTES_PER_SECOND = 3_000
# The page is loaded again as soon as it has stored a session, whose first position it then does not know.
_RELOAD_EARLY = """(() => {
    const set = Storage.prototype.setItem;
    let isLeaving = false;
    Storage.prototype.setItem = function (key, value) {
        if (isLeaving) return;
        set.call(this, key, value);
        if (!key.endsWith('session.default/vm-1')) return;
        isLeaving = true;
        location.reload();
    };
})()"""
_IS_RELOADED = "performance.getEntriesByType('navigation')[0].type === 'reload'"
# Its first lines are there a little earlier.
_FOLLOWS = "document.querySelector('.log-foot input').checked"

_RECORD_MESSAGES = """{
    self.told = [];
    const message = document.querySelector('.message');
    new MutationObserver(() => self.told.push(message.innerText)).observe(message, {childList: true});
}"""

_IS_DIM = "getComputedStyle(document.querySelector('.console.active .terminal-box')).opacity < 0.5"
# Whether the outage is said over the terminal, in its tab, and in the title of the window.
_OUTAGE = """[
    /^Connection lost for [^.]+[.] [^]*Try now$/.test(document.querySelector('.console.active .outage:not([hidden])')?.textContent),
    document.querySelector('.tabs .badge:not([hidden])')?.innerText.trim() === 'No connection',
    document.title.startsWith('No connection')]"""


# How often the page says that there is no connection, beside the mark of the tab.
_SAID = "(document.body.innerText.match(/Connection lost|reconnecting|No answer for|cannot be reached/g) ?? []).length"


class NetworkTests(WebTestCase):
    """A shell, and a user who logs in with a token."""

    async def setUp(self) -> None:
        await super().setUp()
        await self.deployment.create_machine("vm-1", "shell")

    async def sessions(self) -> set[str]:
        """Return the names of the sessions that the server keeps; each appears a moment after the session."""
        items = (await self.deployment.client.list(SESSIONS, "default"))["items"]
        return {each["metadata"]["name"] for each in items}

    async def check_sessions(self, count: int) -> None:
        """Fail if the server keeps more sessions."""
        while len(names := await self.sessions()) < count:
            await pause()
        self.assertEqual(len(names), count)

    async def test_loaded_in_outage(self) -> None:
        """A page that is loaded again while the server is away says that it waits, for what, and goes on by itself."""
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.page.block("*/config.json")
        await ada.page.reload()
        await ada.until_page("Waiting for the server .*The console of vm-1 comes back")
        await self.check_layout(ada, "loaded-in-outage", "#view p.dim")
        await ada.page.block()
        await ada.until_page("You can type")
        await ada.until_terminal("[#$]$")
        self.check_faults()

    async def test_left_page(self) -> None:
        """
        A user who goes to another page in the same tab is no viewer any more, although the browser keeps the page; on
        return the session goes on.
        """
        ada = await self.user()
        await self.open_terminal(ada)
        # A browser that is slow to freeze the page may drop it; then the user leaves the new one.
        while not await self.leave_and_return(ada):
            pass
        await ada.echo("again")
        await self.check_sessions(1)
        self.check_faults()

    async def leave_and_return(self, ada: User) -> bool:
        """Go to another page and back; return whether the browser has kept the page."""
        await ada.page.evaluate("self.isKept = true")
        await ada.page.goto(f"{self.deployment.console_url}style.css")
        while not await self.is_away():
            await pause()
        await ada.page.evaluate("history.back()")
        await ada.page.until("document.querySelector('.status-line.good')")
        return bool(await ada.page.evaluate("self.isKept"))

    async def is_away(self) -> bool:
        """Return whether there are sessions, none of which has a connection."""
        items = (await self.deployment.client.list(SESSIONS, "default"))["items"]
        return bool(items) and all((each.get("status") or {}).get("awaySince") for each in items)

    async def test_recording(self) -> None:
        """A recording that is opened without a network opens by itself when that is back, also if the page has no player yet."""
        ada = await self.user()
        await self.open_terminal(ada)
        await self.begin_recording(ada)
        await ada.echo("recorded")
        await self.open_ended_recording(ada)
        bob = await self.user("bob")
        self.deployment.near.refuses = True
        self.deployment.near.cut()
        await bob.open("recordings/default/seen")
        await bob.until_page("No recording for [^]*cannot be reached[^]*by itself")
        # The recording arrives before the player.
        await bob.page.block("*/asciinema-player.js")
        self.deployment.near.refuses = False
        await bob.until_page("Machine default/vm-1[^]*a <b>test</b>")
        await bob.page.block()
        await bob.page.until(f"/recorded-42/.test({PLAYED})")

    async def test_offline(self) -> None:
        """
        A page without a network says so over the output, which it dims, in the tab and in the title of the window; a
        console, a log or a screen that is opened meanwhile opens when the network is back, and the other console goes on.
        """
        await self.deployment.create_machine("vm-2", "shell")
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.echo("before")
        self.deployment.near.refuses = True
        self.deployment.near.cut()
        await ada.until_page("Connection lost")
        self.assertIn("before-42", await ada.text())
        await ada.page.until(_IS_DIM)
        self.assertEqual(await ada.page.evaluate(_OUTAGE), [True, True, True])
        # An announcement for screen readers says it, too, for a moment.
        await ada.page.until(f"{_SAID} === 1")
        parts = (".outage", ".outage > *", ".console-head", ".status-line", ".terminal-frame")
        await self.check_layout(ada, "offline", *parts)
        await ada.open("machines/default/vm-2")
        await ada.until_page("server cannot be reached[^]*by itself")
        await self.check_layout(ada, "offline-new", PANEL, f"{PANEL} .button")
        for view, noun in (("screen", "screen"), ("logs", "log")):
            await ada.open(f"machines/default/vm-2/{view}")
            await ada.until_page(
                f"No {noun} for \\d+s: the server cannot be reached. .*by itself[.]\\s+Try now"
            )
            self.assertEqual(await faults_of(ada.page), [])
        self.deployment.near.refuses = False
        await ada.page.until("document.querySelector('.log')?.checkVisibility()")
        await ada.open("machines/default/vm-2")
        await ada.until_terminal("[#$]$")
        await ada.until_page("You can type")
        await ada.open(VM)
        await ada.until_page("You can type")
        await ada.page.until(f"!({_IS_DIM})")
        self.assertEqual(await ada.page.evaluate(_OUTAGE), [False, False, False])
        await ada.echo("after")
        self.check_faults()

    async def test_opened_again(self) -> None:
        """What is in the way of a new session in a used terminal is said over its old output, which is dim, and in its tab."""
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.type_line("exit 3")
        await ada.until_page("The program at the console has ended")
        self.deployment.near.silence()
        await ada.click_text("button", "Open again")
        outage = _OUTAGE.replace("Connection lost for [^.]+[.] [^]*", "Connecting for [^.]+[.][^]*")
        await ada.page.until(f"{outage}.every(Boolean)")
        await ada.until_page("The server does not answer")
        await ada.page.until(_IS_DIM)
        await self.check_layout(ada, "opened-again", ".outage", ".outage > *", ".console-head")
        self.deployment.near.mend()
        await ada.until_page("You can type")
        await ada.page.until(f"!({_IS_DIM}) && !document.title.startsWith('No connection')")
        self.check_faults()

    async def test_silence(self) -> None:
        """
        Within 20 seconds a list and a log that are open say that the server is silent, and of what time they are, and so
        do those that are opened meanwhile; when it answers again, they go on.
        """
        ada, bob = await self.user(), await self.user("bob")
        late = [await self.user() for _ in range(2)]
        for each in late:
            await each.page.until(f"document.querySelector(\"a[href='#/{VM}']\")")
        await self.open_terminal(ada)
        await ada.echo("before")
        await ada.open(f"{VM}/logs")
        await ada.until_page("before-42")
        await ada.page.until(_FOLLOWS)
        await bob.page.until(f"document.querySelector(\"a[href='#/{VM}']\")")
        self.deployment.near.silence()
        for each, view in zip(late, ("sessions", f"{VM}/logs"), strict=True):
            await each.open(view)
        for each in late:
            await each.until_page(r"so far\. It does not answer\.")
        await bob.until_page(r"This list is as of \d\d:\d\d: the server does not answer\.")
        await ada.until_page(r"This log is as of \d\d:\d\d: the connection is lost")
        await self.check_layout(bob, "silent-list", ".notice")
        await self.check_layout(ada, "silent-log", ".notice", ".log")
        for number, each in enumerate(late):
            await self.check_layout(each, f"silent-{number}", ".view p .button")
            await each.click_text("button", "Try now")
        self.deployment.near.mend()
        await late[0].until_page("ada")
        await late[1].until_page("before-42")
        await bob.page.until("!document.querySelector('.as-of')")
        await ada.page.until("!document.querySelector('.view .notice')")
        await ada.open(VM)
        await ada.until_page("You can type")
        await ada.echo("after")
        await ada.open(f"{VM}/logs")
        await ada.until_page("after-42")
        self.check_faults()

    async def test_reminder(self) -> None:
        """After a reconnection a writer who was an observer first is not told what has not changed."""
        ada, bob = await self.user(), await self.user("bob")
        await self.open_terminal(bob)
        await ada.open(VM)
        await ada.until_page("Observing; bob types")
        await bob.click_text("button", "Observe only")
        await ada.until_page("Observing; nobody types")
        await ada.click_text("button", "Type here")
        await ada.until_page("You can type")
        await ada.echo("before")
        await ada.page.evaluate(_RECORD_MESSAGES)
        said = await ada.watch_page("Reconnected")  # for ten seconds
        self.deployment.near.cut()
        await said()
        await ada.echo("after")
        self.assertEqual(await ada.page.evaluate("self.told"), [])
        self.check_faults()

    async def test_expired_login(self) -> None:
        """A login that expires is asked for over the output, which stays; the console goes on behind it."""
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.echo("before")
        await self.check_sessions(1)
        former = await self.sessions()
        await ada.page.until("document.querySelector('.user').textContent === 'ada'")
        self.deployment.tokens["ada"] = "second-token-of-ada"
        self.deployment.write_tokens()
        await ada.page.until("document.querySelector('dialog[open] input[type=password]')")
        self.assertIn("before-42", await ada.text())
        await ada.until_page("Your login as ada has expired or was withdrawn. Log in again")
        await self.check_layout(ada, "login", "dialog", "dialog .button", "dialog input")
        await ada.log_in(self.deployment.tokens["ada"])
        while (
            not (await self.sessions()) - former
        ):  # the former one may get the keys until it has ended
            await pause()
        await ada.until_page("You can type")
        await ada.echo("after")
        self.check_faults()

    async def test_two_tabs(self) -> None:
        """
        A tab that was duplicated has a session of its own.  Both tabs of the user show the same output
        and may type.
        """
        ada = await self.user(private=False)
        await self.open_terminal(ada)
        await ada.echo("first")
        storage = await ada.page.evaluate("JSON.stringify({...sessionStorage})")
        copy = await User.visit(self.browser, self.deployment.console_url, private=False)
        self.users.append(copy)
        await copy.page.evaluate(f"Object.assign(sessionStorage, {storage})")
        await copy.open(VM)
        await copy.page.reload()
        await copy.until_terminal("first-42")
        await ada.until_page("You can type[^]*2 viewers")
        await self.check_layout(copy, "second-tab", ".console-head .button", ".status-line")
        await copy.echo("second")
        await ada.until_terminal("second-42")
        await ada.echo("third")
        await copy.until_terminal("third-42")
        await self.check_sessions(2)
        self.check_faults()

    async def test_history(self) -> None:
        """
        Back and forward change the view, and keep the session and its output; so does a page that is
        loaded again before its first output.
        """
        ada = await self.user()
        await ada.page.until(f"document.querySelector(\"a[href='#/{VM}']\")")
        await ada.page.evaluate(_RELOAD_EARLY)
        await ada.open(VM)
        await ada.page.until(_IS_RELOADED)
        await ada.until_page("You can type")
        await ada.echo("here")
        await ada.open(f"{VM}/logs")
        await ada.until_page("here-42")
        await ada.page.evaluate("history.back()")
        await ada.until_terminal("here-42")
        await self.check_layout(ada, "back", ".console-head", ".status-line", ".terminal-frame")
        await ada.page.evaluate("history.back()")
        await ada.page.until("document.querySelector('#machine-filter')")
        await ada.page.evaluate("history.forward()")
        await ada.until_terminal("here-42")
        await ada.echo("forward")
        await self.check_sessions(1)
        self.check_faults()

    async def test_slow_link(self) -> None:
        """Over a slow link a panel takes the place of the output until it arrives; keys arrive, too."""
        ada = await self.user()
        await ada.page.until(f"document.querySelector(\"a[href='#/{VM}']\")")
        self.deployment.near.bytes_per_second = SLOW_BYTES_PER_SECOND
        self.deployment.near.silence()  # however slow the browser is, the output does not arrive before
        await ada.open(VM)
        await ada.until_page("Connecting to vm-1")
        await self.check_layout(ada, "slow", PANEL, f"{PANEL} .button", ".console-head")
        self.deployment.near.mend()
        await ada.until_terminal("[#$]$")
        await ada.page.until(f"!document.querySelector('{PANEL}')")
        await ada.type_line("seq 200")
        await ada.until_terminal("200\n.*[#$]$")
        await ada.echo("slow")
        self.check_faults()
