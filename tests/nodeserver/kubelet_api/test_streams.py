"""
Tests for :mod:`twisted_exec.nodeserver.kubelet_api.streams`: through the routes, to a leaf on
loopback.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.task import deferLater
from zope.interface import implementer

from tests.chain import reactor
from tests.nodeserver.stream_chain import ROOT, SPDY_HEAD, ChainTestCase
from tests.nodeserver.support import put_leaf_pod, put_pod
from tests.streaming.frames import KEY
from tests.streaming.raw import Raw
from twisted_exec.api.kinds.pods.machine_pods import PODS
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.interfaces import LeafPod
from twisted_exec.nodeserver.kubelet_api.streams import stream_routes
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_server import take_over
from twisted_exec.wire.upgrade import switching_protocols

EXEC = "/exec/default/web/main?command=sh&command=-c&command=a%20b&output=1&error=1"
WEBSOCKET = (
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: " + KEY,
)
WITHIN_SECONDS = 1.0


def forbidden(message: str) -> bytes:
    document = {"kind": "Status", "reason": "Forbidden", "code": 403, "message": message}
    return json.dumps(document).encode()


@implementer(IHalfCloseableProtocol)
class Deaf(Raw):
    """Does not care that the other side sends no more."""

    def readConnectionLost(self) -> None:
        """So what."""

    def writeConnectionLost(self) -> None:
        """Nor that."""


class StreamTestCase(ChainTestCase):
    """With the routes of streams."""

    def routes(self) -> Any:
        return stream_routes(self.collaborators)


class DeclaredReasonTests(StreamTestCase):
    """A node server that requires reasons."""

    requires_reason = True

    async def test_required(self) -> None:
        """exec and attach without a reason are refused, with what to do; port-forward is not."""
        for path in (EXEC, "/attach/default/web/main?output=1"):
            code, message = await self.refused(path)
            self.assertEqual(code, 403, message)
            self.assertIn("-- console --reason", message)
            self.assertIn("X-Twisted-Exec-Reason", message)
        self.assertEqual(self.leaf_server.asked, [])
        self.assertEqual({each["code"] for each in self.records[1::2]}, {403})
        client = await self.answered(await self.ask("/portForward/default/web", *SPDY_HEAD))
        self.assertEqual(client.code, 101)

    async def test_declared(self) -> None:
        """A reason in the header or in the command of a console suffices."""
        console = "/exec/default/web/main?command=console&command=--reason&command=T&output=1"
        for path, lines in ((EXEC, [b"X-Twisted-Exec-Reason: T"]), (console, [])):
            client = await self.answered(await self.ask(path, *SPDY_HEAD, *lines))
            self.assertEqual(client.code, 101, client.head)

    async def test_after_authorization(self) -> None:
        """A user without permission does not learn what is required."""
        self.everyone.users.clear()
        _, message = await self.refused(EXEC)
        self.assertNotIn("reason", message)


class PassedTests(StreamTestCase):
    """Requests to the leaf."""

    async def test_exec(self) -> None:
        """The leaf gets its own words, the method, and one protocol in each line."""
        await self.answered(await self.ask(EXEC, *SPDY_HEAD))
        ((method, uri, headers),) = self.leaf_server.asked
        self.assertEqual(method, b"POST")
        self.assertEqual(
            uri,
            b"/api/v1/namespaces/default/pods/web/exec?command=sh&command=-c&command=a+b"
            b"&container=main&stdout=true&stderr=true",
        )
        lines = [(name.lower(), value) for name, value in headers]
        for line in (
            (b"authorization", b"Bearer of-the-leaf"),
            (b"upgrade", b"SPDY/3.1"),
            (b"connection", b"Upgrade"),
            (b"content-length", b"0"),
            (b"host", f"127.0.0.1:{self.leaf_port}".encode()),
        ):
            self.assertEqual(lines.count(line), 1, line)
        offered = [value for name, value in lines if name == b"x-stream-protocol-version"]
        self.assertEqual(offered, [b"v4.channel.k8s.io", b"v3.channel.k8s.io"])
        self.assertNotIn(b"kube-apiserver-kubelet-client", b"".join(value for _, value in lines))

    async def test_reason(self) -> None:
        """The reason of a header is on record, with Node, Pod and root, and goes to the leaf."""
        await self.answered(await self.ask(EXEC, *SPDY_HEAD, b"X-Twisted-Exec-Reason: INC%207"))
        ((_, uri, headers),) = self.leaf_server.asked
        self.assertTrue(uri.endswith(b"&reason=INC%207"), uri)
        self.assertNotIn(b"x-twisted-exec-reason", [name.lower() for name, _ in headers])
        record = self.records[0]
        expected = {
            "hop": "nodeserver",
            "user": ROOT,
            "pool": "leaf-one",
            "namespace": "default",
            "machine": "web",
            "uid": self.root_pod["metadata"]["uid"],
            "address": "127.0.0.1",
            "declared_reason": "INC 7",
        }
        self.assertEqual({key: record[key] for key in expected}, expected)

    async def test_reason_of_a_command(self) -> None:
        """The reason of ``kubectl exec -it POD -- console --reason T`` is on record."""
        for words in ("command=--reason&command=INC-7", "command=--reason%3DINC-7"):
            path = f"/exec/default/web/main?command=console&{words}&input=1&output=1"
            await self.answered(await self.ask(path, *SPDY_HEAD))
            self.assertEqual(self.records[-1]["declared_reason"], "INC-7")
            _, uri, _ = self.leaf_server.asked.pop()
            self.assertNotIn(b"&reason=", uri)

    async def test_bad_reason(self) -> None:
        """A reason with control characters is refused."""
        code, message = await self.refused(EXEC, *SPDY_HEAD, b"X-Twisted-Exec-Reason: a%0Ab")
        self.assertEqual((code, "U+000A" in message), (400, True))

    async def test_every_path(self) -> None:
        """Each path of a kubelet, with the Pod's UID and without, as GET and as POST."""
        uid = self.root_pod["metadata"]["uid"]
        for target, path in (
            ("attach/default/web/two?input=1&tty=1", "attach?container=two&stdin=true&tty=true"),
            (f"attach/default/web/{uid}/two?output=1", "attach?container=two&stdout=true"),
            (
                f"exec/default/web/{uid}/main?command=ls&output=1",
                "exec?command=ls&container=main&stdout=true",
            ),
            ("portForward/default/web", "portforward"),
            (f"portForward/default/web/{uid}", "portforward"),
        ):
            for method in ("GET", "POST"):
                client = await self.answered(
                    await self.ask(f"/{target}", *SPDY_HEAD, method=method)
                )
                self.assertEqual(client.code, 101)
                request = self.leaf_server.asked.pop()
                expected = f"/api/v1/namespaces/default/pods/web/{path}"
                self.assertEqual(request[:2], (method.encode(), expected.encode()))

    async def test_last_slash(self) -> None:
        """With a slash at the end a path is about the same container, which must be one of the Pod's."""
        uid = self.root_pod["metadata"]["uid"]
        query = "?command=ls&output=1"
        for path in (f"default/web/{uid}", f"default/web/{uid}/none"):
            code, message = await self.refused(f"/exec/{path}/{query}")
            self.assertEqual((code, "container not found" in message), (404, True))
        self.assertEqual(self.leaf_server.asked, [])
        for path in ("default/web/main", f"default/web/{uid}/main"):
            client = await self.answered(await self.ask(f"/exec/{path}/{query}", *SPDY_HEAD))
            self.assertEqual(client.code, 101)
            _, uri, _ = self.leaf_server.asked.pop()
            self.assertIn(b"command=ls&container=main&", uri)

    async def test_websockets(self) -> None:
        """Every protocol of a WebSocket is the client's and the leaf's own business."""
        for target, protocol in (
            (EXEC, b"v5.channel.k8s.io"),
            (EXEC, b"v4.channel.k8s.io"),
            (EXEC, b"base64.channel.k8s.io"),
            ("/portForward/default/web", b"SPDY/3.1+portforward.k8s.io"),
            ("/portForward/default/web?port=80,81", b"v4.channel.k8s.io"),
        ):
            line = b"Sec-WebSocket-Protocol: " + protocol
            client = await self.answered(await self.ask(target, *WEBSOCKET, line, method="GET"))
            self.assertIn(line.lower(), client.head.lower())
            _, uri, headers = self.leaf_server.asked.pop()
            lowered = [(name.lower(), value) for name, value in headers]
            self.assertIn((b"sec-websocket-protocol", protocol), lowered)
        self.assertEqual(uri.partition(b"?")[2], b"ports=80&ports=81")

    async def test_bytes(self) -> None:
        """B1, B6: bytes pass unchanged in both directions, from the first one on."""
        noise = bytes(range(256)) * 64
        client = await self.ask(EXEC, *SPDY_HEAD, early=noise)
        await self.answered(client)
        (end,) = self.leaf_server.ends
        end.transport.write(noise)
        await self.until(lambda: len(client.body) == len(noise) == len(end.received))
        self.assertEqual((client.body, end.received), (noise, noise))

    async def test_version_five_first(self) -> None:
        """B1: a client that offers version 5 over SPDY first gets what the leaf chooses, and no other."""

        def speaks_four(request: Request) -> None:
            offered = request.requestHeaders.getRawHeaders(b"x-stream-protocol-version", [])
            self.assertEqual(offered[0], b"v5.channel.k8s.io")
            self.leaf_server.ends.append(Raw())
            headers = [(b"X-Stream-Protocol-Version", b"v4.channel.k8s.io")]
            take_over(request, self.leaf_server.ends[-1], switching_protocols(b"SPDY/3.1", headers))

        self.leaf_server.answer = speaks_four
        five = b"X-Stream-Protocol-Version: v5.channel.k8s.io"
        client = await self.answered(await self.ask(EXEC, five, *SPDY_HEAD))
        self.assertEqual(client.code, 101)
        headers = [line for line in client.head.split(b"\r\n") if line.startswith(b"X-Stream")]
        self.assertEqual(headers, [b"X-Stream-Protocol-Version: v4.channel.k8s.io"])

    async def test_only_what_is_asked(self) -> None:
        """B7: a WebSocket that asks for output alone makes the leaf open no other stream."""
        line = b"Sec-WebSocket-Protocol: v4.channel.k8s.io"
        target = "/exec/default/web/main?command=ls&output=1"
        await self.answered(await self.ask(target, *WEBSOCKET, line, method="GET"))
        self.assertTrue(self.leaf_server.asked[0][1].endswith(b"&container=main&stdout=true"))

    async def test_silence(self) -> None:
        """B4: nothing waits to end a stream on which nothing passes, but for the idle limit."""
        before = len(reactor.getDelayedCalls())
        client = await self.ask(EXEC, *SPDY_HEAD)
        await self.answered(client)
        await self.until(lambda: len(reactor.getDelayedCalls()) <= before + 1)  # its own
        self.assertIsNone(client.lost)

    async def test_translated_name(self) -> None:
        """The leaf's Pod may be in another namespace, and have another name."""
        self.leaf.names = lambda root: ("blue", "web-7")  # type: ignore[method-assign]
        put_leaf_pod(self.leaf.cluster, self.root_pod, namespace="blue", name="web-7")
        await self.answered(await self.ask(EXEC, *SPDY_HEAD))
        self.assertTrue(
            self.leaf_server.asked[0][1].startswith(b"/api/v1/namespaces/blue/pods/web-7/exec?")
        )

    async def test_asked_to_create(self) -> None:
        """Whatever opens a stream is a ``create``, a GET too."""
        for method in ("GET", "POST"):
            await self.answered(await self.ask(EXEC, *SPDY_HEAD, method=method))
        for request in self.everyone.asked:
            self.assertEqual(
                (request.verb, request.resource, request.subresource, request.name),
                ("create", "nodes", "proxy", "leaf-one"),
            )

    async def test_on_record(self) -> None:
        """User, Pod (by the root's names) and ending are on record."""
        client = await self.answered(await self.ask(EXEC, *SPDY_HEAD))
        client.transport.loseConnection()
        await self.until(lambda: not len(self.sessions))
        self.records.check_pairs()
        last = self.records[-1]
        self.assertEqual(
            [last[name] for name in ("user", "namespace", "machine", "pool", "subresource")],
            ["kube-apiserver-kubelet-client", "default", "web", "leaf-one", "exec"],
        )
        self.assertEqual(last["uid"], self.root_pod["metadata"]["uid"])


