"""
The list of machines and the other lists in a real browser: what they show, at three sizes, and by keyboard.
"""

from __future__ import annotations

import json

from tests.flows.test_three_programs import binding
from twisted_exec.api import kinds

from .fleet import LONG, MACHINES, SIZES, FleetTestCase, condition
from .layout import faults_of, lasting
from .user import User

ROLEBINDINGS = kinds.ROLEBINDINGS.resource
VIEWS = ("machines", "sessions", "recordings", "alerts", "requests", "consoles")
MANY = 10_000
_FRAME = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
_ROWS = "document.querySelectorAll('.visible-rows tr')"
# The filter and the order that a user sees, as in an address; the order is that of the names.
_SHOWN = """(() => {
    const filter = document.querySelector('#machine-filter')?.value;
    const isDescending = document.querySelector('.machines .name[aria-sort]')?.ariaSort === 'descending';
    const shown = [filter && `filter=${filter}`, isDescending && 'sort=-name'].filter(Boolean).join('&');
    return shown && `?${shown}`;
})()"""
_BUTTONS = "[...document.querySelectorAll('.power, td button[data-action]')].filter((each) => each.checkVisibility({visibilityProperty: true})).length"
# The name of a row of a table, if all of it is seen.
_WHOLE = f"""[...document.querySelectorAll('.facing td.name a')].find(
    (each) => each.title === '{LONG}' && [each, ...each.querySelectorAll('*')].every((part) => part.scrollWidth <= part.clientWidth)
)?.textContent"""
_HEAD_IS_A_ROW = """(([title, field]) => title.top < field.bottom && field.top < title.bottom && title.right <= field.left)(
    ['h1', '.list-toolbar input'].map((each) => document.querySelector('#view ' + each).getBoundingClientRect()))"""
# The pixels between the bar and the filter.
_ABOVE_FIELD = """document.querySelector('.list-toolbar input').getBoundingClientRect().top -
    document.querySelector('#bar').getBoundingClientRect().bottom"""
# Links and buttons whose focus ring is cut at the sides by what is around them; it may reach below the titles of a table.
_CUT_RINGS = """[...document.querySelectorAll('#view :is(a, button, summary)')].filter((each) => {
    if (!each.checkVisibility()) return false;
    each.focus({focusVisible: true});
    const {outlineWidth, outlineOffset, outlineStyle} = getComputedStyle(each);
    const reach = outlineStyle === 'none' ? 0 : parseFloat(outlineWidth) + parseFloat(outlineOffset);
    const {left, right} = each.getBoundingClientRect();
    for (let around = each.parentElement; around.id !== 'view'; around = around.parentElement) {
        const edge = around.getBoundingClientRect().left + around.clientLeft;
        const isCut = left - reach < edge - 1 || right + reach > edge + around.clientWidth + 1;
        if (isCut && getComputedStyle(around).overflowX !== 'visible') return true;
    }
    return false;
}).map((each) => each.outerHTML)"""
_TABLE = "document.querySelector('table.list')"
_COUNTED = "document.querySelectorAll('nav .count:not([hidden])')"
_FOCUSED = "document.activeElement.closest('tr')?.querySelector('.name').textContent"


def row(name: str) -> str:
    """Return an expression: the row of a machine."""
    return f"[...{_ROWS}].find((each) => each.querySelector('.name')?.textContent === {json.dumps(name)})"


