"""Tests for :mod:`twisted_exec.kube.client`: a real client and a scripted server on loopback."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred, DeferredList, maybeDeferred, succeed
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import TestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from tests.chain import PATIENCE_SECONDS
from tests.clocks import expire
from tests.kube.plugins import PluginScript
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError, Expired, Forbidden, ServiceUnavailable
from twisted_exec.kube import answers
from twisted_exec.kube import client as client_module
from twisted_exec.kube import transport as http
from twisted_exec.kube.answer_heads import AnswerHead
from twisted_exec.kube.client import KubeClient, kube_client_factory
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, ImpersonatedUser
from twisted_exec.kube.late_credentials import LateCredentials
from twisted_exec.kube.transport import IDLE_CONNECTIONS

MACHINES = kinds.MACHINES.resource
REVIEWS = kinds.SUBJECTACCESSREVIEWS.resource

Handler = Callable[[Request], Any]


class Scripted(Resource):
    """Answers every request with ``handler`` and records the requests."""

    isLeaf = True
    handler: Handler

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str]] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.connections: set[Any] = set()

    def render(self, request: Request) -> Any:
        self.asked.append((request.method.decode(), request.uri.decode()))
        self.bodies.append(request.content.read())
        self.headers.append(
            {
                k.decode().lower(): v[0].decode()
                for k, v in request.requestHeaders.getAllRawHeaders()
            }
        )
        self.connections.add(request.channel)
        answer = self.handler(request)
        if answer is NOT_DONE_YET or isinstance(answer, bytes):
            return answer
        return json.dumps(answer).encode()


def status(request: Request, code: int, **more: Any) -> dict[str, Any]:
    """Return a Status body and set its code."""
    request.setResponseCode(code)
    return {"kind": "Status", "code": code, "message": "no", **more}


class ClientTestCase(TestCase):
    """A :class:`KubeClient` that talks to a :class:`Scripted` server."""

    async def setUp(self) -> None:
        self.server = Scripted()
        self.port: IListeningPort = await TCP4ServerEndpoint(
            reactor, 0, interface="127.0.0.1"
        ).listen(Site(self.server, timeout=None))
        self.client = self.make_client()

    async def tearDown(self) -> None:
        await self.client.close()
        await maybeDeferred(self.port.stopListening)
        for channel in self.server.connections:
            if channel.transport is not None:
                channel.transport.abortConnection()

    def make_client(self, timeout_seconds: float = PATIENCE_SECONDS, **more: Any) -> KubeClient:
        config = ClientConfig(f"http://127.0.0.1:{self.port.getHost().port}", **more)
        return KubeClient(config, reactor, timeout_seconds=timeout_seconds)

    async def refusal(self, asking: Deferred[Any]) -> APIError:
        """Return the API error of a failing request."""
        with self.assertRaises(APIError) as caught:
            await asking
        return caught.exception


class AgentTests(ClientTestCase):
    """The client's User-Agent."""

    async def test_named(self) -> None:
        """The User-Agent is the agent's name, by which servers attribute field ownership."""
        self.server.handler = lambda request: {"metadata": {"name": "x"}}
        config = ClientConfig(f"http://127.0.0.1:{self.port.getHost().port}")
        named = KubeClient(config, reactor, timeout_seconds=PATIENCE_SECONDS, agent="exec-poollet")
        await named.get(MACHINES, "x", "lab")
        await named.close()
        await self.client.get(MACHINES, "x", "lab")
        told = [headers["user-agent"] for headers in self.server.headers]
        self.assertEqual(told, ["exec-poollet", "twisted-exec"])


