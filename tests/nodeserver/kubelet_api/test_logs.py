"""
Tests for :mod:`twisted_exec.nodeserver.kubelet_api.logs`: through a whole node server, to a leaf on
TLS.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from OpenSSL import SSL
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from twisted.web import server
from twisted.web.http import Request, parse_qs

from tests import procfs
from tests.chain import PATIENCE_SECONDS, reactor, until
from tests.descriptors import no_descriptors
from tests.nodeserver.chain import JANE
from tests.nodeserver.leaf_server import LeafServerCase, status, text
from tests.nodeserver.support import put_leaf_pod
from tests.streaming.readers import Reader
from twisted_exec.api.status import APIError, BadRequest, Invalid
from twisted_exec.nodeserver.kubelet_api.logs import log_routes, options_of
from twisted_exec.nodeserver.kubelet_api.routes import KubeletCollaborators, Route
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest, connect
from twisted_exec.streaming.interfaces import MACHINE_DELETED, Ending
from twisted_exec.tls.server import ServerTLS

LOG = "/containerLogs/default/web/main"
FOLLOW = f"{LOG}?follow=true"
WITHIN_SECONDS = 1.0


def followed(path: str) -> str:
    """Return the path with one more option."""
    return f"{path}{'&' if '?' in path else '?'}follow=true"


def query_of(query: str) -> str:
    """Return the leaf's query for a query of the root."""
    args = parse_qs(query.encode(), keep_blank_values=True)
    return str(options_of(args, "web").query(), "ascii")


class OptionsTests(SynchronousTestCase):
    """Tests for :func:`options_of`."""

    def refused(self, query: str, error: type[APIError]) -> str:
        with self.assertRaises(error) as caught:
            query_of(query)
        return caught.exception.message

    def test_every_option(self) -> None:
        """Each option is passed on in one form; absent options stay absent."""
        for request, forwarded in (
            ("", ""),
            ("follow=true", "follow=true"),
            ("follow=false&timestamps=0&previous=false", ""),
            ("timestamps=true&previous=1", "timestamps=true&previous=true"),
            ("tailLines=5", "tailLines=5"),
            ("sinceSeconds=60", "sinceSeconds=60"),
            ("limitBytes=1", "limitBytes=1"),
            ("stream=Stdout", "stream=Stdout"),
            ("stream=Stderr", "stream=Stderr"),
        ):
            self.assertEqual(query_of(request), forwarded, request)

    def test_b2_since(self) -> None:
        """B2: both ways to say since when are read, and told on to the nanosecond."""
        self.assertEqual(query_of("sinceSeconds=3600"), "sinceSeconds=3600")
        self.assertEqual(
            query_of("sinceTime=2026-11-20T06%3A00%3A00.5%2B01%3A00"),
            "sinceTime=2026-11-20T05%3A00%3A00.500000000Z",
        )
        self.assertEqual(query_of("sinceTime="), "")

    def test_b3_zero_lines(self) -> None:
        """B3: a request for zero lines is passed on as zero; it does not mean all."""
        self.assertEqual(query_of("tailLines=0"), "tailLines=0")
        self.assertEqual(query_of("tail=0&follow=true"), "follow=true&tailLines=0")

    def test_tail(self) -> None:
        """The older name goes before the newer one; all is all."""
        self.assertEqual(query_of("tail=7"), "tailLines=7")
        self.assertEqual(query_of("tail=7&tailLines=9"), "tailLines=7")
        self.assertEqual(query_of("tail=all&tailLines=9"), "")
        self.assertEqual(query_of("tail=&tailLines=9"), "tailLines=9")

    def test_all_streams(self) -> None:
        """Both streams are a leaf's default; an older leaf would refuse the option."""
        self.assertEqual(query_of("stream=All&tailLines=1"), "tailLines=1")

    def test_stays_here(self) -> None:
        """Options about TLS verification are dropped, as are unknown ones."""
        self.assertEqual(
            query_of("insecureSkipTLSVerifyBackend=true&container=two&pretty=1&x=%00"), ""
        )

    def test_unreadable(self) -> None:
        """An unreadable value is a bad request."""
        for query in (
            "tailLines=many",
            "tail=-",
            "tailLines=",
            "sinceSeconds=1.5",
            "limitBytes=99999999999999999999",
            "sinceTime=yesterday",
        ):
            self.assertTrue(self.refused(query, BadRequest), query)

    def test_makes_no_sense(self) -> None:
        """A readable but contradictory request is invalid, with the reason."""
        for query, message in (
            ("tailLines=-1", "tailLines"),
            ("tail=-1", "tailLines"),
            ("limitBytes=0", "limitBytes"),
            ("limitBytes=-1", "limitBytes"),
            ("sinceSeconds=0", "sinceSeconds"),
            ("sinceSeconds=-5", "sinceSeconds"),
            ("sinceSeconds=5&sinceTime=2026-11-20T05%3A00%3A00Z", "at most one of"),
            ("sinceSeconds=5&sinceTime=", "at most one of"),
            ("stream=Stdin", "stream"),
            ("stream=", "stream"),
        ):
            self.assertIn(message, self.refused(query, Invalid), query)