class ListTests(FleetTestCase):
    """Machines in all states, users, recordings and an alert."""

    async def setUp(self) -> None:
        await super().setUp()
        await self.add_fleet()

    async def until_cell(self, user: User, name: str, column: str, pattern: str) -> None:
        """Wait until the text of a cell matches."""
        cell = f"{row(name)}?.querySelector('.{column}')?.innerText.trim()"
        await user.page.until(f"new RegExp({json.dumps(pattern)}).test({cell})")

    async def test_layout(self) -> None:
        """
        At no size does any view of lists overlap, reach beyond the window or cut off what has no title,
        with machines of one namespace and of two.
        """
        user = await self.user()
        await self.check_layout(user)
        await self.add_machine("web-1", namespace="a-team-with-a-long-name")
        await user.open("machines")
        await self.check_layout(user)

    async def test_touch(self) -> None:
        """Where a finger is the pointer it hits each control at all sizes, and no field names a key that it lacks."""
        user = await self.user()
        await user.page.set_touch()
        await self.check_layout(user, taps=True)
        await user.open("machines")
        await user.page.until(row("web-1"))
        hint = "getComputedStyle(document.querySelector('.list-toolbar .field > span'), '::after').content"
        self.assertEqual(await user.page.evaluate(hint), "none")

    async def check_layout(self, user: User, *, taps: bool = False) -> None:
        """Visit all views at all sizes."""
        await user.page.until(row("web-1"))
        for view in VIEWS:
            for name, (width, height) in (SIZES | {"side": (844, 390)}).items():
                await user.page.resize(width, height)
                await user.open(view)
                await user.page.until("!document.querySelector('.skeleton:not([hidden])')")
                await user.page.until("document.querySelector('#view > .view')?.innerText")
                await user.page.evaluate(_FRAME)
                faults = await faults_of(user.page, taps=taps or name == "phone")
                self.assertEqual(faults, [], f"{view}, {name}")
        self.assertEqual(user.faults(), [])

    async def test_names(self) -> None:
        """
        Each name of up to 40 characters that has room is whole beside namespaces, users and buttons; a longer
        name is cut before its end, which tells it from others, unless the window is wide.
        """
        names = [f"cache-rack00-node{number:03}" for number in range(12)]
        for name in names:
            await self.add_machine(name, "Shutdown", power="Off", namespace="a-team")
        await self.add_session("web-1", "a-user-with-a-long-name")
        user = await self.user()
        await user.page.until(f"/a-user-with/.test({row('web-1')}?.innerText)")
        await user.page.until(f"{row(names[0])}?.querySelector('.power:enabled')")
        for width in (900, 1440, 1920, 390):
            await user.page.resize(width, 2200)
            await user.page.until(row(names[-1]))
            await user.page.until(row(LONG))
            cut = [] if width == 1920 else [LONG]
            await user.page.until(f"JSON.stringify({_CUT_NAMES}) === '{json.dumps(cut)}'")
            if not cut:
                continue
            end = await user.page.evaluate(_SEEN % row(LONG))
            self.assertTrue(LONG.endswith(end) and len(end) > 6, end)

    async def test_tables(self) -> None:
        """
        No list needs to be scrolled sideways in a window between a phone and a desktop, and rows have two lines
        at most in one of 900 pixels; a phone shows five sessions.
        """
        await self.add_session("web-3", "a-user-with-a-long-name")
        await self.add_session(LONG, "administrator")
        await self.add_recording(LONG)
        await self.add_recording("web-1-in-rack-07")
        user = await self.user("sessions")
        for view, text in (("sessions", "a-user-with-a-long-name"), ("recordings", "Ticket 4711")):
            await user.open(view)
            await user.until_page(text)
            for width in (390, 720, 780, 850, 900, 1100, 1260):
                await user.page.resize(width, 700)
                await user.page.until(f"innerWidth === {width}")
                await user.page.evaluate(_FRAME)
                self.assertEqual(await lasting(user.page, _SCROLLS), [], f"{view}, {width}")
                row_of_long = f"[...document.querySelectorAll('.facing tbody tr')].find((each) => each.textContent.includes('{LONG}'))"
                if width > 850:
                    self.assertEqual(await lasting(user.page, _UNEVEN), [], f"{view}, {width}")
                    await user.page.until(f"{row_of_long}?.offsetHeight < 65")
            await user.page.resize(1440 if view == "sessions" else 390, 900)
            await user.page.until(f"{_WHOLE} === '{LONG}'")
        titled = "document.querySelector('.facing td[data-title=Content]').textContent"
        self.assertIn("no input", await user.page.evaluate(titled))
        await user.open("sessions")
        await user.page.resize(*SIZES["phone"])
        await user.page.until("document.querySelector('.facing tbody tr')?.offsetHeight < 844 / 5")

    async def test_room_of_message(self) -> None:
        """In a narrow window what is wrong with a machine begins or ends where nobody is there: nothing empty is beside it."""
        user = await self.user()
        await user.page.until(row("db-2"))
        for size in ((390, 844), (720, 800), (844, 390), (900, 700), (1000, 700)):
            await user.page.resize(*size)
            self.assertEqual(
                await lasting(user.page, _EMPTY_BESIDE % json.dumps(size[0] < 701)), [], size
            )

    async def test_words(self) -> None:
        """The reason of an Event, which is one word, is not broken in windows of any width."""
        about = {"apiVersion": MACHINES.api_version, "kind": MACHINES.kind, "name": "web-1"}
        event = {
            "metadata": {"name": "taken"},
            "involvedObject": about | {"namespace": "default"},
            "reason": "ConsoleTakenOver",
            "message": "bob has taken over the console from ada, and " + "types there now, " * 8,
            "source": {"component": "compute-apiserver"},
        }
        await self.admin.create(kinds.EVENTS.resource, event, "default")
        user = await self.user("machines/default/web-1/events", SIZES["phone"])
        await user.until_page("ConsoleTakenOver")
        whole = "[...document.querySelectorAll('td[data-title=Reason], td[data-title=Reason] *')].at(-1)"
        reason = _LINES % whole
        for size in ((390, 844), (844, 390), (900, 700), (1000, 700), (1280, 800)):
            await user.page.resize(*size)
            await user.page.until(f"{reason} === 1")
            self.assertEqual(await faults_of(user.page), [], size)

    async def test_places(self) -> None:
        """On a phone the fields of all lists are at the same place."""
        user = await self.user(size=SIZES["phone"])
        await user.page.until(row("web-1"))
        top = "document.querySelector('.list-toolbar')?.getBoundingClientRect().top"
        place = await user.page.settled(top)
        for view in ("sessions", "recordings", "alerts", "requests"):
            await user.open(view)
            await user.page.until(f"document.querySelector('.view-{view} .list-toolbar')")
            self.assertEqual(await user.page.settled(top), place, view)

    async def test_focus_rings(self) -> None:
        """The keyboard's user sees the whole ring around each link and button of a list."""
        user = await self.user()
        for view in ("machines", "sessions", "recordings", "alerts"):
            await user.open(view)
            await user.page.until(f"document.querySelector('.view-{view} tbody td a')")
            self.assertEqual(await lasting(user.page, _CUT_RINGS), [], view)

    async def test_views_in_bar(self) -> None:
        """The bar has all views with their numbers, also the number of open consoles, in windows of any width."""
        user = await self.user("requests")
        await user.page.until(f"{_COUNTED}.length === 2")
        await user.page.evaluate("document.querySelector('nav .count').hidden = false; null")
        await user.page.evaluate("document.querySelector('nav .count').textContent = '12'")
        for width in (320, 390, 701, 850, 851, 1000, 1250):
            await user.page.resize(width, 844)
            await user.page.until(f"innerWidth === {width}")
            self.assertEqual(await faults_of(user.page, taps=width < 701), [], width)
            links = "[...document.querySelectorAll('nav a')].filter((each) => each.checkVisibility()).length"
            self.assertEqual(await user.page.evaluate(links), len(VIEWS), width)

    async def test_taps_on_rows(self) -> None:
        """On a phone a row opens wherever it is touched; its other links and buttons stay what they are."""
        user = await self.user("sessions", SIZES["phone"])
        for view, title, target in (
            ("sessions", "User", "machines/default/web-1"),
            ("recordings", "Reason", "recordings/default/web-"),
            ("alerts", "Message", "machines/default/db-1"),
        ):
            await user.open(view)
            cell = f"tbody td[data-title={title}]"
            # The link of the row covers its cells.
            box = f"element.querySelector('{cell}').getBoundingClientRect()"
            place = f"(({{left, top, height}}) => [left + 10, top + height / 2])({box})"
            await user.page.click_element(f"document.querySelector('{cell}')?.closest('tr')", place)
            await user.page.until(f"location.hash.startsWith('#/{target}')")
        await user.open("sessions")
        await user.click_text("button", "End the session of bob at web-1")
        await user.page.until("document.querySelector('dialog[open]')")
        self.assertEqual(await user.page.evaluate("location.hash"), "#/sessions")

    async def test_rows(self) -> None:
        """
        A row says who is there, whether it is recorded, and what is wrong instead of the last line; a
        console that is not healthy is not green, and the number of these is beside Alerts.
        """
        user = await self.user()
        await user.page.until(f"/ada, bob/.test({row('web-1')}?.innerText)")
        await user.page.until(f"{row('web-3')}?.querySelector('.recorded')")
        problem = '^RaidDegraded: "md0: Disk failure on sdb1, disabling device."$'
        await self.until_cell(user, "db-1", "last-line", problem)
        await user.page.until(f"{row('db-1')}?.querySelector('.badge.bad')")
        await self.until_cell(user, "web-1", "last-line", "multi-user")
        await self.until_cell(user, "build-7", "power", "^Power on$")
        for name, severity in (("build-9", "waiting"), ("db-2", "bad")):
            found = f"{row(name)}?.querySelector('.problem')?.className"
            await user.page.until(f"{found} === 'problem {severity}'")
        number = "document.querySelector('nav a[href=\"#/alerts\"] .count').innerText.trim()"
        await user.page.until(f"/^1\\b/.test({number})")

    async def test_power(self) -> None:
        """Power off asks first, power on does not; the button that replaces another has its focus."""
        user = await self.user()
        await user.page.until(row("web-1"))
        await user.click_text("button", "Power on build-7")
        await user.page.until(f"/Power off/.test({row('build-7')}?.innerText)")
        await user.page.until(
            "document.activeElement.getAttribute('aria-label') === 'Power off build-7'"
        )
        await user.click_text("button", "Power off web-1")
        await user.click_text("dialog button", "Power off")
        await user.page.until(f"/Power on/.test({row('web-1')}?.innerText)")
        powers = [
            (await self.admin.get(MACHINES, name, "default"))["spec"]["power"]
            for name in ("build-7", "web-1")
        ]
        self.assertEqual(powers, ["On", "Off"])

    async def test_steady(self) -> None:
        """No column moves while the user filters, and the fields and the titles stay in view in a long list."""
        user = await self.user()
        await user.page.until(f"/ada, bob/.test({row('web-1')}?.innerText)")
        await user.page.until(f"{row('web-3')}?.querySelector('.recorded')")
        places = "[...document.querySelectorAll('thead th')].map((each) => each.getBoundingClientRect().left).join(' ')"
        before = await user.page.evaluate(places)
        more = f"{row('build-8')}.querySelector('.more a').getBoundingClientRect().left"
        place = await user.page.evaluate(more)
        await user.page.until(
            f"{row('build-7')}?.querySelector('.power:enabled') && {more} === {place}"
        )
        await user.page.focus("#machine-filter")
        await user.page.type("build-8")
        await user.page.until(f"{_ROWS}.length === 1")
        await user.page.until(f"{places} === {json.dumps(before)}")
        await user.page.press("Control+a")
        await user.page.press("Backspace")
        await user.page.until(row("web-1"))
        for size in SIZES.values():
            await user.page.resize(*size)
            await user.page.evaluate(f"scrollTo(0, 900); {_FRAME}")
            self.assertEqual(await lasting(user.page, _IN_VIEW), [], size)

    async def test_phone(self) -> None:
        """
        The list of a phone has the number of its machines as its title, and the user's name; a row has two lines, opens wherever it
        is touched, and has one button for the rest.
        """
        user = await self.user("sessions", size=SIZES["phone"])
        await user.until_page("^[^]*carol\\s+Writer\\s+\\w+\\s+Connected\\s+Details")
        self.assertEqual(await faults_of(user.page, taps=True), [])
        await user.click_text("summary", "Details")
        await user.until_page("Asked to\\s+type[^]*10.0.0.7")
        await user.open("machines")
        await user.page.until(f"{row('build-7')}?.querySelector('.power:enabled')")
        await user.page.until(_READ % ("46 machines", "ada"))
        for text, shown in (("db", "2 of 46"), ("", "46 machines")):
            await user.page.evaluate(_FILTER % json.dumps(text))
            await user.page.until(_READ % (shown, "ada"))
            self.assertEqual(await lasting(user.page, _CUT_STATES), [], text)
        await user.click_text("button", "More of build-7")
        await user.page.until("/Shutdown/.test(document.querySelector('dialog[open]')?.innerText)")
        self.assertEqual(await faults_of(user.page, taps=True), [])
        await user.click_text("dialog button", "Power on build-7")
        await user.page.until(f"/Power off/.test({row('build-7')}?.textContent)")
        await user.click_text("button", "More of web-2")
        await user.page.until("document.querySelector('dialog[open]')")
        await user.page.evaluate("history.back()")
        await user.page.until("!document.querySelector('dialog')")
        self.assertTrue(await user.page.evaluate("location.hash === '#/machines'"))
        await user.click_text("button", "More of web-2")
        await user.click_text("dialog a", "Log of web-2")
        await user.page.until("location.hash === '#/machines/default/web-2/logs'")
        await user.page.until("!document.querySelector('dialog')")
        await user.open("machines")
        await user.page.until(f"{row('build-7')}?.querySelector('.power:enabled')")
        await user.page.until(f"{row('web-2')}.offsetHeight < 64")
        await user.page.click_element(row("web-2"), "[left + 120, bottom - 8]")
        await user.page.until("location.hash === '#/machines/default/web-2'")

    async def test_titles_on_phone(self) -> None:
        """On a phone a value of a list begins beside its title, and no line of it is below that."""
        user = await self.user("alerts", SIZES["phone"])
        await user.page.set_touch()
        for view, text in (
            ("alerts", "md-degraded"),
            ("requests", "Another user must approve it"),
            ("recordings", "Ticket 4711"),
        ):
            await user.open(f"{view}?namespace=")
            await user.until_page(text)
            self.assertEqual(await lasting(user.page, _APART), [], view)

    async def test_long_reason(self) -> None:
        """A request of a user with a long name, and with a long word in its reason, has its buttons in the window."""
        await self.add_request("web-4", "erin.of-the-night-shift@operations.example.org", "x" * 256)
        user = await self.user("requests?namespace=default")
        await user.page.until("document.querySelectorAll('[data-action=Approve]').length === 2")
        for size in ((1440, 900), (1000, 600), (860, 800), (390, 844)):
            await user.page.resize(*size)
            self.assertEqual(await lasting(user.page, _SCROLLS), [], size)

    async def test_filter_name(self) -> None:
        """A screen reader says the title of the filter, without the key that leads to it."""
        user = await self.user("sessions")
        await user.page.until("document.querySelector('[role=search] input')")
        tree = await user.page.call("Accessibility.getFullAXTree")
        names = [
            each["name"]["value"] for each in tree["nodes"] if each["role"]["value"] == "searchbox"
        ]
        self.assertEqual(names, ["Filter", "Namespaces"])

    async def test_recording_without_content(self) -> None:
        """Without a player the title of a recording is above its facts on a phone on its side, too, and these are in rows."""
        user = await self.user("recordings/default/web-3")
        await user.page.set_touch()
        await user.page.resize(844, 390)
        await user.until_page("Ticket 4711")
        await user.page.until(f"{_TITLE_LEFT} === 0")
        self.assertEqual(await lasting(user.page, _NEAR_ROWS), [])
        # There is no time before it.
        await user.page.until("document.querySelector('.clock').innerText.startsWith('Machine ')")

    async def test_states(self) -> None:
        """
        The list counts the machines of each state that the filter finds, and those that are not healthy; a
        click shows these, also beside those of another state, and a second click takes them away.
        """
        user = await self.user()
        counts = "[...document.querySelectorAll('.states .button')].filter((each) => each.checkVisibility()).map((each) => each.innerText).join(', ')"
        await user.page.until(f"{counts} === '1 Unhealthy, 2 Pending, 43 Running, 1 Shutdown'")
        await self.add_machine("build-10", "Pending")
        await user.page.until(f"{counts} === '1 Unhealthy, 3 Pending, 43 Running, 1 Shutdown'")
        await user.click_text(".states .button", "3 Pending")
        await user.click_text(".states .button", "1 Shutdown")
        await user.page.until(
            f"{_ROWS}.length === 4 && location.hash === '#/machines?filter=Pending+Shutdown'"
        )
        await user.click_text(".states .button[aria-pressed=true]", "3 Pending")
        await user.click_text(".states .button[aria-pressed=true]", "1 Shutdown")
        for size in (*SIZES.values(), (390, 500), (844, 390)):
            await user.page.resize(*size)
            await user.click_text(".states .button", "3 Pending")
            await user.page.until(
                f"{_ROWS}.length === 3 && location.hash.includes('filter=Pending')"
            )
            self.assertEqual(await faults_of(user.page, taps=size[0] < 700), [], size)
            self.assertEqual(await lasting(user.page, _CUT_STATES), [], size)
            self.assertEqual(await lasting(user.page, _COVERED_STATES), [], size)
            if size[0] < 700:
                await user.page.until(f"{_ABOVE_STATES} < 2")
                self.assertEqual(await lasting(user.page, _WITHOUT_AGE), [])
            await user.click_text(".states .button[aria-pressed=true]", "3 Pending")
            await user.page.until(f"{_ROWS}.length > 3 && !location.hash.includes('filter')")
        await user.page.set_touch()
        for size in (*SIZES.values(), (390, 500), (844, 390)):
            await user.page.resize(*size)
            self.assertEqual(await lasting(user.page, _COVERED_STATES), [], size)
            if size[0] < 700:
                await user.page.until(f"{_ABOVE_STATES} < 2")
            elif size[1] < 500:  # the filter beside them keeps off the bar
                await user.page.until(f"{_ABOVE_STATES} < 6")
        await user.page.focus("#machine-filter")
        await user.page.type("db")
        await user.until_page("2 of 47 machines")
        await user.page.until(f"{counts} === '1 Unhealthy, 2 Running'")
        await user.click_text(".states .button", "2 Running")
        await user.page.until("location.hash.includes('filter=db+Running')")
        await user.page.until(f"{_ROWS}.length === 2 && {counts} === '1 Unhealthy, 2 Running'")
        await user.click_text(".states .button[aria-pressed=true]", "2 Running")
        await user.page.until("location.hash === '#/machines?filter=db'")
        await user.click_text(".states .button", "1 Unhealthy")
        await user.page.until(f"{_ROWS}.length === 1 && {row('db-1')}")

    async def test_menu(self) -> None:
        """The menu of a row closes by Escape and by a click beside it, which does nothing else; its button has the focus again."""
        user = await self.user(size=SIZES["tablet"])
        await user.page.until(f"{row('web-1')}?.querySelector('.icon')?.checkVisibility()")
        closed = "!document.querySelector('dialog') && document.activeElement.getAttribute('aria-label') === 'More of web-1'"
        link = f"(({{left, top}}) => [left + 3, top + 3])({row('db-1')}.querySelector('a').getBoundingClientRect())"
        for is_beside in (False, True):
            await user.click_text("button", "More of web-1")
            await user.page.until("document.querySelector('dialog[open]')")
            if is_beside:  # the row is drawn again
                button = "document.querySelector('[aria-label=\"More of web-1\"]')"
                await user.page.evaluate(f"(old => old.replaceWith(old.cloneNode(true)))({button})")
            await user.page.click("dialog h2")
            self.assertTrue(await user.page.evaluate("!!document.querySelector('dialog[open]')"))
            if is_beside:
                await user.page.click_at(*await user.page.evaluate(link))
            else:
                await user.page.press("Escape")
            await user.page.until(closed)
        self.assertEqual(await user.page.evaluate("location.hash"), "#/machines")

    async def test_fault(self) -> None:
        """
        The message of an alert leads to its line in the log, on a phone from the menu of the row, where a tap on the message
        opens the console.  Other faults are in no log.
        """
        user = await self.user()
        line = f"{row('db-1')}?.querySelector('.last-line a')"
        log = "#/machines/default/db-1/logs?offset=5123"
        await user.page.until(f"{line}?.hash === '{log}'")
        self.assertFalse(await user.page.evaluate(f"!!{row('db-2')}.querySelector('.last-line a')"))
        await user.page.resize(*SIZES["phone"])
        await user.page.until(f"!{line} && {row('db-1')}.querySelector('.problem')")
        await user.click_text("button", "More of db-1")
        await user.click_text("dialog a", "Show the fault in the log")
        await user.page.until(f"location.hash === '{log}' && !document.querySelector('dialog')")

    async def test_names_of_alerts(self) -> None:
        """A long name of a machine that is not healthy, or that an alert has matched, is cut before its end."""
        sick = {"conditions": [condition("ConsoleHealthy", "False", "it panics", "KernelPanic")]}
        await self.admin.patch(MACHINES, LONG, {"status": sick}, "default", subresource="status")
        about = {"apiVersion": MACHINES.api_version, "kind": MACHINES.kind, "name": LONG}
        event = {
            "metadata": {"name": "match"},
            "involvedObject": about | {"namespace": "default"},
            "reason": "KernelPanic",
            "message": 'Critical: pattern panic of alert linux at offset 5: "Kernel panic"',
        }
        await self.admin.create(kinds.EVENTS.resource, event, "default")
        user = await self.user("alerts")
        for width in (390, 720, 900, 1440):
            await user.page.resize(width, 900)
            await user.page.until(
                f"innerWidth === {width} && {_ENDS} === '{LONG[-10:]}, {LONG[-10:]}'"
            )
            self.assertEqual(await faults_of(user.page, taps=width == 390), [], width)
            self.assertEqual(await lasting(user.page, _SCROLLS), [], width)

    async def test_side(self) -> None:
        """On a phone that lies on its side each session and each recording has one row, and all columns fit."""
        user = await self.user(size=(844, 390))
        await user.page.set_touch()
        for view in ("sessions", "recordings", "alerts"):
            await user.open(view)
            for width, height in ((844, 390), (740, 360)):
                await user.page.resize(width, height)
                await user.page.until(
                    f"document.querySelector('.view-{view} .facing tbody td')?.offsetHeight"
                )
                self.assertEqual(await lasting(user.page, _SCROLLS), [], f"{view}, {width}")
                self.assertEqual(await faults_of(user.page, taps=True), [], f"{view}, {width}")
                self.assertGreaterEqual(await user.page.evaluate(_ABOVE_FIELD), 4, view)
                if view != "alerts":  # whose machine has its namespace below it
                    heights = f"[...document.querySelectorAll('.view-{view} .facing tbody tr')].map((each) => each.offsetHeight)"
                    await user.page.until(f"Math.max(...{heights}) < 60")

    async def test_low_window(self) -> None:
        """
        In a low window the title is beside the fields, stays there above a long list, and *Filters* shows the others;
        it has 14 machines.
        """
        user = await self.user(size=(1000, 600))
        await user.page.until(row("web-1"))
        whole = f"[...{_ROWS}].filter((each) => each.getBoundingClientRect().bottom <= innerHeight).length"
        await user.page.until(f"{whole} >= 14")
        for view in ("machines", "sessions", "recordings", "alerts", "requests"):
            await user.open(view)
            await user.page.until(f"document.querySelector('.view-{view} .list-toolbar')")
            for size in ((1000, 600), (844, 390)):
                await user.page.resize(*size)
                await user.page.until(f"innerWidth === {size[0]} && {_HEAD_IS_A_ROW}")
                self.assertEqual(await faults_of(user.page), [], view)
            await user.page.resize(1000, 600)
            await user.click_text("button", "Filters")
            self.assertEqual(await faults_of(user.page), [], view)
        await user.open("machines")
        await user.page.until(row("web-1"))
        await user.page.evaluate(f"scrollTo(0, 900); {_FRAME}")
        self.assertEqual(await lasting(user.page, _IN_VIEW), [])

    async def test_typing_on_phone(self) -> None:
        """Above the keyboard of a phone the other fields make room for what a typed filter finds, and its remedy."""
        user = await self.user(size=(390, 500))
        await user.page.until(row("web-1"))
        await user.click_text("button", "Filters")
        fields = "document.querySelector('.more-fields').checkVisibility()"
        await user.page.until(fields)
        await user.page.focus("#machine-filter")
        await user.page.type("nothing like this")
        bottom = "document.querySelector('.empty .button')?.getBoundingClientRect().bottom"
        await user.page.until(f"!{fields} && {bottom} < innerHeight")
        await user.click_text("button", "Clear the filter")
        await user.page.until(row("web-1"))

    async def test_bar(self) -> None:
        """The bar is one line also on a phone that lies on its side, and names the cluster and the user in full."""
        user = await self.user(size=(844, 390))
        await user.page.until(row("web-1"))
        named = "[...document.querySelectorAll('#bar :is(.cluster, .user)')]"
        await user.page.until(f"{named}[1].textContent === 'ada'")
        await user.page.evaluate(
            f"{named}[0].textContent = 'exec-standalone'; {named}[1].textContent = 'administrator'"
        )
        for width in (844, 1440, 390):
            await user.page.resize(width, 390)
            await user.page.evaluate(_FRAME)
            self.assertEqual(await faults_of(user.page), [], width)
            cut = f"{named}.filter((each) => each.scrollWidth > each.clientWidth).length"
            self.assertEqual(await user.page.evaluate(cut), 0, width)
            heights = f"{named}.map((each) => each.offsetHeight).filter((each) => each > 24)"
            self.assertEqual(await user.page.evaluate(heights), [], width)

    async def test_tabs_on_phone(self) -> None:
        """
        The tab of the selected console is in view with the button that closes it, also behind others, when
        another tab gets a mark, and after the phone was turned.
        """
        user = await self.user(size=SIZES["phone"])
        await user.page.until(row("web-1"))
        for name in ("web-40", LONG, "web-1"):
            await user.open(f"machines/default/{name}")
            await user.page.until(
                f"document.querySelector('.tabs .selected')?.textContent.includes('{name}')"
            )
            await user.page.until(_TAB)
        mark = "Object.assign(document.querySelector('.tabs .badge'), {textContent: 'unreachable', hidden: false})"
        self.assertTrue(await user.page.evaluate(f"{mark}, !{_TAB}"))
        await user.page.until(_TAB)
        for size in ((844, 390), SIZES["phone"]):
            await user.page.resize(*size)
            await user.page.until(f"innerWidth === {size[0]} && {_TAB}")
            await user.page.evaluate(_FRAME)  # a phone is not turned back between two frames

    async def test_address(self) -> None:
        """
        The filter and the order are those of the address, which shows another user the same rows: Back brings them
        back, and a link without them shows all machines.
        """
        user = await self.user()
        await user.page.until(row("web-1"))
        await user.page.press("/")
        await user.page.type("web-3")
        await user.click_text("th button", "Name")
        await user.page.until("location.hash === '#/machines?filter=web-3&sort=-name'")
        names = f"[...{_ROWS}].map((each) => each.querySelector('.name').textContent).join(' ')"
        shown = await user.page.until(f"/^web-39 .* web-3$/.test({names}) && {names}")
        await user.open("sessions")
        await user.until_page("carol")
        await user.page.evaluate("history.back()")
        await user.page.until(f"{names} === {json.dumps(shown)}")
        for address in ("", "?filter=web-3", "?sort=-name"):
            await user.open(f"machines{address}")
            await user.page.until(f"{_SHOWN} === '{address}'")
        for address in ("?filter=web-3", ""):
            await user.page.evaluate("history.back()")
            await user.page.until(f"{_SHOWN} === '{address}'")
            self.assertEqual(await user.page.evaluate("location.hash"), f"#/machines{address}")
        await user.page.until(row("web-1"))
        await user.page.press("/")
        await user.page.type("web-39")
        await user.page.until(f"{_ROWS}.length === 1")
        await user.page.press("Enter")
        await user.page.until("location.hash === '#/machines/default/web-39'")
        await user.page.evaluate("history.back()")
        await user.page.until("location.hash === '#/machines?filter=web-39'")
        await user.page.until(f"{_SHOWN} === '?filter=web-39'")
        other = await self.user("machines?filter=web-3&sort=-name")
        await other.page.until(f"{names} === {json.dumps(shown)}")

    async def test_unknown(self) -> None:
        """An address that names no view shows the list, and says so."""
        user = await self.user("nonsense/x")
        await user.until_page("There is no view nonsense/x")
        await user.page.until(row("web-1"))
        await user.open("foo")
        await user.until_page("There is no view foo")

    async def test_keyboard(self) -> None:
        """`/` leads to the filter, arrows move through the rows, and Enter opens the console."""
        user = await self.user()
        await user.page.until(row("web-1"))
        await user.page.press("/")
        await user.page.until("document.activeElement.id === 'machine-filter'")
        await user.page.press("ArrowDown")
        await user.page.until(f"{_FOCUSED} === 'build-7'")
        await user.page.press("ArrowDown")
        await user.page.until(f"{_FOCUSED} === 'build-8'")
        await user.page.press("End")
        await user.page.until(f"{_FOCUSED} === 'web-40'")
        await user.page.until(
            "document.activeElement.getBoundingClientRect().bottom <= innerHeight"
        )
        await user.page.press("Home")
        await user.page.until(f"{_FOCUSED} === 'build-7'")
        await user.page.press("ArrowUp")
        await user.page.until("document.activeElement.id === 'machine-filter'")
        await user.page.type("web-40")
        await user.page.press("Enter")
        await user.page.until("location.hash === '#/machines/default/web-40'")

    async def test_comes_back(self) -> None:
        """The list begins at the machine from whose view the user comes, if nothing else has the focus."""
        user = await self.user("machines/default/web-30/screen")
        await user.page.until("document.querySelector('.view-screen')")
        await user.open("machines")
        await user.page.until(f"{_FOCUSED} === 'web-30'")
        sight = "(({top, bottom}) => top >= 0 && bottom <= innerHeight)(document.activeElement.getBoundingClientRect())"
        self.assertTrue(await user.page.evaluate(sight))
        await user.open("machines/default/web-20/screen")
        await user.page.until("document.querySelector('.view-screen')")
        await user.page.click("nav a[href='#/machines']")
        await user.page.until(row("web-1"))
        self.assertEqual(await user.page.evaluate("document.activeElement.hash"), "#/machines")

    async def test_filters_on_phone(self) -> None:
        """A phone shows one field for the search; a button shows the others, also the order."""
        user = await self.user(size=SIZES["phone"])
        await user.page.until(row("web-1"))
        shown = "[...document.querySelectorAll('.list-toolbar :is(input, select)')].filter((each) => each.offsetParent).length"
        await user.page.until(f"{shown} === 1")
        await user.click_text("button", "Filters")
        await user.page.until(f"{shown} === 4")
        self.assertEqual(await faults_of(user.page, taps=True), [])


