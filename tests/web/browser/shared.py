"""
A running Chromium that tests use one after another, as :mod:`tests.shared` describes.

Each test has a profile of its own, and may open pages in others: no cookie, storage, permission or page
of a test is left for the next one.
"""

from __future__ import annotations

from twisted.internet import reactor
from twisted.internet.defer import Deferred, TimeoutError
from twisted.trial.unittest import TestCase

from tests import procfs
from tests import shared as programs

from .chromium import Chromium, Profile, create_context
from .devtools import BrowserEndedError

_REMOVE_SECONDS = 30.0
"""Chromium sometimes never answers that it has removed a profile; a loaded machine takes seconds."""


class Shared(programs.SharedPrograms):
    """A Chromium."""

    def __init__(self) -> None:
        super().__init__()
        self.browser = Chromium()

    async def start(self) -> None:
        await self.browser.start()
        self._urls = await self.browser.urls()
        self.started({"chromium": self.browser.devtools})

    async def profile(self) -> Profile:
        """Create an empty profile, which :meth:`restore` removes."""
        devtools = self.browser.devtools
        return Profile(devtools, await create_context(devtools))

    async def restore(self) -> list[str]:
        """Remove all profiles with their pages; return what remains."""
        devtools = self.browser.devtools
        removing = Deferred.fromCoroutine(self._without_profiles())
        try:
            urls = await removing.addTimeout(_REMOVE_SECONDS, reactor)
        except BrowserEndedError:
            return ["chromium has ended"]
        except TimeoutError:
            return ["profiles stay"]
        if urls != self._urls:
            return [f"pages {urls} are open"]
        # They close after the answer, and servers of the next cleanups want to see that they have.
        if not await self.until(lambda: not procfs.loopback_connections(devtools.pid)):
            return ["connections are open"]
        return []

    async def _without_profiles(self) -> list[str]:
        """Remove all profiles; return the addresses of the pages that remain."""
        devtools = self.browser.devtools
        found = await devtools.call("Target.getBrowserContexts")
        for context in found["browserContextIds"]:
            await devtools.call("Target.disposeBrowserContext", browserContextId=context)
        return await self.browser.urls()

    async def stop(self) -> None:
        await self.browser.stop()

    def remove_files(self) -> None:
        self.browser.remove_files()


async def take() -> Shared:
    """Return this process's Chromium, alive."""
    return await programs.take(Shared, Shared)


async def profile(test: TestCase) -> Profile:
    """
    Return an empty profile of a running Chromium for a test.

    Call this when the servers run whose pages the test opens: cleanups run in reverse order, so the
    pages are closed before the servers stop.
    """
    shared = await programs.use(test, Shared, Shared)
    return await shared.profile()
