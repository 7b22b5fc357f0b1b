"""
The view of a console in a real browser: what its user sees before there is a session, and after one.
"""

from __future__ import annotations

import json
import re
from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from tests.flows.deployment import POOL, machine, pause
from tests.flows.programs import script, terminal
from twisted_exec.api import kinds
from twisted_exec.api.resource import Resource

from .base import WebTestCase
from .layout import WINDOWS, faults_of, lasting
from .steps import HOLLOW, PLAYED, RECORDINGS, VM
from .user import User

PANEL = ".panel:not([hidden])"
BANNER = "console.twisted-exec.dev/banner"
MACHINES, NAMESPACES = kinds.MACHINES.resource, kinds.NAMESPACES.resource
SESSIONS = kinds.CONSOLESESSIONS.resource
PARTS = {
    "Log": ".log",
    "Screen": ".screen",
    "Recordings": ".view-recordings .empty",
    "Events": ".view-events table",
    "Console": ".terminal-frame",
}
"""The tabs of a machine, each with its content."""
CONTENT_TOP = 260
# Texts and places of the tabs of a machine and of open consoles, and the view that the navigation marks.
_HEAD = """(() => {
    const places = ['.console-head .parts a', '.tabs li'].flatMap((selector) =>
        [...document.querySelectorAll(selector)].filter((each) => each.checkVisibility()).map((each) => {
            const {left, top, width, height} = each.getBoundingClientRect();
            return [each.innerText.trim(), ...[left, top, width, height].map(Math.round)].join(' ');
        }));
    return [...places, document.querySelector('#bar [aria-current]')?.innerText].join('; ');
})()"""
# The centre of the panel is that of the terminal.
_CENTRED = """(() => {
    const centre = (each) => {
        const {left, right, top, bottom} = document.querySelector(each).getBoundingClientRect();
        return [(left + right) / 2, (top + bottom) / 2];
    };
    const [[x, y], [px, py]] = [centre('.terminal-frame'), centre('.panel:not([hidden])')];
    return Math.abs(x - px) < 3 && Math.abs(y - py) < 3;
})()"""
# The title of the panel is larger than each text below it.
_HAS_TITLE = """(() => {
    const size = (each) => parseFloat(getComputedStyle(each).fontSize);
    const [title, ...texts] = document.querySelectorAll('.panel:not([hidden]) :is(h3, p, .button)');
    return title.matches('h3') && texts.every((each) => size(each) < size(title));
})()"""
_RECORD_TEXTS = """{
    self.told = [];
    const part = document.querySelector('%s');
    new MutationObserver(() => told.push(part.innerText)).observe(part, {childList: true, subtree: true, attributes: true});
}"""
_PLAYED_COLUMNS = (
    """document.querySelector('.player .ap-term')?.style.getPropertyValue('--term-cols')"""
)
# The focus is at the line that a search of the log has found.
_AT_MATCH = "document.activeElement.matches('.line.match')"
# The window has "Play", the clock, and the frame, which ends with the bar; the screen is above the bar, or scrolls there.
_PLAYER_FITS = """(() => {
    const [frame, bar, screen, play, clock] = ['.player', '.ap-control-bar', '.ap-term', '.player-controls .primary', '.player + p']
        .map((each) => document.querySelector(each).getBoundingClientRect());
    const ends = document.querySelector('.ap-fullscreen-button').getBoundingClientRect().right;
    const player = document.querySelector('.ap-player');
    const isWhole = screen.bottom < bar.top + 2 && screen.right <= frame.right;
    const scrolls = player.scrollHeight > player.clientHeight || player.scrollWidth > player.clientWidth;
    const isFree = player.getBoundingClientRect().bottom < bar.top + 1; // no scroll bar covers it
    return isFree && ends <= frame.right && Math.abs(frame.right - bar.right) < 2 && Math.abs(frame.bottom - bar.bottom) < 2
        && (isWhole || scrolls) && [frame, play, clock].every(({ top, bottom }) => top >= 0 && bottom <= innerHeight);
})()"""
_BAR_PLACE = "document.querySelector('.ap-control-bar').getBoundingClientRect().top"
_KEYS = "[...document.querySelectorAll('label')].find((each) => each.innerText.startsWith('Show typed keys'))"
_FULL_SIZE = """[...document.querySelectorAll('label')].find((each) => each.innerText === '100 %').control.click()"""
_ROWS = "((rows) => [...document.querySelectorAll(rows)].map((each) => each.innerText.trimEnd()))"
# The marks in the tab of the console.
_TAB_MARKS = "[...document.querySelectorAll('.tabs .badge')].filter((each) => each.checkVisibility()).map((each) => each.title).join()"
# A name that is cut in two has the space before its second part.
_HAS_SPACE = """import(new URL('dom.js', document.querySelector('script[type=module]').src)).then(({h, nameLink}) => {
    const [cut, whole] = [nameLink('#/', 'default / demo-shell'), h('span', {}, 'default / demo-shell')];
    const line = h('p', {}, cut, ' ', whole);
    document.body.append(line);
    const widths = [cut.firstChild, whole].map((each) => each.getBoundingClientRect().width);
    line.remove();
    return Math.abs(widths[0] - widths[1]) < 1;
})"""
_COUNT_SOCKETS = """(() => {
    self.sockets = [];
    const Before = WebSocket;
    self.WebSocket = class extends Before {
        constructor(url, protocols) { super(url, protocols); sockets.push(url); }
    };
})()"""

# How many consoles are in sight, whether each has room for lines and is cut by no edge below, and whether the active one is in the window.
_SPLIT = """(() => {
    const shown = [...document.querySelectorAll('.console')].filter((each) => each.checkVisibility());
    const isWhole = ({top, bottom}) => top > innerHeight - 2 || bottom < innerHeight + 2;
    const hasLines = (each) => each.querySelector('.terminal-box').clientHeight >= 100 && isWhole(each.getBoundingClientRect());
    const box = document.querySelector('.console.active').getBoundingClientRect();
    return [shown.length, shown.every(hasLines), box.top >= 0 && box.bottom <= innerHeight].join(' ');
})()"""

_SCREEN_FITS = """(() => {
    const [screen, facts] = ['.screen', '.log-facts'].map((each) => document.querySelector(each));
    return facts.getBoundingClientRect().bottom <= innerHeight && screen.getBoundingClientRect().bottom <= innerHeight
        && screen.scrollHeight <= screen.clientHeight + 1 && document.documentElement.scrollHeight <= innerHeight;
})()"""

# Between the output of a former session and that of a new one.
# What happens half a minute later happens when the test calls it.
_LATER = """{
    const before = setTimeout;
    self.later = [];
    self.setTimeout = (act, milliseconds, ...others) =>
        milliseconds === 30_000 ? later.push(act) : before(act, milliseconds, ...others);
}"""
_MARKED = r"\S\s*\n\[twisted-exec: new session at [^\]]+\]\s+\S"
_ACTIVE = "document.querySelector('.console.active')"
_CELLS = "[terminals.at(-1).cols, terminals.at(-1).rows].join()"
_BOX = "document.querySelector('.terminal-box')"
# The cell of a terminal's cursor, if that is in sight.
_PLACE = f"""((box) => {{
    const terminal = terminals.at(-1), {{cursorX, cursorY}} = terminal.buffer.active;
    const [all, screen] = [box, box.querySelector('.xterm-screen')].map((each) => each.getBoundingClientRect());
    const right = screen.left + (screen.width / terminal.cols) * Math.min(cursorX + 1, terminal.cols);
    const bottom = screen.top + (screen.height / terminal.rows) * (cursorY + 1);
    return right <= all.right + 1 && bottom <= all.bottom + 1 && [Math.min(cursorX + 1, terminal.cols), cursorY + 1].join();
}})({_BOX})"""
# No row is cut at the upper edge of the box, or at the lower one.
_HAS_WHOLE_ROWS = f"""(({{scrollTop, clientHeight, firstChild}}) => {{
    const row = firstChild.querySelector('.xterm-screen').offsetHeight / terminals.at(-1).rows;
    return [scrollTop, clientHeight].every((each) => Math.abs(each - Math.round(each / row) * row) < 1);
}})({_BOX})"""
# The place of a terminal's last cell, if it is in sight at the end of what scrolls.
_END = f"""((box) => {{
    box.scrollTo(box.scrollWidth, box.scrollHeight);
    const [all, screen] = [box, box.querySelector('.xterm-screen')].map((each) => each.getBoundingClientRect());
    const isInSight = ['right', 'bottom'].every((edge) => screen[edge] <= all[edge] + 1);
    const {{cursorX, cursorY}} = terminals.at(-1).buffer.active;
    return isInSight && [cursorX + 1, cursorY + 1].join();
}})({_BOX})"""
# As top: rows of the whole width on the usual screen, with a hidden cursor, anew when its size changes; until a key.
_DRAWS_ROWS = (
    r"""bash -c 'draw() { new=; set -- $(stty size); printf "\033[H"; for row in $(seq $1); do [ $row = 1 ] || """
    r"""echo; printf "row-%-$(($2 - 5))s|" $row; done; }; trap new=1 WINCH; printf "\033[?25l\033[H\033[J"; draw; """
    r"""until read -t 1; do [ -z "$new" ] || draw; done; set -- $(stty size); """
    r"""printf "\033[$1;1H\n\033[?25h\033[K"'"""
)
_SIZES = "terminals.map(({cols, rows}) => [cols, rows].join()).join(' ')"
# The cursor is in the last row that has text.
_IS_AT_PROMPT = """(({buffer: {active}, rows}) => {
    const lines = Array.from({length: rows}, (_, row) => active.getLine(active.baseY + row)?.translateToString(true));
    return lines.findLastIndex(Boolean) === active.cursorY && /^[#$]/.test(lines[active.cursorY]);
})(terminals[0])"""
_IS_NEWEST = "({buffer: {active}}) => active.viewportY >= active.baseY"
# The lines in sight of the active console's terminal.
_TERMINAL_ROWS = f"""(() => {{
    const {{buffer: {{active}}, rows}} = terminals.find(({{element}}) => {_ACTIVE}.contains(element));
    return Array.from({{length: rows}}, (_, row) => active.getLine(active.viewportY + row)?.translateToString(true));
}})()"""
_LINES = "[...document.querySelectorAll('.console')].filter((each) => each.checkVisibility()).map((each) => each.querySelector('.status-line').innerText)"
_OUTAGES = "[...document.querySelectorAll('.outage')].filter((each) => each.checkVisibility()).map((each) => each.innerText)"
# What is cut off of the lines below terminals, and of what is over them.
_CUT = """[...document.querySelectorAll('.status-line, .status-line > *, .outage, .outage > *')].filter((each) => each.checkVisibility() && each.clientWidth &&
    (each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > each.clientHeight + 2)).map((each) => each.innerText)"""

# The line below the terminal of a recorded console that several users observe; it stays so.
_OBSERVED = """import(new URL('terminal/status_line.js', document.querySelector('script[type=module]').src)).then(
    ({StatusLine}) => {
        const line = new StatusLine({}, {namespace: 'default', name: 'vm-1'}, {reconnect() {}, waiting: () => 0, away() {}});
        line.state('open', {});
        line.role({isObserver: true, writer: 'dan'}, true);
        line.viewers({count: 3, writer: 'dan', seconds: 0, recordings: [{user: 'ada', input: 'masked'}]});
        line.stop();
        document.querySelector('.console.active .status-line').replaceWith(line.element);
    })"""
