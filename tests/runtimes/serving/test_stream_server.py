"""
Tests for :mod:`twisted_exec.runtimes.serving.stream_server`: logs and screens, over real sockets.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred

from tests.retained import entries, instances
from tests.runtimes.serving.kept_case import KeptCase
from tests.runtimes.serving.test_server import AS_ANN, UPGRADE, StreamCase
from tests.runtimes.support import open_log
from tests.screens.doubles import MemoryRenderer
from tests.streaming.frames import handshake
from tests.streaming.readers import Reader
from twisted_exec.api.status import APIError, NotFound, ServiceUnavailable
from twisted_exec.console.log import LogStream
from twisted_exec.iri.request_cache import EXEC, LOG, Grant
from twisted_exec.journal.journal import Journal
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.screens.from_journal import Screens
from twisted_exec.streaming.http.routes import UNKNOWN_PATH
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused
from twisted_exec.streaming.interfaces import COMPLETED, MACHINE_DELETED, SHUTTING_DOWN, IAttachment
from twisted_exec.streaming.subject import Subject
from twisted_exec.testing.network import MemoryClient

SECOND = 10**9


class LogCase(StreamCase):
    """A stream server with logs, before a journal that is the test's."""

    def setUp(self) -> None:
        super().setUp()
        self.now = SECOND
        self.journal = Journal(lambda: self.now)

    def read_log(self, grant: Grant) -> tuple[Subject, Journal]:
        machine, _ = self.attach(grant)
        return machine, self.journal

    async def serve(self, *arguments: Any, **options: Any) -> Any:
        return await super().serve(*arguments, read_log=self.read_log, **options)

    def token(self, **facts: str) -> str:
        return super().token(**{"purpose": LOG, **facts})

    async def log(self, query: str = "", token: str = "", **headers: str) -> Reader:
        reader = await open_log(
            self.server.log_url(token or self.token()), query, **(AS_ANN | headers)
        )
        self.addCleanup(reader.download.abort)
        return reader

    async def refused(self, query: str = "", token: str = "", **headers: str) -> APIError:
        with self.assertRaises(UpgradeRefused) as caught:
            await self.log(query, token, **headers)
        return caught.exception.as_api_error()


class TurnTests(KeptCase):
    """Consoles that several users open in one turn of the reactor."""

    def setUp(self) -> None:
        super().setUp()
        self.users: list[str] = []

    def attach(self, grant: Grant) -> tuple[Subject, IAttachment]:
        self.users.append(grant.user)
        return super().attach(grant)

    def upgrade(self, user: str) -> bytes:
        """Return a user's request for a console."""
        _, request = self.request(user=user)
        return handshake(*request.pop("lines"), **request)

    def ask(self, request: bytes) -> MemoryClient:
        """Send a request, in the same turn as before."""
        client = MemoryClient(self.memory.site)
        client.send(request)
        return client

    def test_users(self) -> None:
        """Users take turns, and each console has a turn of the reactor."""
        for user in ("ann", "ann", "ann", "ann", "bob", "bob", "eve"):
            self.ask(self.upgrade(user))
        self.assertEqual(self.users, ["ann"])
        self.clock.advance(0)
        self.assertEqual(self.users, ["ann", "ann", "bob", "eve", "ann", "bob", "ann"])

    def test_left(self) -> None:
        """A client that leaves before its turn is on record, and its token is free again."""
        self.ask(self.upgrade("ann"))
        request = self.upgrade("bob")
        self.ask(request).lose()
        self.clock.advance(0)
        self.assertEqual(self.users, ["ann"])
        self.assertEqual([each["code"] for each in self.audit("end")], [499])
        self.assertIn(b" 101 ", self.ask(request).received())


