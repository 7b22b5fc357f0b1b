"""
The view of a console on a phone, whose keyboard leaves little of the window.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.flows.test_three_programs import binding
from twisted_exec.api import kinds

from .base import WebTestCase
from .layout import faults_of, lasting
from .steps import VM
from .user import User

POLICIES = kinds.CONSOLEPOLICIES.resource
RECORDINGS = kinds.CONSOLERECORDINGS.resource
BANNER = "Production: ask ops before a reboot, and write the number of the ticket here.\nLine 2"
MOST_BAR_PIXELS = 125
_IS_COMPACT = """!['#bar', '.tab-bar', '.console-head .parts'].some((each) => document.querySelector(each).checkVisibility()) &&
    ['.console-head h2', '.status-line .badge'].every((each) => document.querySelector(each).checkVisibility())"""
# The state, whether the console is recorded, and the part of the banner's last line that is seen, in lines.
_NEWS = """(() => {
    const role = document.querySelector('.status-line .role-text');
    const isWhole = role.checkVisibility() && role.scrollWidth <= role.clientWidth + 1;
    const dot = document.querySelector('.recorded');
    const isRecorded = dot.checkVisibility() && getComputedStyle(dot, '::before').width !== '0px';
    const banner = document.querySelector('.banner');
    const lines = banner.clientHeight / parseFloat(getComputedStyle(banner).lineHeight);
    return {state: isWhole && role.innerText, isRecorded, lines: Math.round(lines * 20) / 20,
        more: getComputedStyle(banner.firstChild, '::before').content};
})()"""
# The texts below the terminal that are cut off; keys that nothing reads are not offered in a low window.
_CUT = """[...document.querySelectorAll('.status-line > span, .outage, .outage > *')].filter((each) => each.checkVisibility() &&
    !each.matches('.badge.open') && (each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > each.clientHeight + 2))
    .map((each) => each.innerText)"""
_STATES = """[...document.querySelectorAll('.status-line .badge')].filter((each) => each.checkVisibility())
    .map((each) => each.innerText).join()"""
# The line of a recorded console that came back after a minute; it stays so.
_RECONNECTED = """import(new URL('terminal/status_line.js', document.querySelector('script[type=module]').src)).then(
    ({StatusLine}) => {
        const line = new StatusLine({}, {namespace: 'default', name: 'vm-1'}, {reconnect() {}, waiting: () => 0, away() {}});
        line.state('resumed', {seconds: 72});
        %s;
        line.viewers({count: 3, writer: 'ada', seconds: 0, recordings: [{user: 'ada', input: 'masked'}]});
        line.stop();
        document.querySelector('.status-line').replaceWith(line.element);
    })"""
# How many rows the name and the buttons of a console have, at different heights.
_HEAD_ROWS = """new Set([...document.querySelectorAll('.console.active :is(h2, .console-head > .button)')]
    .filter((each) => each.checkVisibility()).map((each) => {
        const {top, bottom} = each.getBoundingClientRect();
        return Math.round((top + bottom) / 20);
    })).size"""
# Whether the name is cut, and what of it is in sight in any case; the last view that has a link in sight.
_CUT_NAME = """(({scrollWidth, clientWidth}) => scrollWidth > clientWidth)(document.querySelector('.console.active h2 .cut > *'))"""
_ENDS = """['.console.active h2', '.tabs .selected a'].map((each) => {
    const [whole, end] = [each, `${each} .cut > :last-child`].map((selector) => document.querySelector(selector));
    return end.getBoundingClientRect().right <= whole.getBoundingClientRect().right + 1 && end.textContent;
}).join()"""
_LAST_VIEW = """(() => {
    const right = document.querySelector('.console.active .parts').getBoundingClientRect().right;
    return [...document.querySelectorAll('.console.active .parts a')].findLast((each) => each.getBoundingClientRect().right <= right + 1).innerText;
})()"""
# How many lines are below those in sight.
_BELOW = "(({baseY, viewportY}) => baseY - viewportY)(terminals[0].buffer.active)"
_GROUPS = """[...document.querySelectorAll('dialog h3')].filter((each) => each.checkVisibility())
    .map((each) => each.textContent).join(' ')"""
_SENDS = """[...[...document.querySelectorAll('dialog h3')].find((each) => each.textContent === 'Send')
    .parentElement.querySelectorAll('.command')].filter((each) => each.checkVisibility())
    .map((each) => each.querySelector('span').textContent).join(' ')"""
# The first commands, if all of them are seen without a scroll.
_IN_SIGHT = """[...document.querySelectorAll('dialog .command')].slice(0, 3).filter((each) =>
    each.getBoundingClientRect().bottom <= innerHeight).map((each) => each.innerText.trim()).join(' ')"""
_HAS_NEWEST = "document.querySelector('.newest').checkVisibility()"
_HAS_KEYS = "document.querySelector('.key-bar').checkVisibility()"
_KEYS = """[...document.querySelectorAll('.key-bar .button')].filter((each) => each.checkVisibility())
    .map((each) => each.textContent).join(' ')"""
_NARROW_KEYS = """[...document.querySelectorAll('.key-bar .button')].filter((each) => each.checkVisibility() &&
    each.offsetWidth < 40)"""
_CUT_KEYS = """[...document.querySelectorAll('.key-bar .button')].filter((each) => each.scrollWidth > each.clientWidth)"""
# Move the cursor down by one row, and wait until that is drawn and the messages have their places.
_NEXT_ROW = """new Promise((resolve) => {
    const [terminal] = terminals;
    const drawn = terminal.onRender(() => {
        drawn.dispose();
        requestAnimationFrame(() => requestAnimationFrame(() => resolve(terminal.buffer.active.cursorY)));
    });
    terminal.write('\\r\\n');
})"""
_CURSOR_IS_FREE = """(() => {
    const [cursor, outage] = ['.xterm-cursor', '.outage'].map((each) => document.querySelector(each).getBoundingClientRect());
    return outage.height > 0 && (outage.bottom <= cursor.top + 2 || outage.top >= cursor.bottom - 2);
})()"""
# How much of the window the text has, and whether its newest line is seen.
_SHARE = """(() => {
    const text = document.querySelector('.log, .screen');
    const row = [...text?.querySelectorAll('.line, .screen-row') ?? []].findLast((each) => /\\S/.test(each.innerText));
    const [newest, frame] = [row?.getBoundingClientRect(), text?.getBoundingClientRect()];
    const isSeen = newest && newest.top >= frame.top - 1 && newest.bottom <= Math.min(frame.bottom, innerHeight) + 1;
    return /[#$]\\s*$/.test(row?.innerText) && isSeen && frame.height / innerHeight;
})()"""
_PLAYER_SHARE = (
    "1 - document.querySelector('.player:not(:empty)')?.getBoundingClientRect().top / innerHeight"
)
# Whether the seek bar and the time are in the window.
_PLAYER_TEXT = "parseFloat(getComputedStyle(document.querySelector('.ap-term')).fontSize)"
_PLAYER_IS_WHOLE = """['.ap-control-bar', '.player + p'].every(
    (each) => document.querySelector(each).getBoundingClientRect().bottom <= innerHeight)"""
# What a recording says that begins in the middle of the output.
_LONG_BEGIN = """(() => {
    const begin = document.querySelector('.begin');
    [begin.hidden, begin.textContent] = [false, 'This recording begins in the middle. '.repeat(5)];
})()"""
_CONTROLS_ARE_FREE = """[...document.querySelectorAll('.player-controls .button')].every((each) => {
    const {x, y, width, height} = each.getBoundingClientRect();
    return !width || each.contains(document.elementFromPoint(x + width / 2, y + height / 2));
})"""
# Whether the line below the tab of the view is seen, and nothing covers it.
_TAB_LINE_IS_SEEN = """(() => {
    const tab = document.querySelector('.parts [aria-current]');
    const {left, width, bottom} = tab?.getBoundingClientRect() ?? {};
    return tab?.contains(document.elementFromPoint(left + width / 2, bottom - 1)) ?? false;
})()"""
_TAB_IS_SEEN = """((tab, strip) => tab.left >= strip.left - 1 && tab.right <= strip.right + 1)(
    ...['.tabs .selected', '.tab-bar nav'].map((each) => document.querySelector(each).getBoundingClientRect()))"""
_NUMBER = """(() => {
    const number = document.querySelector('.console.active .number');
    return number?.checkVisibility() && number.innerText;
})()"""
# The parts of a panel that are not whole in the window, or covered.
_HIDDEN_IN_PANEL = """[...document.querySelectorAll('.panel :is(input, .button:enabled:not([hidden]))')].filter((each) => {
    const {left, right, top, bottom} = each.getBoundingClientRect();
    const isSeen = [top + 1, bottom - 1].every((y) => each.contains(document.elementFromPoint((left + right) / 2, y)));
    return top < 0 || bottom > innerHeight || !isSeen;
}).map((each) => each.outerHTML)"""
# The prompt is below the panel.
_IS_PROMPT_FREE = """(() => {
    const {rows, buffer: {active}} = terminals[0];
    const {top, height} = document.querySelector('.xterm-screen').getBoundingClientRect();
    return document.querySelector('.panel').getBoundingClientRect().bottom <= top + (height / rows) * active.cursorY;
})()"""
# The texts of the terminal below the message, and what else the message touches.
_COVERED = """(() => {
    const message = document.querySelector('.message:not([hidden])')?.getBoundingClientRect();
    if (!message) return ['there is no message'];
    const {rows, buffer: {active}} = terminals[0];
    const {top, height} = document.querySelector('.xterm-screen').getBoundingClientRect();
    const touches = (from, to) => from < message.bottom - 1 && to > message.top + 1;
    const texts = Array.from({length: rows}, (_, at) => at).filter((at) =>
        touches(top + at * height / rows, top + (at + 1) * height / rows))
        .map((at) => active.getLine(active.viewportY + at)?.translateToString(true)).filter(Boolean);
    const others = [...document.querySelectorAll('.finder, .panel, .newest, .console-head, .foot')].filter((each) => {
        const {left, right, top: from, bottom: to} = each.getBoundingClientRect();
        return each.checkVisibility() && left < message.right && right > message.left && touches(from, to);
    }).map((each) => each.className);
    return [...texts, ...others];
})()"""
# The messages in sight that cover a part of the row of the cursor.
_HIDES_PROMPT = """(() => {
    const {rows, buffer: {active}} = terminals[0];
    const {top, height} = document.querySelector('.xterm-screen').getBoundingClientRect();
    const [from, to] = [active.cursorY, active.cursorY + 1].map((row) => top + row * height / rows);
    return [...document.querySelectorAll('.overlays > *')].filter((each) => each.checkVisibility()).map((each) => {
        const box = each.getBoundingClientRect();
        return box.top < to - 1 && box.bottom > from + 1 && each.innerText;
    });
})()"""
# What is wrong with the search: it reaches beyond the terminal, has several rows, or covers texts.
_FINDER_FAULTS = """(() => {
    const finder = document.querySelector('.finder:not([hidden])').getBoundingClientRect();
    const frame = document.querySelector('.terminal-frame').getBoundingClientRect();
    const {rows, buffer: {active}} = terminals[0];
    const {top, height} = document.querySelector('.xterm-screen').getBoundingClientRect();
    const covered = Array.from({length: rows}, (_, at) => at)
        .filter((at) => top + at * height / rows < finder.bottom - 1 && top + (at + 1) * height / rows > finder.top + 1)
        .map((at) => active.getLine(active.viewportY + at)?.translateToString(true)).filter(Boolean);
    const isOutside = finder.left < frame.left || finder.right > frame.right || finder.top < frame.top || finder.bottom > frame.bottom;
    return [...covered, isOutside && 'outside', finder.height > 60 && `${finder.height} px high`].filter(Boolean);
})()"""
_STAYS = """{
    const before = setTimeout;
    self.setTimeout = (act, milliseconds, ...others) => (milliseconds === 10_000 ? 0 : before(act, milliseconds, ...others));
}"""
_PASTE = """{
    const clipboardData = new DataTransfer();
    clipboardData.setData('text/plain', 'text');
    document.querySelector('.terminal-box').dispatchEvent(new ClipboardEvent('paste', {clipboardData}));
}"""
_CELLS = "[terminals[0].cols, terminals[0].rows].join()"
_BARS = "innerHeight - document.querySelector('.terminal-box').getBoundingClientRect().height"

_MACHINE_VIEWS = ("", "/logs", "/screen", "/recordings", "/events")
_LISTS = ("machines", "sessions", "recordings", "alerts", "requests")
# The marks that tabs show for a machine that is not healthy, and for messages.
_MARK_TABS = """document.querySelectorAll('.tabs li').forEach((tab) =>
    tab.querySelectorAll('.badge.bad, .badge.news').forEach((mark) => {
        mark.innerHTML = '<span class="visually-hidden">KernelPanic </span>';
        mark.hidden = false;
    }))"""
_AWAY_TABS = (
    "[...document.querySelectorAll('.tabs .badge.waiting')].filter((each) => !each.hidden).length"
)
# How much wider than the window the page is; what is invisible counts, too.
_WIDER = """(({scrollWidth}) => (innerWidth === %d && scrollWidth <= innerWidth ? [] : [scrollWidth]))(document.documentElement)"""


# Where the text of a console or of its log begins.
_TEXT_TOP = """Math.round([...document.querySelectorAll('.terminal-frame, .log, .screen')]
    .find((each) => each.checkVisibility())?.getBoundingClientRect().top)"""


class PhoneTests(WebTestCase):
    """A shell, and a user whose main pointer is a finger."""

    async def test_low_window(self) -> None:
        """
        Above the keyboard of a phone, and on one that lies on its side, a terminal with the focus has
        nearly all of the window; its commands are a sheet for fingers that leads to all other views.
        """
        await self.deployment.create_machine("vm-1", "shell")
        ada = await self.user()
        await ada.open("machines")
        await self.open_terminal(ada)
        await ada.page.set_touch()
        for width, height in ((390, 500), (844, 390)):
            await ada.page.resize(width, height)
            await ada.focus_terminal()
            await ada.page.until(f"{_IS_COMPACT} && {_HAS_KEYS}")
            self.assertEqual(await faults_of(ada.page, taps=True), [], width)
            await ada.page.until(f"{_BARS} < {MOST_BAR_PIXELS}")
            await ada.click_text("button", "Commands")
            await ada.until_page("Paste[^]*Recordings[^]*Events[^]*List of machines")
            self.assertEqual(await faults_of(ada.page, taps=True), [], width)
            await ada.click_text("dialog button", "Close")
            await ada.until_terminal_focus()
            await ada.open_commands()
            await ada.page.evaluate("history.back()")
            await ada.page.until("!document.querySelector('dialog[open]')")
            await ada.open(VM)
        await ada.focus_terminal()
        await ada.page.evaluate("document.activeElement.blur()")
        await ada.page.until("document.querySelector('#bar').checkVisibility()")
        self.check_faults()

    async def test_outage_beside_prompt(self) -> None:
        """What is said of an outage covers no part of the line with the cursor, wherever that is."""
        await self.deployment.create_machine("vm-1", "shell")
        ada = await self.user(width=390, height=844)
        await self.open_terminal(ada)
        self.deployment.near.target = 1
        self.deployment.near.cut()
        await ada.page.until("document.querySelector('.outage').offsetHeight")
        rows = await ada.page.evaluate("terminals[0].rows")
        covered = []
        for _ in range(rows):
            row = await ada.page.evaluate(_NEXT_ROW)
            if not await ada.page.evaluate(_CURSOR_IS_FREE):
                covered.append(row)
        self.assertEqual(covered, [])
        self.check_faults()

    async def test_text_in_low_window(self) -> None:
        """
        Log and Screen of a low window are mostly text, and open at its newest line; what is needed rarely is
        behind a button, and a link leads to the machines where there is no bar.  A finger hits each control,
        in a window of any size.
        """
        await self.deployment.create_machine("vm-1", "shell")
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.type_line("seq 1000 1060")
        await ada.until_terminal("1060\n.*$")
        await self.play_recording(ada)
        for size in ((1000, 600), (1280, 800)):
            await ada.page.resize(*size)
            await ada.page.until(
                f"innerWidth === {size[0]} && {_PLAYER_IS_WHOLE} && {_PLAYER_TEXT} >= 9"
            )
        more = "document.querySelector('.filters-button').checkVisibility()"
        for width, height, is_touch, least in (
            (844, 390, False, 0.5),
            (844, 390, True, 0.6),
            (667, 375, True, 0.6),
            (390, 500, True, 0.5),
        ):
            if is_touch:
                await ada.page.set_touch()
            await ada.page.resize(width, height)
            for view in ("logs", "screen"):
                await ada.open(f"{VM}/events")
                await ada.page.until("!document.querySelector('.log, .screen')")
                await ada.open(f"{VM}/{view}")
                await ada.page.until(f"{_SHARE} > {least} && {more}")
                faults = await faults_of(ada.page, taps=is_touch)
                self.assertEqual(faults, [], f"{view}, {width}")
        await ada.open(f"{VM}/screen")
        for width, height in ((390, 844), (844, 390)):  # turned
            await ada.page.resize(width, height)
            await ada.page.until(f"{_SHARE} > 0 && innerWidth === {width}")
        await ada.click_text(".machine-head a", "Machines")
        await ada.page.until("document.querySelector('#bar').checkVisibility()")
        await ada.page.resize(844, 390)
        await ada.open("recordings/default/seen")
        await ada.page.until(f"{_PLAYER_SHARE} > 0.7 && {more}")
        self.assertEqual(await faults_of(ada.page, taps=True), [])
        await ada.click_text("button", "More")
        await ada.page.until(f"{_PLAYER_IS_WHOLE} && {_CONTROLS_ARE_FREE}")
        self.assertEqual(await faults_of(ada.page, taps=True), [])
        await ada.click_text("button", "More")
        await ada.page.evaluate(_LONG_BEGIN)
        for size in ((844, 390), (667, 375), (390, 500)):
            await ada.page.resize(*size)
            await ada.page.until(
                f"innerWidth === {size[0]} && {_PLAYER_IS_WHOLE} && {_CONTROLS_ARE_FREE}"
            )
        await ada.page.resize(390, 844)
        await ada.page.until(f"innerWidth === 390 && {_PLAYER_IS_WHOLE} && {_PLAYER_TEXT} >= 11")
        for size in ((390, 844), (900, 700), (1440, 900)):
            await ada.page.resize(*size)
            for view in ("logs", "screen", "recordings"):
                await ada.open(f"{VM}/{view}")
                await ada.page.until("document.querySelector('.log, .screen, .facing table')")
                self.assertEqual(await faults_of(ada.page, taps=True), [], f"{view}, {size}")
        self.check_faults()

    async def test_head(self) -> None:
        """
        Above the text of a console and of its log, a phone in portrait has few rows, each as high as a finger:
        the name is there once, in the title, or in a tab beside those of other consoles.
        """
        ada = await self.user(width=390, height=844)
        await ada.page.set_touch()
        for name, most in (("vm-1", 140), ("vm-2", 190)):
            await self.deployment.create_machine(name, "shell")
            await ada.open(f"machines/default/{name}")
            await ada.until_page("You can type")
            for view in ("/recordings", "/events"):
                await ada.open(f"machines/default/{name}{view}")
                await ada.page.until(
                    f"document.querySelector('.list-toolbar') && {_TAB_LINE_IS_SEEN}"
                )
            for view, most_pixels in (("", most), ("/logs", 190), ("/screen", 190)):
                await ada.open(f"machines/default/{name}{view}")
                await ada.page.until("document.querySelector('.parts [aria-current]')")
                await ada.page.until(f"{_TEXT_TOP} <= {most_pixels}")
                self.assertEqual(await faults_of(ada.page, taps=True), [], name + view)
                with open(f"{self.mktemp()}-head-{name}{view[1:]}.png", "wb") as picture:
                    picture.write(await ada.page.screenshot())
        await ada.page.until("document.querySelector('.tabs .button').offsetWidth >= 44")
        self.check_faults()

    async def test_low_desktop(self) -> None:
        """A low window of a desktop keeps the views, and the status line names each user once, and all of them."""
        await self.deployment.create_machine("vm-1", "shell")
        ada = await self.user()
        await self.open_terminal(ada)
        for name in ("ada", "bob", "bob"):
            observer = await self.user(name)
            await observer.open(f"{VM}?mode=observe")
            await observer.until_page("Observing")
        await ada.page.resize(1440, 450)
        await ada.focus_terminal()
        await ada.until_page(r"4 viewers: ada \(you, 2\), bob \(2\)")
        self.assertTrue(await ada.page.evaluate("document.querySelector('#bar').checkVisibility()"))
        self.assertEqual(await faults_of(ada.page), [])
        cut = "(({scrollWidth, clientWidth}) => scrollWidth > clientWidth + 1)(document.querySelector('.viewers'))"
        self.assertFalse(await ada.page.evaluate(cut))
        self.check_faults()

    async def test_viewers(self) -> None:
        """
        An upright phone shows the number of viewers to the writer and to an observer, in a line of one height: another
        one would be another size of the terminal.
        """
        await self.deployment.create_machine("vm-1", "shell")
        ada, bob = await self.user(), await self.user("bob")
        await self.open_terminal(ada)
        await bob.open(VM)
        await bob.until_page("Observing; ada types")
        reader = await self.user("bob")
        await reader.open(f"{VM}?mode=observe")
        await reader.until_page("opened to observe only[^]*ada types")
        height = "document.querySelector('.status-line').offsetHeight"
        viewers = "(({innerText, scrollWidth, clientWidth}) => scrollWidth <= clientWidth && innerText)(document.querySelector('.viewers'))"
        for user in (ada, bob, reader):  # whose text about the role needs the room
            await user.page.set_touch()
            for width in (390, 360, 320):
                await user.page.resize(width, 844)
                shown = (
                    f"({viewers} || '').trim() === '3 viewers'"
                    if width > 352 and user is not reader
                    else "true"
                )
                await user.page.until(f"innerWidth === {width} && {shown}")
                self.assertEqual(await ada.page.evaluate(height), await user.page.evaluate(height))
                self.assertEqual(await lasting(user.page, _CUT), [], width)
                self.assertEqual(await faults_of(user.page, taps=True), [], width)
            with open(f"{self.mktemp()}-viewers.png", "wb") as picture:
                picture.write(await user.page.screenshot())
        self.check_faults()

    async def test_faults(self) -> None:
        """That a server does not answer, and that the machine is off, is read in whole on a phone, too."""
        await self.deployment.create_machine("vm-1", "shell")
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.page.set_touch()
        sizes = ((390, 844), (390, 500), (844, 390), (900, 700))
        usual = [await self.terminal_height(ada, *size) for size in sizes]
        self.deployment.near.silence()
        await ada.focus_terminal()
        await ada.page.type("abc")
        await self.check_news_of(ada, "(No answer|Connection lost) for[^]*3 keys wait")
        # Another height would be another size for the machine.
        self.assertEqual([await self.terminal_height(ada, *size) for size in sizes], usual)
        self.deployment.near.mend()
        await ada.until_page("You can type")
        off = {"spec": {"power": "Off"}}
        await self.deployment.client.patch(kinds.MACHINES.resource, "vm-1", off, "default")
        await self.check_news_of(ada, "Machine: Shutdown")
        for width, height in ((390, 844), (844, 390)):
            await ada.page.resize(width, height)
            await ada.page.until(f"{_STATES} === 'Machine: Shutdown'")
        self.check_faults()

    async def test_reconnected(self) -> None:
        """The states of a connection, of its machine and of its user are whole beside each other, and have the room that is there."""
        await self.deployment.create_machine("vm-1", "shell")
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.page.set_touch()
        for state, text in (
            (
                "line.machine({state: 'Shutdown', problem: '', isOff: true}, true)",
                "Machine: Shutdown",
            ),
            ("line.role({isObserver: true, writer: null}, true)", "Observing; nobody types"),
        ):
            await ada.page.evaluate(_RECONNECTED % state)
            for width, height in ((390, 844), (844, 390), (600, 800), (1440, 900)):
                await ada.page.resize(width, height)
                shown = "document.querySelector('.status-line').innerText"
                await ada.page.until(f"/Reconnected after 72s\\s+{text}/.test({shown})")
                self.assertEqual(await lasting(ada.page, _CUT), [], f"{width}x{height} {text}")
                self.assertEqual(await faults_of(ada.page, taps=True), [], f"{width}x{height}")
                with open(f"{self.mktemp()}-reconnected-{width}.png", "wb") as picture:
                    picture.write(await ada.page.screenshot())
        self.check_faults()

    async def test_keys(self) -> None:
        """
        The keys of firmware take the place of the others behind Fn.  A user without the right to type has no
        keys, also while the server is away.
        """
        await self.deployment.create_machine("vm-1", "shell")
        self.deployment.tokens["carl"], self.deployment.groups["carl"] = "token-of-carl", "guests"
        self.deployment.write_tokens()
        for role in ("view", "console-observer"):
            bound = binding("carl", role) | {"metadata": {"name": role}}
            await self.deployment.client.create(kinds.ROLEBINDINGS.resource, bound, "default")
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.type_line("cat -v")
        await ada.page.set_touch()
        for width, height in ((390, 844), (390, 500), (844, 390)):
            await ada.page.resize(width, height)
            await ada.focus_terminal()
            await ada.click_text(".key-bar .button", "Fn")
            await ada.page.until(f"{_KEYS} === 'Fn Pg Up Pg Dn Del F1 F2 F9 F10 F11 F12'")
            await ada.page.until(f"{_CUT_KEYS}.length + {_NARROW_KEYS}.length === 0")
            self.assertEqual(await faults_of(ada.page, taps=True), [], width)
            await ada.click_text(".key-bar .button", "F12")
            await ada.click_text(".key-bar .button", "Fn")
            await ada.page.until(f"{_KEYS} === 'Fn Ctrl Esc Tab ^C ↑ ↓ ← → ^D'")
            await ada.page.until(f"{_CUT_KEYS}.length + {_NARROW_KEYS}.length === 0")
            with open(f"{self.mktemp()}-keys-{width}x{height}.png", "wb") as picture:
                picture.write(await ada.page.screenshot())
        await ada.until_terminal(re.escape("^[[24~" * 3))

        carl = await self.user("carl")
        await carl.open(VM)
        await carl.until_page("no right to type")
        await carl.page.set_touch()
        await carl.page.resize(390, 844)
        await carl.page.until(f"!{_HAS_KEYS} && {_CUT}.length === 0")
        await carl.page.until("document.querySelector('.panel').hidden")  # the console is whole
        self.deployment.near.refuses = True
        self.deployment.near.cut()
        await carl.until_page("Connection lost")
        await carl.page.until(f"!{_HAS_KEYS}")
        self.check_faults()

    async def test_long_name(self) -> None:
        """
        The buttons of a console are in the row of its name, which is whole if it is not very long.  Of a longer one
        the end is in sight, also in its tab, and where there is room beside them all views.
        """
        names = ("edge-rack00-node004", "an-edge-server-of-the-second-rack-00-in-room-004")
        ada = await self.user()
        for name in names:
            await self.deployment.create_machine(name, "shell")
            await ada.open(f"machines/default/{name}")
            await ada.until_page("You can type")
            for width in (390, 480, 900):
                await ada.page.resize(width, 844)
                await ada.page.until(f"{_HEAD_ROWS} === 1")
                title = "document.querySelector('.console.active h2').title"
                self.assertEqual(await ada.page.evaluate(title), name)
                if name == names[0]:
                    await ada.page.until(f"!{_CUT_NAME}")
                await ada.page.until(f"{_ENDS} === '{name[-10:]},{name[-10:]}'")
                if width == 900:
                    await ada.page.until(f"{_LAST_VIEW} === 'Events'")
        await ada.page.set_touch()
        await ada.page.resize(390, 844)
        self.assertEqual(await faults_of(ada.page), [])
        longest = "a-very-long-name-that-goes-on-rack-17-unit-42-prod-eu-central-1"
        await self.deployment.create_machine(longest, "shell")
        await ada.page.resize(390, 844)
        await ada.open(f"machines/default/{longest}")
        await ada.until_page("You can type")
        await ada.open(f"machines/default/{longest}/logs")
        await ada.page.until("document.querySelector('.machine-head h1')")
        self.assertEqual(await lasting(ada.page, _WIDER % 390), [])
        self.check_faults()

    async def test_several_consoles(self) -> None:
        """
        Where there is no room for the tabs, the user sees how many consoles are open, and *Commands* has them
        by their names, after all others.  Elsewhere the tab of the machine is in sight, also above its other views.
        """
        names = [f"edge-maintenance-frankfurt-rack00-node{number:03}" for number in range(1, 6)]
        ada = await self.user(width=390, height=844)
        await ada.page.set_touch()
        for name in names:
            await self.deployment.create_machine(name, "shell")
            await ada.open(f"machines/default/{name}")
            await ada.page.until(
                f"document.querySelector('.console.active h2')?.title === '{name}'"
            )
            await ada.until_page("You can type")
        for view in ("logs", "recordings"):
            for name in (names[0], names[-1]):
                await ada.open(f"machines/default/{name}/{view}")
                tab = "document.querySelector('.tabs .selected')?.textContent"
                await ada.page.until(f"{tab}.includes('{name}') && {_TAB_IS_SEEN}")
        await ada.open(f"machines/default/{names[-1]}")
        for width, height in ((390, 500), (844, 390)):
            await ada.page.resize(width, height)
            await ada.focus_terminal()
            await ada.page.until(f"{_NUMBER} === '5/5'")
            await ada.click_text("button", "Commands")
            await ada.page.until(f"{_IN_SIGHT} === 'Paste Find Copy selection'")
            self.assertEqual(await faults_of(ada.page, taps=True), [], width)
            with open(f"{self.mktemp()}-commands-{width}x{height}.png", "wb") as picture:
                picture.write(await ada.page.screenshot())
            await ada.click_text("dialog button", f"2 {names[1]}")
            await ada.page.until(f"{_NUMBER} === '2/5'")
            await ada.until_terminal_focus()
            await ada.open_commands()
            await ada.page.press("5")
            await ada.page.until(f"{_NUMBER} === '5/5'")
        self.check_faults()

    async def test_many_tabs(self) -> None:
        """
        No view is wider than a phone, upright or turned, while tabs that are out of sight have marks: for messages,
        for machines that are not healthy, and in an outage.
        """
        names = [f"edge-maintenance-frankfurt-rack00-node{number:03}" for number in range(1, 6)]
        ada = await self.user(width=390, height=844)
        await ada.page.set_touch()
        for name in names:
            await self.deployment.create_machine(name, "shell")
            await ada.open(f"machines/default/{name}")
            await ada.until_page("You can type")
        await ada.page.evaluate(_MARK_TABS)
        await self.check_width_of_views(ada, names)
        self.deployment.near.silence()
        await ada.page.until(f"{_AWAY_TABS} === {len(names)}")
        await self.check_width_of_views(ada, names)
        self.deployment.near.mend()
        await ada.page.until(f"{_AWAY_TABS} === 0")
        self.check_faults()

    async def check_width_of_views(self, user: User[Any], names: list[str]) -> None:
        """Fail if a view is wider than the window of a phone, with its first or last tab selected."""
        machine = [f"machines/default/{names[0]}{view}" for view in _MACHINE_VIEWS]
        last = f"machines/default/{names[-1]}"
        for size in ((390, 844), (844, 390)):
            await user.page.resize(*size)
            for view in (*_LISTS, *machine, last):
                await user.open(view)
                await user.page.until(f"location.hash.startsWith('#/{view}')")
                self.assertEqual(await lasting(user.page, _WIDER % size[0]), [], f"{view}, {size}")

    async def test_panel(self) -> None:
        """
        Where a policy demands a reason and an approval, the field and its buttons are in sight above the keyboard
        and in a phone on its side, also while the page waits.
        """
        await self.deployment.create_machine("vm-1", "shell")
        body = {
            "metadata": {"name": "changes-of-production-need-a-ticket"},
            "spec": {"selector": {}, "reason": "Required", "approval": "Required"},
        }
        await self.deployment.client.create(POLICIES, body, "default")
        ada = await self.user()
        await ada.page.set_touch()
        await ada.open(VM)
        for text in ("requires a reason", "waits for the approval"):
            for width, height in ((844, 390), (844, 220), (390, 500), (390, 844)):
                await ada.page.resize(width, height)
                await ada.page.focus(".panel input")
                await ada.until_page(text)
                self.assertEqual(await lasting(ada.page, _HIDDEN_IN_PANEL), [], f"{width}x{height}")
                self.assertEqual(await faults_of(ada.page, taps=True), [], f"{width}x{height}")
                with open(f"{self.mktemp()}-panel-{width}x{height}.png", "wb") as picture:
                    picture.write(await ada.page.screenshot())
            if text == "requires a reason":
                await ada.page.type("OPS-1")
                await ada.click_text("button", "Ask to type")
        self.check_faults()

    async def test_text(self) -> None:
        """
        A finger selects output in a dialog that has it as ordinary text; a message leads there.  A browser that
        does not give the page the clipboard gets a field to paste into.
        """
        await self.deployment.create_machine("vm-1", "shell")
        ada = await self.user(width=390, height=844)
        await ada.page.set_touch()
        await self.open_terminal(ada)
        await ada.type_line("for i in $(seq 40); do printf 'line %03d %070d\\n' $i $i; done")
        await ada.until_terminal("line 040")
        await ada.echo("shown")
        await ada.open_commands()
        said = await ada.watch_page("Nothing is selected: “Text to select” in Commands")
        await ada.page.press("c")
        await said()
        for width, height in ((390, 844), (844, 390)):
            await ada.page.resize(width, height)
            await ada.click_text("button", "Commands")
            await ada.click_text("dialog button", "Text to select")
            await ada.page.until(
                "/shown-42\\n/.test(document.querySelector('dialog pre')?.innerText)"
            )
            # No line is wider than the dialog.
            wide = "(({scrollWidth, clientWidth}) => scrollWidth > clientWidth)"
            self.assertFalse(
                await ada.page.evaluate(f"{wide}(document.querySelector('dialog pre'))")
            )
            self.assertEqual(await faults_of(ada.page, taps=True), [], width)
            with open(f"{self.mktemp()}-text-{width}x{height}.png", "wb") as picture:
                picture.write(await ada.page.screenshot())
            await ada.click_text("dialog button", "Close")
            await ada.until_terminal_focus()
        await ada.page.evaluate(
            "navigator.clipboard.readText = navigator.clipboard.writeText = () => Promise.reject(new Error())"
        )
        await ada.open_commands()
        await ada.page.press("y")
        await ada.page.until("/shown-42/.test(document.querySelector('dialog pre')?.innerText)")
        await ada.page.press("Escape")
        await ada.until_terminal_focus()
        await ada.open_commands()
        await ada.page.press("i")
        await ada.page.until("document.activeElement.matches('dialog textarea')")
        await ada.page.insert("echo pasted-$((6*7))")
        self.assertEqual(await faults_of(ada.page, taps=True), [])
        with open(f"{self.mktemp()}-paste.png", "wb") as picture:
            picture.write(await ada.page.screenshot())
        await ada.click_text("dialog button", "Paste")
        # The terminal has the focus a moment before it gets the text.
        await ada.until_terminal(r"echo pasted-\$\(\(6\*7\)\)$")
        await ada.until_terminal_focus()
        await ada.page.press("Enter")
        await ada.until_terminal("pasted-42")
        self.check_faults()

    async def test_drag(self) -> None:
        """
        A finger that drags the terminal moves its output, and a button goes back to the newest; the scrollbar
        takes hardly any room.
        """
        await self.deployment.create_machine("vm-1", "shell")
        ada = await self.user(width=390, height=844)
        await ada.page.set_touch()
        await self.open_terminal(ada)
        await ada.type_line("seq 300")
        await ada.until_terminal("300\n.*$")
        await ada.page.until(f"{_BELOW} === 0")
        await ada.page.drag(150, *range(300, 600, 20))
        await ada.page.until(f"{_BELOW} > 5")
        await ada.page.until(_HAS_NEWEST)
        self.assertEqual(await faults_of(ada.page, taps=True), [])
        with open(f"{self.mktemp()}-newest.png", "wb") as picture:
            picture.write(await ada.page.screenshot())
        await ada.page.drag(150, *range(600, 280, -20))
        await ada.page.until(f"{_BELOW} === 0 && !{_HAS_NEWEST}")
        await ada.page.drag(150, *range(300, 600, 20))
        await ada.page.until(_HAS_NEWEST)
        await ada.page.click(".newest")
        await ada.page.until(f"{_BELOW} === 0 && !{_HAS_NEWEST}")
        await ada.page.until("terminals[0].cols >= 45")
        self.check_faults()

    async def test_message(self) -> None:
        """
        A message covers no text where there is room below the cursor, and else the oldest output in sight, never
        the prompt.  It leaves the size of the terminal, and no other part is below it.
        """
        await self.deployment.create_machine("vm-1", "shell")
        ada = await self.user()
        await self.open_terminal(ada)
        for width, height in ((1440, 900), (390, 844), (844, 390)):
            if width != 1440:
                await ada.page.set_touch()
            await ada.page.resize(width, height)
            await ada.type_line("clear; echo first-$((6*7))")
            await ada.until_terminal("^first-42\n.*[#$]$")
            cells = await ada.page.settled(_CELLS)
            await self.show_message(ada)
            await self.check_message(ada, f"empty-{width}", "")
            await ada.type_line("seq 1001 1200")
            await ada.until_terminal("1200\n.*[#$]$")
            await self.check_message(ada, f"full-{width}", "1[01]\\d\\d")
            await ada.page.evaluate("terminals[0].scrollLines(-10)")
            await ada.page.until(_HAS_NEWEST)
            await self.check_message(ada, f"earlier-{width}", "1[01]\\d\\d")
            await ada.page.click(".newest")
            await ada.open_commands()
            await ada.page.press("f")
            await ada.page.until("document.activeElement.closest('.finder')")
            await self.check_message(ada, f"finder-{width}", "1[01]\\d\\d")
            await ada.page.press("Escape")
            self.assertEqual(await ada.page.settled(_CELLS), cells)
            await ada.click_text("button", "Dismiss this message")
        await self.deployment.client.delete(kinds.MACHINES.resource, "vm-1", "default")
        await ada.until_page("The machine is deleted")
        await ada.page.evaluate(_PASTE)
        await ada.until_page("nothing was pasted")
        for size in ((844, 390), (390, 844), (1440, 900)):
            await ada.page.resize(*size)
            await self.check_message(ada, f"panel-{size[0]}", "1[01]\\d\\d")
            self.assertEqual(await lasting(ada.page, _HIDDEN_IN_PANEL), [], size)
            await ada.page.until(_IS_PROMPT_FREE)
        self.check_faults()

    async def test_find(self) -> None:
        """On a phone the search is one row, which covers no text where there is room below the cursor."""
        await self.deployment.create_machine("vm-1", "shell")
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.page.set_touch()
        await ada.type_line("clear; echo first-$((6*7))")
        await ada.until_terminal("^first-42\n.*[#$]$")
        await ada.open_commands()
        await ada.page.press("f")
        await ada.page.until("document.activeElement.closest('.finder')")
        await ada.page.type("42")
        await ada.page.until("/1 of 1/.test(document.querySelector('.finder').innerText)")
        for size in ((390, 844), (390, 460), (844, 390)):
            await ada.page.resize(*size)
            self.assertEqual(await lasting(ada.page, _FINDER_FAULTS), [], size)
        await ada.page.press("Escape")
        await ada.until_terminal_focus()
        self.check_faults()

    async def test_message_of_other(self) -> None:
        """A message of another user leaves the prompt free, also after the screen was cleared."""
        await self.deployment.create_machine("vm-1", "shell")
        ada, bob = await self.user(), await self.user("bob")
        await ada.keep_messages()
        await self.open_terminal(ada)
        await ada.page.set_touch()
        await bob.open(f"{VM}?mode=drive")
        await bob.until_page(r"2 viewers: bob \(you\), ada")
        await ada.until_page("bob has joined")
        await ada.click_text("button", "Dismiss this message")
        for width, height in ((390, 844), (1000, 600), (844, 390)):
            await ada.page.resize(width, height)
            await ada.type_line("seq 1001 1200")
            await ada.until_terminal("1200\n.*[#$]$")
            await self.write_message(bob, "may I type?")
            await ada.page.until("document.querySelector('.said')")
            await self.check_message(ada, f"said-{width}", "1[01]\\d\\d")
            await ada.type_line("clear; echo first-$((6*7))")
            await ada.until_terminal("^first-42\n.*[#$]$")
            await self.check_message(ada, f"said-cleared-{width}", "")
            await ada.click_text(".said button", "\u00d7")
        self.check_faults()

    async def test_prompt_in_the_middle(self) -> None:
        """
        Where neither the room above the prompt nor that below it has all messages, the first one has the larger of
        both, and counts the others.
        """
        await self.deployment.create_machine("vm-1", "shell")
        ada, bob = await self.user(), await self.user("bob")
        await ada.keep_messages()
        await self.open_terminal(ada)
        await ada.page.set_touch()
        await bob.open(f"{VM}?mode=drive")
        await bob.until_page(r"2 viewers: bob \(you\), ada")
        await ada.until_page("bob has joined")
        await ada.page.resize(390, 400)
        await ada.focus_terminal()
        for lines in (2, 6):
            await ada.type_line(f"clear; yes '' | head -n {lines}")
            await ada.page.until(f"terminals[0].buffer.active.cursorY >= {lines}")
            await self.write_message(bob, "long words " * 18)
            await ada.page.until("document.querySelector('.said')")
            self.assertEqual(await lasting(ada.page, f"{_HIDES_PROMPT}.filter(Boolean)"), [], lines)
            with open(f"{self.mktemp()}-message-middle-{lines}.png", "wb") as picture:
                picture.write(await ada.page.screenshot())
            if lines == 6:
                await ada.page.until(
                    "document.querySelector('.confined > .said-list').dataset.more === '1 more'"
                )
            await ada.click_text(".said button", "\u00d7")
        self.check_faults()

    async def show_message(self, user: User[Any]) -> None:
        """Let the console show a message, which stays."""
        await user.page.evaluate(_STAYS)
        await user.open_commands()
        await user.page.press("c")
        await user.page.until("document.querySelector('.message:not([hidden])')")

    async def check_message(self, user: User[Any], name: str, pattern: str) -> None:
        """Fail unless each text below the message matches the pattern, and no other part is below it."""
        found = f"{_COVERED}.filter((each) => !/^({pattern})$/.test(each))"
        self.assertEqual(await lasting(user.page, found), [], name)
        self.assertEqual(await faults_of(user.page), [], name)
        with open(f"{self.mktemp()}-message-{name}.png", "wb") as picture:
            picture.write(await user.page.screenshot())

    async def terminal_height(self, user: User[Any], width: int, height: int) -> int:
        """Return how many pixels are left of a window for a terminal with the focus."""
        await user.page.resize(width, height)
        await user.focus_terminal()
        await lasting(user.page, "[]")  # what was drawn last
        return int(await user.page.evaluate("document.querySelector('.terminal-box').clientHeight"))

    async def check_news_of(self, user: User[Any], text: str) -> None:
        for width, height in ((390, 844), (390, 500), (844, 390)):
            await user.page.resize(width, height)
            await user.focus_terminal()
            await user.until_page(text)
            self.assertEqual(await user.page.evaluate(_CUT), [], f"{width}x{height}")
            self.assertEqual(await user.page.evaluate(_HAS_KEYS), height > 512, f"{width}x{height}")

    async def test_news_in_low_window(self) -> None:
        """
        There, and in half of a desktop, too, the user sees who types and that the console is recorded,
        and the first line of the machine's banner.
        An observer has no keys, and of the commands that send something only messages.
        """
        await self.deployment.create_machine("vm-1", "shell")
        client = self.deployment.client
        annotations = {"metadata": {"annotations": {"console.twisted-exec.dev/banner": BANNER}}}
        await client.patch(kinds.MACHINES.resource, "vm-1", annotations, "default")
        body = {
            "apiVersion": RECORDINGS.api_version,
            "kind": RECORDINGS.kind,
            "metadata": {"name": "seen"},
            "spec": {"machine": "vm-1", "input": "masked"},
        }
        await client.create(RECORDINGS, body, "default")
        ada, bob = await self.user(), await self.user("bob")
        await self.open_terminal(ada)
        await bob.open(f"{VM}?mode=observe")
        for user, state in ((ada, "You can type"), (bob, "Observing (opened to observe only)")):
            await user.until_page("Recorded")
            await user.until_page(re.escape(state))
            await user.until_page("round trip")  # which takes room where there is some
            await user.page.resize(900, 700)
            await self.until_news(user, state)
            await user.page.set_touch()
            await self.check_news(user, 844, 390, state)
            await self.check_news(user, 390, 500, state)
        await bob.click_text("button", "Details")
        # Its users move what is below them.
        await bob.page.until("/bob/.test(document.querySelector('dialog')?.innerText)")
        await bob.click_text("dialog button", "Close")
        await bob.click_text("button", "Commands")
        await bob.page.until(f"{_GROUPS} === 'Text Machine Send Consoles'")
        await bob.page.until(f"{_SENDS} === 'Message to viewers …'")
        self.check_faults()

    async def check_news(self, user: User[Any], width: int, height: int, state: str) -> None:
        await user.page.resize(width, height)
        await user.focus_terminal()
        await user.page.until(_IS_COMPACT)
        await user.page.until(f"{_HAS_KEYS} === {json.dumps(user is self.users[0])}")
        await self.until_news(user, state, " && lines === 1 && more === '\"+1 line\"'")
        with open(f"{self.mktemp()}-{width}.png", "wb") as picture:
            picture.write(await user.page.screenshot())
        self.assertEqual(await faults_of(user.page, taps=True), [])

    async def until_news(self, user: User[Any], begin: str, more: str = "") -> None:
        """Wait until the console is shown as recorded, and the state begins so."""
        news = f"isRecorded && String(state).startsWith('{begin}'){more}"
        await user.page.until(f"(({{state, isRecorded, lines, more}}) => {news})({_NEWS})")