def patient_routes(collaborators: KubeletCollaborators) -> Iterable[Route]:
    """Return the routes, with more time for connections than a busy machine needs."""
    return log_routes(replace(collaborators, connect_seconds=PATIENCE_SECONDS))


class LogCase(LeafServerCase):
    """
    With the route.

    :cvar limits: settings of the node server.
    """

    limits: ClassVar[dict[str, Any]] = {}

    async def setUp(self) -> None:  # type: ignore[override]
        await super().setUp()
        await self.start(patient_routes, **self.limits)

    def lose_leaf(self) -> None:
        """Cut what the leaf's first answer comes on."""
        transport: Any = self.leaf_server.asked[0].channel.transport
        transport.abortConnection()

    async def follow(self, path: str = FOLLOW) -> Reader:
        """Someone who follows, and has read the first line."""
        reader = await self.read(path)
        await until(lambda: reader.got == b"one\n")
        return reader

    def end(self) -> dict[str, Any]:
        """The audit end of the one session there was."""
        (end,) = [event for event in self.audit if event["event"] == "end"]
        return end

    async def refused(self, path: str, **more: Any) -> UpgradeRefused:
        """The refusal: plain text, and never JSON."""
        answer = await self.ask(path, **more)
        headers = {name.lower(): value for name, value in answer.headers}
        self.assertTrue(headers[b"content-type"].startswith(b"text/plain"), headers)
        self.assertFalse(answer.body.startswith(b"{"), answer.body)
        return answer


class PassedTests(LogCase):
    """Requests to the leaf, and its answers."""

    async def test_request(self) -> None:
        """
        The leaf gets a request for its own Pod's log, with our credentials and without the root's
        wording.
        """
        await self.read(f"{LOG}?tail=5&timestamps=true&insecureSkipTLSVerifyBackend=true")
        (request,) = self.leaf_server.asked
        self.assertEqual(
            request.uri,
            b"/api/v1/namespaces/default/pods/web/log?container=main&timestamps=true&tailLines=5",
        )
        self.assertEqual(request.method, b"GET")
        self.assertEqual(request.getHeader("authorization"), "Bearer of-the-leaf")
        self.assertEqual(request.getHeader("audit-id"), self.audit[0]["session"])

    async def test_uid(self) -> None:
        """The path may name the Pod's UID; another one is another Pod."""
        uid = self.root_pod["metadata"]["uid"]
        await self.read(f"/containerLogs/default/web/{uid}/two")
        self.assertIn(b"?container=two", self.leaf_server.asked[0].uri)
        self.assertEqual((await self.refused("/containerLogs/default/web/other/two")).code, 404)

    async def test_translated_name(self) -> None:
        """The leaf's Pod may be in another namespace, and have another name."""
        self.leaves.leaves[0].names = lambda root: ("blue", "web-7")  # type: ignore[method-assign]
        put_leaf_pod(self.leaf, self.root_pod, namespace="blue", name="web-7")
        await self.read(LOG)
        self.assertTrue(
            self.leaf_server.asked[0].uri.startswith(b"/api/v1/namespaces/blue/pods/web-7/log?")
        )

    async def test_as_it_comes(self) -> None:
        """Each piece passes at once, whatever bytes it is; the end of the log is its end."""
        noise = bytes(range(256))
        reader = await self.follow()
        (request,) = self.leaf_server.asked
        request.write(noise)
        await until(lambda: reader.got == b"one\n" + noise)
        self.assertIsNone(reader.complete)
        request.finish()
        await until(lambda: reader.complete is not None)
        self.assertTrue(reader.complete)
        end = self.end()
        self.assertEqual(
            (end["reason"], end["bytes_to_user"], end["subresource"], end["machine"]),
            ("backend closed", 260, "log", "web"),
        )

    async def test_empty(self) -> None:
        """A log without a line is one."""
        self.leaf_server.answer = lambda request: text(request) and b""
        reader = await self.read(f"{LOG}?tailLines=0")
        await until(lambda: reader.complete is not None)
        self.assertEqual((reader.got, reader.complete), (b"", True))

    async def test_slow_reader(self) -> None:
        """A stalled reader slows the leaf down: buffers are bounded."""
        whole = 64 << 20
        flood = Flood(whole)
        self.leaf_server.answer = flood.start
        reader = await self.read(LOG)
        reader.download.pause()
        await until(flood.has_stopped)
        self.assertLess(flood.sent, whole)
        reader.download.resume()
        await until(lambda: reader.complete is not None)
        self.assertEqual((len(reader.got), reader.complete), (whole, True))