class RefusedTests(StreamTestCase):
    """Requests that are refused."""

    async def test_unknown(self) -> None:
        """A missing or foreign Pod is not found; the leaf gets no request for its stream."""
        put_pod(self.roots.cluster, "mine", "leaf-one", containers=("main",))
        put_pod(self.leaf.cluster, "mine", containers=("main",))
        put_pod(self.roots.cluster, "elsewhere", "another-node", containers=("main",))
        for target in (
            "exec/default/nope/main",
            "exec/default/web/nope",
            "exec/default/web/other-uid/main",
            "exec/default/mine/main",
            "exec/default/elsewhere/main",
            "portForward/default/web/other-uid",
            "attach/other/web/main",
        ):
            code, body = await self.refused(f"/{target}?command=ls&output=1")
            self.assertEqual(code, 404)
            self.assertIn(target.split("/")[2], body)
        self.assertEqual(self.leaf_server.asked, [])

    def put_pending(self) -> None:
        """A Pod without a Node."""
        pod = put_pod(self.roots.cluster, "pending", "", containers=("main",))
        spec = {"containers": pod["spec"]["containers"]}
        self.roots.cluster.put((PODS.resource, "default", "pending"), {**pod, "spec": spec})

    async def test_without_node(self) -> None:
        """A Pod that has no Node yet is not found."""
        self.put_pending()
        code, _ = await self.refused("/exec/default/pending/main?command=ls&output=1")
        self.assertEqual((code, self.leaf_server.asked), (404, []))

    async def test_other_node(self) -> None:
        """For a Pod on a Node that is not ours, or no longer, the answer names the Node."""
        put_pod(self.roots.cluster, "elsewhere", "another-node", containers=("main",))
        code, body = await self.refused("/exec/default/elsewhere/main?command=ls&output=1")
        self.assertEqual(code, 404)
        self.assertIn("another-node", body)

    async def meanwhile(self, happening: Callable[[], object]) -> None:
        """A change during the lookup in the leaf prevents the session."""
        looked_up, request = self.leaf.pod, Deferred[None]()

        async def late(root: Object) -> LeafPod:
            request.callback(None)
            await deferLater(reactor, 0)
            happening()
            return await looked_up(root)

        self.patch(self.leaf, "pod", lambda root: Deferred.fromCoroutine(late(root)))
        code, _ = await self.refused(EXEC)
        self.assertEqual((code, request.called), (404, True))
        self.assertEqual(self.leaf_server.asked, [])

    async def test_pod_goes_meanwhile(self) -> None:
        """If the Pod is deleted during the lookup, no session begins: its end would go unnoticed."""
        await self.meanwhile(lambda: self.roots.cluster.remove((PODS.resource, "default", "web")))

    async def test_leaf_goes_meanwhile(self) -> None:
        """Nor would what ends those of a leaf."""
        await self.meanwhile(self.leaves.leaves.clear)

    async def test_who_may_not(self) -> None:
        """They learn nothing, not even whether there is such a Pod."""
        self.put_pending()
        reasons = set()
        for pod in ("web", "nope", "pending"):
            code, body = await self.refused(f"/exec/default/{pod}/main?command=ls", user="eve")
            self.assertEqual(code, 403)
            reasons.add((body.replace(pod, "POD"), str(self.details)))
        self.assertEqual(len(reasons), 1)

    async def test_unknown_user(self) -> None:
        """Without credentials there is nothing but a 401."""
        for target in (EXEC, "/exec/default/nope/main", "/portForward/x/y"):
            code, _ = await self.refused(target, user="")
            self.assertEqual(code, 401)

    async def test_bad_parameters(self) -> None:
        """Invalid parameters get a kubelet's own answers, before the leaf gets a request."""
        for target, words in (
            ("exec/default/web/main?command=ls", "at least 1 of stdin, stdout, stderr"),
            ("exec/default/web/main?command=ls&tty=1&error=1", "at least 1 of"),
            ("exec/default/web/main?output=1", "you must specify a command"),
            ("exec/default/web/main?output=1&command=%zz", "two hexadecimal digits"),
        ):
            code, body = await self.refused(f"/{target}")
            self.assertEqual(code, 400)
            self.assertIn(words, body)
        line = b"Sec-WebSocket-Protocol: v4.channel.k8s.io"
        code, body = await self.refused("/portForward/default/web", *WEBSOCKET, line, method="GET")
        self.assertEqual(code, 400)
        self.assertIn('query parameter "port" is required', body)
        self.assertEqual(self.leaf_server.asked, [])

    async def test_no_upgrade(self) -> None:
        """Here is nothing for whoever does not want a stream."""
        code, body = await self.refused(EXEC, b"Content-Length: 0")
        self.assertEqual(code, 400)
        self.assertIn("Upgrade request required", body)

    async def test_method(self) -> None:
        """Methods that a kubelet refuses are refused."""
        for method in ("PUT", "DELETE", "PATCH"):
            code, _ = await self.refused(EXEC, method=method)
            self.assertEqual(code, 405)

    async def test_leaf_refuses(self) -> None:
        """The leaf's refusal of the request is passed on with its code."""
        for code, words in (
            (400, "container main is not valid for pod web"),
            (404, 'pods "web" not found'),
            (409, "conflict"),
            (403, "unable to upgrade: unable to negotiate protocol"),
            (403, 'pods "web" is forbidden: admission webhook says no'),
            (500, "error dialing backend: connection refused"),
        ):
            self.leaf_server.refuses(code, words.encode())
            told, body = await self.refused(EXEC)
            self.assertEqual(told, code)
            self.assertIn(words, body)

    async def test_leaf_is_busy(self) -> None:
        """Retry-After is passed on."""
        self.leaf_server.refuses(429, b"slow down", Retry_After="7")
        client = await self.answered(await self.ask(EXEC, *SPDY_HEAD))
        self.assertEqual(client.code, 429)
        self.assertIn(b"retry-after: 7", client.head.lower())

    async def test_our_credentials(self) -> None:
        """If the leaf refuses our credentials, that is not the user's fault: the message has a remedy."""
        cannot = (
            'pods "web" is forbidden: User "us" cannot create resource "pods/exec" in API group ""'
        )
        self.leaf.told = replace(self.config, source="a file of this host")
        for code, body, words in (
            (401, b"Unauthorized", 'leaf "one" does not accept this node server\'s credentials'),
            (403, forbidden(cannot), "create and get on pods/exec"),
        ):
            self.leaf_server.refuses(code, body, "application/json")
            told, answer = await self.refused(EXEC)
            self.assertEqual(told, 502)
            self.assertIn(words, answer)
            self.assertNotIn("a file of this host", answer)

    async def test_no_redirect(self) -> None:
        """A redirect is not followed: it could leak our credentials."""
        self.leaf_server.refuses(302, b"", Location="http://127.0.0.1:1/")
        code, body = await self.refused(EXEC)
        self.assertEqual(code, 502)
        self.assertIn("invalid upgrade response: status code 302", body)
        self.assertEqual(len(self.leaf_server.asked), 1)

    async def test_leaf_down(self) -> None:
        """The leaf is unreachable."""
        self.leaf.told = replace(self.config, server="http://127.0.0.1:1")
        code, body = await self.refused(EXEC)
        self.assertEqual(code, 502)
        self.assertIn('leaf "one": connection refused', body)

    async def test_no_credentials(self) -> None:
        """Our own secrets are not told."""
        self.leaf.told = replace(self.config, token="", token_file="/nonexistent/secret")
        code, body = await self.refused(EXEC)
        self.assertEqual(code, 503)
        self.assertIn('the credentials for leaf "one" cannot be used', body)
        self.assertNotIn("nonexistent", body)


