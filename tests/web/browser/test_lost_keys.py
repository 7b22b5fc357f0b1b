"""
Keys that do not reach the machine in a real browser: none is part of anything else, and all are counted.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml
from twisted.internet import reactor as _reactor

from tests.flows.deployment import pause
from tests.flows.test_three_programs import binding
from twisted_exec.api import kinds
from twisted_exec.cli.web import login
from twisted_exec.cli.web.server import LocalServer
from twisted_exec.kube.kubeconfig.loader import load

from .base import WebTestCase
from .deployment import HOSTILE, WebDeployment
from .steps import VM
from .user import User, open_user

reactor: Any = _reactor

MACHINES, ROLEBINDINGS = kinds.MACHINES.resource, kinds.ROLEBINDINGS.resource
POLICIES, REQUESTS = kinds.CONSOLEPOLICIES.resource, kinds.CONSOLEREQUESTS.resource
SESSIONS = kinds.CONSOLESESSIONS.resource
_WARNING = "[...document.querySelectorAll('.message.warning:not([hidden]) [data-time*=\":\"] > span')].map(each => each.innerText).join(' ')"
_FOCUSED = "document.activeElement"
_ON_PANEL = f"{_FOCUSED}.matches('.panel:not([hidden])')"
_ON_HEADING = f"{_FOCUSED}.matches('dialog[open] h2')"
# Keys at a pace which does not depend on how busy the test is.
_TYPE_BLINDLY = """
self.blind = 0;
self.typing = setInterval(() => {
    self.blind++;
    document.execCommand('insertText', false, 'b');
}, 100);
"""
_SENT = re.compile("([0-9]+) keys? may not have reached the machine")
_UNSENT = re.compile("([0-9]+) keys? typed ")


class LostKeysTests(WebTestCase):
    """A machine that records its input; eve types there by a RoleBinding, and bob administers."""

    def make_deployment(self) -> WebDeployment:
        deployment = super().make_deployment()
        deployment.tokens["eve"] = "token-of-eve"
        deployment.groups = {"eve": "guests"}
        deployment.write_tokens()
        return deployment

    async def setUp(self) -> None:
        await super().setUp()
        self.typed = 0
        await self.bind()
        await self.deployment.create_machine("vm-1", HOSTILE)

    async def bind(self) -> None:
        await self.deployment.client.create(ROLEBINDINGS, binding("eve", "console-user"), "default")

    async def open_console(self, name: str = "eve") -> User:
        """Open the console, and type until the machine has it."""
        user = await self.user(name)
        await self.enter_console(user)
        return user

    async def enter_console(self, user: User) -> None:
        await user.open(VM)
        await user.until_page("You can type")
        await user.until_terminal("READY")
        await user.focus_terminal()
        await self.type(user, 3)
        await self.until_received(3)

    async def type(self, user: User, count: int) -> None:
        """Type wherever the focus is."""
        for _ in range(count):
            await user.page.press("a")
        self.typed += count

    async def type_to_machine(self, user: User) -> None:
        """Type until a key arrives; keys that the server still discards are counted on the page."""
        had = len(self.deployment.received)
        while len(self.deployment.received) == had:
            warning = await user.page.evaluate(_WARNING)
            await user.page.press("a")
            while (
                len(self.deployment.received) == had
                and await user.page.evaluate(_WARNING) == warning
            ):
                await pause()
        self.typed = len(self.deployment.received)

    async def until_received(self, count: int) -> None:
        while len(self.deployment.received) < count:
            await pause()

    async def check_counted(self, user: User, *, unsent: int = 0) -> None:
        """
        Wait until a warning with a time counts the keys that have not arrived.

        :param unsent: at least so many of them were typed behind those that may have arrived.
        """
        text = ""
        for _ in range(100):
            text = await user.page.evaluate(_WARNING)
            numbers = [
                int(found[1]) if (found := pattern.search(text)) else 0
                for pattern in (_SENT, _UNSENT)
            ]
            lost = self.typed - len(self.deployment.received)
            if unsent <= numbers[1] <= lost <= sum(numbers):
                print(f"typed {self.typed}, lost {lost}: {text}")
                return
            await pause()
        self.fail(f"typed {self.typed}, received {len(self.deployment.received)}: {text!r}")

    async def stop_network(self) -> int:
        """Let no user reach the API server; return the port that they reached."""
        port, self.deployment.near.target = self.deployment.near.target, 1
        self.deployment.near.cut()
        return port

    async def test_right_withdrawn(self) -> None:
        """
        Keys that are typed while the right to a console is withdrawn go nowhere, and are counted: at its end, and in the session
        that follows, whose end takes the number away.
        """
        eve = await self.open_console()
        await self.deployment.client.delete(ROLEBINDINGS, "eve", "default")
        while not await eve.page.evaluate(_ON_PANEL):
            await self.type(eve, 1)
        await self.type(eve, 10)
        await self.check_counted(eve, unsent=10)
        await self.bind()
        await eve.until_page("You may open this console now")
        await self.check_counted(eve, unsent=10)
        await eve.click_text(".panel button", "Open")
        await eve.until_page("You can type")
        await self.check_counted(eve, unsent=10)
        await eve.focus_terminal()
        had = len(self.deployment.received)
        await eve.page.press("b")
        await self.until_received(had + 1)
        await self.deployment.client.delete(ROLEBINDINGS, "eve", "default")
        await eve.page.until(_ON_PANEL)
        said = await eve.page.evaluate(_WARNING)
        self.assertNotIn("typed after", said)
        self.check_faults()

    async def test_session_ended(self) -> None:
        """The same of a session that another user ends, also during an outage."""
        eve = await self.open_console()
        for is_outage in (False, True):
            if is_outage:
                port = await self.stop_network()
                await eve.until_page("Connection lost")
                await self.type(eve, 5)
                await eve.until_page("5 keys(, unless they have arrived,)? will be sent if")
            await self.end_sessions()
            if is_outage:
                self.deployment.near.target = port
            else:
                while not await eve.page.evaluate(_ON_PANEL):
                    await self.type(eve, 1)
                await self.type(eve, 10)
            await self.check_counted(eve, unsent=0 if is_outage else 10)
            await eve.until_page(
                "admin has ended this session|The session has ended[^]*admin deleted"
            )
            if not is_outage:
                await eve.click_text(".panel button", "Open again")
                await eve.until_page("You can type")
                await self.check_counted(eve, unsent=10)
                await eve.focus_terminal()
                self.typed = len(self.deployment.received)
        self.check_faults()

    async def test_taken_over_in_outage(self) -> None:
        """Keys that wait for the end of an outage, in which another user takes over, are counted with who types."""
        ada = await self.open_console("ada")
        direct = f"https://127.0.0.1:{self.deployment.port}/console/"
        bob = await open_user(self.browser, direct, self.deployment.tokens["bob"])
        self.users.append(bob)
        await bob.open(VM)
        await bob.until_page("Observing; ada types")
        port = await self.stop_network()
        await ada.until_page("Connection lost")
        await self.type(ada, 5)
        await ada.until_page("5 keys(, unless they have arrived,)? will be sent if")
        await bob.click_text(".console-head button", "Take over")
        await bob.click_text("dialog button", "Take over")
        await bob.until_page("You can type")
        self.deployment.near.target = port
        await self.check_counted(ada, unsent=5)
        await ada.until_page("bob types here now")
        said = await ada.page.evaluate(_WARNING)
        self.assertEqual(said.count("bob"), 1, said)
        self.check_faults()

    async def test_machine_started_again_in_outage(self) -> None:
        """Keys that wait for the end of an outage, in which the machine starts again, are counted in a warning."""
        ada = await self.open_console("ada")
        port = await self.stop_network()
        await ada.until_page("Connection lost")
        await self.type(ada, 5)
        for power, state in (("Off", "Shutdown"), ("On", "Running")):
            await self.switch(power)
            await self.deployment.machine_in_state("vm-1", state)
        self.deployment.near.target = port
        await self.check_counted(ada, unsent=5)
        self.check_faults()

    async def test_machine_started_again_while_typing(self) -> None:
        """
        Keys that a user types blindly while the machine goes down and starts go nowhere until their user pauses, and are counted;
        what is typed then goes to the machine.
        """
        ada = await self.open_console("ada")
        await self.switch("Off")
        await ada.until_page("waits up to")
        await ada.page.evaluate(_TYPE_BLINDLY)
        await self.deployment.machine_in_state("vm-1", "Shutdown")
        await self.switch("On")
        await ada.until_page("The machine has started again")
        await ada.until_terminal("READY[^]*READY")
        for _ in range(3):
            before = await ada.page.evaluate("self.blind")
            await ada.page.until(f"self.blind > {before}")
        self.typed += await ada.page.evaluate("clearInterval(self.typing), self.blind")
        await self.check_counted(ada, unsent=self.typed - 3)
        await ada.page.press("c")
        await self.until_received(4)
        self.assertEqual(self.deployment.received, b"aaac")
        self.check_faults()

    async def test_session_ended_while_off(self) -> None:
        """
        Keys that are typed while the machine is off are counted when the session ends, without those that its user knew of before,
        and with those that are typed later.
        """
        ada = await self.open_console("ada")
        await self.type_while_off(ada, 4)
        await self.type_to_machine(ada)
        await self.switch("Off")
        await ada.until_page("waits up to")
        self.assertEqual(await ada.page.evaluate(_WARNING), "")
        await self.type(ada, 5)
        await ada.until_page("What you type is not sent")
        await self.end_sessions()
        await ada.until_page("The machine is not running|has ended this session|admin deleted")
        await self.check_counted(ada, unsent=5)
        await self.type(ada, 2)
        await self.check_counted(ada, unsent=7)
        self.check_faults()

    async def test_two_losses(self) -> None:
        """Each loss of keys is a line of the warning, with its own cause, whatever happens later."""
        ada = await self.open_console("ada")
        await self.type_while_off(ada, 4)
        first = "4 keys typed before the machine started again were discarded."
        await self.end_sessions()
        await ada.until_page("has ended this session|admin deleted")
        self.assertEqual(await ada.page.evaluate(_WARNING), first)
        await self.type(ada, 3)
        both = f"{first} 3 keys typed meanwhile were discarded."
        await ada.page.until(f"{_WARNING} === {json.dumps(both)}")
        self.check_faults()

    async def type_while_off(self, user: User, count: int) -> None:
        """Power the machine off, type, and power it on: the page counts the keys."""
        await self.switch("Off")
        await user.until_page("waits up to")
        await self.type(user, count)
        await user.until_page("What you type is not sent")
        await self.deployment.machine_in_state("vm-1", "Shutdown")
        await self.switch("On")
        await self.check_counted(user, unsent=count)

    async def switch(self, power: str) -> None:
        await self.deployment.client.patch(MACHINES, "vm-1", {"spec": {"power": power}}, "default")

    async def end_sessions(self) -> None:
        """Delete all sessions, which appear a moment after they begin."""
        client = self.deployment.client
        while not (kept := (await client.list(SESSIONS, "default"))["items"]):
            await pause()
        for each in kept:
            await client.delete(SESSIONS, each["metadata"]["name"], "default")

    async def test_token_withdrawn(self) -> None:
        """
        The login that a user needs whose token is withdrawn takes none of the keys that are typed meanwhile, but a token that is
        pasted; the new session says how many were lost.
        """
        ada = await self.open_console("ada")
        self.deployment.tokens["ada"] = "new-token-of-ada"
        self.deployment.write_tokens()
        while not await ada.page.evaluate("document.querySelector('dialog[open]') !== null"):
            await self.type(ada, 1)
        self.assertTrue(await ada.page.evaluate(_ON_HEADING))
        await self.type(ada, 10)
        for key in ("Tab", "Enter"):
            await ada.page.press(key)
            self.typed += 1
        await self.type(ada, 3)
        self.assertTrue(await ada.page.evaluate(_ON_HEADING))
        self.assertEqual(await ada.page.evaluate("document.querySelector('#token').value"), "")
        await ada.log_in("new-token-of-ada")
        await ada.until_page("You can type")
        await self.check_counted(ada, unsent=15)
        self.check_faults()

    async def test_credentials_refused(self) -> None:
        """
        The page of the local command takes no key, either, while it says that the credentials are refused; when they are renewed,
        the new session says how many were lost.
        """
        self.patch(login, "VALID_SECONDS", 3600.0)  # a slow browser needs more than 30 s
        path = self.deployment.path("token.kubeconfig")
        local = LocalServer(lambda: load(self.write_kubeconfig(path)), {"cluster": "lab"}, reactor)
        await local.listen(0)
        self.addCleanup(local.close)
        ada: User[Any] = await User.visit(self.browser, local.new_url())
        self.users.append(ada)
        await ada.page.until("document.querySelector('.user')?.textContent")
        await ada.until_loaded()
        await self.enter_console(ada)
        token, self.deployment.tokens["ada"] = self.deployment.tokens["ada"], "new-token-of-ada"
        self.deployment.write_tokens()
        self.deployment.tokens["ada"] = token  # in the kubeconfig
        while not await ada.page.evaluate("document.querySelector('dialog[open]') !== null"):
            await self.type(ada, 1)
        self.assertTrue(await ada.page.evaluate(_ON_HEADING))
        await self.type(ada, 10)
        for key in ("Enter", "Tab"):
            await ada.page.press(key)
            self.typed += 1
        await ada.until_page("Renew your credentials")
        self.deployment.tokens["ada"] = "new-token-of-ada"
        await ada.page.until("!document.querySelector('dialog[open]')")
        await ada.until_page("You can type")
        await self.check_counted(ada, unsent=12)
        self.check_faults()

    def write_kubeconfig(self, path: str) -> str:
        """Write a kubeconfig with ada's token."""
        config = yaml.safe_load(Path(self.deployment.admin).read_text())
        config["users"][0]["user"] = {"token": self.deployment.tokens["ada"]}
        Path(path).write_text(yaml.safe_dump(config))
        return path

    async def test_restart_in_search(self) -> None:
        """The field for a search keeps the focus and the keys while the runtime restarts."""
        ada = await self.open_console("ada")
        await ada.click_text(".console-head button", "Find")
        found = f"{_FOCUSED}.closest('.finder') && {_FOCUSED}.value"
        await ada.page.until(f"{found} === ''")
        await self.deployment.end("runtime", kill=False)
        await ada.page.type("abc")
        await ada.page.press("d")
        await ada.until_page("exec-runtime is restarting")
        await self.deployment.start_runtime()
        await ada.until_page("You can type")
        await ada.page.press("b")
        self.assertEqual(await ada.page.evaluate(found), "abcdb")
        self.assertEqual(self.deployment.received, b"aaa")
        self.check_faults()

    async def test_session_ended_in_search(self) -> None:
        """The same when a user ends the session: the panel does not take the focus."""
        ada = await self.open_console("ada")
        await ada.click_text(".console-head button", "Find")
        await ada.page.until(f"{_FOCUSED}.closest('.finder') !== null")
        await self.end_sessions()
        await ada.until_page("admin has ended this session")
        self.assertTrue(await ada.page.evaluate(f"{_FOCUSED}.closest('.finder') !== null"))
        self.check_faults()

    async def test_approved_while_typing(self) -> None:
        """
        Keys that are typed while an approval arrives go nowhere until their user pauses, and are counted, also those in the
        field of the reason, which takes none while the request waits; Enter does not end the wait.
        """
        body = {"metadata": {"name": "fits"}, "spec": {"approval": "Required"}}
        await self.deployment.client.create(POLICIES, body, "default")
        more = binding("eve", "edit") | {"metadata": {"name": "more"}}
        await self.deployment.client.create(ROLEBINDINGS, more, "default")
        eve = await self.user("eve")
        await eve.open(VM)
        await eve.until_page("needs an approval to type")
        await eve.page.focus(".panel input")
        await eve.page.type("OPS-7\n")
        await eve.until_page("waits for the approval of another user")
        await self.type(eve, 3)
        await eve.page.press("Enter")
        self.typed += 1
        await eve.until_page("Stop waiting")
        await self.decide({"approved": True})
        while not await eve.page.evaluate("/You can type/.test(document.body.innerText)"):
            await self.type(eve, 1)
        await self.type(eve, 5)
        await self.check_counted(eve, unsent=9)
        self.assertEqual(self.deployment.received, b"")
        await eve.page.until(f"{_FOCUSED}.matches('.terminal-box textarea')")
        await eve.page.press("b")
        await self.until_received(1)
        self.assertEqual(self.deployment.received, b"b")
        self.check_faults()

    async def test_approval_withdrawn(self) -> None:
        """
        Keys that are typed while the approval of a session is withdrawn are no reason of another request, which others could
        read, nor ask for one; on a phone, too.
        """
        spec = {"approval": "Required"}
        body = {"metadata": {"name": "fits"}, "spec": spec}
        await self.deployment.client.create(POLICIES, body, "default")
        eve = await self.user("eve")
        await self.deployment.client.create(
            ROLEBINDINGS, binding("eve", "edit") | {"metadata": {"name": "more"}}, "default"
        )
        await eve.open(VM)
        for width, height in ((1280, 800), (390, 844)):
            await eve.page.resize(width, height)
            await eve.until_page("needs an approval to type|has withdrawn the approval")
            await eve.click_text(".panel button", "Ask to type")
            await eve.until_page("waits for the approval of another user")
            await self.decide({"approved": True})
            await eve.until_page("You can type")
            await eve.focus_terminal()
            await self.decide({"denied": True})
            while not await eve.page.evaluate(_ON_PANEL):
                await self.type(eve, 1)
            await eve.page.type("secret")
            for key in ("Tab", "Enter"):
                await eve.page.press(key)
            await eve.page.type("secret")
            await eve.until_page(
                "bob has withdrawn|has withdrawn the approval; the session has ended"
            )
            self.assertEqual(
                await eve.page.evaluate("document.querySelector('.panel input').value"), ""
            )
            found = (await self.deployment.client.list(REQUESTS, "default"))["items"]
            self.assertNotIn("secret", json.dumps(found))
            self.assertFalse(
                [each for each in found if not each.get("status", {}).get("decidedBy")]
            )
            self.assertIn(
                "; the session has ended",
                await eve.page.evaluate("document.querySelector('.panel h3').innerText"),
            )
        self.check_faults()

    async def decide(self, status: dict[str, bool]) -> None:
        client = self.deployment.client
        for request in (await client.list(REQUESTS, "default"))["items"]:
            if request.get("status", {}).get("denied"):
                continue
            name = request["metadata"]["name"]
            await client.patch(
                REQUESTS, name, {"status": status}, "default", subresource="approval"
            )