class FollowedPassedTests(PassedTests):
    """Requests for followed logs, and their answers."""

    async def read(self, path: str) -> Reader:
        return await super().read(path if "follow" in path else followed(path))

    async def test_request(self) -> None:
        """The leaf gets the same request, with one more option."""
        await self.read(f"{LOG}?tail=5&timestamps=true&insecureSkipTLSVerifyBackend=true")
        (request,) = self.leaf_server.asked
        self.assertEqual(
            request.uri,
            b"/api/v1/namespaces/default/pods/web/log"
            b"?container=main&follow=true&timestamps=true&tailLines=5",
        )
        self.assertEqual(request.getHeader("authorization"), "Bearer of-the-leaf")
        self.assertEqual(request.getHeader("audit-id"), self.audit[0]["session"])


class Flood:
    """Sends so many bytes, as fast as they are taken."""

    def __init__(self, whole: int) -> None:
        self.whole, self.sent = whole, 0
        self._seen, self._looks = 0, 0

    def start(self, request: Request) -> int:
        self.request = request
        begun = text(request)
        request.registerProducer(self, False)
        return begun

    def has_stopped(self) -> bool:
        """Nothing was taken between many looks."""
        self._looks = self._looks + 1 if self._seen == self.sent else 0
        self._seen = self.sent
        return self._looks > 100

    def resumeProducing(self) -> None:
        size = min(1 << 16, self.whole - self.sent)
        self.sent += size
        self.request.write(bytes(size))
        if self.sent == self.whole:
            self.request.unregisterProducer()
            self.request.finish()

    def stopProducing(self) -> None:
        self.whole = self.sent


