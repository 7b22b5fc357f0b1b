"""
Requests for approvals in a real browser: a user asks at a console, and another one decides in the page.
"""

from __future__ import annotations

from tests.flows.test_three_programs import binding
from twisted_exec.api import kinds

from .base import WebTestCase
from .deployment import WebDeployment
from .layout import faults_of
from .steps import HOLLOW, VM
from .user import User

POLICIES, REQUESTS = kinds.CONSOLEPOLICIES.resource, kinds.CONSOLEREQUESTS.resource
ROLEBINDINGS = kinds.ROLEBINDINGS.resource
_REASON = {"reason": "Required", "reasonPattern": "OPS-[0-9]+"}
POLICY = {"approval": "Required", "approvers": "#on-call"} | _REASON
PHONE = (390, 844)
_LINK = "document.querySelector('nav a[href=\"#/requests\"]')"
_IS_OFFERED = f"{_LINK}.checkVisibility()"
# The number beside the link, without the word for screen readers.
_NUMBER = f"({_LINK}.querySelector('.count:not([hidden])')?.firstChild.textContent ?? '')"
_NEWS = "(document.querySelector('#bar .count.news:not([hidden])')?.firstChild.textContent ?? '')"
_ANNOUNCED = "document.querySelector('#notices').innerText"
_BUTTONS = "[...document.querySelectorAll('td .button')].map((each) => each.innerText).join()"


