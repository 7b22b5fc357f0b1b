"""
A headless Chromium, and the profiles in it.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorProcess

from tests import needs, procfs
from tests.shared import ENDS_WITH_PARENT

from .devtools import DESCRIPTORS, BrowserEndedError, DevTools, Message
from .page import Page

reactor: Any = _reactor

OPTIONS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    # The pages of two users are visible at the same time, each on a screen of its own.
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--mute-audio",
    "--password-store=basic",
    "--no-proxy-server",
    # Names that nobody else has (RFC 2606): sites of tests are at loopback under any of them.
    "--host-resolver-rules=MAP *.example 127.0.0.1",
    "about:blank",
)


class Profile:
    """
    Pages of one Chromium that have cookies, storage and cache in common.

    :param context: identifies the browser context; empty for the default one.
    """

    def __init__(self, devtools: DevTools, context: str = "") -> None:
        self.devtools, self._context = devtools, context

    async def page(self, *, width: int = 1280, height: int = 800, private: bool = False) -> Page:
        """
        Open an empty page.

        :param private: in a profile of its own, with its own cache and storage.
        """
        context = await create_context(self.devtools) if private else self._context
        options = {"browserContextId": context} if context else {}
        made = await self.devtools.call("Target.createTarget", url="about:blank", **options)
        page = Page(self.devtools, made["targetId"], context)
        await page.attach()
        await page.resize(width, height)
        return page

    async def urls(self) -> list[str]:
        """Return the URLs of all open pages of the browser, sorted."""
        found = await self.devtools.call("Target.getTargets")
        return sorted(each["url"] for each in found["targetInfos"] if each["type"] == "page")

    async def page_at(self, url: str) -> Page:
        """Fires with the page that another page has opened, once its URL begins with this."""
        found: Deferred[str] = Deferred()

        def changed(method: str, event: Message) -> None:
            target = event.get("targetInfo", {})
            if target.get("type") == "page" and target["url"].startswith(url) and not found.called:
                found.callback(target["targetId"])

        self.devtools.listen("", changed)
        # The browser first reports the present pages, and then each change.
        await self.devtools.call("Target.setDiscoverTargets", discover=True)
        page = Page(self.devtools, await found, self._context)
        await self.devtools.call("Target.setDiscoverTargets", discover=False)
        await page.attach()
        return page


async def create_context(devtools: DevTools) -> str:
    """Create an empty browser context; fires with its identifier."""
    made = await devtools.call("Target.createBrowserContext")
    return str(made["browserContextId"])


class Chromium(Profile):
    """
    One browser process, and its default profile.

    :param home: the home directory, whose certificates the browser uses; without it the browser has
        an empty one, and accepts the certificate of any server.
    :ivar directory: has the profiles, and is removed at the end.
    """

    def __init__(self, *, home: str = "") -> None:
        super().__init__(DevTools([]))
        self._home, self.directory = home, ""

    async def start(self) -> None:
        """Fires when the browser answers."""
        self.directory = tempfile.mkdtemp(prefix="exec-chromium-")
        # The sandbox refuses root, and works in few containers.  Only pages of tests are opened here.
        if os.geteuid() != 0:
            try:
                return await self._launch()
            except BrowserEndedError as error:
                if "sandbox" not in str(error):
                    raise
        await self._launch("--no-sandbox")

    async def _launch(self, *more: str) -> None:
        program = needs.chromium_program()
        assert program is not None, needs.chromium()
        argv = [
            # A process group, so that one signal ends the browser's many processes.
            *(*ENDS_WITH_PARENT, "setsid", program, *OPTIONS, *more),
            f"--user-data-dir={self.directory}/profile",
        ]
        if not self._home:
            argv.append("--ignore-certificate-errors")
        home = self._home or self.directory
        environment = {**os.environ, "HOME": home, "TMPDIR": self.directory}
        self.devtools = DevTools(argv)
        IReactorProcess(reactor).spawnProcess(
            self.devtools, argv[0], argv, env=environment, childFDs=DESCRIPTORS
        )
        await self.devtools.call("Browser.getVersion")

    def signal(self, number: int) -> list[int]:
        """
        Send a signal to all processes of the browser, such as ``SIGSTOP`` for a computer that sleeps.

        :return: the processes.
        """
        found = []
        for pid in [int(each) for each in os.listdir("/proc") if each.isdigit()]:
            with suppress(ProcessLookupError):
                if os.getsid(pid) == self.devtools.pid and procfs.is_alive(pid):
                    os.kill(pid, number)
                    found.append(pid)
        return found

    async def stop(self) -> None:
        """Kill the browser with all its processes."""
        if self.devtools.pid and self.devtools.exit_code is None:
            self.signal(signal.SIGKILL)
            await self.devtools.ended
        self.remove_files()

    def remove_files(self) -> None:
        """Kill what is left of the browser, and remove :attr:`directory`."""
        # Processes end a little after the signal, and until then create files in directories that were emptied.
        while self.devtools.pid and self.signal(signal.SIGKILL):
            time.sleep(0.01)  # wait: at the end of the process its reactor does not run any more
        shutil.rmtree(self.directory, ignore_errors=True)