class ObserverTests(FleetTestCase):
    """A user who may observe consoles, and may not list machines."""

    groups = ""

    async def test_open_by_name(self) -> None:
        """The list names the missing right, and opens a machine by its name; the text stays while the page tries again."""
        user = await self.user()
        await user.until_page("You may not list machines in the namespace default")
        await user.page.focus(".notice input")
        await user.page.type("web-1")
        self.assertEqual(await faults_of(user.page), [])
        await user.page.press("Enter")
        await user.page.until("location.hash === '#/machines/default/web-1'")

    async def test_no_list(self) -> None:
        """A list that the user may not read is not said to load."""
        user = await self.user()
        loading = "[...document.querySelectorAll('.skeleton')].some((each) => each.offsetParent)"
        for view, noun in (
            ("machines/default/web-1/events", "events"),
            ("sessions", "sessions"),
            ("recordings", "recordings"),
            ("requests", "requests"),
            ("alerts", "alerts"),
        ):
            await user.open(view)
            await user.until_page(f"You may not list {noun}")
            await user.page.until(f"!{loading}")

    async def test_namespaces_on_phone(self) -> None:
        """The notice leads to the field that it names, also where that is behind a button."""
        user = await self.user(size=(390, 844))
        await user.until_page(
            "Type the namespaces in which you may list them[^]*Open[^]*Choose other namespaces"
        )
        await user.click_text("button", "Choose other namespaces")
        named = "[...document.querySelectorAll('.field')].find((each) => each.innerText.trim() === 'Namespaces')"
        await user.page.until(f"{named}?.contains(document.activeElement)")
        self.assertEqual(await faults_of(user.page), [])
        await user.page.type("other")
        await user.until_page("You may not list machines in the namespace.*other")
        await user.click_text("button", "Choose other namespaces")
        await user.page.until(f"{named}.contains(document.activeElement)")

    async def test_all_namespaces(self) -> None:
        """Who may list recordings everywhere sees those of all namespaces, without any other right."""
        await self.add_recording("web-1", "other")
        bound = binding("ada", "console-recording-reader")
        bound["kind"] = kinds.CLUSTERROLEBINDINGS.resource.kind
        await self.admin.create(kinds.CLUSTERROLEBINDINGS.resource, bound)
        user = await self.user("recordings")
        await user.until_page("1 recording[^]*web-1")
        self.assertEqual(await user.page.evaluate("location.hash"), "#/recordings")

    async def test_actions(self) -> None:
        """
        Who may only observe has no button that types or that changes the power, nor a link to the log, and their
        room is the message's.  The menu of a row has its message as it is now, also if the row shows all of it.
        """
        for role in ("view", "console-observer"):
            bound = binding("ada", role) | {"metadata": {"name": role}}
            await self.admin.create(ROLEBINDINGS, bound, "default")
        await self.add_machine("web-1", "Pending")
        user = await self.user()
        texts = "[...document.querySelectorAll('.more a, .more .power')].map((each) => each.innerText).join()"
        await user.page.until(f"{texts} === 'Observe,Screen'")
        await user.page.resize(1000, 600)  # without a column for the namespace
        await user.page.until(
            "innerWidth === 1000 && document.querySelector('.more a').checkVisibility()"
        )
        self.assertEqual(await faults_of(user.page), [])
        await user.page.resize(*SIZES["phone"])
        status = {"conditions": [condition("Ready", "False", "no room", "OutOfCapacity")]}
        await self.admin.patch(
            MACHINES, "web-1", {"status": status}, "default", subresource="status"
        )
        await user.page.until(f"/no room/i.test({row('web-1')}?.innerText)")
        await user.click_text("button", "More of web-1")
        await user.page.until("/no room/i.test(document.querySelector('dialog')?.innerText)")


