"""Tests for :mod:`twisted_exec.nodeserver.kubelet_api.gate`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from twisted.logger import LogLevel, capturedLogs, formatEvent

from tests.chain import reactor
from tests.nodeserver.chain import JANE, NODE, ROOT, STRANGER, UPGRADE, ServerCase
from tests.nodeserver.stream_chain import ROOT as ROOT_TOKEN
from tests.nodeserver.stream_chain import SPDY_HEAD, ChainTestCase
from twisted_exec.api.status import APIError
from twisted_exec.nodeserver.kubelet_api.gate import subresources_of
from twisted_exec.nodeserver.kubelet_api.routes import KubeletCollaborators, Route, of_pod
from twisted_exec.nodeserver.kubelet_api.streams import stream_routes
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import respond_text
from twisted_exec.streaming.interfaces import REVOKED
from twisted_exec.streaming.sessions.guard import SessionGuard

EXEC = "/exec/default/web/main"
PATHS = [
    EXEC,
    "/exec/default/web/uid-1/main",
    "/attach/default/web/main",
    "/portForward/default/web",
    "/run/default/web/main?cmd=id",
    "/containerLogs/default/web/main",
    "/pods",
    "/runningpods/",
    "/stats/summary",
    "/metrics",
    "/metrics/resource",
    "/healthz",
    "/readyz",
    "/nothing/of/ours",
    "/exec/%2e%2e/web/main",
    "/",
]
WORDS = {"exec": "exec", "attach": "attach", "run": "run", "containerLogs": "log"}


def told(collaborators: KubeletCollaborators) -> Iterable[Route]:
    """Routes that say who was let in where."""

    async def answer(context: RequestContext) -> None:
        request = context.request
        await collaborators.access.authorize_session(context, NODE)
        headers = sorted(name.decode() for name, _ in request.requestHeaders.getAllRawHeaders())
        body = [context.user.name, context.values.get("uid"), headers]
        respond_text(request, 200, json.dumps(body))

    for word, subresource in WORDS.items():
        yield from of_pod(word, answer, ["GET", "POST"], subresource)


class WhoTests(ServerCase):
    """Authentication."""

    async def test_nobody(self) -> None:
        """Without credentials there is nothing but 401, whatever path, method or upgrade."""
        await self.start(told)
        for path in PATHS:
            for method in (b"GET", b"POST", b"DELETE", b"OPTIONS", b"HEAD", b"PUT", b"BREW"):
                for headers in ([], UPGRADE):
                    answer = await self.ask(path, identity=None, method=method, headers=headers)
                    self.assertEqual(answer.code, 401, (method, path))
                    if method != b"HEAD":
                        self.assertEqual(answer.body, b"Unauthorized")
        self.assertEqual(self.asked, [])

    async def test_star(self) -> None:
        """Nor does a path that is none tell anything."""
        await self.start(told)
        for path in ("*", "exec", "http://node/exec"):
            answer = await self.ask(path, identity=None, method=b"OPTIONS")
            self.assertEqual(answer.code, 401, path)

    async def test_nobody_on_record(self) -> None:
        """A session refused for want of credentials is on record; other requests are not."""
        await self.start(told)
        await self.ask(EXEC, identity=None, headers=UPGRADE)
        await self.ask("/pods", identity=None)
        self.assertEqual([event["event"] for event in self.audit], ["start", "end"])
        end = self.audit[1]
        self.assertEqual((end["hop"], end["code"], end["user"]), ("nodeserver", 401, ""))
        self.assertEqual((end["resource"], end["subresource"]), ("pods", "exec"))

    async def test_certificate(self) -> None:
        """A certificate of the CA identifies its user; one of another CA does not."""
        await self.start(told)
        answer = await self.ask(EXEC)
        self.assertEqual(json.loads(answer.body)[0], "kube-apiserver-kubelet-client")
        answer = await self.ask(EXEC, identity=STRANGER)
        self.assertEqual((answer.code, answer.body), (401, b"Unauthorized"))

    async def test_names(self) -> None:
        """
        If names are configured, a certificate with another name is refused, whatever else is
        presented.
        """
        await self.start(told, client_names=["kube-apiserver-kubelet-client"])
        self.allowed["prometheus"] = {("get", "proxy"), ("create", "proxy")}
        self.assertEqual((await self.ask(EXEC, identity=ROOT)).code, 200)
        token = [(b"Authorization", b"Bearer good")]
        self.assertEqual((await self.ask(EXEC, identity=JANE)).code, 401)
        self.assertEqual((await self.ask(EXEC, identity=JANE, headers=token)).code, 401)
        self.assertEqual((await self.ask(EXEC, identity=None, headers=token)).code, 200)

    async def test_token(self) -> None:
        """A token is the root's to judge; a bad one is 401."""
        await self.start(told)
        self.allowed["prometheus"] = {("get", "metrics")}
        for token, code in ((b"good", 200), (b"bad", 401)):
            answer = await self.ask(
                "/metrics", identity=None, headers=[(b"Authorization", b"Bearer " + token)]
            )
            self.assertEqual(answer.code, code)

    async def test_forwarded(self) -> None:
        """Headers that name another user are dropped, and not passed on."""
        await self.start(told)
        claims = [
            (b"X-Remote-User", b"admin"),
            (b"X_Remote_Group", b"system:masters"),
            (b"Impersonate-User", b"admin"),
            (b"Cookie", b"session=1"),
        ]
        answer = await self.ask(EXEC, headers=claims)
        user, _, headers = json.loads(answer.body)
        self.assertEqual((user, headers), ("kube-apiserver-kubelet-client", ["Host"]))
        self.assertEqual((await self.ask(EXEC, identity=JANE, headers=claims)).code, 403)
        self.assertEqual((await self.ask(EXEC, identity=None, headers=claims)).code, 401)