class PluginTests(ClientTestCase):
    """Requests with the credential of a plugin."""

    starts = PROGRAMS

    async def setUp(self) -> None:
        await super().setUp()
        self.script = PluginScript(Path(self.mktemp()), "answer(token=f't{count}')")
        self.good = {"Bearer t2"}
        self.server.handler = self.answer
        self.plugged = self.make_client(plugin=self.script.plugin())

    async def tearDown(self) -> None:
        await self.plugged.close()
        await super().tearDown()

    def answer(self, request: Request) -> Any:
        if request.getHeader("authorization") not in self.good:
            return status(request, 401, reason="Unauthorized", message="Unauthorized")
        return {"metadata": {"name": "x"}}

    async def test_refused_once(self) -> None:
        """After a 401 the plugin runs once more and the request is repeated."""
        await self.plugged.create(MACHINES, {"metadata": {"name": "x"}}, "lab")
        await self.plugged.get(MACHINES, "x", "lab")
        sent = [headers["authorization"] for headers in self.server.headers]
        self.assertEqual(sent, ["Bearer t1", "Bearer t2", "Bearer t2"])
        self.assertEqual(len(self.script.runs()), 2)
        self.assertEqual(self.server.bodies[0], self.server.bodies[1])

    async def test_refused_twice(self) -> None:
        """A second 401 reaches the caller."""
        self.good = set()
        refusal = await self.refusal(self.plugged.get(MACHINES, "x", "lab"))
        self.assertEqual((refusal.code, len(self.script.runs())), (401, 2))

    async def test_watch(self) -> None:
        """A watch is repeated after a 401, too."""
        opened: list[bool] = []

        def watched(request: Request) -> Any:
            answer = self.answer(request)
            return answer if request.code == 401 else b""

        self.server.handler = watched
        await self.plugged.watch(
            MACHINES, lambda *_: None, resource_version="1", on_open=lambda: opened.append(True)
        )
        self.assertEqual((opened, len(self.script.runs())), ([True], 2))

    async def test_plugin_fails(self) -> None:
        """If the plugin fails, the error names its exit code and no request is sent."""
        client = self.make_client(plugin=PluginScript(Path(self.mktemp()), "sys.exit(4)").plugin())
        refusal = await self.refusal(client.get(MACHINES, "x", "lab"))
        self.assertEqual(refusal.code, 502)
        self.assertRegex(
            refusal.message, "^the credential plugin .*plugin failed with exit code 4$"
        )
        self.assertEqual(self.server.asked, [])

    async def test_impersonation(self) -> None:
        """Every request has the impersonation headers, each group on its own line."""
        self.good = {None}  # type: ignore[arg-type]
        groups: list[Any] = []

        def answer(request: Request) -> Any:
            groups.append(request.requestHeaders.getRawHeaders("impersonate-group"))
            return {"metadata": {"name": "x"}, "items": []}

        self.server.handler = answer
        client = self.make_client(impersonate=ImpersonatedUser("jane", groups=("a", "b")))
        await client.get(MACHINES, "x", "lab")
        await client.list(MACHINES)
        self.assertEqual(groups, [["a", "b"]] * 2)
        await client.close()