class RequestTests(WebTestCase):
    """A console that needs an approval; ada edits, bob administers, and carol views."""

    def make_deployment(self) -> WebDeployment:
        deployment = super().make_deployment()
        deployment.tokens["carol"] = "token-of-carol"
        deployment.groups = {"ada": "editors", "carol": "viewers"}
        deployment.write_tokens()
        return deployment

    async def setUp(self) -> None:
        await super().setUp()
        client = self.deployment.client
        for name, role in (("ada", "edit"), ("carol", "view")):
            bound = binding(name, role) | {"metadata": {"name": name}}
            await client.create(ROLEBINDINGS, bound, "default")
        await self.deployment.create_machine("vm-1", "shell")
        await self.set_policy("fits", POLICY)
        await self.set_policy("other", POLICY | {"selector": {"matchLabels": {"tier": "none"}}})

    async def set_policy(self, name: str, spec: dict[str, object]) -> None:
        body = {"metadata": {"name": name}, "spec": spec}
        await self.deployment.client.create(POLICIES, body, "default")

    async def decide_all(self, status: dict[str, bool]) -> None:
        """Approve or deny all requests, as another administrator."""
        client = self.deployment.client
        for request in (await client.list(REQUESTS, "default"))["items"]:
            if {"session", "denied"} & request.get("status", {}).keys():
                continue  # its approval is used, or it was denied
            name = request["metadata"]["name"]
            body = {"status": status}
            await client.patch(REQUESTS, name, body, "default", subresource="approval")

    async def ask(self, user: User, reason: str) -> None:
        """Ask for an approval in the panel of the console."""
        await user.page.focus(".panel input")
        await user.page.evaluate("document.activeElement.select()")
        await user.page.type(reason)
        await user.click_text(".panel button", "Ask to type")
        await user.until_page(
            "needs an approval to type\\n[^]*waits for the approval of another user"
        )

    async def check_waits(self, user: User, reason: str) -> None:
        """Wait until the panel waits for the only request, which has this reason."""
        await user.until_page("waits for the approval of another user, in Requests of this page")
        await user.page.until(f"{_FIELD}.value === '{reason}' && {_FIELD}.readOnly")
        await user.page.until(f"/^Waiting for approval, [0-9]+[sm]/.test({_STATE})")
        self.assertEqual(
            await user.page.evaluate(
                "document.body.innerText.match(/Waiting for approval/g).length"
            ),
            1,
        )
        self.assertEqual(
            await user.page.evaluate(_PANEL_BUTTONS), "Stop waiting,Take back,Copy the command"
        )
        self.assertEqual(len((await self.deployment.client.list(REQUESTS, "default"))["items"]), 1)

    async def decide(self, user: User, action: str, note: str) -> None:
        """Decide the request of ada for vm-1, with a note."""
        what = "approval of the request" if action == "Withdraw" else "request"
        await user.click_text("button", f"{action} the {what} of ada for vm-1")
        await user.until_page(f"{action} the {what} of ada[?]")
        await user.page.focus("dialog input")
        await user.page.type(note)
        await user.click_text("dialog button", action)
        await user.page.until("!document.querySelector('dialog')")

    async def test_decisions(self) -> None:
        """
        A request appears beside the number of those that wait, in each view; the approver reads what the
        policies demand, and the user reads the decision at the console, and has the console once it is approved.
        A withdrawal ends the session.
        """
        ada, bob = await self.user("ada"), await self.user("bob")
        await ada.open(VM)
        await ada.until_page("requires [^]*the approval of another user")
        await bob.page.until(_IS_OFFERED)
        await self.ask(ada, "OPS-7")
        await bob.page.until(f"{_NUMBER} === '1' && document.title === '(1) Machines'")
        await ada.page.until(f"{_NUMBER} === '1'")
        self.assertEqual(await ada.page.evaluate("document.title"), "vm-1")
        await bob.page.click("nav a[href='#/requests']")
        await bob.until_page("vm-1[^]*ada[^]*Typing for 60m[^]*Waiting[^]*OPS-7")
        await self.decide(bob, "Deny", "not now")
        await ada.until_page(
            'bob has denied your request[^]*bob denied request "vm-1-[^ ]+" at [0-9:]+: not now'
        )
        await bob.page.until(f"/Denied\\s*by bob: not now/.test({_TABLE}) && {_NUMBER} === ''")
        await bob.page.until("document.title === 'Requests'")
        await self.ask(ada, "OPS-8")
        await bob.click_text("button", "Approve the request of ada for vm-1")
        await bob.until_page(
            "ConsolePolicy fits: an approval is for any[^]*it needs a reason that matches OPS-.0-9[^]*#on-call"
        )
        self.assertNotIn(
            "other", await bob.page.evaluate("document.querySelector('dialog').innerText")
        )
        await bob.page.press("Enter")
        await ada.until_terminal("[#$]$")
        await bob.page.until(f"/Approved\\s*until [-0-9: ]+ by bob/.test({_TABLE})")
        await self.decide(bob, "Withdraw", "")
        await bob.page.until(
            f"{_ANNOUNCED} === 'The request of ada for vm-1 is no longer approved.'"
        )
        await ada.until_page(_WITHDRAWN)
        await bob.page.until(f"{_BUTTONS} === '' && /Withdrawn/.test({_TABLE})")
        self.check_faults()

    async def test_decided_elsewhere(self) -> None:
        """
        A decision about a console that its user does not see is counted as an unread message is: a denial, an
        approval, whose session opens only when the user goes to the console, and the end of that session.
        """
        await self.deployment.client.delete(POLICIES, "fits", "default")
        await self.set_policy("once", {"approval": "Once"})
        ada = await self.user("ada")
        await ada.open(VM)
        await ada.until_page("requires [^]*the approval of another user")
        await self.ask(ada, "OPS-7")
        await ada.open("machines")
        await ada.until_page("1 machine")
        await self.decide_all({"denied": True})
        await ada.page.until(f"{_NEWS} === '1 new' && document.title === '(1) Machines'")
        await ada.open(VM)
        await ada.until_page("denied request")
        await ada.page.until(f"{_NEWS} === '' && document.title === 'vm-1'")
        await self.ask(ada, "OPS-8")
        await ada.open("machines")
        await ada.until_page("1 machine")
        announced = await ada.page.watch(f"{_ANNOUNCED}.includes('when you go to it')")
        await self.decide_all({"approved": True})
        await announced()
        await ada.page.until(f"{_NEWS} === '1 new' && document.title === '(1) Machines'")
        await self.check_layout(ada, "decided", "#bar .count.news")
        requests = (await self.deployment.client.list(REQUESTS, "default"))["items"]
        self.assertEqual([each for each in requests if "session" in each["status"]], [])
        await ada.open(VM)
        await ada.until_page("approved your request")
        await ada.until_terminal("[#$]$")
        await ada.page.until(f"{_NEWS} === '' && document.title === 'vm-1'")
        await ada.open("machines")
        await ada.until_page("1 machine")
        for request in requests:
            name, body = request["metadata"]["name"], {"status": {"denied": True}}
            await self.deployment.client.patch(
                REQUESTS, name, body, "default", subresource="approval"
            )
        await ada.page.until(f"{_NEWS} === '1 new' && document.title === '(1) Machines'")
        self.check_faults()

    async def test_taken_back(self) -> None:
        """A user takes back a request that waits, in the panel of the console and in the list."""
        ada = await self.user("ada")
        await ada.open(VM)
        await ada.until_page("requires [^]*the approval of another user")
        await self.ask(ada, "OPS-7")
        await ada.click_text(".panel button", "Take back")
        await ada.until_page("Take back your request for vm-1[?]")
        await ada.click_text("dialog button", "Take back")
        await ada.until_page("Your request is taken back")
        self.assertEqual((await self.deployment.client.list(REQUESTS, "default"))["items"], [])
        await self.ask(ada, "OPS-8")
        await ada.page.click("nav a[href='#/requests']")
        await ada.click_text("button", "Take back your request for vm-1")
        await ada.click_text("dialog button", "Take back")
        await ada.until_page("There are no requests")
        self.assertEqual((await self.deployment.client.list(REQUESTS, "default"))["items"], [])
        self.check_faults()

    async def test_wait(self) -> None:
        """
        A reason that the policy refuses bothers no approver. Enter in its field asks. A page waits for the user's only request: also after a reload, and
        if the user has stopped to wait and asks again; its approval opens the console. On a phone the wait is on one
        line, without a row of keys.
        """
        ada = await self.user("ada")
        await ada.open(VM)
        await ada.until_page("requires [^]*the approval of another user")
        await ada.page.focus(".panel input")
        await ada.page.type("because")
        await ada.click_text(".panel button", "Try again")
        refusal = f"/requires a reason that matches OPS-.0-9.[+], such as OPS-0, not .because.[.]$/.test({_INVALID})"
        await ada.page.until(refusal)
        await ada.page.evaluate(f"{_FIELD}.dataset.isOld = true")
        await ada.click_text(".panel button", "Ask to type")
        await ada.page.until(f"{_PANEL_BUTTONS} === {_ASK_AGAIN} && {refusal}")
        self.assertTrue(await ada.page.evaluate(f"{_FIELD}.dataset.isOld"))
        await self.check_layout(ada, "invalid", ".panel", ".panel *")
        await ada.page.resize(844, 390)
        wide = "document.querySelector('.panel .problem').clientWidth >= document.querySelector('.panel form').clientWidth"
        self.assertTrue(await ada.page.evaluate(wide))
        await ada.page.resize(1280, 800)
        self.assertEqual((await self.deployment.client.list(REQUESTS, "default"))["items"], [])
        await ada.page.focus(".panel input")
        await ada.page.evaluate("document.activeElement.select()")
        await ada.page.type("OPS-7\n")
        await self.check_waits(ada, "OPS-7")
        await ada.page.reload()
        await self.check_waits(ada, "OPS-7")
        await ada.click_text(".panel button", "Stop waiting")
        await ada.until_page("stays: after its approval, “Try again” opens")
        await ada.page.until(f"{_STATE} === 'No session' && {_PANEL_BUTTONS} === {_ASK_AGAIN}")
        await ada.click_text(".panel button", "Ask to type")
        await self.check_waits(ada, "OPS-7")
        await ada.page.set_touch()
        await ada.page.resize(*PHONE)
        await ada.page.until(
            f"{_LINES} < 2 && !document.querySelector('.key-bar').checkVisibility()"
        )
        await ada.page.resize(844, 390)
        await ada.page.until(
            f"{_LINES} < 2 && !document.querySelector('.key-bar').checkVisibility()"
        )
        await self.decide_all({"approved": True})
        await ada.until_terminal("[#$]$")
        self.check_faults()

    async def test_people(self) -> None:
        """While a policy wants more people, the writer reads that keys are not sent; the cursor is hollow then."""
        await self.deployment.client.delete(POLICIES, "fits", "default")
        await self.set_policy("four", {"people": 2})
        ada = await self.user("ada")
        await ada.open(VM)
        await ada.until_page("Keys are not sent: more people are needed")
        await ada.focus_terminal()
        await ada.page.until(HOLLOW)
        await self.check_layout(ada, "alone", ".role-text")
        await ada.page.set_touch()
        for size in ((844, 390), (667, 375), (390, 500)):
            await ada.page.resize(*size)
            cut = "(({scrollWidth, clientWidth}) => scrollWidth > clientWidth)(document.querySelector('.role-text'))"
            await ada.page.until(f"innerWidth === {size[0]} && !{cut}")
        await ada.page.set_touch(enabled=False)
        await ada.page.resize(1280, 800)
        await ada.click_text("button", "Details")
        await ada.until_page("nothing is sent: ConsolePolicy default/four needs 2 people")
        await ada.click_text("dialog button", "Close")
        bob = await self.user("bob")
        await bob.open(f"{VM}?mode=observe")
        await ada.until_page("You can type")
        await ada.page.until(f"!({HOLLOW})")
        self.check_faults()

    async def test_one_session(self) -> None:
        """The page has a session for an approval that is for one, and shows the note; a withdrawal ends it."""
        await self.deployment.client.delete(POLICIES, "fits", "default")
        await self.set_policy("once", {"approval": "Once", "recording": {}})
        ada, bob = await self.user("ada"), await self.user("bob")
        await ada.keep_messages()
        await ada.open(VM)
        await ada.until_page("requires [^]*the approval of another user")
        await self.ask(ada, "OPS-7")
        await bob.open("requests")
        await self.decide(bob, "Approve", "go on")
        await ada.until_terminal("[#$]$")
        await ada.page.until(
            f"{_MESSAGE}.startsWith('bob approved: go on. This console is recorded')"
        )
        await bob.page.until(f"/Used\\s*approved until [-0-9: ]+ by bob: go on/.test({_TABLE})")
        await ada.click_text("button", "Details")
        await ada.until_page(r"Approval\s+Approved until [-0-9: ]+ by bob: go on")
        await self.check_layout(
            ada, "details", "dialog", "dialog .facts", "dialog .actions .button"
        )
        await ada.click_text("dialog button", "Close")
        await self.decide(bob, "Withdraw", "enough")
        await ada.until_page(f"{_WITHDRAWN}[^]*: enough")
        await bob.page.until(f"/Withdrawn\\s*by bob: enough/.test({_TABLE})")
        self.check_faults()

    async def test_observer_types(self) -> None:
        """
        With an approval for each session, an observer who wants to type goes on observing while the request for that
        waits, or is not made at all; the approval opens the session that types.
        """
        await self.deployment.client.delete(POLICIES, "fits", "default")
        await self.set_policy("once", {"approval": "Once", "approvers": "#on-call"})
        ada = await self.user("ada")
        await ada.open(f"{VM}?mode=observe")
        await ada.until_page("needs an approval to observe\\n[^]*#on-call")
        await ada.page.focus(".panel input")
        await ada.click_text(".panel button", "Ask to observe")
        await ada.until_page('Request "[^"]+" to observe waits')
        await self.decide_all({"approved": True})
        await ada.until_terminal("[#$]$")
        for act in ("Go on observing", "Ask to type"):
            await ada.click_text("button", "Type here")
            await ada.until_page("needs an approval to type\\n[^]*#on-call[^]*You go on observing")
            await ada.page.until(f"{_PANEL_BUTTONS} === 'Ask to type,Go on observing'")
            await self.check_layout(ada, "observes", ".panel", ".panel *")
            await ada.click_text(".panel button", act)
        await ada.until_page('Request "[^"]+" to type waits')
        self.assertEqual(await ada.page.evaluate(_STATE), "Connected")
        with open(f"{self.mktemp()}-observes-and-waits.png", "wb") as picture:
            picture.write(await ada.page.screenshot())
        await self.decide_all({"approved": True})
        await ada.until_page("You can type")
        await ada.echo("typed")
        self.check_faults()

    async def test_withdrawn_meanwhile(self) -> None:
        """
        A session whose approval is withdrawn while its connection is lost has ended, too.  The console is offered
        again when no policy demands an approval any more.
        """
        ada = await self.user("ada")
        await ada.open(VM)
        await ada.until_page("requires [^]*the approval of another user")
        await self.ask(ada, "OPS-7")
        await self.decide_all({"approved": True})
        await ada.until_terminal("[#$]$")
        self.deployment.near.refuses = True
        self.deployment.near.cut()
        await ada.until_page("Connection lost")
        await self.decide_all({"denied": True})
        self.deployment.near.refuses = False
        await ada.until_page("has withdrawn the approval; the session has ended")
        await self.deployment.client.delete(POLICIES, "fits", "default")
        await ada.until_page("You may open this console now")
        self.check_faults()

    async def test_screen(self) -> None:
        """
        The view of the screen says that an approval is missing, and leads to the console; if only a reason is, it has a
        field for it, also on a phone.
        """
        client = self.deployment.client
        ada = await self.user("ada")
        await ada.open(f"{VM}/screen")
        await ada.until_page("needs an approval[^]*requires a reason[^]*approval of another user")
        self.assertNotIn("kubectl", await ada.page.evaluate("document.body.innerText"))
        self.assertTrue(await ada.page.evaluate(f"{_SCREEN_REASON}.hidden"))
        await ada.page.resize(*PHONE)
        self.assertEqual(await faults_of(ada.page), [])
        await ada.click_text("a", "Go to the console")
        await ada.until_page("Ask to type")
        await client.delete(POLICIES, "fits", "default")
        await self.set_policy("reason", _REASON)
        await ada.open(f"{VM}/screen")
        await ada.until_page("needs a reason[^]*Give it above")
        self.assertEqual(await faults_of(ada.page), [])
        await ada.page.evaluate(f"{_SCREEN_REASON}.focus()")
        await ada.page.type("OPS-7")
        await ada.click_text(".controls button", "Show")
        await ada.page.until("document.querySelector('.screen')?.innerText.includes('#')")
        self.check_faults()

    async def test_two_windows(self) -> None:
        """
        The window that asked opens the console with an approval for one session, also if another window of its user
        sees the approval first; the other window says so.  When the first has no use for it, the other opens.
        """
        await self.deployment.client.delete(POLICIES, "fits", "default")
        await self.set_policy("once", {"approval": "Once"})
        ada = await self.user("ada", private=False)
        await ada.page.before_scripts(_HELD_LOOKS)
        await ada.page.reload()
        await ada.open(VM)
        await ada.until_page("requires [^]*the approval of another user")
        await self.ask(ada, "OPS-7")
        other = await self.user("ada", private=False)
        await other.open(VM)
        waits = 'Request "[^"]+" to type waits for the approval of another user'
        await other.until_page(f"{waits}[.] Another window of yours waits, too, and opens")
        await ada.page.evaluate("self.hold()")
        await self.decide_all({"approved": True})
        await other.until_page("approved( your request|:)[^]*opens in another window")
        with open(f"{self.mktemp()}-elsewhere.png", "wb") as picture:
            picture.write(await other.page.screenshot())
        await ada.page.evaluate("self.go()")
        await ada.until_terminal("[#$]$")
        await other.until_page('approval of request "[^"]+" was for one session, which has begun')
        await other.page.until(f"{_PANEL_BUTTONS} === {_ASK_AGAIN}")
        with open(f"{self.mktemp()}-used.png", "wb") as picture:
            picture.write(await other.page.screenshot())
        await self.ask(other, "OPS-8")
        await ada.open_commands()
        await ada.page.press("w")
        await ada.until_page("No console is open")
        await ada.open(VM)
        await ada.until_page(waits)
        await other.click_text(".panel button", "Stop waiting")
        await other.until_page("stays: after its approval")
        await self.decide_all({"approved": True})
        await ada.until_terminal("[#$]$")
        self.check_faults()

    async def test_later_policy(self) -> None:
        """
        A policy that ends a session, because it requires a reason from now on, leads to the form, which names the
        pattern.  The form goes when the machine is deleted.
        """
        client = self.deployment.client
        await client.delete(POLICIES, "fits", "default")
        ada = await self.user("ada")
        await ada.open(VM)
        await ada.until_terminal("[#$]$")
        await self.set_policy("later", _REASON)
        await ada.until_page("needs a reason[^]*requires a reason that matches OPS-.0-9")
        await client.delete(kinds.MACHINES.resource, "vm-1", "default")
        await ada.until_page("The machine is deleted")
        self.check_faults()

    async def test_needless_request(self) -> None:
        """A request that waits is taken back when no approval is needed any more, and the console opens."""
        client = self.deployment.client
        ada = await self.user("ada")
        await ada.open(VM)
        await ada.until_page("requires [^]*the approval of another user")
        await self.ask(ada, "OPS-7")
        await client.delete(POLICIES, "fits", "default")
        await ada.until_terminal("[#$]$")
        await ada.page.until(f"{_NUMBER} === ''")
        self.assertEqual((await client.list(REQUESTS, "default"))["items"], [])
        self.check_faults()

    async def test_recording_policy(self) -> None:
        """
        A policy that requires a recording ends a session: in the new one its user reads which policy, and that the
        console is recorded.  The page does not offer to end that recording, and says why.
        """
        await self.deployment.client.delete(POLICIES, "fits", "default")
        ada = await self.user("ada")
        await ada.keep_messages()
        await ada.open(VM)
        await ada.until_page("You can type")
        await self.set_policy("later", {"recording": {}})
        policy = "ConsolePolicy default.later requires a recording of this console"
        ended = f"{policy} [(]input: masked[)], and this session began without the policy's recording: a new session has it"
        said = f"^{ended}[.] This is a new session[.] This console is recorded for ConsolePolicy default.later"
        await ada.page.until(f"/{said}/.test({_MESSAGE})")
        await ada.until_page("You can type")
        await ada.open_commands()
        commands = await ada.page.evaluate("document.querySelector('dialog').innerText")
        self.assertIn("Record", commands)
        self.assertNotIn("End recording", commands)
        await ada.page.press("k")
        await ada.until_page(
            "already recorded[^]*ConsolePolicy default.later ends after the last session"
        )
        await self.check_layout(ada, "recorded-for-policy", "dialog", "dialog .button")
        buttons = (
            "[...document.querySelectorAll('dialog .button')].map((each) => each.innerText).join()"
        )
        self.assertEqual(await ada.page.evaluate(buttons), "Cancel,Begin another recording")
        await ada.page.press("Escape")
        self.check_faults()

    async def test_observer_asks_again(self) -> None:
        """An observer whose session a policy ends asks to type, and types when that is approved."""
        await self.deployment.client.delete(POLICIES, "fits", "default")
        ada = await self.user("ada")
        await ada.open(VM)
        await ada.until_page("You can type")
        await ada.click_text(".console-head button", "Observe only")
        await ada.until_page("Observing; nobody types")
        await self.set_policy("once", {"approval": "Once"})
        await ada.until_page("needs an approval to type")
        await self.ask(ada, "OPS-7")
        await self.decide_all({"approved": True})
        await ada.until_page("You can type")
        await ada.echo("typed")
        self.check_faults()

    async def test_rights(self) -> None:
        """
        Users who may not list requests have no such view in the navigation; those who may not approve them have
        no buttons but for their own, which they take back.  A phone has all views in its bar, and buttons for a finger.
        """
        ada, bob, carol = [await self.user(each) for each in ("ada", "bob", "carol")]
        for user in (ada, bob):
            await user.page.until(_IS_OFFERED)
            await user.open(VM)
            await user.until_page("requires [^]*the approval of another user")
            await self.ask(user, "OPS-9")
            await user.open("requests")
            await user.until_page("Another user must approve it")
        await ada.page.until(f"{_NUMBER} === '2' && {_BUTTONS} === 'Take back'")
        await bob.page.until(f"{_BUTTONS}.split(',').sort().join() === 'Approve,Deny,Take back'")
        await carol.until_page("1 machine")
        self.assertFalse(await carol.page.evaluate(_IS_OFFERED))
        await carol.open("requests")
        await carol.until_page("You may not list requests in the namespace default")
        roles = "document.querySelector('.notice').innerText.match(/(?<=role )[^ ]+/g).join()"
        self.assertEqual(await carol.page.evaluate(roles), "“console-session-reader”")
        await bob.page.set_touch()
        await bob.page.resize(*PHONE)
        self.assertEqual(await faults_of(bob.page, taps=True), [])
        await bob.click_text("button", "Approve the request of ada for vm-1")
        await bob.page.until("document.querySelector('dialog')")
        self.assertEqual(await faults_of(bob.page, taps=True), [])
        await self.decide_all({"denied": True})
        await bob.click_text("dialog button", "Approve")
        await bob.until_page("is as it was:[^]*a denial is final")
        self.check_faults()