class RefusedTests(LogCase):
    """Refusals, with their codes."""

    async def test_status_is_kept(self) -> None:
        """The leaf's refusal of the request keeps its code, and becomes text."""
        for code, message in (
            (400, 'previous terminated container "main" in pod "web" not found'),
            (404, 'pods "web" not found'),
            (409, 'pod "web" is being created'),
            (422, 'PodLogOptions "web" is invalid'),
            (500, 'pod "web" cannot be found - no logs available'),
            (503, 'pod "web": the server is currently unable to handle the request'),
        ):
            self.leaf_server.answer = lambda request, c=code, m=message: status(request, c, m)  # type: ignore[misc]
            answer = await self.refused(f"{LOG}?previous=true")
            self.assertEqual((answer.code, answer.body.decode()), (code, message))

    async def test_text_of_another_name(self) -> None:
        """If the leaf's Pod has another name, the message has the root's name as well."""
        self.leaf_server.answer = lambda request: status(request, 400, 'pod "web-7" is bad')
        answer = await self.refused(LOG)
        self.assertEqual(answer.body, b'pod "web": pod "web-7" is bad')

    async def test_too_many(self) -> None:
        """A leaf that has too much to do says when to come again."""

        def busy(request: Request) -> bytes:
            request.setHeader(b"Retry-After", b"7")
            return status(request, 429, 'pod "web": too many requests')

        self.leaf_server.answer = busy
        answer = await self.refused(LOG)
        self.assertEqual(answer.code, 429)
        self.assertEqual({n.lower(): v for n, v in answer.headers}[b"retry-after"], b"7")

    async def test_our_credentials(self) -> None:
        """
        A leaf that refuses *our* credentials is a 502 with a remedy; the client's credentials are
        fine.
        """
        no = 'pods "web" is forbidden: User "node-server" cannot get resource "pods/log"'
        for code, message in ((401, "Unauthorized"), (403, no)):
            self.leaf_server.answer = lambda request, c=code, m=message: status(request, c, m)  # type: ignore[misc]
            answer = await self.refused(LOG)
            self.assertEqual(answer.code, 502)
            self.assertIn(b'leaf "one"', answer.body)

    async def test_long_text(self) -> None:
        """Of what a leaf says no more is passed on than a root reads."""
        self.leaf_server.answer = lambda request: status(request, 500, "x" * 60_000)
        answer = await self.refused(LOG)
        self.assertEqual(answer.code, 500)
        self.assertLess(len(answer.body), 50_000)
        self.leaf_server.answer = lambda request: text(request) and self._long_plain(request)
        answer = await self.refused(LOG)
        self.assertEqual(answer.code, 500)
        self.assertLess(len(answer.body), 50_000)

    def _long_plain(self, request: Request) -> bytes:
        request.setResponseCode(500)
        return b"y" * 200_000

    async def test_no_log(self) -> None:
        """A redirect is not followed, and a page is no log."""
        for code, kind in ((302, b"text/plain"), (200, b"text/html")):

            def answer(request: Request, code: int = code, kind: bytes = kind) -> bytes:
                request.setResponseCode(code)
                request.setHeader(b"Location", b"/elsewhere")
                request.setHeader(b"Content-Type", kind)
                return b"<html>"

            self.leaf_server.answer = answer
            self.assertEqual((await self.refused(LOG)).code, 502)
        self.assertEqual(len(self.leaf_server.asked), 2)

    async def test_options(self) -> None:
        """Invalid options are refused before the leaf gets a request."""
        for query, code in (
            ("tailLines=-1", 422),
            ("sinceSeconds=5&sinceTime=2026-11-20T05:00:00Z", 422),
            ("tailLines=many", 400),
            ("follow=true&limitBytes=0", 422),
        ):
            self.assertEqual((await self.refused(f"{LOG}?{query}")).code, code)
        self.assertEqual(self.leaf_server.asked, [])

    async def test_unknown(self) -> None:
        """A Pod or container that is not there, or not ours, is not found; the leaf is not asked."""
        self.assertEqual((await self.refused("/containerLogs/default/nobody/main")).code, 404)
        answer = await self.refused("/containerLogs/default/web/other")
        self.assertEqual(answer.code, 404)
        self.assertIn(b'"other"', answer.body)
        put_leaf_pod(
            self.leaf,
            {
                **self.root_pod,
                "metadata": {"name": "web", "namespace": "default", "uid": "another"},
            },
        )
        self.assertEqual((await self.refused(LOG)).code, 404)
        self.assertEqual(self.leaf_server.asked, [])

    async def test_who(self) -> None:
        """Clients without credentials or permission read no log and learn nothing of Pods."""
        self.assertEqual((await self.refused(LOG, identity=None)).code, 401)
        for path in (LOG, "/containerLogs/default/nobody/main", f"{LOG}?tailLines=-1"):
            self.assertEqual((await self.refused(path, identity=JANE)).code, 403)
        self.assertEqual(self.leaf_server.asked, [])

    async def test_methods(self) -> None:
        """It is read with GET."""
        for method in (b"POST", b"DELETE", b"PUT"):
            self.assertEqual((await self.refused(LOG, method=method)).code, 405)

    async def test_leaf_down(self) -> None:
        """An unreachable leaf is a 502 that names it."""
        await self.leaf_port.stopListening()
        answer = await self.refused(FOLLOW)
        self.assertEqual(answer.code, 502)
        self.assertIn(b'leaf "one"', answer.body)


class FollowedRefusedTests(RefusedTests):
    """Refusals of followed logs."""

    async def ask(self, path: str, **more: Any) -> UpgradeRefused:
        return await super().ask(path if "follow" in path else followed(path), **more)