class VerbTests(ClientTestCase):
    """HTTP requests of the client's methods."""

    async def test_paths(self) -> None:
        """Each verb has its method and path; names are percent-encoded."""
        self.server.handler = lambda request: {"metadata": {"name": "x"}, "items": []}
        obj = {"metadata": {"name": "vm 1"}}
        await self.client.get(MACHINES, "vm/1", "lab")
        await self.client.create(MACHINES, obj, "lab")
        await self.client.update(MACHINES, obj, "lab", subresource="status")
        await self.client.patch(MACHINES, "vm", {"spec": {}}, "lab")
        await self.client.delete(MACHINES, "vm", "lab", uid="7")
        await self.client.list(MACHINES, field_selector="a=b", label_selector="c")
        root = "/apis/compute.ironcore.dev/v1alpha1"
        self.assertEqual(
            self.server.asked,
            [
                ("GET", f"{root}/namespaces/lab/machines/vm%2F1"),
                ("POST", f"{root}/namespaces/lab/machines"),
                ("PUT", f"{root}/namespaces/lab/machines/vm%201/status"),
                ("PATCH", f"{root}/namespaces/lab/machines/vm"),
                ("DELETE", f"{root}/namespaces/lab/machines/vm"),
                ("GET", f"{root}/machines?fieldSelector=a%3Db&labelSelector=c&limit=500"),
            ],
        )
        self.assertEqual(self.server.headers[3]["content-type"], "application/merge-patch+json")
        self.assertEqual(json.loads(self.server.bodies[4])["preconditions"], {"uid": "7"})

    async def test_delete_of_a_version(self) -> None:
        """A deletion may be of one version of an object."""
        self.server.handler = lambda request: {"metadata": {"name": "x"}}
        await self.client.delete(MACHINES, "vm", "lab", uid="7", version="9")
        conditions = {"uid": "7", "resourceVersion": "9"}
        self.assertEqual(json.loads(self.server.bodies[-1])["preconditions"], conditions)

    async def test_no_cookies(self) -> None:
        """A cookie of the server is not sent with a later request."""

        def handler(request: Request) -> Any:
            request.addCookie("session", "x", path="/")
            return {"metadata": {"name": "x"}}

        self.server.handler = handler
        for _ in range(2):
            await self.client.get(MACHINES, "x", "default")
        self.assertEqual(len(self.server.headers), 2)
        self.assertFalse(any("cookie" in headers for headers in self.server.headers))

    async def test_connections_persist(self) -> None:
        """Consecutive requests share one connection."""
        self.server.handler = lambda request: {}
        for _ in range(5):
            await self.client.get(MACHINES, "vm", "lab")
        self.assertEqual(len(self.server.connections), 1)

    async def test_bursts_share_connections(self) -> None:
        """Bursts of requests, as of reviews after a withdrawal, use the connections of the first."""
        self.server.handler = lambda request: {}
        for _ in range(3):
            burst = [self.client.get(MACHINES, "vm", "lab") for _ in range(IDLE_CONNECTIONS)]
            await DeferredList(burst, fireOnOneErrback=True)
        self.assertLessEqual(len(self.server.connections), IDLE_CONNECTIONS)

    async def test_nothing_is_kept(self) -> None:
        """An exchange is freed without the garbage collector."""
        self.server.handler = lambda request: {}
        await self.client.get(MACHINES, "vm", "lab")
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        before = self.heads()
        await self.client.get(MACHINES, "vm", "lab")
        await deferLater(reactor, 0)  # the transport has called us
        self.assertEqual(self.heads() - before, set())

    def heads(self) -> set[AnswerHead]:
        return {each for each in gc.get_objects() if isinstance(each, AnswerHead)}

    async def test_pages(self) -> None:
        """A paginated list arrives complete, with the version of its last page."""
        pages = iter(
            [
                {"items": [{"metadata": {"name": "a"}}], "metadata": {"continue": "k/&"}},
                {"items": [{"metadata": {"name": "b"}}], "metadata": {"resourceVersion": "9"}},
            ]
        )
        self.server.handler = lambda request: next(pages)
        whole = await self.client.list(MACHINES)
        self.assertEqual([item["metadata"]["name"] for item in whole["items"]], ["a", "b"])
        self.assertEqual(whole["metadata"], {"resourceVersion": "9"})
        self.assertIn("continue=k%2F%26", self.server.asked[1][1])

    async def test_pages_without_end(self) -> None:
        """A list larger than ``list_bytes`` fails, because the server may be malicious."""

        def handler(request: Request) -> Any:
            item = {"metadata": {"name": "x" * 1000}}
            return {"items": [item], "metadata": {"continue": "more", "resourceVersion": "1"}}

        self.server.handler = handler
        client = KubeClient(
            self.client.config, reactor, timeout_seconds=PATIENCE_SECONDS, list_bytes=20_000
        )
        with self.assertRaises(APIError) as caught:
            await client.list(MACHINES)
        await client.close()
        self.assertIn("the list is larger than 20000 bytes", caught.exception.message)
        self.assertLess(len(self.server.asked), 25)

    async def test_others_without_end(self) -> None:
        """A client of others' servers limits lists by itself."""
        page = {"items": [], "metadata": {"continue": "x" * 1000, "resourceVersion": "1"}}
        self.server.handler = lambda request: page
        self.patch(client_module, "MAX_LIST_BYTES", 20_000)
        make = kube_client_factory(reactor, "test")
        client = make(LateCredentials("the leaf", lambda: self.client.config))
        self.addCleanup(client.close)
        refused = await self.refusal(client.list(MACHINES))
        self.assertIn("the list is larger than 20000 bytes", refused.message)

    async def test_pages_trimmed(self) -> None:
        """``trim`` runs on each page, so that at most one untrimmed page is in memory."""
        told: list[str] = []

        def answer(request: Request) -> Any:
            told.append("page")
            more = {} if b"continue" in request.args else {"continue": "k"}
            return {"items": [{"metadata": {"name": "a"}, "spec": {}}], "metadata": more}

        def trim(obj: Any) -> Any:
            told.append("trimmed")
            return {"metadata": obj["metadata"]}

        self.server.handler = answer
        whole = await self.client.list(MACHINES, trim=trim)
        self.assertEqual(whole["items"], [{"metadata": {"name": "a"}}] * 2)
        self.assertEqual(told, ["page", "trimmed"] * 2)

    async def test_first_objects(self) -> None:
        """Of a long list only as many objects are fetched as the caller can use, and one more."""

        def answer(request: Request) -> Any:
            first = int(request.args.get(b"continue", [b"0"])[0])
            count = min(2, int(request.args[b"limit"][0]))
            items = [{"metadata": {"name": str(first + each)}} for each in range(count)]
            return {"items": items, "metadata": {"continue": str(first + count)}}

        self.server.handler = answer
        items = await self.client.list_first(MACHINES, most=4, label_selector="app=x")
        self.assertEqual([item["metadata"]["name"] for item in items], ["0", "1", "2", "3", "4"])
        limits = [uri.partition("limit=")[2].partition("&")[0] for _, uri in self.server.asked]
        self.assertEqual(limits, ["5", "3", "1"])
        self.assertIn("labelSelector=app%3Dx", self.server.asked[0][1])

    async def test_first_objects_of_few(self) -> None:
        """A short list is complete; a page without objects ends it, whatever the server promises."""
        self.server.handler = lambda request: {"items": [], "metadata": {"continue": "more"}}
        self.assertEqual(await self.client.list_first(MACHINES, most=4), [])
        machine = {"metadata": {"name": "a"}}
        self.server.handler = lambda request: {"items": [machine], "metadata": {}}
        self.assertEqual(await self.client.list_first(MACHINES, most=4), [machine])

    async def test_large_list(self) -> None:
        """All pages together have a limit, also those of which little is kept."""
        machine = {"metadata": {"name": "a"}, "spec": {"image": "x" * 1000}}
        self.server.handler = lambda request: {"items": [machine], "metadata": {"continue": "1"}}
        client = KubeClient(
            self.client.config, reactor, timeout_seconds=PATIENCE_SECONDS, list_bytes=5000
        )
        self.addCleanup(client.close)
        for listing in (
            client.list(MACHINES),
            Deferred.fromCoroutine(client.list_first(MACHINES, most=9)),
        ):
            self.assertIn("is larger than 5000 bytes", (await self.refusal(listing)).message)

    async def test_pages_expired(self) -> None:
        """When the pages' version expires, the list is fetched without pagination."""

        def answer(request: Request) -> Any:
            if b"continue" in request.args:
                return status(request, 410)
            more = {"continue": "k"} if b"limit" in request.args else {"resourceVersion": "3"}
            return {"items": [{"metadata": {"name": "a"}}], "metadata": more}

        self.server.handler = answer
        whole = await self.client.list(MACHINES)
        self.assertEqual(len(whole["items"]), 1)
        self.assertEqual(whole["metadata"]["resourceVersion"], "3")

    async def test_credentials(self) -> None:
        """A token file is read for each request; without credentials no header is sent."""
        self.server.handler = lambda request: {}
        await self.client.get(MACHINES, "vm")
        self.assertNotIn("authorization", self.server.headers[0])
        path = Path(self.mktemp())
        path.write_text("one\n")
        client = self.make_client(token_file=str(path))
        await client.get(MACHINES, "vm")
        path.write_text("two")
        await client.get(MACHINES, "vm")
        await client.close()
        told = [headers.get("authorization") for headers in self.server.headers[1:]]
        self.assertEqual(told, ["Bearer one", "Bearer two"])

    async def test_basic(self) -> None:
        """User name and password are sent as Basic."""
        self.server.handler = lambda request: {}
        client = self.make_client(username="u", password="p")
        await client.get(MACHINES, "vm")
        await client.close()
        self.assertEqual(self.server.headers[0]["authorization"], "Basic dTpw")


