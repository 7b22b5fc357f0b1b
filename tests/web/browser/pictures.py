"""
``python -m tests.web.browser.pictures [COMMIT [DIRECTORY]]``: what a change of the page changes for the eye.

It takes a picture of every view in five windows, of which one is a phone that lies on its side, in light and in dark
colours: once with the page of COMMIT (``HEAD``), and once with that of the working tree.  ``DIRECTORY/index.html`` shows each view that
differs: before, after, and where.  The program fails if there is one, so it also finds what nobody meant
to change.

There are no reference pictures.  They would be binaries in the repository, and would differ with each
release of the browser.  Here both pages have the same browser, fonts, servers and data; the page's clock
stands still, nothing moves, and times and figures of a session are replaced.  So each difference is one
of the page.
"""

from __future__ import annotations

import base64
import html
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows.deployment import pause, run_reactor
from twisted_exec.api import kinds

from .base import WebTestCase
from .chromium import Chromium, Profile
from .fleet import SIZES, FleetTestCase
from .page import Page
from .steps import VM
from .test_list import NO_LISTS
from .user import User

MACHINES, POLICIES = kinds.MACHINES.resource, kinds.CONSOLEPOLICIES.resource
LISTS = ("machines", "sessions", "recordings", "alerts", "requests", "consoles")
FONTS = ("DejaVu Sans", "DejaVu Sans Mono")
TOLERANCE = 16
"""Channels of a colour, 0 to 255, may differ by this much."""
MOST_PIXELS = 20
"""A picture may have this many other pixels."""
MOST_LOOKS = 60
"""A view that is not still after so many pictures never will be."""
_ROOT, _PAGE = Path(__file__).parents[3], "twisted_exec/web/page"
_DIRECTORY = "PICTURES_DIRECTORY"  # in the environment of the tests
# All colours on all backgrounds, and then those that most programs use.
_COLOURS = (
    r"clear; for b in 40 41 42 43 44 45 46 47; do for f in 30 31 32 33 34 35 36 37; do "
    r"printf '\033[%s;%sm%s\033[0m' $b $f ' ab'; done; echo; done; "
    r"for c in 31 32 33 34 35 36; do printf '\033[%sm%s\033[0m ' $c '####'; done; echo"
)
_PEOPLE = {"metadata": {"name": "six-eyes"}, "spec": {"people": 3}}

_CLOCK = """{
    const [RealDate, now] = [Date, Date.parse('2026-11-25T22:00:00Z')];
    self.Date = class extends RealDate {
        constructor(...values) { super(...(values.length ? values : [now])); }
        static now() { return now; }
    };
}"""
_NO_SOCKETS = "self.WebSocket = class extends EventTarget { send() {} close() {} };"
# Nothing moves, the fonts are the same everywhere, and what differs from run to run is replaced, or hidden:
# the times of the player, and messages and names that come and go with time.
_STILL = """(() => {
    const replace = () => {
        const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        while (texts.nextNode()) {
            const text = texts.currentNode;
            if (text.parentElement.closest('.xterm, .ap-player, .screen, .line-text, script')) continue;
            const still = text.data
                .replace(/\\d{4}-\\d\\d-\\d\\d/g, '2026-11-25').replace(/\\b\\d\\d:\\d\\d(:\\d\\d(\\.\\d+)?)?/g, '22:00:00')
                .replace(/\\b\\d:\\d\\d\\b/g, '0:00').replace(/\\b\\d+(\\.\\d+)?( ?ms|s|m|h)([\\d.]+[smh])?\\b/g, '9s')
                .replace(/\\b\\d+ B\\b/g, '99 B').replace(/offset \\d+( to \\d+)?/g, 'offset 9')
                .replace(/(127\\.0\\.0\\.\\d):\\d+/g, '$1:9').replace(/\\b[0-9a-f]{8}[-0-9a-f]{8,}\\b/g, 'abcdef');
            if (still !== text.data) text.data = still;
        }
        for (const each of document.querySelectorAll('input[placeholder$=" ago"]'))
            if (!each.placeholder.startsWith('9')) each.placeholder = '9h ago';
    };
    if (!self.stillness) {
        self.stillness = new CSSStyleSheet();
        stillness.replaceSync(`:root { --mono: "DejaVu Sans Mono" !important; font-family: "DejaVu Sans" !important; }
            *, *::before, *::after { animation: none !important; transition: none !important; caret-color: transparent !important; }
            .ap-control-bar, .status-line .names, .message:not(.warning, .error) { visibility: hidden; }`);
        document.adoptedStyleSheets.push(stillness);
        // Before the next frame is drawn, so no picture has what the page writes meanwhile.
        new MutationObserver(replace).observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true});
        replace();
    }
    return document.fonts.ready.then(() => new Promise((done) =>
        requestAnimationFrame(() => requestAnimationFrame(() => done(true)))));
})()"""