class PrefersHTTP2(ServerTLS):
    """
    TLS of a server that chooses HTTP/2 where a client offers it, as kube-apiservers do.

    :ivar offers: the protocols that each client has offered.
    """

    def __init__(self, *files: Any, **more: Any) -> None:
        self.offers: list[list[bytes]] = []
        super().__init__(*files, **more)

    def _build(self, *contents: bytes) -> SSL.Context:
        context = super()._build(*contents)
        context.set_alpn_select_callback(self._select)
        return context

    def _select(self, connection: SSL.Connection, offered: list[bytes]) -> bytes:
        self.offers.append(offered)
        return b"h2" if b"h2" in offered else offered[0]


class ConnectionTests(LogCase):
    """Connections to a leaf that prefers HTTP/2."""

    leaf_tls = PrefersHTTP2

    async def test_http_1_1(self) -> None:
        """Followed and other logs are requested over HTTP/1.1, the only protocol that is offered."""
        await self.follow()
        self.leaf_server.answer = lambda request: text(request) and b"all\n"
        reader = await self.read(LOG)
        await until(lambda: reader.complete)
        self.assertEqual(self.leaf_tls_settings.offers, [[b"http/1.1"]] * 2)

    async def test_own_connections(self) -> None:
        """
        Each follower has a connection of its own: no other request uses it, also after it was left,
        and its end is that of no other follower.
        """
        readers = [await self.follow() for _ in range(3)]
        self.leaf_server.answer = lambda request: text(request) and b"all\n"
        reader = await self.read(LOG)
        await until(lambda: reader.complete)
        first, second, third, once = self.leaf_server.asked
        readers[0].download.abort()
        await until(lambda: first in self.leaf_server.left)
        second.channel.transport.abortConnection()
        await until(lambda: readers[1].complete is not None)
        await self.read(LOG)
        last = self.leaf_server.asked[-1]
        ports = {each.getClientAddress().port for each in (first, second, third, once, last)}
        self.assertEqual(len(ports), 5)
        third.write(b"two\n")
        await until(lambda: readers[2].got == b"one\ntwo\n")


class LimitTests(LogCase):
    """Followers beyond what the node server can carry."""

    limits: ClassVar[dict[str, Any]] = {"sessions": SessionLimits(2, 2)}

    async def test_sessions(self) -> None:
        """
        Beyond the limit of sessions a follower gets 429, with the limit, the option for another and
        when to come again; the leaf gets no request.  A follower that leaves makes room.
        """
        readers = [await self.follow() for _ in range(2)]
        answer = await self.refused(FOLLOW)
        self.assertEqual(answer.code, 429)
        self.assertEqual({n.lower(): v for n, v in answer.headers}[b"retry-after"], b"10")
        self.assertIn(b"2 sessions are open here, the most allowed (--max-sessions)", answer.body)
        self.assertEqual(len(self.leaf_server.asked), 2)
        readers[0].download.abort()
        await until(lambda: len(self.server.sessions) == 1)
        await self.follow()

    async def test_no_descriptors(self) -> None:
        """
        Without a descriptor for the leaf's connection a follower gets 503, with the leaf, the
        limit to raise and when to come again.
        """
        connection = await connect(self.endpoint(), clock=reactor, timeout_seconds=PATIENCE_SECONDS)
        self.addCleanup(connection.abort)
        with no_descriptors(), self.assertRaises(UpgradeRefused) as caught:
            await connection.ask(UpgradeRequest(b"GET", FOLLOW.encode(), b"node"))
        answer = caught.exception
        self.assertEqual(answer.code, 503)
        self.assertEqual({n.lower(): v for n, v in answer.headers}[b"retry-after"], b"10")
        for words in (b'leaf "one"', b"no file descriptor is free", b"LimitNOFILE="):
            self.assertIn(words, answer.body)
        self.assertEqual(self.end()["code"], 503)
        await self.follow()