class EmptyTests(FleetTestCase):
    """A server without machines."""

    async def test_empty(self) -> None:
        """Each view says that nothing is there, and what to do."""
        user = await self.user()
        for view, text in (
            ("machines", "There are no machines yet"),
            ("sessions", "No console is open.[^]*Choose a machine"),
            ("recordings", "There are no recordings[^]*Choose a machine"),
            ("alerts", "No alert looks at what machines print[^]*Copy the command"),
            ("requests", "There are no requests: a user makes one"),
            ("consoles", "No console is open.[^]*Choose a machine"),
        ):
            await user.open(view)
            await user.until_page(text)
            self.assertEqual(await faults_of(user.page), [], view)

    async def test_filtered(self) -> None:
        """An empty list says what hides its rows, how many the filter hides, and has a button that shows them."""
        await self.add_machines(1)
        await self.add_machine("vm-0001")
        await self.add_session("vm-0000", "bob")
        await self.add_recording("vm-0000")
        await self.add_request("vm-0000", "bob")
        await self.add_alert()
        user = await self.user()
        for view, count, named in (
            ("sessions", "1 session", "vm-0000"),
            ("machines", "2 machines", "vm-0000"),
            ("recordings", "1 recording", "vm-0000"),
            ("requests", "1 request", "vm-0000"),
            ("alerts", "1 alert", "storage"),
        ):
            await user.open(f"{view}?filter=nothing")
            await user.until_page(f"The filter hides {count}\\.")
            await user.click_text("button", "Clear the filter")
            await user.until_page(named)
            await user.open(f"{view}?namespace=team-a,team-b")
            await user.until_page(f"no {view} in team-a, team-b; other namespaces are not shown")
            self.assertEqual(await faults_of(user.page), [], view)
            await user.click_text("button", "Show all namespaces")
            await user.until_page(named)

    async def test_away(self) -> None:
        """A page that is loaded while its server is away says so; the list and the user's name come with the server."""
        await self.add_machines(1)
        user = await self.user()
        await user.page.until(row("vm-0000"))
        await user.page.before_scripts(_AWAY)
        await user.page.reload()
        await user.until_page("Waiting for the server [(]127.0.0.1:[0-9]+[)], for [0-9]+[sm]")
        self.assertEqual(await faults_of(user.page), [])
        await user.page.evaluate("comeBack()")
        await user.page.until(row("vm-0000"))
        await user.page.until("document.querySelector('#bar .user')?.innerText === 'ada'")

    async def test_outage(self) -> None:
        """Who comes back to a list while the server is away reads the rows of before, and since when they may be old; no button changes a machine."""
        await self.add_machines(3)
        user = await self.user()
        await user.page.until(_BUTTONS + " === 3")
        await user.open("sessions")
        await user.until_page("No console is open")
        await self.add_session("s-1", "bob")
        await self.add_recording("seen")
        await self.add_request("asked", "bob")
        await user.page.until("document.querySelector('tbody tr')")
        await user.page.evaluate(_NO_ATTEMPTS)  # but those that the user asks for
        await user.page.set_offline(True)
        await user.open("machines")
        await user.until_page(r"This list is as of \d\d:\d\d: the server cannot be reached\.")
        self.assertEqual(await user.page.evaluate(f"{_ROWS}.length"), 3)
        users = "[...document.querySelectorAll('tbody .users')].map((each) => each.innerText.replace('Unknown', '').trim())"
        await user.page.until(f"{users}.join() === '?,?,?'")  # not who was there before
        await user.page.until(_BUTTONS + " === 0")
        self.assertEqual(await faults_of(user.page), [])
        await user.page.set_offline(False)
        await user.page.evaluate(_TRY_NOW)
        await user.page.until("!document.querySelector('.as-of')")
        await user.page.until(_BUTTONS + " === 3")
        await user.open("alerts")
        await user.until_page("No alert looks at what machines print")
        for view, count in (("sessions", 1), ("recordings", 1), ("requests", 2)):
            await user.open(view)
            await user.page.until(
                f"document.querySelector('.view-{view}') && {_BUTTONS} === {count}"
            )
            await user.page.set_offline(True)
            await user.until_page("This list is as of")
            await user.page.until(_BUTTONS + " === 0")
            await user.page.set_offline(False)
            await user.page.evaluate(_TRY_NOW)
            await user.page.until(f"{_BUTTONS} === {count}")
        await user.open("sessions")
        await user.page.until("document.querySelector('tbody tr')")
        await user.page.set_offline(True)
        await user.open("alerts")
        await user.page.until("document.querySelectorAll('.view .as-of').length === 1")
        self.assertEqual(await faults_of(user.page), [])

    async def test_loading(self) -> None:
        """While lists load, their places have bars, and nothing says that they are empty."""
        await self.add_machines(1)
        user = await self.user("consoles")
        await user.until_page("No console is open")
        await user.page.before_scripts(NO_LISTS)
        await user.page.reload()
        await user.page.until("self.areListsLost && document.querySelector('nav a')")
        for view in ("machines", "sessions", "recordings", "alerts", "requests"):
            await user.open(view)
            await user.page.until("document.querySelector('.skeleton:not([hidden])')?.offsetParent")
            text = await user.page.evaluate("document.getElementById('view').innerText")
            self.assertNotRegex(text, "There are no|No [a-z]|\\b0 ", view)

    async def test_silent_server(self) -> None:
        """
        While the server is silent, each list says below its toolbar for how long it waits, and then what may be in
        the way; if a question about rights has failed, it says why.
        """
        user = await self.user("consoles", SIZES["tablet"])
        await user.until_page("No console is open")
        await user.page.before_scripts(NO_LISTS + _LATER)
        await user.page.reload()
        await user.page.until("self.areListsLost && document.querySelector('nav a')")
        for view in ("sessions", "machines", "recordings", "alerts", "requests"):
            await user.open(view)
            await user.page.until(_BARS % view)
            await user.page.evaluate("self.later += 11_000")
            await user.page.until(_WAITING % "for 11s so far\\. It may be busy")
        await user.page.before_scripts(_NO_REVIEWS)
        await user.page.reload()
        await user.page.until("self.areListsLost && document.querySelector('nav a')")
        for view in ("sessions", "alerts"):
            await user.open(view)
            await user.page.until(_BARS % view)
            await user.page.evaluate("self.later += 3_000")
            await user.page.until(
                _WAITING % "for 3s so far\\. No list yet: the API server did not answer in time\\."
            )


