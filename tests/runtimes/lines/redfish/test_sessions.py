"""Tests for :mod:`twisted_exec.runtimes.lines.redfish.sessions`, with a small BMC."""

from __future__ import annotations

import json
import os
import stat

from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.task import Clock

from tests.runtimes.bmc.server import SESSIONS
from tests.runtimes.lines.redfish.support import BMCCase
from tests.tls.support import write
from twisted_exec.api.status import BadGateway, ServiceUnavailable
from twisted_exec.runtimes.interfaces import CannotStart
from twisted_exec.runtimes.lines.redfish import client
from twisted_exec.runtimes.lines.redfish.sessions import Sessions

SYSTEMS = "/redfish/v1/Systems"


class SessionTests(BMCCase):
    """One session, whatever happens."""

    async def refusal(self, sessions: Sessions) -> CannotStart:
        with self.assertRaises(CannotStart) as caught:
            await sessions.get(SYSTEMS)
        return caught.exception

    async def test_one_login(self) -> None:
        """Many requests at once need one login."""
        sessions = self.sessions()
        waiting = [Deferred.fromCoroutine(sessions.get(SYSTEMS)) for _ in range(10)]
        await gatherResults(waiting)
        self.assertEqual((self.bmc.logins, len(self.bmc.sessions)), (1, 1))

    async def test_deleted(self) -> None:
        """Closed, there is no session at the BMC and none on disk."""
        sessions = self.sessions()
        await sessions.get(SYSTEMS)
        self.assertTrue(os.path.exists(self.session_path))
        await sessions.close()
        self.assertEqual(self.bmc.sessions, {})
        self.assertFalse(os.path.exists(self.session_path))
        await sessions.close()

    async def test_private_file(self) -> None:
        """The file of the session is for its owner alone."""
        await self.sessions().get(SYSTEMS)
        self.assertEqual(stat.S_IMODE(os.stat(self.session_path).st_mode), 0o600)

    async def test_later_runtime(self) -> None:
        """After a kill, the next runtime uses the session."""
        await self.sessions().get(SYSTEMS)
        later = self.sessions()
        await later.get(SYSTEMS)
        self.assertEqual((self.bmc.logins, len(self.bmc.sessions)), (1, 1))
        await later.close()
        self.assertEqual(self.bmc.sessions, {})

    async def test_unused_by_later_runtime(self) -> None:
        """A later runtime deletes a session that it does not use."""
        await self.sessions().get(SYSTEMS)
        await self.sessions().close()
        self.assertEqual(self.bmc.sessions, {})

    def keep_as(self, user: str) -> None:
        """Make the kept session one of another user."""
        with open(self.session_path) as file:
            kept = json.load(file)
        write(self.directory, "kept.session", json.dumps({**kept, "user": user}).encode())

    async def test_other_user(self) -> None:
        """The session of an earlier runtime with another user is deleted, and never used."""
        for user in ("gone", ""):  # an earlier release has not kept the user
            await self.sessions().get(SYSTEMS)
            self.keep_as(user)
            logins = self.bmc.logins
            await self.sessions().get(SYSTEMS)
            self.assertEqual((self.bmc.logins, len(self.bmc.sessions)), (logins + 1, 1))

    async def test_other_user_later(self) -> None:
        """While the BMC does not delete it, it is kept for the next attempt."""
        await self.sessions().get(SYSTEMS)
        self.keep_as("gone")
        (session,) = self.bmc.sessions.values()
        deletion = f"DELETE {SESSIONS}/{session.id}"
        self.bmc.faults.codes = {deletion: 503}
        sessions = self.sessions()
        with self.assertRaises(ServiceUnavailable):
            await sessions.get(SYSTEMS)
        self.assertEqual((self.bmc.logins, os.path.exists(self.session_path)), (1, True))
        self.bmc.faults.codes = {}
        await sessions.get(SYSTEMS)
        self.assertEqual((self.bmc.logins, len(self.bmc.sessions)), (2, 1))

    async def test_broken_file(self) -> None:
        """A file that is no session is the same as none."""
        for content in (b"", b"{", b"[]", b'{"token": 3}', b'{"token": "a\\nb"}'):
            write(self.directory, "kept.session", content)
            sessions = self.sessions()
            await sessions.get(SYSTEMS)
            await sessions.close()
        self.assertEqual(self.bmc.sessions, {})

    async def test_session_dies(self) -> None:
        """After a 401 there is one new login."""
        sessions = self.sessions()
        await sessions.get(SYSTEMS)
        self.bmc.expire()
        await gatherResults([Deferred.fromCoroutine(sessions.get(SYSTEMS)) for _ in range(5)])
        self.assertEqual((self.bmc.logins, len(self.bmc.sessions)), (2, 1))

    async def test_refused_again(self) -> None:
        """A BMC that refuses each new session gets one new login and then a pause, and keeps no session."""
        self.bmc.faults.codes = {SYSTEMS: 401}
        clock = Clock()
        sessions = self.sessions(clock)
        refusal = await self.refusal(sessions)
        self.assertEqual((refusal.condition, sessions.problem), ("LoginRefused", refusal))
        self.assertIn(
            f"but refuses its session: the BMC answers 401 to GET {SYSTEMS}", refusal.message
        )
        self.assertEqual((self.bmc.logins, self.bmc.sessions), (2, {}))
        asking = Deferred.fromCoroutine(sessions.get(SYSTEMS))
        clock.advance(30)
        self.assertEqual(self.bmc.logins, 2)
        self.bmc.faults.codes = {}
        for _ in range(15):
            clock.advance(2)
        await asking
        self.assertEqual((len(self.bmc.sessions), sessions.problem), (1, None))

    async def test_valid_session_refused(self) -> None:
        """A session that the BMC refuses, though it has it still, is deleted before the next login."""
        sessions = self.sessions()
        await sessions.get(SYSTEMS)
        self.bmc.faults.codes = {SYSTEMS: 401}
        await self.refusal(sessions)
        self.assertEqual((self.bmc.logins, self.bmc.sessions), (2, {}))
        self.assertFalse(os.path.exists(self.session_path))

    async def test_expired_password(self) -> None:
        """A password whose time is over is told as that, at a login and at a request; a new one is tried at once."""
        for path in (SYSTEMS, f"POST {SESSIONS}"):
            self.bmc.faults.codes = {path: 403}
            self.bmc.faults.message = "Base.1.8.PasswordChangeRequired"
            clock = Clock()
            sessions = self.sessions(clock)
            refusal = await self.refusal(sessions)
            self.assertEqual((refusal.condition, sessions.problem), ("LoginRefused", refusal))
            self.assertIn("has expired (PasswordChangeRequired): set a new one at", refusal.message)
            self.assertIn(self.password, refusal.message)
            self.assertEqual(self.bmc.sessions, {})
            asking = Deferred.fromCoroutine(sessions.get(SYSTEMS))
            self.bmc.faults.codes, self.bmc.password = {}, f"new-{path}"
            write(self.directory, "password", f"new-{path}\n".encode())
            clock.advance(2)
            await asking
            await sessions.close()

    async def test_login_refused_with_message(self) -> None:
        """The refusal of a login names the BMC's message."""
        self.bmc.faults.codes = {f"POST {SESSIONS}": 401}
        self.bmc.faults.message = "Base.1.8.ResourceAtUriUnauthorized"
        refusal = await self.refusal(self.sessions())
        self.assertIn("(401, Base.1.8.ResourceAtUriUnauthorized)", refusal.message)

    async def test_limit(self) -> None:
        """Without a session left the reason says so; later one login is enough."""
        for full in ("Base.1.8.SessionLimitExceeded", "IDRAC.2.4.RAC0218"):
            self.bmc.faults.full, self.bmc.session_limit = full, 0
            clock = Clock()
            sessions = self.sessions(clock)
            refusal = await self.refusal(sessions)
            self.assertEqual(refusal.condition, "SessionLimit")
            self.assertIn(full, refusal.message)
            self.assertNotIn("canary", refusal.message)
            self.bmc.session_limit = 8
            asking = Deferred.fromCoroutine(sessions.get(SYSTEMS))
            self.assertFalse(asking.called)
            clock.advance(1)
            await asking
            await sessions.close()

    async def test_wrong_password(self) -> None:
        """A wrong password is not tried again soon, since that locks accounts; a new one is."""
        write(self.directory, "password", b"wrong-canary\n")
        clock = Clock()
        sessions = self.sessions(clock)
        refusal = await self.refusal(sessions)
        self.assertEqual(refusal.condition, "LoginRefused")
        self.assertIn("if the BMC has no sessions, set login: basic", refusal.message)
        self.assertNotIn("canary", refusal.message)
        asking = Deferred.fromCoroutine(sessions.get(SYSTEMS))
        clock.advance(30)
        self.assertFalse(asking.called)
        asking.cancel()
        self.failureResultOf(asking, CancelledError)
        write(self.directory, "password", b"canary-password\n")
        await sessions.get(SYSTEMS)
        posts = [each for each in self.bmc.requests if each == ("POST", SESSIONS)]
        self.assertEqual(len(posts), 2)

    async def test_mended_password(self) -> None:
        """A login that waits behind a refusal is tried as soon as the password file has changed."""
        write(self.directory, "password", b"wrong-canary\n")
        clock = Clock()
        sessions = self.sessions(clock)
        await self.refusal(sessions)
        asking = Deferred.fromCoroutine(sessions.get(SYSTEMS))
        write(self.directory, "password", b"canary-password\n")
        clock.advance(2)
        await asking

    async def test_no_password(self) -> None:
        """A password file that is missing or empty is told before any request."""
        for content in (None, b"", b"\nx\n", b"\xff\n"):
            os.path.exists(self.password) and os.unlink(self.password)
            if content is not None:
                write(self.directory, "password", content)
            self.assertEqual((await self.refusal(self.sessions())).condition, "NoPassword")
        self.assertEqual(self.bmc.requests, [])

    async def test_cancelled_login(self) -> None:
        """A login whose caller has gone leaves no session."""
        self.bmc.faults.hangs = {f"POST {SESSIONS}"}
        sessions = self.sessions()
        asking = Deferred.fromCoroutine(sessions.get(SYSTEMS))
        await self.until(lambda: self.bmc.waiting)
        asking.cancel()
        self.failureResultOf(asking, CancelledError)
        closing = Deferred.fromCoroutine(sessions.close())
        self.assertFalse(closing.called)
        self.bmc.faults.hangs = set()
        self.bmc.answer()
        await closing
        self.assertEqual((self.bmc.logins, self.bmc.sessions), (1, {}))
        self.assertFalse(os.path.exists(self.session_path))

    async def test_opened_while_deleted(self) -> None:
        """A session that is being deleted is not used again: the next request logs in behind that."""
        delete = f"DELETE {SESSIONS}/S1"
        sessions = self.sessions()
        await sessions.get(SYSTEMS)
        self.bmc.faults.hangs = {delete}
        closing = Deferred.fromCoroutine(sessions.close())
        await self.until(lambda: self.bmc.waiting)
        sessions.open()
        asking = Deferred.fromCoroutine(sessions.get(SYSTEMS))
        self.assertEqual(self.bmc.logins, 1)
        self.bmc.faults.hangs = set()
        self.bmc.answer()
        await closing
        await asking
        self.assertEqual((self.bmc.logins, len(self.bmc.sessions)), (2, 1))
        self.assertTrue(os.path.exists(self.session_path))

    async def test_closed(self) -> None:
        """Behind the end nothing logs in."""
        sessions = self.sessions()
        await sessions.get(SYSTEMS)
        await sessions.close()
        with self.assertRaises(ServiceUnavailable):
            await sessions.get(SYSTEMS)
        self.assertEqual(self.bmc.sessions, {})

    async def test_bmc_is_gone(self) -> None:
        """A session that cannot be deleted stays on disk, for a later runtime."""
        sessions = self.sessions()
        await sessions.get(SYSTEMS)
        self.bmc.faults.codes = {"DELETE " + SESSIONS + "/S1": 503}
        await sessions.close()
        self.assertTrue(os.path.exists(self.session_path))
        self.bmc.faults.codes = {}
        await self.sessions().close()
        self.assertEqual(self.bmc.sessions, {})

    async def test_bad_answers(self) -> None:
        """A login without a token, and codes of a busy BMC, are errors with a reason."""
        self.bmc.faults.empty = {f"POST {SESSIONS}"}
        with self.assertRaisesRegex(BadGateway, "gives no token; set login: basic"):
            await self.sessions().get(SYSTEMS)
        self.bmc.faults.empty = set()
        for code in (429, 503):
            self.bmc.faults.codes = {f"POST {SESSIONS}": code}
            with self.assertRaises(ServiceUnavailable) as caught:
                await self.sessions().get(SYSTEMS)
            self.assertIn(str(code), caught.exception.message)
        self.bmc.faults.codes = {f"POST {SESSIONS}": 404}
        with self.assertRaises(ServiceUnavailable) as caught:
            await self.sessions().get(SYSTEMS)
        self.assertIn("login: basic", caught.exception.message)

    async def test_no_document(self) -> None:
        """An answer that is no document names its path, and what to do."""
        for body, why in ((b"", "has an empty body"), (b"[]", "is no JSON object")):
            self.bmc.faults.bodies = {SYSTEMS: body}
            with self.assertRaises(BadGateway) as caught:
                await self.sessions().get(SYSTEMS)
            self.assertEqual(
                caught.exception.message,
                f"the BMC's answer {why} (GET {SYSTEMS}): restart the BMC if its own page does not work either",
            )

    async def test_slow(self) -> None:
        """A BMC that does not answer a login is an error, and the next attempt is a new one."""
        self.patch(client, "REQUEST_SECONDS", 0.2)
        self.bmc.faults.hangs = {f"POST {SESSIONS}"}
        sessions = self.sessions()
        with self.assertRaises(Exception):  # noqa: B017
            await sessions.get(SYSTEMS)
        self.bmc.faults.hangs = set()
        await sessions.get(SYSTEMS)

    async def test_foreign_location(self) -> None:
        """A session that is said to be elsewhere, or nowhere, is never asked for there."""
        for location in (f"https://evil.example{SESSIONS}/S1", "https://["):
            self.bmc.location = location
            sessions = self.sessions()
            await sessions.get(SYSTEMS)
            with open(self.session_path) as file:
                self.assertIn(f"{SESSIONS}/S", json.load(file)["path"])
            await sessions.close()
            self.assertEqual(self.bmc.sessions, {})

    async def test_refused_by_console(self) -> None:
        """A session that the console refuses is deleted, so that a BMC does not fill up with them."""
        sessions = self.sessions()
        for _ in range(3):
            await sessions.session_refused(await sessions.socket_headers())
            self.assertEqual(self.bmc.sessions, {})
        self.assertFalse(os.path.exists(self.session_path))

    async def test_earlier_one_refused(self) -> None:
        """The refusal of an earlier session leaves the present one alone."""
        sessions = self.sessions()
        earlier = await sessions.socket_headers()
        self.bmc.expire()
        await sessions.get(SYSTEMS)
        await sessions.session_refused(earlier)
        await sessions.get(SYSTEMS)
        self.assertEqual((self.bmc.logins, len(self.bmc.sessions)), (2, 1))

    async def test_basic(self) -> None:
        """A BMC without sessions gets name and password with each request."""
        self.bmc.takes_basic = True
        await self.sessions(basic=True).get(SYSTEMS)
        self.assertEqual((self.bmc.logins, self.bmc.sessions), (0, {}))
        self.assertFalse(os.path.exists(self.session_path))

    async def test_basic_refused(self) -> None:
        """It gets a wrong password once a minute at most, too; a new one at once."""
        self.bmc.takes_basic = True
        write(self.directory, "password", b"wrong-canary\n")
        clock = Clock()
        sessions = self.sessions(clock, basic=True)
        refusal = await self.refusal(sessions)
        self.assertEqual((refusal.condition, sessions.problem), ("LoginRefused", refusal))
        self.assertIn(
            "refuses the login of user admin (401, Base.1.8.NoValidSession): see ", refusal.message
        )
        self.assertNotIn("canary", refusal.message)
        self.assertNotIn("login: basic", refusal.message)
        asking = Deferred.fromCoroutine(sessions.get(SYSTEMS))
        clock.advance(30)
        self.assertEqual(self.bmc.requests, [("GET", SYSTEMS)])
        write(self.directory, "password", b"canary-password\n")
        clock.advance(2)
        await asking
        self.assertIsNone(sessions.problem)