class ErrorTests(ClientTestCase):
    """All failures are API errors."""

    async def test_status(self) -> None:
        """A Status keeps its code, reason, message and details."""
        self.server.handler = lambda request: status(
            request, 403, reason="Forbidden", message="may not", details={"name": "vm"}
        )
        refused = await self.refusal(self.client.get(MACHINES, "vm"))
        self.assertEqual(
            (refused.code, refused.reason, refused.message), (403, "Forbidden", "may not")
        )
        self.assertEqual(refused.details, {"name": "vm"})

    async def test_retry_after(self) -> None:
        """A Retry-After header is kept."""

        def answer(request: Request) -> Any:
            request.setHeader("Retry-After", "7")
            return status(request, 429)

        self.server.handler = answer
        self.assertEqual(
            (await self.refusal(self.client.get(MACHINES, "vm"))).retry_after_seconds, 7
        )

    async def test_text(self) -> None:
        """An answer that is not a Status gives its text, on one line."""

        def answer(request: Request) -> Any:
            request.setResponseCode(503)
            return b"back\n\x1b[2Jsoon"

        self.server.handler = answer
        refused = await self.refusal(self.client.get(MACHINES, "vm"))
        self.assertEqual((refused.code, refused.message), (503, "back [2Jsoon"))

    async def test_redirect(self) -> None:
        """A redirect is not followed, because it would carry the credentials elsewhere."""

        def answer(request: Request) -> Any:
            request.setResponseCode(307)
            request.setHeader("Location", "http://127.0.0.1:1/")
            return b""

        self.server.handler = answer
        refused = await self.refusal(self.client.get(MACHINES, "vm"))
        self.assertEqual(refused.code, 502)
        self.assertIn("redirects are not followed", refused.message)
        self.assertEqual(len(self.server.asked), 1)

    async def test_nonsense(self) -> None:
        """A successful response that is not an object, or not a list, is a 502."""
        self.server.handler = lambda request: b"[1]"
        self.assertEqual((await self.refusal(self.client.get(MACHINES, "vm"))).code, 502)
        self.server.handler = lambda request: {"items": [7], "metadata": {}}
        self.assertEqual((await self.refusal(self.client.list(MACHINES))).code, 502)

    async def test_discovery(self) -> None:
        """Discovery names groups and resources; another document is an error that names it."""
        client, listed = self.client, {"groups": [{"name": "a"}], "resources": [{"name": "b"}]}
        self.server.handler = lambda request: listed
        self.assertEqual((await client.groups(), await client.resources("a", "v1")), (["a"], ["b"]))
        self.server.handler = lambda request: {"groups": None}
        self.assertEqual((await client.groups(), await client.resources("a", "v1")), ([], []))
        for wrong in (1, "abc", {"name": "a"}, [7], [{}], [{"name": 1}]):
            self.server.handler = lambda request, wrong=wrong: {"groups": wrong, "resources": wrong}
            refused = await self.refusal(client.groups())
            self.assertEqual(
                refused.message, f"{client.config.server}/apis: its groups are not a list of names"
            )
            asking = Deferred.fromCoroutine(client.resources("a", "v1"))
            self.assertIn("/apis/a/v1: its resources", (await self.refusal(asking)).message)

    async def test_refused(self) -> None:
        """An unreachable server is a 502 with its address."""
        await maybeDeferred(self.port.stopListening)
        refused = await self.refusal(self.client.get(MACHINES, "vm"))
        self.assertEqual(refused.code, 502)
        self.assertEqual(
            refused.message,
            f"cannot reach the API server {self.client.config.server}: connection refused",
        )

    async def test_slow(self) -> None:
        """A time-out is a 504 and closes the connection."""
        gone: list[Any] = []

        def answer(request: Request) -> Any:
            request.notifyFinish().addErrback(gone.append)
            return NOT_DONE_YET

        self.server.handler = answer
        asking = self.make_client(timeout_seconds=3600).get(MACHINES, "vm")
        await until(lambda: bool(self.server.asked))
        expire(reactor, 3000)
        self.assertEqual((await self.refusal(asking)).code, 504)
        await until(lambda: bool(gone))

    async def test_slow_body(self) -> None:
        """The time-out covers the whole body, not only the head."""
        gone: list[Any] = []

        def answer(request: Request) -> Any:
            request.notifyFinish().addErrback(gone.append)
            request.write(b'{"a":')
            return NOT_DONE_YET

        heads: list[Any] = []
        collected = http._collected

        def collect(response: Any, *rest: Any) -> Any:
            heads.append(response)
            return collected(response, *rest)

        self.patch(http, "_collected", collect)
        self.server.handler = answer
        asking = self.make_client(timeout_seconds=3600).get(MACHINES, "vm")
        await until(lambda: bool(heads))
        expire(reactor, 3000)
        self.assertEqual((await self.refusal(asking)).code, 504)
        await until(lambda: bool(gone))

    async def test_too_large(self) -> None:
        """An answer beyond the limit of bytes, or of values, fails."""
        client = KubeClient(
            self.client.config, reactor, timeout_seconds=PATIENCE_SECONDS, body_bytes=1600
        )
        self.addCleanup(client.close)
        for content, problem in (
            (b" " * 1601, "the server's answer is larger than 1600 bytes"),
            ({"items": [1] * 101}, "the API server's answer has more than 100 values"),
        ):
            self.server.handler = lambda request, content=content: content
            self.assertEqual((await self.refusal(client.get(MACHINES, "vm"))).message, problem)

    async def test_announced_too_large(self) -> None:
        """An answer whose announced length is beyond the limit fails before its body is read."""

        def answer(request: Request) -> Any:
            request.setHeader("Content-Length", str(limit + 1))
            request.write(b" ")
            return NOT_DONE_YET

        limit, self.server.handler = client_module.MAX_BODY_BYTES, answer
        refused = await self.refusal(self.client.get(MACHINES, "vm"))
        self.assertEqual(refused.message, f"the server's answer is larger than {limit} bytes")

    async def test_forgotten(self) -> None:
        """Nothing is kept of the body of an answer that failed, however long the error is kept."""
        client = KubeClient(
            self.client.config, reactor, timeout_seconds=PATIENCE_SECONDS, body_bytes=200_000
        )
        self.addCleanup(client.close)
        # Private, because only the frames of the error's traceback refer to it.
        made: list[Any] = []

        class Collector(http._Collector):
            def __init__(self, limit_bytes: int) -> None:
                super().__init__(limit_bytes)
                made.append(self)

        self.patch(http, "_Collector", Collector)

        def answer(request: Request) -> Any:
            request.write(b" " * 400_000)
            return NOT_DONE_YET

        self.server.handler = answer
        refused = await self.refusal(client.get(MACHINES, "vm"))
        self.assertIn("larger than", refused.message)
        self.assertEqual([bytes(each.content) for each in made], [b""])

    async def test_bad_token_file(self) -> None:
        """A missing token file, or one with line breaks, fails without showing its content."""
        path = Path(self.mktemp()).absolute()
        path.write_text("canary\r\nX-Remote-User: admin")
        client = self.make_client(token_file=str(path))
        refused = await self.refusal(client.get(MACHINES, "vm"))
        self.assertIn("holds no token", refused.message)
        self.assertNotIn("canary", refused.message)
        path.unlink()
        refused = await self.refusal(client.get(MACHINES, "vm"))
        self.assertIn("No such file", refused.message)

    async def test_cancel(self) -> None:
        """Cancelling a request closes its connection."""
        gone: list[Any] = []

        def answer(request: Request) -> Any:
            request.notifyFinish().addErrback(gone.append)
            return NOT_DONE_YET

        self.server.handler = answer
        asking = self.client.get(MACHINES, "vm")
        await until(lambda: bool(self.server.asked))
        asking.cancel()
        with self.assertRaises(CancelledError):
            await asking
        await until(lambda: bool(gone))