def needs_fonts() -> str | None:
    """Why pictures cannot be taken here, or ``None``."""
    if _DIRECTORY not in os.environ:
        return "pictures are a suite of their own: python -m tests.web.browser.pictures"
    known = subprocess.run(["fc-list", ":", "family"], capture_output=True, text=True, check=False)
    families = {name for line in known.stdout.splitlines() for name in line.split(",")}
    missing = [each for each in FONTS if each not in families]
    return f"{missing} are not installed (fonts-dejavu-core)" if missing else None


class _Album(TestCase):
    """Pictures of the views of a user, who has a finger as the pointer on a phone."""

    sizes = SIZES | {"low": (1000, 600), "side": (844, 390)}

    async def visit(self, url: str, token: str = "", script: str = "") -> User[Page]:
        """Open the page of the commit or of the working tree, and log in with a token, if there is one."""
        browser: Profile = self.browser  # type: ignore[attr-defined]
        user = await User.visit(browser, "about:blank")
        await user.page.before_scripts(_CLOCK + script)
        await user.page.goto(url)
        if token:
            await user.log_in(token)
        await user.page.resize(*SIZES["desktop"])
        return user

    async def take(self, user: User[Page], name: str) -> None:
        """Take the pictures of what a user sees, each when it is still."""
        for size, (width, height) in self.sizes.items():
            await user.page.set_touch(size in ("phone", "side"))
            await user.page.resize(width, height)
            for colours in ("light", "dark"):
                await user.page.set_dark(colours == "dark")
                path = Path(os.environ[_DIRECTORY], f"{name}-{size}-{colours}.png")
                path.write_bytes(await self._still_picture(user.page))
        await user.page.set_touch(False)
        await user.page.resize(*SIZES["desktop"])
        await user.page.set_dark(False)

    async def _still_picture(self, page: Page) -> bytes:
        before = b""
        for _ in range(MOST_LOOKS):
            await page.evaluate(_STILL)
            picture = await page.screenshot()
            if picture == before:
                return picture
            before = picture
            await pause()
        raise AssertionError("the view does not stand still")

    async def take_view(self, user: User[Page], view: str, name: str = "") -> None:
        """Open a view and take its pictures as soon as its data is there."""
        await user.open(view)
        await user.page.until("document.querySelector('#view > .view')?.innerText")
        await user.page.until("!document.querySelector('.skeleton')?.checkVisibility()")
        await self.take(user, name or view)


