"""
Sessions whose connection is lost, as the API server and the poollet see them: the user resumes the
session after a cut, and after a stop of either program.
"""

from __future__ import annotations

import signal

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from tests.flows.deployment import Deployment, gone, pause
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError
from twisted_exec.kube.interfaces import Object

from .manual_resumes import User

SESSIONS = kinds.CONSOLESESSIONS.resource


class PatientDeployment(Deployment):
    """Its runtime keeps sessions while a busy machine starts a program."""

    async def start_runtime(self, *options: str) -> None:
        await super().start_runtime("--resume-seconds=600", *options)


class AbsentUserTests(TestCase):
    """A shell, and a user whose connections are lost."""

    starts = PROGRAMS
    exact = True

    async def setUp(self) -> None:
        self.deployment = PatientDeployment(self.mktemp())
        self.addCleanup(self.deployment.stop)
        await self.deployment.start()
        await self.deployment.create_machine("sh", "shell")
        self.user = User(self.deployment.admin)
        await self.user.open()
        await self.user.ask(b"echo a-$((1+1))", b"a-2")

    async def shown(self, *, away: bool) -> Object:
        """Return the ConsoleSession, once it shows whether the user is absent."""
        while True:
            items = (await self.deployment.client.list(SESSIONS))["items"]
            for each in items:
                if ("awaySince" in each["status"]) == away:
                    self.assertEqual(len(items), 1)
                    self.assertTrue(each["status"]["resumable"])
                    return each
            await pause()

    async def check_back(self, word: bytes) -> None:
        """Check that the session goes on: nobody ended it, and the shell is the same."""
        self.assertEqual(self.user.endings, [])
        await self.user.ask(b"echo %b-$((1+1))" % word, b"%b-2" % word)
        self.assertEqual(self.user.output.count(b"a-2"), 1)  # nothing is repeated

    async def test_lost(self) -> None:
        """A session keeps its object while the user is absent, and after the user is back."""
        before = await self.shown(away=False)
        self.user.stream.abort()
        await self.user.lost
        away = await self.shown(away=True)
        await self.user.resume()
        after = await self.shown(away=False)
        names = {each["metadata"]["name"] for each in (before, away, after)}
        self.assertEqual(len(names), 1)
        self.assertEqual(after["spec"]["session"], self.user.stream.session)
        await self.check_back(b"b")
        self.user.stream.leave()
        await self.user.lost
        await gone(self.deployment.client, SESSIONS, names.pop(), "default")

    async def test_deleted(self) -> None:
        """A session that is deleted while its user is absent is over."""
        self.user.stream.abort()
        await self.user.lost
        name = (await self.shown(away=True))["metadata"]["name"]
        await self.deployment.client.delete(SESSIONS, name, "default")
        error = await self.assertFailure(Deferred.fromCoroutine(self.user.resume()), APIError)
        self.assertEqual(error.code, 403)
        self.assertIn(f"admin deleted the console session {name}", str(error))

    async def test_api_server_stopped(self) -> None:
        """An API server that stops cuts the session, which goes on at the next one."""
        await self.shown(away=False)
        stopping = Deferred.fromCoroutine(self.deployment.api.stop(signal.SIGTERM))
        await self.user.lost
        await stopping
        await self.deployment.start_api()
        await self.user.resume_soon()
        await self.check_back(b"b")
        await self.shown(away=False)

    async def test_poollet_stopped(self) -> None:
        """So does a poollet; the object at the API server goes on."""
        before = await self.shown(away=False)
        stopping = Deferred.fromCoroutine(self.deployment.poollet.stop(signal.SIGTERM))
        await self.user.lost
        away = await self.shown(away=True)
        await stopping
        await self.deployment.start_poollet()
        await self.user.resume_soon()
        await self.check_back(b"b")
        after = await self.shown(away=False)
        names = {each["metadata"]["name"] for each in (before, away, after)}
        self.assertEqual(len(names), 1)

    async def test_poollet_killed(self) -> None:
        """A killed poollet is as good as one that stops."""
        await self.shown(away=False)
        await self.deployment.poollet.stop(signal.SIGKILL)
        await self.user.lost
        await self.shown(away=True)
        await self.deployment.start_poollet()
        await self.user.resume_soon()
        await self.check_back(b"b")