class StaleConnectionTests(ClientTestCase):
    """A pooled connection that the server closes during a request."""

    async def lose_second(self, asking: Callable[[], Deferred[Any]]) -> Any:
        """Answer one request, cut the connection on the next, then answer again."""

        def answer(request: Request) -> Any:
            if len(self.server.asked) == 2:
                request.channel.transport.abortConnection()
                return NOT_DONE_YET
            return {}

        self.server.handler = answer
        await self.client.get(MACHINES, "vm")
        return await asking()

    async def test_read_is_repeated(self) -> None:
        """A read is repeated."""
        await self.lose_second(lambda: self.client.get(MACHINES, "vm"))
        self.assertEqual(len(self.server.asked), 3)

    async def test_review_is_repeated(self) -> None:
        """A review changes nothing, so it is repeated, too."""
        await self.lose_second(lambda: self.client.create(REVIEWS, {}))
        self.assertEqual(len(self.server.asked), 3)

    async def test_write_is_not(self) -> None:
        """A write may have succeeded, so it fails with 502 and is not repeated."""
        refused = await self.refusal(
            Deferred.fromCoroutine(
                self.lose_second(lambda: self.client.create(MACHINES, {}, "lab"))
            )
        )
        self.assertEqual((refused.code, len(self.server.asked)), (502, 2))