class MayTests(ServerCase):
    """Authorization."""

    async def test_stream(self) -> None:
        """
        Whatever opens a stream needs ``create``, also by GET, where a kubelet is content with
        ``get``.
        """
        await self.start(told)
        self.allowed["jane"] = {("get", "proxy")}
        for word in ("exec", "attach", "run"):
            for method in (b"GET", b"POST"):
                answer = await self.ask(f"/{word}/default/web/main", identity=JANE, method=method)
                self.assertEqual(answer.code, 403)
        self.assertEqual(set(self.asked), {("jane", "create", "nodes/proxy", NODE)})
        answer = await self.ask("/containerLogs/default/web/main", identity=JANE)
        self.assertEqual(answer.code, 200)

    async def test_words(self) -> None:
        """A refusal says who may not do what, in a kubelet's words."""
        await self.start(told)
        answer = await self.ask(EXEC, identity=JANE)
        status = json.loads(answer.body)
        message = (
            'pod "web": Forbidden (user=jane, verb=create, resource=nodes, subresource(s)=[proxy])'
        )
        self.assertEqual((status["code"], status["message"]), (403, message))

    async def test_subresources(self) -> None:
        """Each path is about its own part of a Node; for some the whole suffices as well."""
        await self.start(told)
        self.allowed["jane"] = {("get", "metrics")}
        self.assertEqual((await self.ask("/metrics", identity=JANE)).code, 200)
        answer = await self.ask("/healthz", identity=JANE)
        self.assertEqual(answer.code, 403)
        self.assertIn(b"subresource(s)=[healthz proxy]", answer.body)
        for path, expected in (
            (b"/stats/summary", ("stats",)),
            (b"/pods", ("pods", "proxy")),
            (b"/runningpods/", ("pods", "proxy")),
            (b"/exec/a/b/c", ("proxy",)),
            (b"/\xff", ("proxy",)),
        ):
            self.assertEqual(subresources_of(path), expected)

    async def test_root_is_down(self) -> None:
        """While reviews fail every request is refused, without details of the root's answer."""
        await self.start(told)

        def refuse(review: Any) -> Any:
            raise APIError('User "us" cannot create reviews', code=403, reason="Forbidden")

        for resource in list(self.root.reviews):
            self.root.reviews[resource] = refuse
        with capturedLogs() as events:
            for _ in range(2):
                answer = await self.ask(EXEC, identity=JANE)
                status = json.loads(answer.body)
                message = "(user=jane, verb=create, resource=nodes, subresource(s)=[proxy])"
                self.assertEqual(
                    (answer.code, status["message"]),
                    (500, f'pod "web": Authorization error {message}'),
                )
        logged = [formatEvent(event) for event in events if event["log_level"] == LogLevel.warn]
        (line,) = logged  # and not once for each who asks
        self.assertIn("the root does not answer reviews: ", line)
        self.assertIn("system:auth-delegator", line)
        token = [(b"Authorization", b"Bearer good")]
        answer = await self.ask(EXEC, identity=None, headers=token)
        self.assertEqual(answer.code, 503)
        self.assertNotIn(b"auth-delegator", answer.body)


class WithdrawnTests(ChainTestCase):
    """Sessions of those whose credentials are withdrawn."""

    def routes(self) -> Any:
        return stream_routes(self.collaborators)

    async def test_token(self) -> None:
        """A token that is no longer valid ends the sessions opened with it, and no others."""
        self.everyone.users.add("jane")
        for user in (ROOT_TOKEN, "jane"):
            target = "/exec/default/web/main?command=sh&output=1"
            await self.answered(await self.ask(target, *SPDY_HEAD, user=user))
        self.everyone.forgotten.add("jane")
        await SessionGuard(self.sessions, self.collaborators.access.gate, reactor).review()
        await self.until(lambda: len(self.sessions) == 1)
        self.assertEqual([each.user for each in self.sessions.subjects()], [ROOT_TOKEN])
        (end,) = (each for each in self.records if each.get("event") == "end")
        self.assertEqual((end["user"], end["reason"]), ("jane", REVOKED))
