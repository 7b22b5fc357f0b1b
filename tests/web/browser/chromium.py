"""
A headless Chromium with a private profile.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorProcess

from tests import needs

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
    "about:blank",
)


class Chromium:
    """
    One browser process.

    :param hosts: IP addresses by the host names that only this browser resolves.
    :param home: the home directory, whose certificates the browser uses; without it the browser has
        an empty one, and accepts the certificate of any server.
    """

    def __init__(self, *, hosts: Mapping[str, str] | None = None, home: str = "") -> None:
        self._hosts = dict(hosts or {})
        self._home, self._directory = home, ""
        self._pid = 0
        self.devtools = DevTools()
        self.pages: list[Page] = []

    async def start(self) -> None:
        """Fires when the browser answers."""
        self._directory = tempfile.mkdtemp(prefix="exec-chromium-")
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
            *("setsid", program, *OPTIONS, *more),
            f"--user-data-dir={self._directory}/profile",
        ]
        if not self._home:
            argv.append("--ignore-certificate-errors")
        if self._hosts:
            rules = ",".join(f"MAP {name} {address}" for name, address in self._hosts.items())
            argv.append(f"--host-resolver-rules={rules}")
        home = self._home or self._directory
        environment = {**os.environ, "HOME": home, "TMPDIR": self._directory}
        self.devtools = DevTools()
        process = IReactorProcess(reactor).spawnProcess(
            self.devtools, argv[0], argv, env=environment, childFDs=DESCRIPTORS
        )
        assert isinstance(process.pid, int)
        self._pid = process.pid
        await self.devtools.call("Browser.getVersion")

    async def page(self, *, width: int = 1280, height: int = 800, private: bool = False) -> Page:
        """
        Open an empty page.

        :param private: in a profile of its own, with its own cache and storage.
        """
        options: dict[str, Any] = {"url": "about:blank"}
        if private:
            made = await self.devtools.call("Target.createBrowserContext")
            options["browserContextId"] = made["browserContextId"]
        target = (await self.devtools.call("Target.createTarget", **options))["targetId"]
        page = Page(self.devtools, target, options.get("browserContextId", ""))
        await page.attach()
        await page.resize(width, height)
        self.pages.append(page)
        return page

    async def urls(self) -> list[str]:
        """Return the URLs of all open pages, sorted."""
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
        page = Page(self.devtools, await found)
        await self.devtools.call("Target.setDiscoverTargets", discover=False)
        await page.attach()
        self.pages.append(page)
        return page

    def signal(self, number: int) -> None:
        """Send a signal to all processes of the browser, such as ``SIGSTOP`` for a computer that sleeps."""
        pids = [int(each) for each in os.listdir("/proc") if each.isdigit()]
        for pid in pids:
            with suppress(ProcessLookupError):
                if os.getsid(pid) == self._pid:
                    os.kill(pid, number)

    async def stop(self) -> None:
        """Kill the browser with all its processes."""
        if self.devtools.is_running:
            os.killpg(self._pid, signal.SIGKILL)
            await self.devtools.ended
        shutil.rmtree(self._directory, ignore_errors=True)