class WatchTests(ClientTestCase):
    """Tests for :meth:`KubeClient.watch`."""

    def watch(self, **more: Any) -> tuple[Deferred[None], list[tuple[str, str]]]:
        events: list[tuple[str, str]] = []
        watching = self.client.watch(
            MACHINES,
            lambda kind, obj: events.append((kind, obj["metadata"].get("name", ""))),
            resource_version="5",
            **more,
        )
        return watching, events

    async def test_events_on_any_split(self) -> None:
        """Events arrive complete, on any split of the bytes."""
        lines = b"".join(
            json.dumps({"type": kind, "object": {"metadata": {"name": name}}}).encode() + b"\n"
            for kind, name in [("ADDED", "ä"), ("MODIFIED", "b"), ("DELETED", "c")]
        )
        lines += b'\n{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}\n'

        def answer(request: Request) -> Any:
            for position in range(len(lines)):
                request.write(lines[position : position + 1])
            request.finish()
            return NOT_DONE_YET

        self.server.handler = answer
        watching, events = self.watch(field_selector="spec.machinePoolRef.name=p")
        await watching
        self.assertEqual(
            events, [("ADDED", "ä"), ("MODIFIED", "b"), ("DELETED", "c"), ("BOOKMARK", "")]
        )
        asked = self.server.asked[0][1]
        self.assertIn("resourceVersion=5", asked)
        self.assertIn("allowWatchBookmarks=true", asked)
        self.assertIn("timeoutSeconds=", asked)

    async def test_error_event(self) -> None:
        """An ERROR event fails the watch, with Expired for code 410."""
        self.server.handler = lambda request: (
            b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}\n'
        )
        watching, _ = self.watch()
        with self.assertRaises(Expired) as caught:
            await watching
        self.assertEqual(caught.exception.message, "too old")

    async def test_expired_at_once(self) -> None:
        """A 410 response instead of a stream raises Expired."""
        self.server.handler = lambda request: status(request, 410)
        watching, _ = self.watch()
        with self.assertRaises(Expired):
            await watching

    async def test_forbidden(self) -> None:
        """Any other error response reaches the caller unchanged."""
        self.server.handler = lambda request: status(request, Forbidden.code)
        watching, _ = self.watch()
        self.assertEqual((await self.refusal(watching)).code, 403)

    async def test_lost(self) -> None:
        """A lost connection fails the watch."""

        def answer(request: Request) -> Any:
            request.write(b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}\n')
            return NOT_DONE_YET

        self.server.handler = answer
        watching, events = self.watch()
        await until(lambda: bool(events))
        (channel,) = self.server.connections
        channel.transport.abortConnection()
        self.assertEqual((await self.refusal(watching)).code, 502)
        self.assertEqual(events, [("ADDED", "a")])

    async def test_silent(self) -> None:
        """A watch that the server does not end in time is a 504."""
        gone: list[Any] = []

        def answer(request: Request) -> Any:
            request.notifyFinish().addErrback(gone.append)
            request.write(b"\n")
            return NOT_DONE_YET

        self.server.handler = answer
        self.patch(client_module, "WATCH_SECONDS", -20)
        self.patch(client_module, "WATCH_GRACE_SECONDS", 3620)
        watching, _ = self.watch()
        await until(lambda: bool(self.server.asked))
        expire(reactor, 3000)
        self.assertEqual((await self.refusal(watching)).code, 504)
        await until(lambda: bool(gone))

    async def test_cancel(self) -> None:
        """Cancelling closes the connection and stops delivery."""
        gone: list[Any] = []

        def answer(request: Request) -> Any:
            request.notifyFinish().addErrback(gone.append)
            request.write(b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}\n')
            return NOT_DONE_YET

        self.server.handler = answer
        watching, events = self.watch()
        await until(lambda: bool(events))
        watching.cancel()
        with self.assertRaises(CancelledError):
            await watching
        await until(lambda: bool(gone))

    async def test_garbage(self) -> None:
        """An invalid event fails the watch with 502."""
        for garbage in (b"x\n", b"[]\n", b'{"type":"ADDED"}\n', b'{"type":"ADDED","object":{}}\n'):
            self.server.handler = lambda request, garbage=garbage: garbage
            watching, _ = self.watch()
            self.assertEqual((await self.refusal(watching)).code, 502)

    async def test_endless_line(self) -> None:
        """An event beyond the size limit fails the watch."""
        self.patch(answers, "MAX_EVENT_BYTES", 100)
        self.server.handler = lambda request: b"x" * 101
        watching, _ = self.watch()
        self.assertIn("larger than 100 bytes", (await self.refusal(watching)).message)

    async def test_listener_fails(self) -> None:
        """The listener's exception fails the watch."""
        self.server.handler = lambda request: (
            b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}\n'
        )

        def on_event(kind: str, obj: Any) -> None:
            raise LookupError("mine")

        with self.assertRaises(LookupError):
            await self.client.watch(MACHINES, on_event, resource_version="1")


