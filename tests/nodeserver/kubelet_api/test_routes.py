"""Tests for :mod:`twisted_exec.nodeserver.kubelet_api.routes`."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tests.nodeserver.chain import ServerCase
from twisted_exec.api.status import NotFound, TooManyRequests
from twisted_exec.nodeserver.kubelet_api.routes import KubeletCollaborators, Route, of_pod
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import respond_text


def routes(collaborators: KubeletCollaborators) -> Iterable[Route]:
    """Routes that refuse, answer, break off and crash."""

    async def told(context: RequestContext) -> None:
        subject = context.subject
        facts = [subject.namespace, subject.machine, subject.resource, subject.noun]
        respond_text(context.request, 200, json.dumps([*facts, subject.subresource, subject.user]))

    async def refuse(context: RequestContext) -> None:
        if "container" in context.values:
            raise NotFound("pods", context.values["pod"])
        raise TooManyRequests("too many", retry_after_seconds=7)

    async def late(context: RequestContext) -> None:
        context.request.setHeader(b"Content-Length", b"100")
        context.request.write(b"begun")
        raise NotFound("pods", "late")

    async def broken(context: RequestContext) -> None:
        raise LookupError("ours")

    yield from of_pod("exec", refuse, ["POST"], "exec")
    yield from of_pod("containerLogs", told, ["GET"], "log", plain=True)
    yield from of_pod("portForward", told, ["GET"], "portforward", container=False)
    yield Route(["GET"], "/pods", refuse)
    yield Route(["GET"], "/late", late)
    yield Route(["GET"], "/broken", broken)


class NodeRoutesTests(ServerCase):
    """Dispatch of requests."""

    async def test_subject(self) -> None:
        """A path about a Pod says which, with or without a UID; a last slash is none."""
        await self.start(routes)
        for path, what in (
            ("/containerLogs/default/web/main", "log"),
            ("/containerLogs/default/web/uid-1/main", "log"),
            ("/portForward/default/web", "portforward"),
            ("/portForward/default/web/", "portforward"),
            ("/portForward/default/web/uid-1", "portforward"),
        ):
            expected = ["default", "web", "pods", "pod", what, "kube-apiserver-kubelet-client"]
            self.assertEqual(json.loads((await self.ask(path)).body), expected, path)

    async def test_refusals(self) -> None:
        """Streams are refused with a Status, other requests in plain text; Retry-After is set."""
        await self.start(routes)
        answer = await self.ask("/exec/default/web/main", method=b"POST")
        status = json.loads(answer.body)
        self.assertEqual((answer.code, status["message"]), (404, 'pods "web" not found'))
        answer = await self.ask("/pods")
        self.assertEqual((answer.code, answer.body), (429, b"too many"))
        headers = {name.lower(): value for name, value in answer.headers}
        self.assertEqual(headers[b"retry-after"], b"7")
        self.assertTrue(headers[b"content-type"].startswith(b"text/plain"))

    async def test_method(self) -> None:
        """Another method is refused with the allowed ones."""
        await self.start(routes)
        answer = await self.ask("/exec/default/web/main", method=b"DELETE")
        self.assertEqual(answer.code, 405)
        self.assertIn((b"allow", b"POST"), [(n.lower(), v) for n, v in answer.headers])

    async def test_unknown(self) -> None:
        """An unknown or malformed path is refused after authentication."""
        await self.start(routes)
        for path, code in (("/", 404), ("/nothing", 404), ("/exec/a", 404), ("/exec/../b/c", 400)):
            self.assertEqual((await self.ask(path, method=b"POST")).code, code, path)

    async def test_broken_off(self) -> None:
        """A truncated answer does not look complete."""
        await self.start(routes)
        # A hundred bytes were promised; the connection is closed, and no refusal stands behind these.
        self.assertEqual((await self.ask("/late")).body, b"begun")

    async def test_broken(self) -> None:
        """A fault of ours is logged, and told without its text."""
        await self.start(routes)
        answer = await self.ask("/broken")
        self.assertEqual(answer.code, 500)
        self.assertNotIn(b"ours", answer.body)
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 1)