class ReadTests(LogCase):
    """A log that is read."""

    async def test_whole(self) -> None:
        """All that was printed, as it was, and then the end."""
        await self.serve()
        self.journal.append(b"one\r\n\x1b[2Jtwo\xff")
        reader = await self.log()
        await self.until(lambda: reader.complete is not None)
        self.assertEqual((bytes(reader.got), reader.complete), (b"one\r\n\x1b[2Jtwo\xff", True))

    async def test_options(self) -> None:
        """The query selects lines, times and bytes."""
        await self.serve()
        self.journal.append(b"one\n")
        self.now = 100 * SECOND
        self.journal.append(b"two\n")
        for query, text in (
            ("tailLines=1", b"two\n"),
            ("sinceSeconds=50", b"two\n"),
            ("limitBytes=2", b"on"),
            ("timestamps=true&tailLines=1", b"1970-01-01T00:01:40.000000000Z two\n"),
        ):
            reader = await self.log(query)
            await self.until(lambda reader=reader: reader.complete is not None)
            self.assertEqual(bytes(reader.got), text, query)

    async def test_follow(self) -> None:
        """New output arrives at once; the end of the machine ends the log."""
        server = await self.serve()
        self.journal.append(b"one\n")
        reader = await self.log("follow=true")
        await self.until(lambda: reader.got == b"one\n")
        self.journal.append(b"two\n")
        await self.until(lambda: reader.got == b"one\ntwo\n")
        self.journal.append(b"last words")
        self.journal.close()
        await self.until(lambda: reader.complete)
        self.assertEqual(reader.got, b"one\ntwo\nlast words")
        await self.until(lambda: not len(server.sessions))
        self.assertEqual(self.audit()[-1]["reason"], MACHINE_DELETED)

    async def test_slow(self) -> None:
        """
        A reader that does not read holds nothing and delays nothing; it reads what
        it missed, and goes on.
        """
        await self.serve()
        reader = await self.log("follow=true")
        reader.download.pause()
        for number in range(200):
            self.journal.append(b"%05d" % number * 13_107 + b"\n")  # a segment each
            self.journal.discard_before(self.journal.end - (256 << 10))
            await self.pause()  # wait: room for what a server might do for its paused reader
        reader.download.resume()
        await self.until(lambda: b"00199\n" in reader.got)
        self.assertIn(b" bytes skipped]\r\n", reader.got)
        self.assertLess(len(reader.got), 100 * 65_536)

    async def test_leaves(self) -> None:
        """A reader that leaves leaves nothing behind."""
        server = await self.serve()
        reader = await self.log("follow=true")
        await self.until(lambda: instances(self.journal, LogStream))
        reader.download.abort()
        await self.until(lambda: not len(server.sessions))
        self.assertEqual(instances(self.journal, LogStream), [])
        self.assertEqual(entries(self.cache), 0)
        self.assertEqual(self.audit()[-1]["reason"], "client closed")

    async def test_stops(self) -> None:
        """A runtime that stops says so, and that it is not all."""
        server = await self.serve()
        reader = await self.log("follow=true")
        await server.stopService()
        await self.until(lambda: reader.complete is False)
        self.assertEqual(
            reader.got,
            b"[twisted-exec: ShuttingDown: exec-runtime is restarting; try again in a moment]\r\n",
        )
        self.assertEqual(self.audit()[-1]["reason"], SHUTTING_DOWN)


class TokenTests(LogCase):
    """Validity of tokens."""

    async def test_once(self) -> None:
        """For one log, once; and for no console."""
        await self.serve()
        token = self.token()
        self.assertEqual((await self.ask(f"GET /exec/{token} HTTP/1.1\r\n{UPGRADE}"))[0], 404)
        await self.log(token=token)
        self.assertEqual((await self.refused(token=token)).code, 404)
        self.assertEqual((await self.refused(token=self.token(purpose=EXEC))).code, 404)

    async def test_bound(self) -> None:
        """For the user and the machine it was made for; trying others does not burn it."""
        await self.serve()
        token = self.token()
        for headers in ({"X_Twisted_Exec_User": "bob"}, {"X_Twisted_Exec_Machine_Uid": "uid-y"}):
            self.assertEqual((await self.refused(token=token, **headers)).code, 404)
        await self.log(token=token, X_Twisted_Exec_User="ann", X_Twisted_Exec_Machine_Uid="uid-x")

    async def test_not_burnt(self) -> None:
        """Bad options, other methods, and a machine that is gone meanwhile do not burn it either."""
        await self.serve()
        token = self.token()
        self.assertEqual((await self.refused("tailLines=x", token)).code, 400)
        self.assertEqual((await self.refused("limitBytes=0", token)).code, 422)
        self.assertEqual((await self.ask(f"HEAD /log/{token} HTTP/1.1\r\nHost: x\r\n"))[0], 405)
        self.assertEqual((await self.ask(f"DELETE /log/{token} HTTP/1.1\r\nHost: x\r\n"))[0], 405)
        self.gone = True
        self.assertEqual((await self.refused(token=token)).code, NotFound.code)
        self.gone = False
        await self.log(token=token)

    async def test_too_many(self) -> None:
        """A reader too many is refused, and its token is still good."""
        server = await self.serve()
        server.sessions.limits = SessionLimits(10, 1)
        first, token = await self.log("follow=true"), self.token()
        self.assertEqual((await self.refused(token=token)).code, 429)
        first.download.abort()
        await self.until(lambda: not len(server.sessions))
        await self.log(token=token)

    async def test_no_logs(self) -> None:
        """A server without logs has no such path."""
        await StreamCase.serve(self)
        self.assertEqual((await self.refused()).code, NotFound.code)

    async def test_audit(self) -> None:
        """One start and one end, which say that it was the log; refusals, too."""
        await self.serve()
        self.journal.append(b"12345")
        reader = await self.log()
        await self.until(lambda: reader.complete and len(self.audit()) == 2)
        start, end = self.audit()
        for record in (start, end):
            self.assertEqual(
                (record["subresource"], record["session"], record["user"], record["uid"]),
                ("log", "s1", "ann", "uid-x"),
            )
        self.assertEqual((end["bytes_to_user"], end["reason"]), (5, COMPLETED))
        await self.refused(token="mistyped")
        start, end = self.audit()[2:]
        self.assertEqual((start["subresource"], end["code"]), ("log", 404))