class EndTests(StreamTestCase):
    """B4, B5, B6: how it ends."""

    async def test_client_dies(self) -> None:
        """The leaf's leg is closed within a second, whatever the end."""
        for leave in ("abortConnection", "loseConnection"):
            client = await self.answered(await self.ask(EXEC, *SPDY_HEAD))
            end = self.leaf_server.ends[-1]
            getattr(client.transport, leave)()
            took = await self.until(lambda end=end: end.lost)
            self.assertLess(took, WITHIN_SECONDS)
            await self.until(lambda: not len(self.sessions))

    async def test_leaf_hangs(self) -> None:
        """A leaf that does not notice that the client is gone is cut off soon."""
        self.leaf_server.raw = Deaf
        client = await self.answered(await self.ask(EXEC, *SPDY_HEAD))
        client.transport.abortConnection()
        took = await self.until(lambda: not len(self.sessions))
        self.assertLess(took, WITHIN_SECONDS + 5)
        self.leaf_server.ends[0].transport.abortConnection()

    async def test_leaf_dies(self) -> None:
        """So is the client's, and what the leaf said before arrives."""
        for leave in ("abortConnection", "loseConnection"):
            client = await self.answered(await self.ask(EXEC, *SPDY_HEAD))
            end = self.leaf_server.ends[-1]
            end.transport.write(b"last words")
            await self.until(lambda client=client: client.body == b"last words")
            getattr(end.transport, leave)()
            took = await self.until(lambda client=client: client.lost)
            self.assertLess(took, WITHIN_SECONDS)

    async def test_client_leaves_before_the_answer(self) -> None:
        """A leaf that has not answered yet loses the request as well."""
        pending: list[Deferred[Any]] = []
        self.leaf_server.answer = lambda request: pending.append(request.notifyFinish())
        client = await self.ask(EXEC, *SPDY_HEAD)
        await self.until(lambda: pending)
        left: list[object] = []
        pending[0].addBoth(left.append)
        client.transport.abortConnection()
        await self.until(lambda: left)
        await self.until(lambda: not len(self.sessions))
        self.assertEqual(self.records.ends(), [("client closed", 499)])