class ManyTests(FleetTestCase):
    """Ten thousand machines."""

    async def test_scroll(self) -> None:
        """
        Only the rows in sight are elements, wherever the user scrolls, and readers learn their numbers;
        the last row is reached by a key, and the row with the focus stays while the user scrolls away.
        """
        await self.add_machines(MANY)
        user = await self.user()
        await user.until_page(f"{MANY} machines")
        await user.page.until(row("vm-0000"))
        count = "document.querySelector('table').getAttribute('aria-rowcount')"
        await user.page.until(f"{count} === '{MANY + 1}'")
        steps = await user.page.evaluate(_SCROLL)
        self.assertEqual(steps["wrong"], [])
        self.assertLess(steps["most"], 80)
        print(
            f"{MANY} machines: at most {steps['most']} rows, {steps['milliseconds']:.1f} ms of scripts and layout for a step"
        )
        await user.page.focus("#machine-filter")
        await user.page.press("ArrowDown")
        await user.page.press("End")
        await user.page.until(f"{_FOCUSED} === 'vm-{MANY - 1}'")
        await user.page.evaluate(f"scrollTo(0, 0); {_FRAME}")
        await user.page.until(row("vm-0000"))
        self.assertEqual(await user.page.evaluate(_FOCUSED), f"vm-{MANY - 1}")
        await user.page.press("ArrowUp")
        await user.page.until(f"{_FOCUSED} === 'vm-{MANY - 2}'")
        self.assertEqual(user.faults(), [])