class ListPictures(_Album, FleetTestCase):
    """Lists, with machines in all states, without any, and while they load."""

    skip = needs.chromium() or needs_fonts()

    async def ada(self, script: str = "") -> User[Page]:
        return await self.visit(f"{self.server.url}/console/", "token-of-ada", script)

    async def test_lists(self) -> None:
        ada = await self.ada()
        for view in LISTS:
            await self.take_view(ada, view, f"empty-{view}")
        await self.add_fleet()
        ada = await self.ada()
        await ada.until_page("ada, bob")
        for view in LISTS[:-1]:
            await self.take_view(ada, view)
            await self.take_view(ada, f"{view}?filter=nothing", f"no-match-{view}")
            await self.take_view(ada, f"{view}?namespace=team-a", f"namespace-{view}")
        await self.take_dialogs(ada)
        for name, said in (("none", "has no machine none"), ("build-7", "powered off")):
            await ada.open(f"machines/default/{name}")
            await ada.until_page(said)
            await self.take(ada, f"machine-{name}")
        loading = await self.ada(NO_LISTS)
        await loading.page.until("document.querySelector('.skeleton:not([hidden])')?.offsetParent")
        await self.take(loading, "loading")

    async def take_dialogs(self, ada: User[Page]) -> None:
        """What a list shows when its user asks for more of a row, or is asked."""
        await ada.open("machines?namespace=")
        await ada.click_text("button", "Power off web-1")
        await self.take(ada, "question")
        await ada.page.press("Escape")
        for view, opener, name in (
            ("machines", "tr:has(.problem) .icon", "row"),
            ("machines", ".filters-button", "filters"),
            ("sessions", "summary", "session"),
            ("requests", "[data-action=Approve]", "approve"),
        ):
            await ada.open(f"{view}?namespace=")
            found = f"document.querySelector({json.dumps(opener)})"
            await ada.page.until(f"((each) => each && (each.click(), true))({found})")
            await self.take(ada, name)
            await ada.page.press("Escape")