# Looks at requests for approvals wait while the test holds them, which begins behind the last answer.
_HELD_LOOKS = """{
    const request = self.fetch;
    let [held, last] = [null, null];
    self.hold = async () => {
        held = new Promise((go) => (self.go = go));
        await Promise.allSettled([last]);
    };
    self.fetch = async (url, ...more) => {
        if (!/consolerequests[/]./.test(url)) return request(url, ...more);
        await held;
        last = request(url, ...more);
        return last;
    };
}"""
_WITHDRAWN = "bob has withdrawn the approval; the session has ended"
_SCREEN_REASON = "document.querySelector('.controls [aria-label=Reason]')"
_TABLE = "document.querySelector('.facing table').innerText"
_MESSAGE = "(document.querySelector('.message:not([hidden])')?.innerText ?? '')"
_FIELD = "document.querySelector('.panel input')"
# What describes a field whose text was refused.
_INVALID = (
    "document.getElementById(document.querySelector('.panel input[aria-invalid=true]')"
    "?.getAttribute('aria-describedby'))?.innerText"
)
_STATE = "document.querySelector('.status-line .badge').innerText"
_BADGE = "document.querySelector('.status-line .badge')"
_LINES = f"{_BADGE}.clientHeight / parseFloat(getComputedStyle({_BADGE}).lineHeight)"
_PANEL_BUTTONS = (
    "[...document.querySelectorAll('.panel .button')]"
    ".filter((each) => each.checkVisibility() && !each.disabled).map((each) => each.innerText).join()"
)
_ASK_AGAIN = "'Ask to type,Try again'"
