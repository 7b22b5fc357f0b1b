"""
``python -m tests.web.browser.screenshots [DIRECTORY]``: the images of the README and the documentation.

It starts ``exec-standalone`` with the machines of the README, uses the page as a reader would, and
writes the images to ``docs/images``.  They are in the repository, since whoever builds the
documentation need not have a browser, QEMU and npm; the build of the sdist takes them with ``docs``.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
import tempfile
from pathlib import Path

from tests.flows.deployment import pause, run_reactor
from tests.flows.programs import Program, script, start, terminal, twistd
from twisted_exec.api import kinds
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.screens.emulator import AvtScreen
from twisted_exec.screens.svg import as_svg

from .chromium import Chromium, reactor
from .page import Page
from .user import User, open_user

DIRECTORY = Path(__file__).parents[3] / "docs" / "images"
LARGEST_BYTES = 150_000
MACHINES, RECORDINGS = kinds.MACHINES.resource, kinds.CONSOLERECORDINGS.resource
WINDOW = {"width": 1000, "height": 520}
_PHONE = {"width": 360, "height": 640}
_BESIDE_TERMINAL = {"width": 560, "height": 530}
_TERMINAL = 62, 30
"""Columns and rows, for a picture of the same height."""
_BESIDE = """<body style="margin:0;padding:16px;background:#8b97a7;display:flex;gap:16px">
<img src="data:image/png;base64,{page}"><img src="data:image/svg+xml;base64,{terminal}"></body>"""
_COLOURS = r"for c in 31 32 33 34 35 36; do printf '\033[%sm%s\033[0m ' $c '####'; done; echo"


class Photographer:
    """
    Takes the images of one running ``exec-standalone``.

    :param state: its state directory.
    :param images: the directory to write to.
    """

    def __init__(self, state: Path, images: Path) -> None:
        self._state, self._images = state, images
        self._browser = Chromium()
        self._program: Program | None = None

    async def run(self) -> None:
        """Take all images."""
        try:
            await self._start()
            await self._take()
        finally:
            await self._browser.stop()
            if self._program is not None:
                await self._program.stop()

    async def _start(self) -> None:
        tokens = self._state.parent / "tokens.csv"
        tokens.write_text("a,ada,1,system:masters\nb,bob,2,system:masters\n")
        options = ("--port", "0", f"--token-auth-file={tokens}", f"--state-dir={self._state}")
        self._program = twistd("exec-standalone", *options)
        await self._program.until(rb"kubectl console \S+\n")
        config = load(str(self._state / "admin.kubeconfig"))
        self._client, self._url = KubeClient(config, reactor), f"{config.server}/console/"
        await self._browser.start()

    async def _take(self) -> None:
        await self._animation()
        await self._more_machines()
        body = {"metadata": {"name": "upgrade"}, "spec": {"machine": "web-1", "input": "none"}}
        await self._client.create(RECORDINGS, body, "default")
        ada = await open_user(self._browser, self._url, "a", **WINDOW)
        await ada.page.until("document.querySelectorAll('tbody tr').length === 4")
        await self._save(ada, "machines")
        bob = await open_user(self._browser, self._url, "b", **WINDOW)
        await self._consoles(ada, bob)
        await self._phone(bob)
        await self._recording(ada)
        await ada.page.close()
        await self._page_and_terminal()
        await self._client.close()

    async def _more_machines(self) -> None:
        """Add machines of the class of ``demo-shell``."""
        shell = await self._client.get(MACHINES, "demo-shell", "default")
        for name in ("web-1", "web-2"):
            body = {**shell, "metadata": {"name": name, "labels": {"tier": "web"}}}
            body.pop("status", None)
            await self._client.create(MACHINES, body, "default")
            await self._until(MACHINES, name, "state", "Running")

    async def _until(self, resource: object, name: str, field: str, value: str) -> None:
        found: Object = {}
        while found.get("status", {}).get(field) != value:
            await pause()
            found = await self._client.get(resource, name, "default")  # type: ignore[arg-type]

    async def _consoles(self, ada: User, bob: User) -> None:
        """Two consoles side by side, one of them with a second viewer."""
        await ada.open("machines/default/demo-vm")
        await ada.until_terminal("=>$")
        await ada.type_line("version")
        await ada.open("machines/default/web-1")
        await ada.until_terminal("[#$] ?$")
        await ada.type_line("PS1='web-1:~# '; clear")
        await ada.until_terminal("^web-1:~#$")
        await ada.type_line("uname -sm; echo $((6*7))")
        await ada.until_terminal("42\nweb-1:~#$")
        await bob.open("machines/default/web-1")
        await bob.until_page("ada types")
        await ada.type_line(_COLOURS)
        await bob.until_terminal("#### ?\nweb-1:~#$")
        await ada.click_text("button", "Split view")
        await ada.until_page("2 viewers")
        for user in (ada, bob):
            await user.click_text("button", "Dismiss this message")
        await ada.page.until(
            "[...document.querySelectorAll('.xterm-screen')]"
            ".every((each) => each.getBoundingClientRect().width < 501)"
        )
        await self._save(ada, "consoles")

    async def _phone(self, bob: User) -> None:
        await bob.page.resize(**_PHONE)
        await bob.page.until(
            "document.querySelector('.xterm-screen').getBoundingClientRect().width < 361"
        )
        await self._save(bob, "phone")

    async def _recording(self, ada: User) -> None:
        await self._client.patch(RECORDINGS, "upgrade", {"spec": {"ended": True}}, "default")
        await self._until(RECORDINGS, "upgrade", "phase", "Closed")
        await ada.open("recordings/default/upgrade")
        await ada.page.focus("input[placeholder='1:30 or 90']")
        await ada.page.type("1:00\n")
        await ada.page.until(
            "/####/.test(document.querySelector('.player .ap-term-text')?.textContent)"
        )
        await ada.until_page(r"(\d+:\d\d) of \1")
        await ada.page.resize(WINDOW["width"], 800)
        await self._save(ada, "recording")

    async def _page_and_terminal(self) -> None:
        """One console in the page and in a terminal, side by side."""
        ada = await open_user(self._browser, self._url, "a", **_BESIDE_TERMINAL)
        await ada.open("machines/default/demo-vm")
        await ada.until_terminal("=>$")
        columns, rows = _TERMINAL
        viewer = self._terminal(columns, rows, "--from", "now")
        await viewer.until(rb"you are an\s+observer.*\r\n")
        await ada.until_page("2 viewers")
        for command, end in (("pci", r"0x\w+"), ("version", r"Binutils.*")):
            await ada.type_line(command)
            await viewer.until(rf"{end}\r\n=> $".encode())
            await ada.until_terminal(rf"{end}\n=>$")
        screen = AvtScreen(columns, rows)
        screen.feed(f"$ kubectl console demo-vm --from now\r\n{viewer.output.decode()}")
        images = {"page": await self._shot(ada.page), "terminal": as_svg(screen.screen(), {})}
        await viewer.stop()
        beside = await self._browser.page(width=1145, height=_BESIDE_TERMINAL["height"] + 32)
        html = _BESIDE.format(
            **{name: base64.b64encode(each).decode() for name, each in images.items()}
        )
        await beside.evaluate(f"document.write({json.dumps(html)})")
        await beside.until("[...document.images].every((each) => each.complete)")
        self._write("readme.png", await self._shot(beside))

    def _terminal(self, columns: int, rows: int, *options: str) -> Program:
        config = str(self._state / "admin.kubeconfig")
        argv = [script("kubectl-console"), "demo-vm", *options]
        return terminal(argv, columns=columns, rows=rows, KUBECONFIG=config)

    async def _animation(self) -> None:
        """The start of the virtual machine, and a command that a user types."""
        user = self._terminal(80, 24)
        await user.until(rb"=> $")
        for key in (b"p", b"c", b"i", b"\r"):
            start_of_echo = len(user.output)
            user.type(key)
            await user.until(b".", start=start_of_echo)
        await user.until(rb"0x\w+\r\n=> $")
        await user.stop()
        machine = await self._client.get(MACHINES, "demo-vm", "default")
        (journal,) = self._state.rglob(f"consoles/{machine['metadata']['uid']}")
        (certificate,) = self._state.glob("pki/recorder-*.crt")
        path = self._state / "recording.svg"
        keys = ("--certificate", str(certificate), "--key", str(certificate.with_suffix(".key")))
        argv = (script("twisted-exec"), "recording", "export", str(journal), str(path), *keys)
        assert await start([*argv, "--svg", "--idle", "1"]).ended == 0
        self._write(path.name, path.read_bytes())

    async def _save(self, user: User, name: str) -> None:
        self._write(f"web-{name}.png", await self._shot(user.page))

    async def _shot(self, page: Page) -> bytes:
        # Two frames: what was drawn last may be in the second.
        frame = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        await page.evaluate(f"document.fonts.ready.then(() => {frame})")
        return await page.screenshot()

    def _write(self, name: str, image: bytes) -> None:
        assert len(image) < LARGEST_BYTES, f"{name} has {len(image)} bytes"
        path = self._images / name
        path.write_bytes(image)
        print(f"{path}: {len(image)} bytes")


def main() -> None:
    images = Path(sys.argv[1]) if len(sys.argv) > 1 else DIRECTORY
    images.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="exec-images-"))
    try:
        run_reactor(Photographer(scratch / "state", images).run)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