class MachinePictures(_Album, WebTestCase):
    """A machine with a shell: its console in all states, and what was there before."""

    skip = needs.chromium() or needs.page_vendor() or needs_fonts()

    async def user(self, name: str = "ada", **options: Any) -> User[Page]:
        """Open the page with the clock that stands still."""
        return await self.visit(
            self.deployment.console_url, self.deployment.tokens[name], **options
        )

    async def test_machine(self) -> None:
        client = self.deployment.client
        await self.deployment.create_machine("vm-1", "shell")
        banner = "Production database of the shop.\nAsk the team before you reboot it: #db-oncall."
        annotations = {"annotations": {"console.twisted-exec.dev/banner": banner}}
        await client.patch(MACHINES, "vm-1", {"metadata": annotations}, "default")
        await self.take_login()
        ada = await self.user()
        await ada.open(VM)
        await ada.until_terminal("[#$] ?$")
        await ada.type_line("PS1='vm-1:~# '; clear")
        await ada.until_terminal("^vm-1:~#$")
        await ada.type_line(_COLOURS)
        await ada.until_terminal("#### ?\nvm-1:~#$")
        await self.take(ada, "console")
        await self.take_dialogs(ada)
        await self.take_roles(ada)
        await self.take_past(ada)
        await self.take_people(ada)
        await self.take_split(ada)
        await ada.click_text("button", "Close the console of vm-2")
        await client.patch(MACHINES, "vm-1", {"spec": {"power": "Off"}}, "default")
        await ada.until_page("Machine: Shutdown")
        await self.take(ada, "off")
        await ada.focus_terminal()
        await ada.open_commands()
        await ada.page.press("w")
        await ada.until_page("No console is open")
        await ada.open(VM)
        await ada.until_page("not running")
        await self.take(ada, "off-before")

    async def take_people(self, ada: User[Page]) -> None:
        """A console whose keys wait for another person."""
        await self.deployment.client.create(POLICIES, _PEOPLE, "default")
        await ada.open(VM)
        await ada.until_page("more people are needed")
        await self.take(ada, "people")
        await self.deployment.client.delete(POLICIES, "six-eyes", "default")
        await ada.until_page("You can type")

    async def take_login(self) -> None:
        """The login, and a console whose connection does not open."""
        stranger = await self.visit(self.deployment.console_url)
        await stranger.page.until("document.querySelector('dialog[open] input[type=password]')")
        await self.take(stranger, "login")
        waiting = await self.user(script=_NO_SOCKETS)
        await waiting.open(VM)
        await waiting.until_page("Connecting to vm-1")
        await self.take(waiting, "connecting")

    async def take_dialogs(self, ada: User[Page]) -> None:
        """The commands, the details and the search."""
        await ada.focus_terminal()
        for key, text, name in (("", "", "commands"), ("e", "Debug", "details"), ("f", "", "find")):
            await ada.open_commands()
            if key:
                await ada.page.press(key)
                await ada.until_page(text)
            await self.take(ada, name)
            await ada.page.press("Escape")
            await ada.until_terminal_focus()

    async def take_roles(self, ada: User[Page]) -> None:
        """Who observes, who is asked before a take-over, and who has lost the right to type."""
        bob = await self.user("bob")
        await bob.open(VM)
        await bob.until_terminal("#### ?\nvm-1:~#$")
        await bob.until_page("ada types")
        await self.take(bob, "observer")
        await bob.click_text(".console-head button", "Take over")
        await bob.until_page("ada types at this console")
        await self.take(bob, "take-over")
        await bob.click_text("dialog button", "Take over")
        await ada.until_page("bob types here now")
        await self.take(ada, "lost")
        await bob.click_text("button", "Observe only")
        await ada.click_text(".console-head button", "Type here")
        await ada.until_page("You can type")

    async def take_split(self, ada: User[Page]) -> None:
        """Two consoles side by side."""
        await self.deployment.create_machine("vm-2", "shell")
        await ada.open("machines/default/vm-2")
        await ada.until_terminal("[#$] ?$")
        await ada.type_line("PS1='vm-2:~# '; clear")
        await ada.until_terminal("^vm-2:~#$")
        await ada.click_text("button", "Split view")
        await ada.until_page("viewer[^]*viewer")
        await self.take(ada, "split")

    async def take_past(self, ada: User[Page]) -> None:
        """The machine's log, screen, recordings and events, and one recording."""
        await self.play_recording(ada)
        await self.take(ada, "recording")
        for view, text in (("logs", "retained"), ("screen", "last output"), ("recordings", "seen")):
            await ada.open(f"{VM}/{view}")
            await ada.until_page(text)
            await self.take(ada, f"machine-{view}")
        # The order of the others, which are of one second, differs.
        await self.take_view(ada, f"{VM}/events?filter=TakenOver", "machine-events")