class ScreenTests(LogCase):
    """A screen that is read."""

    async def serve(self, *arguments: Any, **options: Any) -> Any:
        self.renderer = MemoryRenderer()
        screens = Screens(self.renderer, reactor)
        return await super().serve(*arguments, screens=screens, **options)

    def screen_url(self, token: str) -> str:
        return self.server.log_url(token).replace("/log/", "/screen/")

    async def screen(self, query: str = "", token: str = "") -> bytes:
        """Return a whole answer."""
        reader = await open_log(self.screen_url(token or self.token()), query, **AS_ANN)
        await self.until(lambda: reader.complete)
        return reader.got

    async def denied(self, query: str = "", token: str = "") -> APIError:
        with self.assertRaises(UpgradeRefused) as caught:
            await self.screen(query, token)
        error: APIError = caught.exception.as_api_error()
        return error

    async def test_forms(self) -> None:
        """The screen in the form that the query names; one start and one end are audited."""
        await self.serve()
        self.journal.append(b"one")
        self.assertEqual(await self.screen(), b"text of one")
        self.assertEqual(await self.screen("as=svg&at=2"), b"svg of on")
        start, end, *_ = self.audit()
        self.assertEqual(
            (start["event"], end["event"], end["subresource"], end["user"], end["reason"]),
            ("start", "end", "screen", "ann", COMPLETED),
        )
        self.assertEqual(end["bytes_to_user"], 11)

    async def test_refused(self) -> None:
        """A refusal is audited; the token is used up by a screen that fails to be rendered."""
        await self.serve()
        self.assertEqual((await self.denied("at=7")).code, 400)
        token = self.token()
        self.assertEqual((await self.denied("as=png", token)).code, 422)
        self.renderer.problem = ServiceUnavailable("the terminal emulator failed")
        self.assertEqual((await self.denied("", token)).code, 503)
        self.assertEqual((await self.denied("", token)).code, 404)
        self.assertEqual(
            [each.get("code") for each in self.audit() if each["event"] == "end"],
            [400, 422, 503, 404],
        )
        self.renderer.problem = None
        self.assertEqual(await self.screen(), b"text of ")

    async def test_other_purpose(self) -> None:
        """A token for a console does not open its screen."""
        await self.serve()
        self.assertEqual((await self.denied(token=self.token(purpose=EXEC))).code, 404)

    async def test_no_screens(self) -> None:
        """A server without screens has no such path."""
        await super().serve()
        refusal = await self.denied()
        self.assertEqual((refusal.code, refusal.message), (404, UNKNOWN_PATH))

    async def test_stop(self) -> None:
        """A screen that is being rendered when the runtime stops is refused with the reason."""
        await self.serve()
        self.renderer.waits = True
        denied = Deferred.fromCoroutine(self.denied())
        await self.until(lambda: self.renderer.jobs)
        await self.server.stopService()
        refusal = await denied
        self.assertEqual(
            (refusal.code, refusal.message),
            (503, "exec-runtime is restarting; try again in a moment"),
        )