class FollowTests(LogCase):
    """Followers, and the end of their log."""

    async def test_silent_container(self) -> None:
        """
        A kubelet sends the header with the first line: the wait has no limit, and no output
        precedes it.
        """
        self.leaf_server.answer = lambda request: server.NOT_DONE_YET
        reading = Deferred.fromCoroutine(self.read(FOLLOW))
        await until(lambda: self.leaf_server.asked)
        (asked,) = self.leaf_server.asked
        # No timer of ours is left that could end it.
        self.assertFalse(reading.called)
        text(asked, b"one\n")
        reader = await reading
        await until(lambda: reader.got == b"one\n")

    async def test_reader_leaves(self) -> None:
        """Its leaf's connection is closed within a second."""
        reader = await self.follow()
        reader.download.abort()
        took = await until(lambda: self.leaf_server.left)
        self.assertLess(took, WITHIN_SECONDS)
        await until(lambda: not len(self.server.sessions))
        self.assertEqual(self.end()["reason"], "client closed")

    async def test_silent_reader_leaves(self) -> None:
        """Also when nothing was printed so far."""
        await self.leave_early()
        await until(lambda: self.leaf_server.left)
        await until(lambda: not len(self.server.sessions))

    async def test_leaf_goes(self) -> None:
        """A truncated log says so; a root does not report the truncation."""
        reader = await self.follow()
        self.lose_leaf()
        await until(lambda: reader.complete is not None)
        self.assertFalse(reader.complete)
        self.assertEqual(
            bytes(reader.got), b'one\n[twisted-exec: LineLost: leaf "one" was lost]\r\n'
        )
        self.assertEqual(self.end()["reason"], "backend lost")

    async def test_rotated_credentials(self) -> None:
        """Followers go on when the leaf's credentials change; new requests use the new ones."""
        reader = await self.follow()
        self.leaves.leaves[0].told = self.credentials("renewed")
        self.leaves.tell()
        await self.follow()
        first, second = self.leaf_server.asked
        self.assertEqual(second.getHeader("authorization"), "Bearer renewed")
        first.write(b"two\n")
        await until(lambda: reader.got == b"one\ntwo\n")

    async def test_drain(self) -> None:
        """At shutdown each follower gets a last line, even before its first."""
        reader = await self.follow()
        self.leaf_server.answer = lambda request: server.NOT_DONE_YET
        waiting = Deferred.fromCoroutine(self.read(FOLLOW))
        await until(lambda: len(self.leaf_server.asked) == 2)
        await self.server.stopService()
        await until(lambda: reader.complete is not None)
        self.assertFalse(reader.complete)
        self.assertIn(b"[twisted-exec: ShuttingDown: ", reader.got)
        silent = await waiting
        await until(lambda: silent.complete is not None)
        self.assertIn(b"[twisted-exec: ShuttingDown: ", silent.got)
        self.assertFalse(silent.complete)

    async def test_pod_deleted(self) -> None:
        """The Pod's end is the log's: what it says last is still told."""
        reader = await self.follow()
        (request,) = self.leaf_server.asked
        ending = Ending(MACHINE_DELETED, 'pod "web" was deleted')
        self.server.sessions.end(lambda subject: subject.machine == "web", ending)
        request.write(b"bye\n")
        request.finish()
        await until(lambda: reader.complete is not None)
        self.assertEqual((reader.got, reader.complete), (b"one\nbye\n", True))

    async def test_nothing_is_left(self) -> None:
        """However followers come and go, no descriptor, task or session is left of them."""
        await self.leave_all(3)
        descriptors = procfs.open_descriptors(os.getpid())
        await self.leave_all(30)
        await until(lambda: procfs.open_descriptors(os.getpid()) <= descriptors)
        self.assertEqual(len(self.server.sessions), 0)
        self.assertEqual(len(self.leaf_server.left), 33)

    async def leave_all(self, count: int) -> None:
        """Followers that leave, every third of them before there is anything to read."""
        target = len(self.leaf_server.left) + count
        for number in range(count):
            if number % 3 == 2:
                await self.leave_early()
            else:
                self.leaf_server.answer = lambda request: text(request, b"one\n")
                (await self.follow()).download.abort()
        await until(lambda: len(self.leaf_server.left) == target and not len(self.server.sessions))

    async def leave_early(self) -> None:
        self.leaf_server.answer = lambda request: server.NOT_DONE_YET
        request_count = len(self.leaf_server.asked)
        reading = Deferred.fromCoroutine(self.read(FOLLOW)).addErrback(lambda _: None)
        await until(lambda: len(self.leaf_server.asked) > request_count)
        reading.cancel()