class Comparison:
    """
    The pictures of two pages.

    :param directory: has ``before`` and ``after``, and gets ``index.html`` with what is between them.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.differing: list[str] = []

    async def run(self) -> None:
        """Compare all pictures and write the report."""
        browser, rows = Chromium(), []
        try:
            await browser.start()
            page = await browser.page()
            names = {each.name for each in self._directory.glob("*/*.png")}
            for name in sorted(names):
                pair = [self._directory / side / name for side in ("before", "after")]
                missing = [each.parent.name for each in pair if not each.exists()]
                found = "" if missing else await self._difference(page, name, pair)
                if missing or found:
                    self.differing.append(name)
                    rows.append(_row(name, found or f"There is none {' and '.join(missing)}."))
        finally:
            await browser.stop()
        report = f"<!doctype html><meta charset=utf-8><title>Pictures</title>{_STYLE}"
        report += f"<h1>{len(rows)} of {len(names)} pictures differ</h1>{''.join(rows)}"
        (self._directory / "index.html").write_text(report)

    async def _difference(self, page: Page, name: str, pair: list[Path]) -> str:
        before, after = [each.read_bytes() for each in pair]
        if before == after:
            return ""
        images = [base64.b64encode(each).decode() for each in (before, after)]
        found = await page.evaluate(_COMPARE % (json.dumps(images), TOLERANCE))
        if found["pixels"] <= MOST_PIXELS:
            return ""
        path = self._directory / "difference" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(base64.b64decode(found["image"]))
        return f"{found['pixels']} pixels, within {found['box']}"


def _row(name: str, what: str) -> str:
    sides = ("before", "after", "difference")
    images = "".join(f'<img src="{each}/{name}" alt="{each}" loading=lazy>' for each in sides)
    return f"<h2>{html.escape(name)}</h2><p>{html.escape(what)}</p><div>{images}</div>"


_STYLE = "<style>div { display: flex; gap: 1em } img { width: 32%; border: 1px solid gray }</style>"
# What both have is pale; what differs is red.
_COMPARE = """(async ([before, after], tolerance) => {
    const images = await Promise.all([before, after].map(async (each) =>
        createImageBitmap(await (await fetch('data:image/png;base64,' + each)).blob())));
    const [width, height] = ['width', 'height'].map((each) => Math.max(...images.map((image) => image[each])));
    const canvas = new OffscreenCanvas(width, height);
    const context = canvas.getContext('2d', {willReadFrequently: true});
    const [one, other] = images.map((image) => {
        context.clearRect(0, 0, width, height);
        context.drawImage(image, 0, 0);
        return context.getImageData(0, 0, width, height);
    });
    const box = [width, height, 0, 0];
    let pixels = 0;
    for (let at = 0; at < one.data.length; at += 4) {
        const differs = [0, 1, 2, 3].some((each) => Math.abs(one.data[at + each] - other.data[at + each]) > tolerance);
        if (differs) {
            const [x, y] = [at / 4 %% width, Math.floor(at / 4 / width)];
            box.splice(0, 4, Math.min(box[0], x), Math.min(box[1], y), Math.max(box[2], x), Math.max(box[3], y));
            pixels += 1;
        }
        other.data.set(differs ? [220, 0, 0, 255] : [0, 1, 2].map((each) => 190 + other.data[at + each] / 4), at);
    }
    context.putImageData(other, 0, 0);
    const url = await new Promise(async (done) => {
        const reader = new FileReader();
        reader.onload = () => done(reader.result);
        reader.readAsDataURL(await canvas.convertToBlob());
    });
    return {pixels, box: `x ${box[0]} to ${box[2]}, y ${box[1]} to ${box[3]}`, image: url.split(',')[1]};
})(%s, %d)"""


def tree_of(commit: str, directory: Path) -> None:
    """Make a tree with the page of a commit; everything else is that of the working tree."""
    argv = ("git", "archive", commit, _PAGE)
    archive = subprocess.run(argv, cwd=_ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", directory], input=archive, check=True)
    for part in (Path(_PAGE, "vendor"), *map(Path, ("", "twisted_exec", "twisted_exec/web"))):
        (directory / part).mkdir(exist_ok=True)
        for each in (_ROOT / part).iterdir():
            if not (directory / part / each.name).exists():
                (directory / part / each.name).symlink_to(each)


def main() -> None:
    commit = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    made = sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp(prefix="exec-pictures-")
    directory, failed = Path(made).resolve(), False
    with tempfile.TemporaryDirectory(prefix="exec-page-") as scratch:
        tree_of(commit, Path(scratch))
        for side, tree in (("before", scratch), ("after", str(_ROOT))):
            (directory / side).mkdir(parents=True, exist_ok=True)
            pictures = {_DIRECTORY: str(directory / side), "PYTHONPATH": tree}
            argv = (sys.executable, "-m", "twisted.trial", f"--temp-directory={scratch}/trial")
            ended = subprocess.run(
                [*argv, "tests.web.browser.pictures"],
                cwd=tree,
                env=os.environ | pictures,
                check=False,
            )
            failed |= ended.returncode != 0
    comparison = Comparison(directory)
    run_reactor(comparison.run)
    print(*comparison.differing, directory / "index.html", sep="\n")
    sys.exit(1 if failed or comparison.differing else 0)


if __name__ == "__main__":
    main()