# The names that are cut, and what is to be seen of the end of one.
_CUT_NAMES = """[...document.querySelectorAll('.visible-rows .name')].filter((cell) =>
    [cell, ...cell.querySelectorAll('*')].some((each) => each.scrollWidth > each.clientWidth + 1 && each.clientWidth)
).map((cell) => cell.textContent)"""
_SEEN = """((cell) => {
    const end = cell.querySelector('.cut').lastChild;
    return end.getBoundingClientRect?.().right <= cell.getBoundingClientRect().right + 1 ? end.textContent : '';
})(%s.querySelector('.name'))"""
# What is in sight of the ends of long names in tables.
_ENDS = """[...document.querySelectorAll('.facing .name .cut')].filter((each) => each.closest('a').textContent.length > 40 &&
    each.lastChild.getBoundingClientRect().right <= each.closest('td').getBoundingClientRect().right + 1).map((each) => each.lastChild.textContent).join(', ')"""
# Tables that are wider than their place.
_SCROLLS = """[...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > each.clientWidth + 1)
    .map((each) => each.innerText.slice(0, 40))"""
# Rows whose name does not begin in the line of the other cells.
_UNEVEN = """[...document.querySelectorAll('.facing tbody tr')].filter((each) => {
    const [name, state] = ['td.name a', '.badge'].map((selector) => each.querySelector(selector).getClientRects()[0].top);
    return Math.abs(name - state) > 6;
}).map((each) => each.innerText)"""
# Empty pixels beside a message that is cut: before the age of a phone's row, or behind the state.
_EMPTY_BESIDE = """((isPhone) => [...document.querySelectorAll('.visible-rows tr:has(.problem)')].map((each) => {
    const [line, state, age] = ['.last-line', '.state', '.created'].map((cell) => each.querySelector(cell).getBoundingClientRect());
    return isPhone ? age.left - line.right : line.left - state.right;
}).filter((pixels) => pixels < 0 || pixels > 14))(%s)"""
# How many lines an element's text has.
_LINES = """((range) => (range.selectNodeContents(%s), range.getClientRects().length))(document.createRange())"""
# Numbers of machines that are not in sight as a whole.
_CUT_STATES = """[...document.querySelectorAll('.states .button')].filter((each) => {
    const {left, right} = each.getBoundingClientRect();
    return left < 0 || right > innerWidth || right > each.parentElement.getBoundingClientRect().right + 1;
}).map((each) => each.innerText)"""
# What a user reads beside the numbers of the states, and whose page it is.
_READ = """(([number, name]) => number === '%s' && name === '%s')(['.status', '#bar .user'].map((each) => {
    const range = new Range();
    const element = document.querySelector(each);
    return [...element.childNodes].filter((node) => (range.selectNode(node), range.getBoundingClientRect().width > 1 &&
        (!node.matches || getComputedStyle(node).clipPath === 'none'))).map(({textContent}) => textContent).join('');
}))"""
_FILTER = """((input) => {
    input.value = %s;
    input.dispatchEvent(new Event('input'));
})(document.getElementById('machine-filter'))"""
# Numbers of machines whose buttons other parts cover, and the empty pixels between the bar and them.
_COVERED_STATES = """[...document.querySelectorAll('.states .button')].filter((each) => {
    const {left, right, top, bottom} = each.getBoundingClientRect();
    return ![top + 1, bottom - 1].every((y) => each.contains(document.elementFromPoint((left + right) / 2, y)));
}).map((each) => each.innerText)"""
_APART = """[...document.querySelectorAll('.facing td')].filter((each) => each.checkVisibility() &&
    getComputedStyle(each, '::before').content !== 'none').filter((each) => {
    const range = new Range();
    range.selectNodeContents(each);
    const {left, top} = each.getBoundingClientRect();
    const parts = [...range.getClientRects()].filter(({width}) => width);
    return !parts.length || parts[0].top > top + 12 || parts.some((part) => part.left < left + 20);
}).map((each) => each.outerHTML)"""
_TITLE_LEFT = """(([title, facts]) => title.left - facts.left)(['h1', '.facts'].map((each) =>
    document.querySelector(each).getBoundingClientRect()))"""