_ROLE_IS_WHOLE = """(({innerText, scrollWidth, clientWidth}) => innerText.endsWith('dan types') && scrollWidth <= clientWidth + 1)(
    document.querySelector('.console.active .role-text'))"""

# In the head of a console, both ends of its name, and a part of what is wrong.
_IS_NAMED = """(() => {
    const [title, begin, end, health] = ['h2', 'h2 .cut > :first-child', 'h2 .cut > :last-child', '.health']
        .map((each) => document.querySelector(`.console.active .console-head ${each}`).getBoundingClientRect());
    return begin.width > 20 && end.right <= title.right + 1 && health.width > 30 && title.top === health.top;
})()"""
# The colours of a reversed text.
_REVERSED = """(() => {
    const text = [...document.querySelectorAll('.xterm-rows span')].find((each) => each.innerText === 'reversed-text');
    const {color, backgroundColor} = getComputedStyle(text);
    return `${color} on ${backgroundColor}`;
})()"""
# The contrast of reversed faint text, of colours as a canvas draws them.
_FAINT_CONTRAST = """(() => {
    const text = [...document.querySelectorAll('.xterm-rows span')].find((each) => each.innerText === 'faint-text');
    const context = document.createElement('canvas').getContext('2d');
    const [dark, light] = ['webkitTextFillColor', 'backgroundColor'].map((name) => {
        context.fillStyle = getComputedStyle(text)[name];
        context.fillRect(0, 0, 1, 1);
        const parts = [...context.getImageData(0, 0, 1, 1).data].map((each) => (each / 255 + 0.055) / 1.055);
        return 0.2126 * parts[0] ** 2.4 + 0.7152 * parts[1] ** 2.4 + 0.0722 * parts[2] ** 2.4;
    }).sort((one, other) => one - other);
    return (light + 0.05) / (dark + 0.05);
})()"""
# The number beside Alerts, the mark of the tab and the reason above the terminal; empty where there is none.
_ALERTED = """['nav a[href="#/alerts"] .count', '.tabs .badge', '.console-head .health'].map((each) => document.querySelector(each))
    .map((each) => (each?.hidden === false ? each.textContent.trim().split(' ')[0] : '')).join(' ')"""