class Answering(Protocol):
    """Answers each request, which has no body, in its own way."""

    transport: Any

    def __init__(self) -> None:
        self._received = b""

    def dataReceived(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            self.answer(head)

    def answer(self, head: bytes) -> None:
        raise NotImplementedError


def endless(first: bytes, part: bytes) -> type[Protocol]:
    """Return a protocol that answers with ``first`` and then repeats ``part`` forever."""

    class Endless(Answering):
        def answer(self, head: bytes) -> None:
            self.transport.write(first)
            self.transport.registerProducer(self, False)

        def resumeProducing(self) -> None:
            self.transport.write(part)

        def stopProducing(self) -> None:
            pass

    return Endless


class GarbageServerTests(TestCase):
    """A server that does not speak HTTP."""

    async def test_not_http(self) -> None:
        """An answer that is not HTTP is a 502."""

        class Garbage(Answering):
            def answer(self, head: bytes) -> None:
                self.transport.write(b"\x15\x03\x01\x00\x02\x02\x16")
                self.transport.loseConnection()

        port = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(
            Factory.forProtocol(Garbage)
        )
        self.addCleanup(port.stopListening)
        client = KubeClient(
            ClientConfig(f"http://127.0.0.1:{port.getHost().port}"),
            reactor,
            timeout_seconds=PATIENCE_SECONDS,
        )
        with self.assertRaises(APIError) as caught:
            await client.get(MACHINES, "vm")
        await client.close()
        self.assertEqual(caught.exception.code, 502)
        self.assertNotIn("\n", caught.exception.message)

    async def test_heads_without_end(self) -> None:
        """
        Endless headers or interim responses fail the request, without filling memory or the log.
        """
        for first, part in (
            (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
            (b"HTTP/1.1 200 OK\r\nA: b\r\n", b"X-A: " + b"x" * 10_000 + b"\r\n"),
        ):
            logged: list[Any] = []
            globalLogPublisher.addObserver(logged.append)
            self.addCleanup(globalLogPublisher.removeObserver, logged.append)
            port = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(
                Factory.forProtocol(endless(first, part))
            )
            client = KubeClient(
                ClientConfig(f"http://127.0.0.1:{port.getHost().port}"),
                reactor,
                timeout_seconds=PATIENCE_SECONDS,
            )
            with self.assertRaises(APIError) as caught:
                await client.get(MACHINES, "vm")
            await client.close()
            await maybeDeferred(port.stopListening)
            self.assertIn("it sends heads without end", caught.exception.message)
            self.assertLess(len(logged), 50)

    async def test_interim(self) -> None:
        """Interim responses are skipped, and the rest of the same bytes is read completely."""
        body = b"\n\n" * 20 + b'{"metadata": {"name": "vm"}}'

        class Interim(Answering):
            def answer(self, head: bytes) -> None:
                self.transport.write(
                    b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: "
                    + b"%d\r\n\r\n" % len(body)
                    + body
                )

        port = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(
            Factory.forProtocol(Interim)
        )
        self.addCleanup(port.stopListening)
        client = KubeClient(
            ClientConfig(f"http://127.0.0.1:{port.getHost().port}"),
            reactor,
            timeout_seconds=PATIENCE_SECONDS,
        )
        for _ in range(3):  # over one connection
            self.assertEqual((await client.get(MACHINES, "vm"))["metadata"]["name"], "vm")
        await client.close()

    async def test_not_quoted(self) -> None:
        """Errors never quote an invalid answer: it may echo the credentials."""
        for form in (
            b"HTTP/1.1 %s 200",
            b"%s",
            b"HTTP/1.1 200 OK\r\nContent-Length: %s",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%s",
            b"HTTP/1.1 200 OK\r\n%s",
        ):
            message = await self.message_of(form)
            self.assertNotIn("s3cret", message)

    async def message_of(self, form: bytes) -> str:
        class Echo(Answering):
            def answer(self, head: bytes) -> None:
                told = head.split(b"Authorization: ")[1].partition(b"\r\n")[0]
                self.transport.write(form % told.replace(b" ", b"") + b"\r\n\r\n")
                self.transport.loseConnection()

        port = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(
            Factory.forProtocol(Echo)
        )
        config = ClientConfig(f"http://127.0.0.1:{port.getHost().port}", token="s3cret")
        client = KubeClient(config, reactor, timeout_seconds=PATIENCE_SECONDS)
        with self.assertRaises(APIError) as caught:
            await client.get(MACHINES, "vm")
        await client.close()
        await maybeDeferred(port.stopListening)
        return caught.exception.message


async def until(condition: Callable[[], bool]) -> None:
    """Let the reactor turn until ``condition`` holds; the test's time-out bounds it."""
    while not condition():
        turn: Deferred[None] = Deferred()
        reactor.callLater(0, turn.callback, None)
        await turn


class LateCredentialsTests(ClientTestCase):
    """Credentials that arrive after the client starts."""

    async def setUp(self) -> None:
        await super().setUp()
        self.config: ClientConfig | None = None
        self.accepted = "new"
        self.server.handler = self.answer
        credentials = LateCredentials('leaf "a"', self.current, reread=self.reread)
        self.late = KubeClient(credentials, reactor, timeout_seconds=PATIENCE_SECONDS)

    async def tearDown(self) -> None:
        await self.late.close()
        await super().tearDown()

    def current(self) -> ClientConfig:
        if self.config is None:
            raise ServiceUnavailable("no credentials yet")
        return self.config

    def use(self, token: str) -> None:
        url = f"http://127.0.0.1:{self.port.getHost().port}"
        self.config = ClientConfig(url, token=token, source="secret a/b")

    def reread(self, refused: ClientConfig) -> Deferred[bool]:
        self.use("new")
        return succeed(refused != self.config)

    def answer(self, request: Request) -> Any:
        if request.getHeader("authorization") != f"Bearer {self.accepted}":
            return status(request, 401, reason="Unauthorized", message="Unauthorized")
        return {"metadata": {"name": "x"}}

    async def test_arrive(self) -> None:
        """Requests fail with the reason until credentials arrive."""
        refused = await self.refusal(self.late.get(MACHINES, "x"))
        self.assertEqual(refused.message, "no credentials yet")
        self.assertEqual(self.server.headers, [])
        self.use("new")
        self.assertEqual(await self.late.get(MACHINES, "x"), {"metadata": {"name": "x"}})

    async def test_replaced(self) -> None:
        """After a 401 a request is repeated with new credentials."""
        self.use("old")
        await self.late.get(MACHINES, "x")
        tokens = [headers["authorization"] for headers in self.server.headers]
        self.assertEqual(tokens, ["Bearer old", "Bearer new"])

    async def test_rejected(self) -> None:
        """If the new credentials fail as well, the error names them."""
        self.accepted = "newest"
        self.use("old")
        refused = await self.refusal(self.late.get(MACHINES, "x"))
        self.assertEqual(len(self.server.headers), 2)
        self.assertTrue(
            refused.message.startswith('leaf "a" rejects the credentials (secret a/b): '),
            refused.message,
        )

    async def test_close_unused(self) -> None:
        """A client without credentials closes at once."""
        await self.late.close()