# Facts that are nearly beside others, but not quite.
_NEAR_ROWS = """[...document.querySelectorAll('.facts dt')].map((each) => [each.getBoundingClientRect().top, each.innerText])
    .filter(([top], _, all) => all.some(([other]) => Math.abs(top - other) > 1 && Math.abs(top - other) < 15)).map(([, text]) => text)"""
_WITHOUT_AGE = """[...document.querySelectorAll('.visible-rows tr')].filter((each) =>
    !each.querySelector('.created').checkVisibility()).map((each) => each.innerText)"""
_ABOVE_STATES = """(([bar, states]) => states.top - bar.bottom)(['#bar', '.states'].map((each) =>
    document.querySelector(each).getBoundingClientRect()))"""
# What of the page is not in view, or covered.
_IN_VIEW = """['#bar nav a', '#machine-filter', 'thead th.name button'].filter((selector) => {
    const element = document.querySelector(selector);
    const {left, top, width, height} = element.getBoundingClientRect();
    return element.offsetParent && !element.contains(document.elementFromPoint(left + width / 2, top + height / 2));
})"""
_TAB = """(() => {
    const nav = document.querySelector('.tab-bar nav').getBoundingClientRect();
    const {left, right} = document.querySelector('.tabs .selected button').getBoundingClientRect();
    return nav.left - 1 <= left && right <= nav.right + 1;
})()"""
# A server that answers the first request only later, and meanwhile refuses to say who the user is.
_AWAY = """{
    const request = self.fetch;
    const back = new Promise((resolve) => { self.comeBack = () => resolve(self.isBack = true); });
    self.fetch = async (url, ...more) => {
        if (/selfsubjectreviews$/.test(url) && !self.isBack) return new Response('{}', {status: 503});
        if (/[/]apis$/.test(url)) await back;
        return request(url, ...more);
    };
}"""
# The answers to requests for lists never come, as on a link that has stopped.
NO_LISTS = """{
    const request = self.fetch;
    self.areListsLost = true;
    self.fetch = (url, ...more) => (/[?&]limit=/.test(url) ? new Promise(() => {}) : request(url, ...more));
}"""
# Scrolls through the list; the rows that the window shows are drawn after each step.
_SCROLL = f"""(async () => {{
    const [wrong, steps] = [[], 40];
    let [most, spent] = [0, 0];
    for (let step = 0; step <= steps; step++) {{
        scrollTo(0, document.documentElement.scrollHeight * step / steps);
        const began = performance.now();
        dispatchEvent(new Event('scroll'));
        await new Promise((done) => requestAnimationFrame(done));
        document.body.getBoundingClientRect();
        spent += performance.now() - began;
        await {_FRAME};
        const rows = [...{_ROWS}];
        most = Math.max(most, rows.length);
        const boxes = rows.map((each) => each.getBoundingClientRect());
        const end = document.querySelector('.visible-rows').getBoundingClientRect().bottom;
        const bottom = Math.min(innerHeight, end);
        if (Math.max(...boxes.map((each) => each.bottom)) < bottom - 1) wrong.push('gap at step ' + step);
        const numbers = rows.map((each) => Number(each.getAttribute('aria-rowindex')));
        rows.forEach((each, at) => {{
            if (Number(each.querySelector('.name').textContent.slice(3)) + 2 !== numbers[at]) wrong.push(each.innerText);
        }});
    }}
    return {{wrong, most, milliseconds: spent / steps}};
}})()"""
# The clock of the page stands still, and goes on by as much as a test says.
_LATER = """{
    const began = Date.now();
    self.later = 0;
    Date.now = () => began + self.later;
}"""
# What follows the server makes no further attempt by itself.
_NO_ATTEMPTS = """(() => {
    const before = self.setTimeout;
    // Without a connection the page has to notice that.
    self.setTimeout = (act, ...more) => before(act.name === 'done' ? () => navigator.onLine || act() : act, ...more);
})()"""
# An attempt of before may have succeeded meanwhile.
_TRY_NOW = "[...document.querySelectorAll('button')].find((each) => each.innerText === 'Try now')?.click(), null"
_NO_REVIEWS = """{
    const request = self.fetch;
    const refused = JSON.stringify({message: 'the API server did not answer in time'});
    self.fetch = (url, ...more) => (/selfsubjectaccessreviews/.test(url) ? Promise.resolve(new Response(refused, {status: 504})) : request(url, ...more));
}"""
# Whether a view has begun to wait.
_BARS = "document.querySelector('.view-%s .skeleton:not([hidden])')?.offsetParent"
# Whether the sentence is in sight, between the toolbar and the bars of the first list.
_WAITING = """(() => {
    const said = [...document.querySelectorAll('#view p')].find((each) => /Waiting for the server[^]*%s/.test(each.innerText));
    const top = (each) => each?.getBoundingClientRect().top;
    const bars = document.querySelector('#view .skeleton:not([hidden])');
    return top(said) > top(document.querySelector('.list-toolbar')) && top(said) < top(bars) && top(said) < innerHeight - 20;
})()"""
