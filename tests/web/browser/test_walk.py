"""
Everyday use of the page in a real browser: two users at one machine, by mouse and by keyboard, at the
width of a desktop and of a phone.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.internet import reactor as _reactor

from twisted_exec.api import kinds

from .base import WebTestCase
from .layout import lasting
from .steps import VM
from .user import User

reactor: Any = _reactor

PHONE = (360, 740)
LARGEST_TRANSFER_BYTES = 700_000


class WalkTests(WebTestCase):
    """A shell and two administrators, who log in with tokens."""

    async def setUp(self) -> None:
        await super().setUp()
        await self.deployment.create_machine("vm-1", "shell")

    async def test_walk(self) -> None:
        """No step of the walk violates the content security policy or throws an exception."""
        ada = await self.user("ada")
        await self.drive(ada)
        bob = await self.user("bob")
        await self.share(ada, bob)
        await self.log_in_again(bob)
        await self.switch_off_and_on(ada, bob)
        await self.play_recording(ada)
        await self.use_keyboard(ada)
        await self.follow_bad_link(ada)
        await self.visit_on_phone(ada)
        await self.load_everything(ada)
        await self.log_out(ada, bob)
        self.check_faults()

    async def drive(self, ada: User) -> None:
        """A user finds the machine in the list, opens its console, types and reads the output."""
        await ada.page.focus("#machine-filter")
        await ada.page.type("nothing like this")
        await ada.until_page("The filter hides 1 machine")
        await ada.page.focus("#machine-filter")
        await ada.page.press("Control+a")
        await ada.page.type("vm-1")
        began = reactor.seconds()
        await self.open_terminal(ada)
        print(f"first prompt after {reactor.seconds() - began:.2f} s")
        await ada.echo("drive")

    async def share(self, ada: User, bob: User) -> None:
        """A second user observes, may not type, and takes over with one question; both see who types."""
        await bob.open(f"{VM}?mode=observe")
        await bob.until_terminal("drive-42")
        await bob.until_page("Observing")
        await ada.until_page("2 viewers")
        await bob.type_line("echo observer-$((6*7))")
        await self.take_over(bob)
        await ada.until_page("bob types here now")
        await bob.until_page("You can type")
        await bob.type_line("echo taken-$((6*7))")
        for user in (ada, bob):
            self.assertNotIn("observer-", await user.until_terminal("taken-42"))
        await self.take_over(ada)
        await ada.until_page("You can type")

    async def take_over(self, user: User) -> None:
        """Take over a console from another user, which asks once."""
        await user.click_text(".console-head button", "Take over")
        await user.click_text("dialog button", "Take over")

    async def log_in_again(self, bob: User) -> None:
        """A token that expires with an open session: the page asks for another, and keeps the screen."""
        tokens = self.deployment.tokens
        tokens["bob"] = "second-token-of-bob"
        self.deployment.write_tokens()
        await bob.page.until("document.querySelector('dialog[open] input[type=password]')")
        self.assertIn("taken-42", await bob.text())
        await bob.log_in(tokens["bob"])
        await bob.until_page("Connected")
        await self.users[0].type_line("echo again-$((6*7))")
        await bob.until_terminal("taken-42[^]*again-42")

    async def switch_off_and_on(self, ada: User, bob: User) -> None:
        """
        The console of a machine that is switched off says so, whether its session waits or could not
        begin, and goes on when the machine runs again.
        """
        await self.set_power("Off")
        await ada.until_page("Machine: Shutdown")
        await ada.click_text("button", "Close the console of vm-1")
        await ada.open(VM)
        await ada.until_page("not running[^]*powered off")
        await ada.page.until(f"document.querySelector(\".panel a[href='#/{VM}/logs']\")")
        await self.set_power("On")
        await ada.until_page("You can type")
        await bob.until_page("Observing")

    async def set_power(self, power: str) -> None:
        machines = kinds.MACHINES.resource
        await self.deployment.client.patch(machines, "vm-1", {"spec": {"power": power}}, "default")

    async def use_keyboard(self, ada: User) -> None:
        """Keys alone reach a machine, its terminal, the commands of the page and the list again."""
        await ada.open("machines")
        await ada.page.until("document.querySelectorAll('tbody tr').length === 1")
        await ada.page.evaluate("document.activeElement.blur()")
        await self.tab_to(ada, "#machine-filter")
        await self.tab_to(ada, f"a[href='#/{VM}']")
        await ada.page.press("Enter")
        await self.use_commands(ada)

    async def tab_to(self, user: User, selector: str) -> None:
        """Press the Tab key until an element has the focus, which is then visible."""
        quoted = json.dumps(selector)
        for _ in range(40):
            await user.page.press("Tab")
            if await user.page.evaluate(f"document.activeElement.matches({quoted})"):
                break
        else:
            self.fail(f"Tab does not reach {selector}")
        style = "getComputedStyle(document.activeElement)"
        outline = await user.page.evaluate(f"{style}.outlineStyle + {style}.boxShadow")
        self.assertNotEqual(outline, "nonenone", selector)

    async def follow_bad_link(self, ada: User) -> None:
        """A link with a time that is none says so, and the rest of the view works."""
        await ada.open(f"{VM}/screen?time=nonsense")
        await ada.until_page('"nonsense" is not a time')

    async def visit_on_phone(self, ada: User) -> None:
        """No view is wider than a phone, and a terminal that was hidden meanwhile shows its newest output."""
        await ada.page.resize(*PHONE)
        for route in (
            *("machines", VM, f"{VM}/logs", f"{VM}/screen", f"{VM}/recordings", f"{VM}/events"),
            *("sessions", "recordings", "recordings/default/seen", "alerts", "requests"),
        ):
            await ada.open(route)
            await ada.page.until("document.querySelector('#view > .view')?.innerText")
            if route == VM:
                await ada.page.until(_AT_END)
            self.assertEqual(await lasting(ada.page, _TOO_WIDE), [], route)
        await ada.page.resize(1280, 800)

    async def log_out(self, ada: User, bob: User) -> None:
        """A user who logs out leaves the console; the session does not wait for the user."""
        await bob.click_text("button", "Log out")
        await bob.page.until("document.querySelector('dialog[open] input[type=password]')")
        await ada.open(VM)
        await ada.until_page("1 viewer")

    async def load_everything(self, ada: User) -> None:
        """A new visitor who sees everything loads little."""
        size = ada.page.received_bytes(self.deployment.console_url)
        print(f"all files of the page: {size} bytes compressed")
        self.assertLess(size, LARGEST_TRANSFER_BYTES)


# The terminal has as many rows as there is space for, and its last row is in sight.
_AT_END = """(() => {
    const terminal = self.terminals.find((each) => each.element?.offsetParent);
    if (!terminal) return false;
    const {viewportY, baseY} = terminal.buffer.active;
    return terminal.cols < 60 && baseY > 0 && viewportY === baseY;
})()"""
# Elements that reach beyond the window and that no ancestor lets the user scroll to.
_TOO_WIDE = """(() => {
    const scrolls = (each) => each && each !== document.documentElement && each !== document.body &&
        (/auto|scroll/.test(getComputedStyle(each).overflowX) || scrolls(each.parentElement));
    const wide = [...document.querySelectorAll('body *')].filter((each) => {
        const {right, width, height} = each.getBoundingClientRect();
        return width && height && right > innerWidth + 1 && !each.closest('.xterm, .ap-player, .visually-hidden')
            && !scrolls(each.parentElement);
    });
    return [...new Set([
        ...wide.map((each) => each.outerHTML.slice(0, 120)),
        ...(document.documentElement.scrollWidth > innerWidth ? ['the page scrolls'] : []),
    ])].slice(0, 5);
})()"""