class ConsoleTests(WebTestCase):
    """A shell, and a user who logs in with a token."""

    async def setUp(self) -> None:
        await super().setUp()
        await self.deployment.create_machine("vm-1", "shell")

    async def test_before_session(self) -> None:
        """
        A console that connects shows its machine and for how long, not an empty terminal, and counts the keys
        that wait.  One whose machine is off says so without an attempt to connect, powers the machine on, says that
        it starts, and then opens.
        """
        ada = await self.user()
        await ada.page.until(f"document.querySelector(\"a[href='#/{VM}']\")")
        self.deployment.near.silence()
        await ada.open(VM)
        await ada.until_page("Connecting to vm-1[^]*Waiting for the server \\([\\d.:]+\\) for \\d")
        self.assertEqual(
            await ada.page.evaluate("document.body.innerText.match(/Connecting/g).length"), 1
        )
        await ada.page.until(_CENTRED)
        await self.check_layout(ada, "connecting", PANEL, f"{PANEL} .button", ".console-head")
        await ada.until_terminal_focus()
        await ada.page.type("echo early-$((6*7))\n")
        await ada.until_page("20 keys wait for the connection")
        self.deployment.near.mend()
        await ada.until_terminal("early-42[^]*[#$]$")
        await ada.page.until(f"!document.querySelector('{PANEL}')")
        await ada.until_terminal_focus()
        await ada.click_text("button", "Close the console of vm-1")

        await self.deployment.client.patch(MACHINES, "vm-1", {"spec": {"power": "Off"}}, "default")
        await self.deployment.machine_in_state("vm-1", "Shutdown")
        await ada.page.evaluate(_COUNT_SOCKETS)
        await ada.open(VM)
        await ada.until_page("not running[^]*powered off")
        await ada.page.until(_CENTRED)
        self.assertTrue(await ada.page.evaluate(_HAS_TITLE))
        self.assertEqual(await ada.page.evaluate("sockets.filter((each) => /exec/.test(each))"), [])
        await self.check_layout(ada, "off", PANEL, f"{PANEL} .button", ".console-head")
        await ada.page.evaluate(_RECORD_TEXTS % ".panel")
        await ada.click_text("button", "Power on")
        await ada.until_page("You can type")
        told = await ada.page.evaluate("told.join()")
        self.assertIn("The machine is starting", told)
        self.assertNotRegex(told, "itself off|spec.power|Pending: Pending")  # its former state
        self.assertNotIn("Open again", told)  # it opens by itself
        await ada.until_terminal("[#$]$")
        self.check_faults()

    async def test_pending(self) -> None:
        """
        A console whose machine has no pool, or no class, says why, as the list does, leads to its events, and opens
        by itself once the machine runs.  Nobody is offered to power it off.  Without a session it learns of an outage, too.
        """
        waiting = machine("vm-2", "shell")
        del waiting["spec"]["machinePoolRef"]
        waiting["spec"]["machinePoolSelector"] = {"gpu": "yes"}
        await self.deployment.client.create(MACHINES, waiting, "default")
        lost = machine("vm-3", "shell")
        lost["spec"]["machinePoolRef"] = {"name": "absent"}
        await self.deployment.client.create(MACHINES, lost, "default")
        ada = await self.user()
        await ada.open("machines/default/vm-2")
        await ada.until_page("not running[^]*Pending[^]*opens as soon as the machine runs")
        await ada.until_page("twisted-exec doctor vm-2 -n default")
        await self.check_layout(ada, "pending", PANEL, f"{PANEL} .button", ".console-head")
        buttons = f"[...document.querySelectorAll('{PANEL} .button')].filter((each) => each.checkVisibility())"
        labels = f"{buttons}.map((each) => each.innerText).join()"
        await ada.page.until(f"{labels} === 'Events,Copy the command'")
        away = "document.querySelector('.tabs .selected .badge.waiting').hidden"
        self.assertTrue(await ada.page.evaluate(away))
        self.deployment.near.refuses = True
        self.deployment.near.cut()
        await ada.until_page(r"This state is as of \d\d:\d\d: the server [^]*Try now[^]*Pending")
        await ada.page.until(f"!{away} && document.title.startsWith('No connection')")
        await self.check_layout(ada, "pending-away", PANEL, f"{PANEL} .button", ".console-head")
        self.deployment.near.refuses = False
        await ada.page.until(f"{away} && !document.querySelector('.as-of')")
        await ada.open_commands()
        commands = await ada.page.evaluate("document.querySelector('dialog').innerText")
        self.assertNotRegex(commands, "Power|Reset")
        await ada.page.press("Escape")
        await ada.open("machines/default/vm-3")
        await ada.until_page('not running[^]*pool "[^"]+" does not exist')
        await ada.until_page("Pending[^]*opens as soon as the machine runs")
        self.assertEqual(
            await ada.page.evaluate("/has no machine/i.test(document.body.innerText)"), False
        )
        await ada.page.until(f"{labels} === 'Events,Copy the command'")
        unknown = machine("vm-4", "absent-class")
        await self.deployment.client.create(MACHINES, unknown, "default")
        await ada.open("machines/default/vm-4")
        await ada.until_page('not running[^]*Pending: [^]*"absent-class"[^]*doctor vm-4 -n default')
        await ada.page.until(f"{labels} === 'Events,Copy the command'")
        await self.check_layout(ada, "classless", PANEL, f"{PANEL} .button", ".console-head")
        await ada.open("machines/default/vm-2")
        bound = {"spec": {"machinePoolRef": {"name": POOL}}}
        await self.deployment.client.patch(MACHINES, "vm-2", bound, "default")
        await ada.until_terminal("[#$]$")
        self.check_faults()

    async def test_focus(self) -> None:
        """Who changes the colours goes on typing; the command that leads to the list leads to the machine's row there."""
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.focus_terminal()
        await ada.click_text("button", "Use dark colours")
        await ada.page.until("document.documentElement.dataset.theme === 'dark'")
        await ada.page.type("echo dark-$((6*7))\n")
        await ada.until_terminal("dark-42")
        await ada.open_commands()
        await ada.page.press("l")
        await ada.page.until(
            "document.activeElement.closest('tr')?.querySelector('.name').textContent === 'vm-1'"
        )
        await ada.page.press("Enter")
        await ada.until_terminal_focus()
        self.check_faults()

    async def test_created(self) -> None:
        """
        The panel of a machine that does not exist says when it exists, and has one primary button at any time.
        Its tab does not wait for a connection in an outage.
        """
        ada = await self.user()
        await ada.open("machines/default/vm-9")
        await ada.until_page("The namespace default has no machine vm-9")
        primary = f"[...document.querySelectorAll('{PANEL} .button.primary')].filter((each) => each.checkVisibility()).map((each) => each.innerText).join()"
        await ada.page.until(f"{primary} === 'Close this console'")
        await ada.page.until(f"{_TAB_MARKS} === 'No session'")
        self.deployment.near.refuses = True
        self.deployment.near.cut()
        await ada.until_page(r"This state is as of \d\d:\d\d: the server ")
        self.assertEqual(await ada.page.evaluate(_TAB_MARKS), "No session")
        self.assertEqual(await ada.page.evaluate("document.title"), "vm-9")
        self.deployment.near.refuses = False
        await ada.page.until("!document.querySelector('.as-of')")
        await self.deployment.create_machine("vm-9", "shell")
        await ada.until_page("The machine exists now")
        await ada.page.until(f"{primary} === 'Open again'")
        text = await ada.page.evaluate(f"document.querySelector('{PANEL}').innerText")
        self.assertNotRegex(text, "has no machine|Did you mean")
        await self.check_layout(ada, "created", PANEL, f"{PANEL} .button", ".console-head")
        await ada.click_text("button", "Open again")
        await ada.until_page("You can type")
        self.check_faults()

    async def test_wrong_names(self) -> None:
        """The log, the screen and the recordings say of a name that does not exist what its console says."""
        ada = await self.user()
        for part in ("logs", "screen"):
            await ada.open(f"machines/default/vm-9/{part}")
            await ada.until_page(r"The namespace default has no machine vm-9\.\s+Did you mean vm-1")
            link = f"document.querySelector(\".notice a[href='#/{VM}/{part}']\")"
            await ada.page.until(f"{link}?.checkVisibility()")
        await ada.open("recordings/default/none")
        await ada.until_page(r"The namespace default has no recording none\.")
        self.assertNotIn("not found", await ada.page.evaluate("document.body.innerText"))
        self.check_faults()

    async def test_namesakes(self) -> None:
        """
        Consoles of two machines with one name have their namespaces in their tabs, also side by side, and a machine that
        does not run has a mark in its tab.
        """
        await self.deployment.client.create(NAMESPACES, {"metadata": {"name": "lab"}})
        namesake = machine("vm-1", "shell") | {"metadata": {"name": "vm-1", "namespace": "lab"}}
        await self.deployment.client.create(MACHINES, namesake, "lab")
        ada = await self.user()
        tabs = "[...document.querySelectorAll('.tabs a')].map((each) => each.innerText).join()"
        await ada.open(VM)
        await ada.page.until(f"{tabs} === 'vm-1'")
        await ada.open("machines/lab/vm-1")
        await ada.page.until(f"{tabs} === 'default / vm-1,lab / vm-1'")
        self.assertTrue(await ada.page.evaluate(_HAS_SPACE))
        await ada.until_terminal("[#$] ?$")
        await ada.click_text("button", "Split view")
        heads = "[...document.querySelectorAll('.console-head h2')].map((each) => each.innerText.replace(/\\s/g, '')).join()"
        await ada.page.until(f"{heads} === 'default/vm-1,lab/vm-1'")
        await ada.click_text("button", "Split view")
        mark = "document.querySelector('.tabs li:last-child .badge.off')"
        self.assertTrue(await ada.page.evaluate(f"{mark}.hidden"))
        await self.deployment.client.patch(MACHINES, "vm-1", {"spec": {"power": "Off"}}, "lab")
        await ada.page.until(f"{mark}.checkVisibility() && {mark}.title === 'Machine: Shutdown'")
        await ada.click_text("button", "Close the console of lab / vm-1")
        await ada.open("machines/lab/vm-1")
        await ada.until_page("The machine is not running")
        marks = "[...document.querySelectorAll('.tabs li:last-child .badge')].filter((each) => each.checkVisibility())"
        await ada.page.until(f"{mark}.checkVisibility() && {marks}.length === 1")
        await ada.click_text("button", "Close the console of default / vm-1")
        await ada.page.until(f"/^(vm-1)?$/.test({tabs})")
        self.check_faults()

    async def test_observer(self) -> None:
        """
        The cursor of an observer is hollow.  Who types although the console was opened to observe reads that nothing is
        sent, and what to choose first.
        """
        ada = await self.user()
        await ada.keep_messages()
        await ada.open(f"{VM}?mode=observe")
        await ada.until_page("opened to observe only")
        await ada.until_terminal("[#$]$")
        await ada.focus_terminal()
        await ada.page.until(HOLLOW)
        await ada.page.type("lost")
        await ada.until_page(
            "What you type is not sent: [^.]*observe only. Choose “Type here” first"
        )
        await self.check_layout(ada, "observer", ".message", ".console-head .button")
        await ada.click_text(".console-head button", "Type here")
        await ada.until_page("You can type")
        await ada.page.until(f"!({HOLLOW})")
        self.assertNotIn("lost", await ada.until_terminal("[#$]$"))
        self.check_faults()

    async def test_observe_link(self) -> None:
        """
        *Observe* in the list makes an observer of a console that is open: in the same session, and once, so that a
        reload does not give up what the user has taken back.  A console whose session has ended opens to observe only.
        """
        ada = await self.user()
        await ada.keep_messages()
        await self.open_terminal(ada)
        await ada.page.evaluate(_COUNT_SOCKETS)
        await self.observe_from_list(ada)
        await ada.until_page("Observing; nobody types")
        self.assertEqual(await ada.page.evaluate("sockets.filter((each) => /exec/.test(each))"), [])
        await ada.click_text(".console-head button", "Type here")
        await ada.until_page("You can type")
        await ada.page.reload()
        await ada.until_documents(2)
        await ada.until_page("You can type")
        await ada.echo("typed")
        await ada.type_line("exit 3")
        await ada.until_page("The program at the console has ended")
        await self.observe_from_list(ada)
        await ada.until_page("opened to observe only")
        self.check_faults()

    async def observe_from_list(self, user: User[Any]) -> None:
        """Click on *Observe* in the list of machines; the address leads to the console then."""
        await user.open("machines")
        await user.page.click(f"a[href='#/{VM}?mode=observe']")
        await user.page.until(f"location.hash === '#/{VM}'")

    async def test_people(self) -> None:
        """The details of a console name users as they come and go."""
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.open_commands()
        await ada.page.press("e")
        people = "document.querySelector('dialog table')?.innerText ?? ''"
        await ada.page.until(f"/ada [(]this console[)]\\s+Writer/.test({people})")
        bob = await self.user("bob")
        await bob.open(f"{VM}?mode=observe")
        await ada.page.until(f"/bob\\s+Observer/.test({people})")
        await ada.until_page("Viewers\\s+2")
        await bob.click_text("button", "Close the console of vm-1")
        await ada.page.until(f"!/bob/.test({people}) && /ada/.test({people})")
        self.check_faults()

    async def test_company(self) -> None:
        """
        Users read who joins and leaves, and write to each other; neither the machine nor its output has a part in that.
        A page that is gone is no viewer.
        """
        ada, bob = await self.user(), await self.user("bob")
        for user in (ada, bob):
            await user.keep_messages()
        await self.open_terminal(ada)
        await ada.until_page(r"1 viewer: ada \(you\)")
        joined = await ada.watch_page("bob has joined")
        await bob.open(f"{VM}?mode=drive")
        await bob.until_page(r"2 viewers: bob \(you\), ada")
        await joined()
        for sender, reader, text in (
            (bob, ada, "may I type?  <b>\u202ebold</b>"),
            (ada, bob, "$(echo 6*7) I reboot it"),
        ):
            await self.write_message(sender, text)
            await reader.page.until("document.querySelector('.said:not(.own)')")
        said = "[...document.querySelectorAll('.said span')].map((each) => each.textContent)"
        self.assertEqual(
            await ada.page.evaluate(said),
            [
                'Message from bob: "may I type? <b>?bold</b>"',
                'Your message to 1 viewer: "$(echo 6*7) I reboot it"',
            ],
        )
        self.assertEqual(
            await bob.page.evaluate(said),
            [
                'Your message to 1 viewer: "may I type? <b>?bold</b>"',
                'Message from ada: "$(echo 6*7) I reboot it"',
            ],
        )
        for width, height in ((1280, 800), (390, 844)):
            await ada.page.resize(width, height)
            self.assertEqual(await faults_of(ada.page), [])
            await self.check_layout(ada, f"said-{width}", ".said", ".said .button", ".status-line")
        await ada.echo("still")
        self.assertNotIn("reboot", await bob.until_terminal("still-42"))
        for number in (1, 0):
            await ada.click_text(".said button", "\u00d7")
            await ada.page.until(f"document.querySelectorAll('.said').length === {number}")
        await bob.page.close()
        await ada.until_page(r"1 viewer, 1 lost: ada \(you\), bob \(lost\)")
        eve = await self.user("bob")
        await eve.open(f"{VM}?mode=observe")
        await eve.until_page("2 viewers, 1 lost")
        await eve.open_commands()
        unexplained = "[...document.querySelectorAll('dialog button:disabled')].filter((each) => !each.title).length"
        self.assertEqual(await eve.page.evaluate(unexplained), 0)
        await eve.page.press("M")
        await eve.page.type("one who observes writes, too")
        await eve.page.press("Enter")
        await ada.until_page('Message from bob: "one who observes writes, too"')
        self.check_faults()

    async def test_draft(self) -> None:
        """A message that the last other viewer leaves before it is sent stays in its dialog, and reaches the next one."""
        ada, bob = await self.user(), await self.user("bob")
        await self.open_terminal(ada)
        await bob.open(f"{VM}?mode=observe")
        await ada.until_page("2 viewers")
        await ada.open_commands()
        await ada.page.press("M")
        await ada.page.until("document.querySelector('dialog[open] input:focus')")
        await ada.page.type("I reboot it")
        await bob.click_text("button", "Close the console of vm-1")
        send = "document.querySelector('dialog[open] [type=submit]')"
        await ada.page.until(f"{send}.disabled")
        await ada.until_page("Nobody else is at this console now")
        await ada.page.press("Enter")
        for width, height in ((1280, 800), (844, 390), (390, 844)):
            await ada.page.resize(width, height)
            self.assertEqual(await faults_of(ada.page), [])
            await self.check_layout(ada, f"draft-{width}", "dialog p", "dialog input")
        await bob.open(f"{VM}?mode=observe")
        await ada.page.until(f"!{send}.disabled")
        await ada.page.press("Enter")
        await bob.until_page('Message from ada: "I reboot it"')
        await ada.page.until("document.querySelector('.said.own')")
        await ada.open_commands()
        await ada.page.press("M")
        await ada.page.until("document.querySelector('dialog[open] input:focus')?.value === ''")
        self.check_faults()

    async def test_unread_messages(self) -> None:
        """
        The window's title has the number of messages that were not in sight, and the tab of their console a dot, until
        the console is; half a minute later they are gone. A reload keeps them.
        """
        ada, bob = await self.user(), await self.user("bob")
        await self.open_terminal(ada)
        await ada.page.evaluate(_LATER)
        await bob.open(f"{VM}?mode=drive")
        await bob.until_page(r"2 viewers: bob \(you\), ada")
        await self.write_message(bob, "this is seen")
        await ada.until_page("this is seen")
        said = "document.querySelectorAll('.said').length"
        await ada.page.evaluate("later.splice(0).forEach((act) => act())")
        self.assertEqual(await ada.page.evaluate(said), 0)
        await self.open_beside(ada, "vm-2")
        self.assertFalse(await ada.page.evaluate("/[(]/.test(document.title)"))
        for number, text in enumerate(("one", "two"), start=1):
            await self.write_message(bob, text)
            await ada.page.until(f"document.title.startsWith('({number}) vm-2')")
        mark = "document.querySelector('.tabs li:first-child .badge.news')"
        self.assertEqual(await ada.page.evaluate(f"{mark}.title"), "2 unread messages")
        await self.check_layout(ada, "unread", ".tabs .badge.news")
        self.assertEqual(await ada.page.evaluate(f"[{said}, later.length]"), [2, 0])
        await ada.click_text(".tabs a", "vm-1")
        await ada.page.until(f"document.title.startsWith('vm-1') && {mark}.hidden")
        await ada.page.evaluate("later.splice(0).forEach((act) => act())")
        self.assertEqual(await ada.page.evaluate(said), 0)
        await ada.open("machines")
        await self.write_message(bob, "three")
        await ada.page.until("document.title.startsWith('(1) Machines')")
        news = "document.querySelector('#bar .count.news')"
        self.assertEqual(await ada.page.evaluate(f"{news}.title"), "1 unread message")
        for text in ("four", *(f"{each} " * 30 for each in ("five", "six", "seven"))):
            await self.write_message(bob, text)
        await ada.page.until(f"{news}.textContent.startsWith('5 new')")
        for width, height in ((1280, 800), (390, 844)):
            await ada.page.resize(width, height)
            self.assertEqual(await faults_of(ada.page), [])
            await self.check_layout(ada, f"news-{width}", "#bar .count.news")
        await ada.open(VM)
        await ada.page.until(f"{said} === 5 && {news}.hidden")
        box, newest = (
            f"document.querySelector('{each}').getBoundingClientRect()"
            for each in (".said-list", ".said:last-child")
        )
        self.assertTrue(await ada.page.evaluate(f"{newest}.bottom <= {box}.bottom + 1"))
        await ada.page.resize(390, 420)  # the box is lower
        await self.write_message(bob, "eight " * 30)
        await ada.page.until(f"{said} === 6")
        self.assertTrue(await ada.page.evaluate(f"{newest}.top >= {box}.top - 1"))
        await ada.page.resize(1280, 800)
        await self.write_message(ada, "mine")
        await ada.open("machines")
        await self.write_message(bob, "nine")
        await ada.page.until(f"{news}.textContent.startsWith('1 new')")
        await ada.page.reload()
        await ada.page.until(f"{news}?.textContent.startsWith('1 new')")
        await ada.until_page("vm-2")
        await ada.open(VM)
        await ada.page.until(f"{said} && {news}.hidden")
        shown = "[...document.querySelectorAll('.said span')].map((each) => each.textContent)"
        self.assertEqual((await ada.page.evaluate(shown))[-1], 'Message from bob: "nine"')
        with open(f"{self.mktemp()}-messages-after-reload.png", "wb") as picture:
            picture.write(await ada.page.screenshot())
        await ada.click_text("button", "Details")
        await ada.until_page(r'bob: "three"[^]*viewer: "mine"[^]*bob: "nine"')
        await ada.click_text("dialog button", "Close")
        self.check_faults()

    async def test_page_and_terminal(self) -> None:
        """A user of the page and one of kubectl console read the same about each other, in the same words."""
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.until_page(r"1 viewer: ada \(you\)")
        joined = await ada.watch_page("carl has joined")
        config = self.deployment.kubeconfig("carl", ["system:masters"])
        argv = [script("kubectl-console"), "vm-1"]
        carl = terminal(argv, columns=100, KUBECONFIG=config)
        self.addCleanup(carl.stop)
        await carl.until(b"you are an observer")
        await joined()
        said = await ada.watch_page('Message from carl: "may I\\?"')
        carl.type(b"~M")
        await carl.until(b"Message to all viewers: ")
        carl.type(b"may I?\r")
        await carl.until(b'your message to 1 viewer: "may I\\?"')
        await said()
        await ada.open_commands()
        await ada.page.press("M")
        await ada.page.until("document.querySelector('dialog[open] input:focus')")
        await ada.page.type("yes")
        await ada.page.press("Enter")
        await carl.until(rb'\[twisted-exec: message from ada: "yes"\]')
        carl.type(b"~s")
        await carl.until(rb"viewers     2: carl \(you\), ada \(for ")
        left = await ada.watch_page("carl has left")
        carl.type(b"\x1d")
        await left()
        self.check_faults()

    async def test_typing_at_the_end(self) -> None:
        """
        Keys of a user who types on when a session ends press no button: no part of a line reaches a machine.  The tab has
        a mark meanwhile.
        """
        ada = await self.user()
        await self.open_terminal(ada)
        mark = "document.querySelector('.tabs .badge.over')"
        self.assertTrue(await ada.page.evaluate(f"{mark}.hidden"))
        # The prompt may be of the screen from before the session.
        await ada.until_page("You can type")
        await ada.focus_terminal()
        sessions = kinds.CONSOLESESSIONS.resource
        while not (kept := (await self.deployment.client.list(sessions, "default"))["items"]):
            await pause()  # it appears a moment after the session
        (session,) = kept
        await self.deployment.client.delete(sessions, session["metadata"]["name"], "default")
        await ada.until_page(
            "admin has ended this session[^]*You may open a new one.[^]*No session"
        )
        await self.check_layout(ada, "ended", PANEL, f"{PANEL} .button", ".console-head")
        self.assertFalse(await ada.page.evaluate(f"{mark}.hidden"))
        await ada.page.evaluate(_COUNT_SOCKETS)
        for key in ("a", " ", "b", "Enter"):
            await ada.page.press(key)
        self.assertTrue(await ada.page.evaluate("document.activeElement.matches('.panel')"))
        # Tab among other keys is one of these.
        while not await ada.page.evaluate("document.activeElement.innerText === 'Open again'"):
            await ada.page.press("Tab")
        self.assertEqual(await ada.page.evaluate("sockets.filter((each) => /exec/.test(each))"), [])
        await ada.page.press("Enter")
        await ada.until_page("You can type")
        self.check_faults()

    async def test_end_of_an_observer(self) -> None:
        """The end of the session of a user who has lost the console takes away what was said of the roles in it."""
        ada, bob = await self.user(), await self.user("bob")
        await self.open_terminal(ada)
        await bob.open(VM)
        await bob.click_text(".console-head button", "Take over")
        await bob.click_text("dialog button", "Take over")
        await ada.until_page("bob types here now")
        await ada.open("machines")
        sessions = kinds.CONSOLESESSIONS.resource
        while len(kept := (await self.deployment.client.list(sessions, "default"))["items"]) < 2:
            await pause()  # each appears a moment after the session
        (session,) = [each for each in kept if each["spec"]["user"] == "ada"]
        await self.deployment.client.delete(sessions, session["metadata"]["name"], "default")
        await ada.open(VM)
        await ada.until_page("admin has ended this session")
        text = await ada.page.evaluate("document.body.innerText")
        self.assertNotIn("types here now", text)
        self.check_faults()

    async def test_paste_question(self) -> None:
        """Enter at the question about a paste cancels, as at all questions: nothing is pasted."""
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.page.allow("clipboard-read", "clipboard-write")
        await ada.focus_terminal()
        await ada.page.evaluate(r"navigator.clipboard.writeText('echo one\necho two\n')")
        await ada.open_commands()
        await ada.page.press("i")
        await ada.until_page("Paste into vm-1[^]*2 lines")
        await ada.page.until("document.activeElement.innerText === 'Cancel'")
        await ada.page.press("Enter")
        await ada.until_page("Nothing was pasted")
        self.assertNotIn("one", await ada.text())
        self.check_faults()

    async def test_exit(self) -> None:
        """The panel of a console whose program has ended says so, and with which code, each once."""
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.type_line("exit 3")
        text = await ada.page.until(
            f"/has ended/.test(document.body.innerText) && document.querySelector('{PANEL}')?.innerText"
        )
        self.assertRegex(
            text, r"^The program at the console has ended\s+Its exit code is 3\.\s+Open again"
        )
        await ada.page.until("/^No session/.test(document.querySelector('.status-line').innerText)")
        self.check_faults()

    async def test_server_returns(self) -> None:
        """
        A console whose servers were stopped opens again by itself, whether it was open or was opened
        meanwhile; what its user reads first names the machine, not a part of the service.
        """
        ada = await self.user()
        await self.open_terminal(ada)
        await self.deployment.end("poollet", kill=False)
        await ada.page.reload()
        # In one step: the panel changes with each attempt to connect.
        text = await ada.page.until(
            f"/by itself/.test(document.body?.innerText) && document.querySelector('{PANEL} p:not(.dim, [hidden])')?.innerText"
        )
        self.assertNotRegex(text, "(?i)poollet|websocket")
        await self.check_layout(ada, "away", PANEL, f"{PANEL} .button", ".console-head")
        await self.deployment.start_poollet()
        await ada.until_page("You can type")
        await ada.echo("returned")
        self.check_faults()

    async def test_pool_away(self) -> None:
        """A console that was open says why it does not go on: its user need not look at the own network."""
        ada = await self.user()
        await self.open_terminal(ada)
        await self.deployment.end("poollet", kill=True)
        outage = "document.querySelector('.outage').innerText"
        await ada.page.until(f"/^Connection lost for .*cannot connect to pool/i.test({outage})")
        await self.deployment.start_poollet()
        await ada.echo("returned")
        self.check_faults()

    async def test_restart(self) -> None:
        """
        While the runtime restarts, its users read that, and where their keys go, and the cursor is hollow. Behind the
        restart each has the same role, and the keys for the machine before it are counted.
        """
        ada, bob = await self.user(), await self.user("bob")
        for each in (ada, bob):
            await each.keep_messages()
        await self.open_terminal(ada)
        await bob.open(VM)
        await bob.until_page("Observing; ada types")
        await self.deployment.end("runtime", kill=False)
        await bob.until_page("exec-runtime is restarting; reconnecting for")
        await ada.focus_terminal()
        await ada.page.type("lost")
        await ada.until_page(
            r"exec-runtime is restarting; reconnecting for .*\. 4 keys will be sent if this session goes on within 10m\.\s+Try now"
        )
        over = "['.overlays', '.foot'].map((each) => document.querySelector(each).innerText).join()"
        said = await ada.page.evaluate(over)
        self.assertEqual((said.count("restarting"), said.count("will be sent")), (1, 1))
        await ada.page.until(HOLLOW)
        parts = (".outage", ".outage > *", ".status-line", ".status-line > *", ".console-head")
        await self.check_layout(ada, "restarting", *parts)
        await self.deployment.start_runtime()
        await ada.until_page("4 keys typed before the machine started again[^]*You can type")
        await bob.until_page("Observing; ada types")
        await ada.echo("again")
        self.assertNotIn("lost", await bob.until_terminal("again-42"))
        self.check_faults()

    async def test_console_tools(self) -> None:
        """
        The machine's banner is above the terminal, and not output.  A take-over asks once; who has
        lost the right to type reads to whom.  A search counts what it finds, all output can be copied
        and saved, and details name people before figures.
        """
        banner = "Production: ask #db first.\x1b[31m\nline 2\nline 3\nline 4\nline 5"
        annotations = {"metadata": {"annotations": {BANNER: banner}}}
        await self.deployment.client.patch(MACHINES, "vm-1", annotations, "default")
        ada = await self.user()
        await self.open_terminal(ada)
        shown = await ada.page.until("document.querySelector('.banner')?.innerText")
        self.assertEqual(shown, "Production: ask #db first.[31m\nline 2\nline 3\nline 4")
        self.assertNotIn("Production", await ada.text())
        for word in ("first", "second"):
            await ada.echo(f"needle-{word}")
        await self.lose_role(ada)
        await self.search(ada)
        await self.check_details(ada)
        await self.follow_tabs(ada)
        self.check_faults()

    async def test_reversed(self) -> None:
        """
        Reversed text has the colour of the background, in light and in dark colours, and the usual one while it is selected.
        It can be read if it is faint, too.
        """
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.type_line(
            r"printf '\033[7m%s-text\033[0m \033[2;7m%s-text\033[0m\n' reversed faint"
        )
        await ada.until_terminal("reversed-text faint-text\n")
        for dark, colours in (
            (False, "rgb(255, 255, 255) on rgb(27, 31, 36)"),
            (True, "rgb(14, 16, 19) on rgb(223, 227, 232)"),
        ):
            await ada.page.set_dark(dark)
            await ada.page.until(f"{_REVERSED} === '{colours}' && {_FAINT_CONTRAST} >= 4.5")
        await ada.page.evaluate("terminals[0].selectAll()")
        await ada.page.until(f"{_REVERSED} === 'rgb(223, 227, 232) on rgb(47, 77, 107)'")
        self.check_faults()

    async def test_first_screen(self) -> None:
        """A console that has printed much shows each line once when it is opened, also after a reload, and behind clear."""
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.type_line("seq -f 'line %g of it' 900")
        await ada.until_terminal("line 900 of it\\s+[#$]$")
        other = await self.user()
        await self.open_terminal(other)
        for _ in range(2):
            lines = (await other.until_terminal("line 900 of it\\s+[#$]$")).splitlines()
            self.assertEqual([lines.count(f"line {number} of it") for number in (860, 899)], [1, 1])
            await other.page.reload()
        await ada.type_line("clear; seq -f 'row %g of it' 9")
        await ada.until_terminal("row 9 of it\\s+[#$]$")
        await other.page.reload()
        lines = (await other.until_terminal("row 9 of it\\s+[#$]$")).splitlines()
        self.assertEqual(lines.count("row 1 of it"), 1)
        self.check_faults()

    async def test_behind_editor(self) -> None:
        """In a taller window lines behind an editor that has left its scroll region scroll over the whole screen."""
        ada, bob = await self.user(), await self.user("bob")
        await ada.page.resize(900, 500)
        await bob.page.resize(1400, 900)
        await self.open_terminal(ada)
        rows = int((await ada.page.settled(_CELLS)).split(",")[1])
        editor = rf"\033[?1049h\033[1;{rows}rtext\033[?1049l"
        await ada.type_line(f"seq 50; printf '{editor}'; seq -f 'line-%g' 9; echo e''nd")
        await ada.until_terminal(r"end\n[#$]$")
        await bob.open(VM)
        lines = "\n".join(["50", *(f"line-{number}" for number in range(1, 10)), "end"])
        await bob.until_terminal(rf"{lines}\n[#$]$")
        self.check_faults()

    async def test_smaller_window(self) -> None:
        """
        A smaller window of an observer shows a full-screen program in the writer's size: a finger or the wheel moves to
        its end, and its user reads both sizes.  A phone that is turned does not change the terminal's size.
        """
        ada = await self.user()
        await self.open_terminal(ada)
        drawn = await ada.page.settled(_CELLS)
        columns, rows = map(int, drawn.split(","))
        end = rf"\033[?1049h\033[2J\033[{rows};{columns - 6}Hend-4''2"
        await ada.type_line(f"printf '{end}'; cat; printf '\\033[?1049l'")
        await ada.until_terminal("end-42$")
        bob = await self.user("bob")
        await bob.page.set_touch()
        await bob.page.resize(390, 844)
        said = rf"(ada|The writer)'s window is {columns}x{rows} and yours \d+x\d+: scroll to see all of it"
        says = await bob.watch_page(said)  # for ten seconds
        await bob.open(f"{VM}?mode=observe")
        await says()
        await bob.page.until(f"{_CELLS} === '{drawn}'")
        await bob.until_terminal("^end-42$")
        hint = "[...document.querySelectorAll('.status-line .larger')].find((each) => each.checkVisibility())?.innerText"
        await bob.page.until(f"{hint} === '{columns}x{rows}'")
        await bob.page.until(f"{_BOX}.scrollLeft > 0 && {_PLACE} === '{drawn}'")  # at the cursor
        await bob.page.until(_HAS_WHOLE_ROWS)
        await bob.page.evaluate(
            "self.resizes = []; terminals.at(-1).onResize(({cols}) => resizes.push(cols)); null"
        )
        for width, height in ((844, 390), (390, 844), (1000, 600), (844, 390)):
            await bob.page.resize(width, height)
            self.assertEqual(await faults_of(bob.page), [], width)
            await bob.page.until(f"{_END} === '{drawn}' && {_HAS_WHOLE_ROWS}")
        self.assertEqual(await bob.page.evaluate("resizes"), [])
        await bob.page.evaluate(f"{_BOX}.scrollTo(0, 0)")
        await ada.page.type("x\n")
        await bob.until_terminal("x$")
        await bob.page.until("new Promise(requestAnimationFrame)")
        self.assertEqual(await bob.page.evaluate(f"[{_BOX}.scrollLeft, {_BOX}.scrollTop]"), [0, 0])
        await bob.page.drag(
            200, 250, 200, 150
        )  # on a slow machine it is a swipe, which goes on to the end
        await bob.page.until(f"{_BOX}.scrollTop > 0 && {_HAS_WHOLE_ROWS}")
        await ada.page.press("Control+d")
        await bob.page.until(f"{_CELLS} !== '{drawn}' && document.querySelector('.message').hidden")
        await bob.page.until(f"{_BOX}.scrollWidth <= {_BOX}.clientWidth && !{hint}")
        self.check_faults()

    async def test_rows_in_other_window(self) -> None:
        """
        An observer's page shows a program that draws rows on the usual screen, as ``top`` does, in the writer's size, and
        its own one again when the program ends.  A larger window keeps no rows of a picture that gets lower.
        """
        ada = await self.user()
        await self.open_terminal(ada)
        bob, other = await self.user("bob"), await self.user()
        await bob.page.resize(390, 844)
        await other.page.resize(1900, 1400)
        own = {}
        for user in (bob, other):
            await user.open(f"{VM}?mode=observe")
            await user.until_terminal("[#$]$")
            own[user] = await user.page.settled(_CELLS)
        await ada.until_terminal("[#$]$")
        await ada.type_line(_DRAWS_ROWS)
        for width, height in ((1200, 800), (1200, 500)):
            await ada.page.resize(width, height)
            last = r"row-1 [^\n]*\|(\nrow-\d+ [^\n]*\|)+$"
            for user in (bob, other):
                # Her terminal may be fitted again when it seems to have settled.
                while await ada.page.settled(_CELLS) != await user.page.settled(_CELLS):
                    pass
                await user.until_terminal(last)
        await ada.page.type("\n")
        for user in (bob, other):
            await user.page.until(f"{_CELLS} === '{own[user]}'")
            await user.until_terminal("[#$]$")
            await user.page.until("document.querySelector('.terminal-box').scrollTop === 0")
        self.check_faults()

    async def test_reload_in_other_width(self) -> None:
        """The cursor of a page that is loaded again in another width is behind the prompt."""
        ada = await self.user()
        await ada.page.resize(1440, 900)
        await self.open_terminal(ada)
        await ada.type_line("seq 2000")  # so much is not shown as it was printed
        await ada.until_terminal("2000\n[#$]$")
        await ada.type_line("clear; for row in $(seq 15); do printf 'row-%095d\\n' $row; done")
        await ada.until_terminal(r"(row-\d{95}\n){15}[#$]$")
        kept = "JSON.parse(sessionStorage['twisted-exec.consoles'])"
        for width, height in ((390, 844), (1440, 900), (390, 844), (1440, 900)):
            before = await ada.page.evaluate(f"{kept}.places[0].size")
            await ada.page.resize(width, height)
            # As of a page that was left before it knew the size of its window.
            await ada.page.evaluate(
                f"""addEventListener('pagehide', () => {{
                    const kept = {kept};
                    kept.places[0].size = {before};
                    sessionStorage['twisted-exec.consoles'] = JSON.stringify(kept);
                }})"""
            )
            await ada.page.reload()
            await ada.until_terminal("[#$]$")
            await ada.until_page("You can type")
            await ada.page.until(_IS_AT_PROMPT)
            self.assertTrue(await ada.page.settled(_IS_AT_PROMPT))
        self.check_faults()

    async def test_takeover_from_smaller_window(self) -> None:
        """
        Whoever takes over from a smaller window sees at once what the program draws for the larger one; the former writer
        goes on reading who types now.
        """
        ada, bob = await self.user(), await self.user("bob")
        await ada.page.resize(800, 500)
        await bob.page.resize(1600, 1000)
        await self.open_terminal(ada)
        await ada.until_terminal("[#$]$")
        await bob.open(VM)
        await bob.until_terminal("[#$]$")
        own = await bob.page.settled(_CELLS)
        small = await ada.page.settled(_CELLS)
        await ada.type_line(_DRAWS_ROWS)
        await bob.page.until(f"{_CELLS} === '{small}'")
        await bob.click_text(".console-head button", "Take over")
        await bob.click_text("dialog button", "Take over")
        await bob.page.until(f"{_CELLS} === '{own}'")
        columns, rows = map(int, own.split(","))
        whole = [f"row-{row}".ljust(columns - 1) + "|" for row in range(1, rows + 1)]
        await bob.page.until(f"JSON.stringify({_TERMINAL_ROWS}) === JSON.stringify({whole})")
        await ada.page.until(
            "[...document.querySelectorAll('.status-line .larger')].some((each) => each.checkVisibility())"
        )
        await ada.until_page("bob types here now. You only observe")
        self.check_faults()

    async def test_larger_window(self) -> None:
        """
        An observer's page shows a full-screen program in the writer's size, while its window has room
        for more.
        """
        ada = await self.user()
        await ada.page.resize(900, 500)
        await self.open_terminal(ada)
        bob = await self.user("bob")
        await bob.page.resize(1400, 900)
        await bob.open(f"{VM}?mode=observe")
        rows = "document.querySelector('.xterm-rows').children.length"
        less = await ada.page.evaluate(rows)
        await bob.page.until(f"{rows} > {less}")
        await ada.type_line(
            r"printf '\033[?1049h\033[2J\033[%d;1Hlast\nrow' $(stty size | cut -d' ' -f1); cat; printf '\033[?1049l'"
        )
        await bob.page.until(
            f"{rows} === {less} && /last\\s+row\\s*$/.test(document.querySelector('.xterm-rows').innerText)"
        )
        await ada.page.press("Control+d")
        await bob.page.until(f"{rows} > {less}")
        self.check_faults()

    async def test_early_keys(self) -> None:
        """The files of the terminal are there before a console is opened, so that it takes keys at once."""
        ada = await self.user()
        await ada.page.until(
            "performance.getEntriesByType('resource').some(({name}) => name.endsWith('/vendor/addon-fit.js'))"
        )
        self.assertFalse(await ada.page.evaluate("!!document.querySelector('.console')"))
        self.check_faults()

    async def test_own_sessions(self) -> None:
        """
        A user with two sessions reads which of them types, or that both may, and moves to the other without a
        question.  A warning that another one types names the writer of now.
        """
        first, second = await self.user(), await self.user()
        for user in (first, second):
            await self.open_terminal(user)
            await user.page.until("document.querySelector('.user').textContent === 'ada'")
            await user.until_page("[12] viewers?")
        while await self.roles() != ["Writer", "Writer"]:
            await pause()
        await first.open_commands()
        await first.page.press("e")
        await first.until_page(r"ada \(this console\)\s+Writer[^]*ada\s+Writer")
        await first.page.press("Escape")
        await second.click_text(".console-head button", "Observe only")
        await second.until_page("Observing; you type in another session")
        await second.page.resize(390, 844)
        role = "document.querySelector('.role-text')"
        await second.page.until(f"{role}.scrollWidth <= {role}.clientWidth")
        self.assertEqual(await faults_of(second.page), [])
        await second.click_text(".console-head button", "Type here")
        await second.until_page("You can type")
        await first.until_page("Another session of yours types here now")
        bob = await self.user("bob")
        await bob.open(f"{VM}?mode=observe")
        await bob.until_page("Observing")
        await bob.click_text(".console-head button", "Take over")
        await bob.click_text("dialog button", "Take over")
        for user in (first, second):
            await user.until_page("bob types here now")
        await first.click_text(".console-head button", "Take over")
        await first.click_text("dialog button", "Take over")
        await second.until_page("Another session of yours types here now")
        await second.click_text("button", "Type here")
        await second.until_page("You have taken over this console from another session of yours")
        self.check_faults()

    async def roles(self) -> list[str]:
        """Return the roles of all sessions that the server lists; each appears a moment after the session."""
        items = (await self.deployment.client.list(SESSIONS, "default"))["items"]
        return [each.get("status", {}).get("role", "") for each in items]

    async def lose_role(self, ada: User[Any]) -> None:
        bob = await self.user("bob")
        await bob.open(f"{VM}?mode=observe")
        await bob.until_page("Observing")
        await bob.click_text(".console-head button", "Take over")
        await bob.until_page(r"Take over vm-1\?\s+ada types at this console")
        await self.check_layout(bob, "take-over", "dialog", "dialog button")
        await bob.click_text("dialog button", "Take over")
        await bob.until_page("You can type")
        self.assertFalse(await bob.page.evaluate("!!document.querySelector('dialog[open]')"))
        await ada.until_page("bob types here now")
        parts = (".message", ".banner", ".status-line", ".console-head", ".console-head .button")
        await self.check_layout(ada, "lost", *parts)
        await bob.click_text("button", "Observe only")
        await ada.click_text("button", "Type here")
        await ada.until_page("You can type")

    async def search(self, ada: User[Any]) -> None:
        await ada.open_commands()
        await ada.page.press("f")
        await ada.page.until("document.activeElement.closest('.finder')")
        await ada.page.type("needle")
        await ada.until_page("\\d of 4")
        await self.check_layout(ada, "search", ".finder", ".finder .button", ".finder input")
        await ada.page.press("Escape")
        await ada.page.allow("clipboard-read", "clipboard-write")
        await ada.open_commands()
        await ada.page.press("y")
        await ada.until_page("copied")
        copied = await ada.page.evaluate("navigator.clipboard.readText()")
        self.assertRegex(
            copied, "needle-first-42\n[^]*needle-second-42\n".replace("[^]", r"[\s\S]")
        )
        await ada.page.evaluate(
            "URL.createObjectURL = (blob) => { self.saved = blob; return '#'; }"
        )
        await ada.open_commands()
        await ada.page.press("o")
        await ada.page.until("self.saved")
        self.assertEqual(await ada.page.evaluate("saved.text()"), copied)

    async def check_details(self, ada: User[Any]) -> None:
        await ada.open_commands()
        await ada.page.press("e")
        await ada.until_page("People[^]*ada[^]*Debug")
        visible = await ada.page.evaluate("document.querySelector('dialog').innerText")
        self.assertNotIn("offset", visible)
        await self.check_layout(ada, "details", "dialog", "dialog .actions .button")
        await ada.page.press("Escape")

    async def follow_tabs(self, ada: User[Any]) -> None:
        """
        All parts of the machine are a click away, below one head at one place, and back leads back.
        The log and the screen begin high, also on a phone, and the log ends where the window does.
        """
        for width, height in WINDOWS:
            await ada.page.resize(width, height)
            head = ""
            for part, content in PARTS.items():
                await ada.click_text(".parts a", part)
                await ada.page.until(f"document.querySelector('{content}')?.checkVisibility()")
                head = head or await ada.page.settled(_HEAD)
                await ada.page.until(f"{_HEAD} === {json.dumps(head)}")
                box = f"document.querySelector('{content}').getBoundingClientRect()"
                if part != "Console":  # whose banner is above its output
                    await ada.page.until(f"{box}.top <= {CONTENT_TOP}")
                if part == "Log":
                    await ada.page.until(f"{box}.bottom > {height - 80}")
        await ada.page.resize(1280, 800)
        await ada.until_terminal("needle-second-42")

    async def test_closed_notice(self) -> None:
        """A notice that the user has closed does not come again when the page is loaded again; another one does."""
        ada = await self.user()
        await ada.keep_messages()
        await self.open_terminal(ada)
        await self.begin_recording(ada)
        notice = "document.querySelector('.message:not([hidden])')?.innerText ?? ''"
        await ada.page.reload()
        await ada.until_documents(2)
        await ada.page.until(f"/^This console is recorded for/.test({notice})")
        await ada.click_text("button", "Dismiss this message")
        await ada.page.until(f"{notice} === ''")
        await ada.page.reload()
        await ada.until_documents(3)
        await ada.page.until("document.querySelector('.recorded')?.checkVisibility()")
        await ada.page.until("document.querySelector('.names')?.innerText.includes('ada')")
        self.assertEqual(await ada.page.evaluate(notice), "")
        change = {"spec": {"ended": True}}
        await self.deployment.client.patch(RECORDINGS, "seen", change, "default")
        await ada.page.until(f"/^This console is not recorded/.test({notice})")
        self.check_faults()

    async def test_warning_stays(self) -> None:
        """
        A notice that follows a warning is shown below it, unless it says the same; the warning stays until its user
        closes it.
        """
        ada, bob = await self.user(), await self.user("bob")
        await ada.keep_messages()
        await self.open_terminal(ada)
        joined = await ada.watch_page("bob has joined")
        await self.open_terminal(bob)
        await joined()  # the page learns the name only later
        await bob.click_text(".console-head button", "Take over")
        await bob.click_text("dialog button", "Take over")
        notice = "document.querySelector('.message:not([hidden])')?.innerText ?? ''"
        warning = "bob types here now[.] You only observe[^]*"
        await ada.page.until(f"/{warning}/.test({notice})")
        before = await ada.page.evaluate(notice)
        await ada.focus_terminal()
        await ada.page.type("x")
        announced = "document.querySelector('#notices').innerText"
        await ada.page.until(f"/What you type is not sent: bob types here/.test({announced})")
        self.assertEqual(await ada.page.evaluate(notice), before)
        await self.begin_recording(ada)
        await ada.page.until(f"/{warning}This console is recorded/.test({notice})")
        await self.check_layout(ada, "warning", ".message", ".message *")
        await ada.open_commands()
        await ada.page.press("j")
        await ada.page.until(
            f"/{warning}You are no longer told who joins and leaves/.test({notice})"
        )
        self.assertNotIn("recorded", await ada.page.evaluate(notice))
        await ada.click_text("button", "Dismiss this message")
        await ada.page.until(f"{notice} === ''")
        self.check_faults()

    async def test_power(self) -> None:
        """
        A machine is powered off by a command of its console after a question; then the user reads how long the session
        waits, and the cursor is hollow.  The names of the commands are those of the list.  *Power on* is beside the
        state of the machine: a user who has scrolled back before sees how it starts.
        """
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.type_line("seq 300")
        await ada.until_terminal("300\n.*[#$]$")
        await ada.open_commands()
        command = "[...document.querySelectorAll('.command')].find((each) => each.querySelector('kbd').innerText === 'P')"
        self.assertRegex(await ada.page.evaluate(f"{command}.innerText"), r"^P?\s*Power off$")
        await ada.page.evaluate(_RECORD_TEXTS % ".message")
        await ada.page.press("P")
        await ada.click_text("dialog button", "Power off")
        await ada.until_page("Machine: Shutdown")
        await ada.page.until("/being powered off[^]*waits up to/.test(told.join())")
        await ada.focus_terminal()
        await ada.page.until(HOLLOW)
        await ada.page.evaluate("terminals[0].scrollToTop()")
        await ada.page.until("document.querySelector('.newest').checkVisibility()")
        await ada.click_text(".status-line button", "Power on")
        await ada.until_page("You can type")
        await ada.page.until("!document.querySelector('.newest').checkVisibility()")
        self.check_faults()

    async def check_long_name(self, ada: User) -> None:
        """Beside the reason of an alert, a small phone shows both ends of a long name, and a part of the reason."""
        await self.deployment.create_machine("database-of-the-shop-1", "shell")
        await ada.open("machines/default/database-of-the-shop-1")
        await ada.until_terminal("[#$]$")
        await ada.type_line("echo 'Kernel pa''nic - not syncing: test'")
        await ada.page.resize(320, 568)
        await ada.page.until(_IS_NAMED)
        self.assertEqual(await faults_of(ada.page), [])

    async def test_unhealthy(self) -> None:
        """
        A user who works in a console learns of an alert: the number beside Alerts, a mark in its tab, and the reason
        above its terminal, which leads to the line in the log. They outlive a reload, and go when the machine starts again.
        """
        alerts, alert = kinds.CONSOLEALERTS.resource, {"spec": {"presets": ["linux"]}}
        await self.deployment.client.create(
            alerts, alert | {"metadata": {"name": "linux"}}, "default"
        )
        while not await self.is_watched(alerts, "linux"):
            await pause()
        ada = await self.user()
        await self.open_terminal(ada)
        self.assertEqual(await ada.page.evaluate(_ALERTED), "  ")
        await ada.type_line("echo 'Kernel pa''nic - not syncing: test'")
        await ada.page.until(f"{_ALERTED} === '1 KernelPanic KernelPanic'")
        await self.check_layout(
            ada, "unhealthy", ".console-head h2", ".console-head .health", ".console-head .button"
        )
        await ada.page.reload()
        await ada.page.until(f"{_ALERTED} === '1 KernelPanic KernelPanic'")
        await ada.page.click(".console-head .health")
        await ada.page.until("/logs\\?offset=\\d+$/.test(location.hash)")
        for power in ("Off", "On"):
            await self.deployment.client.patch(
                MACHINES, "vm-1", {"spec": {"power": power}}, "default"
            )
            await self.deployment.machine_in_state(
                "vm-1", {"Off": "Shutdown", "On": "Running"}[power]
            )
        await ada.open(VM)
        await ada.page.until(f"{_ALERTED} === '  '")
        await self.check_long_name(ada)
        self.check_faults()

    async def is_watched(self, alerts: Resource, name: str) -> bool:
        """Whether the runtime looks at what a machine prints: it knows an alert a moment after the server."""
        alert = await self.deployment.client.get(alerts, name, "default")
        pools = alert.get("status", {}).get("pools", [])
        return any(each["state"] == "Watching" and each["machines"] for each in pools)

    async def test_split(self) -> None:
        """
        Consoles side by side, or one below the other, have their names, all tabs and who types in sight.  Their tabs
        are also above the log of a machine.  A click on the tab of the console that is shown gives it the keys.
        """
        await self.deployment.create_machine("vm-2", "shell")
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.open("machines/default/vm-2")
        await ada.until_terminal("[#$]$")
        await ada.click_text(".tabs a", "vm-2")
        await ada.until_terminal_focus()
        await ada.click_text("button", "Split view")
        parts = (".console-head h2", ".console-head .parts a", ".console-head .button")
        await self.check_layout(ada, "split", *parts, ".console-head .parts")
        await ada.page.evaluate(_OBSERVED)
        for width in (1440, 1200, 1080, 900):
            await ada.page.resize(width, 700)
            await ada.page.until(_ROLE_IS_WHOLE)
        await self.close_beside_log(ada)
        self.check_faults()

    async def test_window_commands(self) -> None:
        """Commands let the consoles have all of the screen, where Escape belongs to the machine, and copy the link."""
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.page.allow("clipboard-read", "clipboard-write")
        await ada.open_commands()
        await ada.page.press("F")
        await ada.page.until("document.fullscreenElement?.matches('.workspace')")
        await ada.until_terminal_focus()
        await ada.page.press("Escape")
        await ada.until_terminal("\\^\\[$")
        await ada.page.press("Enter")
        leave = "[...document.querySelectorAll('.tab-bar button')].find((each) => each.innerText === 'Leave full screen')?.checkVisibility() ?? false"
        await ada.page.until(leave)
        await self.check_layout(ada, "full", ".tab-bar > .button", ".console-head .button")
        await ada.click_text("button", "Leave full screen")
        await ada.page.until("!document.fullscreenElement")
        await ada.page.until(f"!({leave})")
        await ada.until_terminal_focus()
        for is_full in ("", "!"):
            await ada.open_commands()
            await ada.page.press("F")
            await ada.page.until(f"{is_full}document.fullscreenElement")
            await ada.until_terminal_focus()
        await ada.open_commands()
        await ada.page.press("u")
        await ada.until_page("Link copied[.]")
        link = f"{self.deployment.console_url}#/{VM}"
        self.assertEqual(await ada.page.evaluate("navigator.clipboard.readText()"), link)
        self.check_faults()

    async def test_machine_commands(self) -> None:
        """Commands begin and end a recording, and reset the machine, after a question; the console goes on at its next start."""
        ada = await self.user()
        await ada.keep_messages()
        await self.open_terminal(ada)
        await ada.open_commands()
        await ada.page.press("k")
        await ada.until_page("Record vm-1[?][^]*until a user ends it")
        await ada.click_text("dialog button", "Record")
        await ada.until_page(r"recorded for ada \(input: masked\)")
        await ada.focus_terminal()
        await ada.open_commands()
        await ada.page.press("k")
        await ada.until_page(r"vm-1 is already recorded\s+For ada \(input: masked\)")
        await ada.click_text("dialog button", "Begin another recording")
        await ada.until_page("Record vm-1[?]")
        await ada.page.press("Escape")
        await ada.until_terminal_focus()
        await ada.open_commands()
        await ada.page.press("k")
        await ada.until_page("already recorded")
        await ada.click_text("dialog button", "End the recording")
        await ada.until_page("End the recording vm-1-.* of vm-1[?]")
        await ada.click_text("dialog button", "End the recording")
        await ada.until_page("is not recorded any more")
        await ada.focus_terminal()
        await ada.open_commands()
        await ada.page.press("X")
        await ada.until_page("Reset vm-1[?]")
        await ada.page.evaluate(
            """window.said = ""; new MutationObserver(() => { window.said += document.body.innerText; })
                .observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true})"""
        )
        await ada.click_text("dialog button", "Reset")
        await ada.until_page("started again")
        said = await ada.page.evaluate("window.said")
        self.assertIn("being reset", said)
        self.assertNotRegex(said, "waits up to|Power on")
        await ada.echo("again")
        self.check_faults()

    async def test_record_later(self) -> None:
        """A recording that cannot begin says why over the terminal, until it begins."""
        recordings = self.deployment.directory / "runtime-state" / "recordings"
        kept = recordings.with_name("kept")
        ada = await self.user()
        await ada.keep_messages()
        await self.open_terminal(ada)
        recordings.rename(kept)
        recordings.write_bytes(b"")
        await ada.open_commands()
        await ada.page.press("k")
        await ada.click_text("dialog button", "Record")
        why = r"recording vm-1-\w+ has not begun: the console cannot be recorded: the runtime cannot write its files: Not a directory"
        await ada.until_page(f"{why}[^]*It begins by itself")
        await self.check_layout(ada, "record-later", ".message", ".status-line")
        recordings.unlink()
        kept.rename(recordings)
        await ada.until_page(r"recorded for ada \(input: masked\)")
        await ada.page.until(f"!/{why}/.test(document.body.innerText)")
        self.check_faults()

    async def test_small_split(self) -> None:
        """
        A small window shows one console of the split view, and the others when it is larger.  Each terminal in
        sight has room for some lines and the line below it, and the console with the focus is in the window, also when
        that gets another size.
        """
        names = [f"vm-{number}" for number in range(1, 6)]
        for name in names[1:]:
            await self.deployment.create_machine(name, "shell")
        ada = await self.user()
        await self.open_terminal(ada)
        for count, name in enumerate(names, start=1):
            await ada.page.resize(900, 700)
            await ada.open(f"machines/default/{name}")
            await ada.page.until(
                f"document.querySelector('.console.active h2')?.innerText.includes('{name}')"
            )
            if count == 2:
                await ada.click_text("button", "Split view")
            sizes = ((390, 844), (390, 500), (844, 390), (900, 700), (1440, 900), (1000, 600))
            for width, height in sizes:
                await ada.page.resize(width, height)
                shown = count if height > 500 and width > 700 else 1
                await ada.page.until(f"{_SPLIT} === '{shown} true true'")
                offered = "document.querySelector('.split-button').checkVisibility()"
                self.assertEqual(await ada.page.evaluate(offered), count > 1 and shown > 1, width)
        await ada.page.set_touch()
        await ada.page.until(f"{_SPLIT} === '5 true true'")
        self.check_faults()

    async def test_low_panel(self) -> None:
        """A panel is whole in a low part of the split view, too."""
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.page.resize(1000, 600)
        for number in (2, 3, 4):
            waiting = machine(f"vm-{number}", "shell")
            del waiting["spec"]["machinePoolRef"]
            waiting["spec"]["machinePoolSelector"] = {"gpu": "yes"}
            await self.deployment.client.create(MACHINES, waiting, "default")
            await ada.open(f"machines/default/vm-{number}")
            await ada.page.until(f"/Pending/.test({_ACTIVE}?.querySelector('.panel').innerText)")
        await ada.click_text("button", "Split view")
        panels = "[...document.querySelectorAll('.panel')].filter((each) => each.checkVisibility())"
        for height in (600, 640, 700, 900):
            await ada.page.resize(1000, height)
            cut = "({scrollHeight, clientHeight}) => scrollHeight > clientHeight + 1"
            await ada.page.until(f"{panels}.length === 3 && !{panels}.some({cut})")
            self.assertEqual(await faults_of(ada.page), [], height)
        self.check_faults()

    async def test_screen_fits(self) -> None:
        """The screen of a machine ends where the window does, with all its lines and what is known of it, which can be read."""
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.open(f"{VM}/screen")
        await ada.until_page("last output")
        for width, height in ((1280, 800), (1000, 600), (390, 844)):
            await ada.page.resize(width, height)
            await ada.page.until(_SCREEN_FITS)
            self.assertEqual(await faults_of(ada.page), [], width)
        size = "parseFloat(getComputedStyle(document.querySelector('.screen')).fontSize)"
        self.assertGreaterEqual(await ada.page.evaluate(size), 11)
        self.check_faults()

    async def test_keys_in_log(self) -> None:
        """The keys that leave the terminal lead from the other views of its machine to it."""
        ada = await self.user()
        await self.open_terminal(ada)
        for key in ("Control+]", "Control+F6"):
            await ada.open(f"{VM}/logs")
            await ada.page.until("document.querySelector('.log .line')")
            await ada.page.press(key)
            await ada.page.until(f"location.hash === '#/{VM}'")
            await ada.until_terminal_focus()
        self.check_faults()

    async def test_follows_after_resizes(self) -> None:
        """
        A terminal at its newest output stays there through the split view and other sizes of the window: what follows
        a key is in sight.
        """
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.page.resize(1440, 900)
        for number in range(1, 6):
            if number > 1:
                await self.open_beside(ada, f"vm-{number}")
            await ada.type_line("seq 20")
            await ada.page.until(f"{_TERMINAL_ROWS}.includes('20')")
        await ada.page.settled(_SIZES)
        await ada.click_text("button", "Split view")
        for width, height in ((1440, 900), (1000, 600)):
            await ada.page.resize(width, height)
            await ada.page.settled(_SIZES)
        # The consoles above the active one are out of sight.
        for number in range(1, 6):
            await ada.open(f"machines/default/vm-{number}")
            await ada.page.until(f"{_ACTIVE}.querySelector('h2').innerText.includes('vm-{number}')")
            await ada.page.until(f"terminals.every({_IS_NEWEST})")
        await ada.page.resize(1440, 900)
        await ada.click_text("button", "Split view")
        await ada.page.settled(_SIZES)
        await ada.type_line("seq 60")
        await ada.page.until(f"{_TERMINAL_ROWS}.includes('60')")
        self.check_faults()

    async def test_follows_after_scrolling(self) -> None:
        """A user has scrolled up, and the window gets so large that it shows all: what follows a key is in sight."""
        ada = await self.user()
        await ada.page.resize(1280, 500)
        await self.open_terminal(ada)
        await ada.type_line("seq 30")
        await ada.page.until(f"{_TERMINAL_ROWS}.includes('30')")
        await ada.page.evaluate("terminals[0].scrollLines(-3)")
        await ada.page.until(f"!{_TERMINAL_ROWS}.includes('30')")
        await ada.page.resize(1280, 1000)
        await ada.page.until("terminals[0].buffer.active.baseY === 0")
        await ada.page.settled(_SIZES)
        await ada.type_line("seq 60")
        await ada.page.until(f"{_TERMINAL_ROWS}.includes('60')")
        self.check_faults()

    async def test_split_outage(self) -> None:
        """
        Beside other consoles, too, each terminal says in whole, and once, for how long the server is away and what
        becomes of keys, and keeps its size.
        """
        ada = await self.user()
        await self.open_terminal(ada)
        await self.open_beside(ada, "vm-2")
        await ada.click_text("button", "Split view")
        await self.open_beside(ada, "vm-3")
        await self.check_outage(ada, 3, "Connection lost for .*s")
        self.deployment.near.refuses = False
        await ada.page.until(f"{_LINES}.every((each) => each.includes('You can type'))")
        await self.open_beside(ada, "vm-4")
        await self.check_outage(ada, 4, "(No answer|Connection lost) for .*s")
        self.deployment.near.mend()
        await ada.page.until(f"{_LINES}.every((each) => each.includes('You can type'))")
        self.check_faults()

    async def open_beside(self, ada: User[Any], name: str) -> None:
        await self.deployment.create_machine(name, "shell")
        await ada.open(f"machines/default/{name}")
        await ada.page.until(f"{_ACTIVE}.querySelector('h2').innerText.includes({name!r})")
        await ada.page.until(f"{_ACTIVE}.innerText.includes('You can type')")

    async def check_outage(self, ada: User[Any], count: int, state: str) -> None:
        """Lose the connection of this many consoles, or let it be silent, while keys of one wait."""
        sizes = "[...document.querySelectorAll('.terminal-box')].map((each) => each.clientHeight).join()"
        await ada.page.resize(*WINDOWS[1])
        usual = await ada.page.settled(sizes)
        if count == 3:
            self.deployment.near.refuses = True
            self.deployment.near.cut()
        else:
            self.deployment.near.silence()
        await ada.focus_terminal()
        await ada.page.type("keys")
        for width, height in WINDOWS[:2]:
            await ada.page.resize(width, height)
            await ada.page.until(
                f"{_OUTAGES}.length === {count} && {_OUTAGES}.every((each) => /^{state}[^]*(\\d keys|What you type)/.test(each))"
            )
            self.assertNotRegex(await ada.page.evaluate(f"{_LINES}.join()"), "for|keys|type")
            found = await lasting(ada.page, _CUT)
            with open(f"{self.mktemp()}-{count}-{width}.png", "wb") as picture:
                picture.write(await ada.page.screenshot())
            self.assertEqual(found, [], f"{count} consoles at {width}x{height}")
        self.assertEqual(await ada.page.settled(sizes), usual)

    async def close_beside_log(self, ada: User[Any]) -> None:
        """The tab of the machine whose log is shown is marked; the log stays when its console is closed."""
        await ada.open("machines/default/vm-2/logs")
        await ada.until_page("retained")
        tabs = "[...document.querySelectorAll('.tabs li')].map((each) => [each.innerText, each.className])"
        await ada.page.until(f"/^vm-1\\W*,,vm-2\\W*,selected$/.test({tabs})")
        await ada.click_text("button", "Close the console of vm-2")
        await ada.page.until(f"/^vm-1\\W*,$/.test({tabs})")
        self.assertTrue(await ada.page.evaluate("location.hash.endsWith('vm-2/logs')"))

    async def test_log(self) -> None:
        """
        The log follows the machine from the start, until the user goes elsewhere, and from *End* on.  It says
        which time of a line it shows.
        """
        bob = await self.user("bob")
        await self.open_terminal(bob)
        ada = await self.user()
        await ada.open(f"{VM}/logs")
        following = "document.querySelector('.log-foot input')?.checked"
        await ada.page.until(following)
        await bob.echo("later")
        await ada.until_page("later-42")
        titles = (
            "[...document.querySelectorAll('.log-facts, .line-time')].map((each) => each.title)"
        )
        await ada.page.until(
            f"/^The time of a line is that of its end/m.test({titles}.join('\\n'))"
        )
        await ada.page.until(f"{titles}.some((each) => /^\\d+-.*, the next line /.test(each))")
        await ada.click_text("button", "Begin")
        await ada.page.until(f"!{following}")
        await ada.click_text("button", "End")
        await ada.page.until(following)
        await ada.open(f"{VM}/logs?offset=0")
        await ada.page.until("document.querySelector('.line.match')")
        self.assertFalse(await ada.page.evaluate(following))
        self.check_faults()

    async def test_log_search_ends(self) -> None:
        """Marks and numbers of a search go with it: when another text is nowhere, and when the field is empty."""
        ada = await self.user()
        await self.open_terminal(ada)
        await ada.echo("needle-one")
        await ada.open(f"{VM}/logs")
        await ada.page.until("document.querySelector('.log-foot input')?.checked")
        found = "(document.querySelector('.found:not([hidden])')?.innerText ?? '')"
        marks = "document.querySelectorAll('mark, .line.match').length"
        for text in ("needle", "nowhere", "needle"):
            await ada.page.focus("[aria-label='Search the log']")
            await ada.page.evaluate("document.activeElement.select()")
            await ada.page.type(f"{text}\n")
            if text == "needle":
                await ada.page.until(f"/^2 of 2/.test({found}) && {marks} === 3")
                continue
            await ada.until_page('No line has "nowhere"')
            await ada.page.until(f"{found} === '' && !document.querySelector('mark')")
            await ada.page.focus("[aria-label=Time]")
            await ada.page.type("1h ago\n")
            await ada.page.until(f"{found} === 'Copy link'")
        await ada.page.evaluate("document.activeElement.select()")
        await ada.page.press("Backspace")
        await ada.page.until(f"{found} === '' && {marks} === 0")
        self.check_faults()

    async def test_log_search(self) -> None:
        """
        A search marks all lines that it finds, says how many they are and at which of them it is; a link to that line
        can be copied.
        """
        ada = await self.user()
        await self.open_terminal(ada)
        for word in ("one", "two", "three"):
            await ada.echo(f"needle-{word}")
        await ada.open(f"{VM}/logs")
        await ada.page.until("document.querySelector('.log-foot input')?.checked")
        await ada.page.focus("[aria-label='Search the log']")
        await ada.page.type("needle\n")
        found = "document.querySelector('.found:not([hidden])')?.innerText ?? ''"
        await ada.page.until(f"/^6 of 6\\s+Copy link/.test({found})")
        await ada.page.press("Enter")
        await ada.page.until(f"/^5 of 6/.test({found})")
        await ada.page.press("Shift+Enter")
        await ada.page.until(f"/^6 of 6/.test({found})")
        is_in_field = "document.activeElement.matches('[type=search]')"
        self.assertTrue(await ada.page.evaluate(is_in_field))
        await ada.page.focus(".line.match")
        await ada.page.press("n")
        await ada.page.until(f"/^5 of 6/.test({found}) && {_AT_MATCH}")
        await ada.page.press("Enter")
        await ada.page.until(f"/^4 of 6/.test({found}) && {_AT_MATCH}")
        await ada.page.press("Shift+n")
        await ada.page.until(f"/^5 of 6/.test({found}) && {_AT_MATCH}")
        await ada.click_text("button", "Next match")
        await ada.page.until(f"/^6 of 6/.test({found})")
        await ada.click_text("button", "Previous match")
        await ada.page.until(f"/^5 of 6/.test({found})")
        others = "document.querySelectorAll('.line:not(.match) mark').length"
        await ada.page.until(f"{others} === 5 && document.querySelectorAll('mark').length === 6")
        await ada.page.press("/")
        await ada.page.until("document.activeElement.matches(\"[aria-label='Search the log']\")")
        await self.check_layout(ada, "found", ".log-foot", ".found", ".log")
        await ada.page.set_touch()
        for width, height in ((844, 390), (390, 500)):
            await ada.page.resize(width, height)
            has_time = "document.querySelector('[aria-label=Time]').checkVisibility()"
            await ada.page.until(f"{has_time} === {json.dumps(width > 700)}")
            self.assertEqual(await faults_of(ada.page, taps=True), [], width)
            with open(f"{self.mktemp()}-found-{width}.png", "wb") as picture:
                picture.write(await ada.page.screenshot())
        await ada.page.resize(1280, 800)
        await ada.page.allow("clipboard-read", "clipboard-write")
        await ada.click_text("button", "Copy link")
        await ada.until_page("Copied")
        offset = await ada.page.evaluate(
            "document.querySelector('.line.match').getAttribute('data-offset')"
        )
        copied = await ada.page.evaluate("navigator.clipboard.readText()")
        self.assertEqual(copied, f"{self.deployment.console_url}#/{VM}/logs?offset={offset}")
        await ada.click_text("button", "End")
        await ada.page.until(f"{found} === ''")
        self.check_faults()

    async def check_player(self, ada: User[Any]) -> None:
        """The player has the colours of the page, and text that can be read, also on a phone."""
        player = "document.querySelector('.player .ap-player')"
        for dark, colour in ((True, "rgb(14, 16, 19)"), (False, "rgb(255, 255, 255)")):
            await ada.page.set_dark(dark)
            shown = f"getComputedStyle({player}).backgroundColor === '{colour}'"
            await ada.page.until(f"{player} && {shown}")
        await ada.page.resize(390, 844)
        width = "({ clientWidth, scrollWidth }) => scrollWidth > clientWidth"
        await ada.page.until(f"({width})({player})")
        await ada.page.resize(1280, 800)

    async def test_resized_recording(self) -> None:
        """
        The player shows each moment in the size that the console had then, as Screen does, while it plays and at
        a position; "Play", the screen and the player's bar fit into any window, the bar at one place.
        """
        ada = await self.user()
        await ada.page.resize(600, 500)
        await self.open_terminal(ada)
        await ada.page.until("terminals[0].cols < 80")
        await self.begin_recording(ada)
        await ada.echo("small")
        await ada.page.resize(1280, 800)
        await ada.page.until("terminals[0].cols > 100 && terminals[0].rows > 30")
        columns = await ada.page.evaluate("terminals[0].cols")
        draw = r"printf '\033[%d;1Hrow %d\033[%d;90Hedge %d' $i $i $i $i"
        await ada.type_line(f"clear; for i in $(seq 30); do {draw}; done")
        await ada.until_terminal("row 30 +edge 30[#$]$")
        await self.open_ended_recording(ada)
        whole = f"/row 1 +edge 1 *\\n[^]*row 30 +edge 30/.test({PLAYED}) && {_PLAYED_COLUMNS} == {columns}"
        await ada.page.until(whole)
        await ada.until_page("Machine default/vm-1, recorded for admin, no input, from 20")
        await self.seek(ada, "0")
        await ada.page.until(f"{_PLAYED_COLUMNS} < 80 && !/edge/.test({PLAYED})")
        await ada.click_text("button", "Play")
        await ada.page.until(whole)
        await ada.until_page("Play")
        await self.seek(ada, "0")
        await ada.page.until(f"!/edge/.test({PLAYED})")
        await self.seek(ada, "3600")
        await ada.page.until(whole)
        for _size in ("fitted", "100 %"):
            for width, height in (*WINDOWS, (1000, 600)):
                await ada.page.resize(width, height)
                await ada.page.until(_PLAYER_FITS)
            await ada.page.evaluate(_FULL_SIZE)
        await ada.page.resize(1280, 800)
        place = await ada.page.evaluate(_BAR_PLACE)
        await self.seek(ada, "0")
        await ada.page.until(
            f"!/edge/.test({PLAYED}) && {_PLAYER_FITS} && {_BAR_PLACE} === {place}"
        )
        await self.seek(ada, "3600")
        await ada.page.until(whole)
        played = await ada.page.evaluate(f"{_ROWS}('.player .ap-line')")
        await ada.open(f"{VM}/screen")
        await ada.page.until("/edge 30/.test(document.querySelector('.screen')?.innerText)")
        self.assertEqual(played, await ada.page.evaluate(f"{_ROWS}('.screen-row')"))
        self.check_faults()

    async def test_past(self) -> None:
        """
        The name of a recording opens it: a frame of it is shown before it plays, input and sizes are
        markers, and a link leads to a moment.  It says that it begins in the middle of the output, and why it has no
        typed keys.  The screen has one stepper and a slider.
        """
        ada = await self.user()
        await self.open_terminal(ada)
        await self.play_recording(ada)
        await ada.open("recordings")
        await ada.page.click("td a[href='#/recordings/default/seen']")
        await ada.page.until(f"/recorded-42/.test({PLAYED})")
        await ada.until_page(r"Last screen: \d+:\d\d, ")
        parts = (".player-controls", ".player-controls .button")
        await self.check_layout(ada, "recording", *parts, ".begin")
        heights = "['input', '.button'].map((each) => document.querySelector(`.joined ${each}`).offsetHeight)"
        await ada.page.until(f"(([input, go]) => go > 0 && go <= input)({heights})")
        await ada.until_page(r"Show typed keys\s*\(input is not recorded\)")
        await ada.page.until(f"{_KEYS}.control.disabled")
        href = "document.querySelector('.begin a').hash"
        await ada.page.until(f"{href}.startsWith('#/{VM}/logs?offset=')")
        # Each is shown for a moment only.
        ends = ada.page.until("document.querySelector('#notices').innerText.includes('ends here')")
        seen = [Deferred.fromCoroutine(each) for each in (ada.until_page("Pause"), ends)]
        await ada.click_text("button", "Play")
        await gatherResults(seen, consumeErrors=True)
        await ada.page.until(f"/recorded-42/.test({PLAYED})")
        await ada.open("recordings/default/seen?at=3600")
        await ada.until_page(r"(\d+:\d\d) of \1")
        await self.check_player(ada)
        await ada.page.allow("clipboard-read", "clipboard-write")
        await ada.click_text("button", "Copy link to this moment")
        await ada.until_page("The link to \\S+ is copied")
        copied = await ada.page.evaluate("navigator.clipboard.readText()")
        link = re.escape(f"{self.deployment.console_url}#/recordings/default/seen?at=")
        self.assertRegex(copied, rf"^{link}\d+$")

        await ada.open(f"{VM}/screen")
        await ada.page.until("document.querySelector('.screen')?.innerText.includes('recorded-42')")
        await self.check_layout(ada, "screen", ".controls", ".controls .button", ".controls input")
        began = await ada.page.evaluate("Date.now()")
        await ada.click_text("button", "Earlier")
        await ada.until_page(r"Screen at [\d-]+ [\d:]+ UTC")
        shown = "Date.parse(document.querySelector('.controls input[type=text]').value)"
        first = await ada.page.evaluate(shown)
        now = await ada.page.evaluate("Date.now()")
        # From now, not from output; the field has no parts of a second.
        self.assertTrue(began - 61_000 < first <= now - 60_000, (began, first, now))
        await ada.click_text("button", "Earlier")
        await ada.page.until(f"{shown} === {first} - 60_000")
        await ada.click_text("button", "Later")
        await ada.page.until(f"{shown} === {first}")
        # Whatever time has gone by, an hour later is not past.
        await ada.page.evaluate("document.querySelector('[aria-label=Step]').value = '3600'")
        await ada.click_text("button", "Later")
        await ada.until_page("Screen of now; last output")
        self.check_faults()
