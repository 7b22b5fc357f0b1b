"""
Tests for :mod:`twisted_exec.apiserver.consoles.policy_admission`: real sessions under policies.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

from twisted.internet.defer import CancelledError, Deferred, DeferredList

from tests.apiserver.chain import EXEC, POD, WEBSOCKET, ChainTestCase, Poollet
from tests.chain import reactor
from tests.streaming.readers import read
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object
from twisted_exec.api.status import APIError
from twisted_exec.kube.console import ConsoleOptions, open_console
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.streaming.interfaces import REVOKED, Ending
from twisted_exec.streaming.sessions.registry import Session
from twisted_exec.testing.console import RecordingUser
from twisted_exec.wire.resume import RESUME_HEADER, Position, Resumable, Resume
from twisted_exec.wire.session_terms import TERMS_HEADER
from twisted_exec.wire.stream_options import CONSOLE

POLICIES, REQUESTS = kinds.CONSOLEPOLICIES.resource, kinds.CONSOLEREQUESTS.resource
RBAC = "rbac.authorization.k8s.io"
STDIN = "?stdin=true&stdout=true&tty=true"


class SessionCase(ChainTestCase):
    """Jane edits a namespace with a machine."""

    poollet_: Poollet

    async def setUp(self) -> None:
        await super().setUp()
        await self.bind("jane", "edit")
        self.poollet_, port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()

    async def bind(self, user: str, role: str) -> None:
        binding = {
            "metadata": {"name": f"{user}-{role}"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
        }
        await self.admin.create(kinds.ROLEBINDINGS.resource, binding, "default")

    async def make_policy(self, name: str = "p", **spec: Any) -> Object:
        body = {"metadata": {"name": name}, "spec": spec}
        return await self.admin.create(POLICIES, body, "default")

    async def approve(self, user: str = "jane", **spec: Any) -> str:
        """Let a user ask and the administrator approve."""
        body = {"metadata": {"generateName": "r-"}, "spec": {"machine": "vm", **spec}}
        made = await self.client(user).create(REQUESTS, body, "default")
        name = str(made["metadata"]["name"])
        patch = {"status": {"approved": True}}
        await self.admin.patch(REQUESTS, name, patch, "default", subresource="approval")
        return name

    def terms(self) -> dict[str, list[str]]:
        """The terms of the last session, as the poollet has received them."""
        headers = self.poollet_.requests[-1][2]
        (text,) = headers.get(TERMS_HEADER.lower(), [""])
        return parse_qs(text)

    async def opened(self, query: str = STDIN, resumption: str = "") -> Session:
        """
        A session of jane.

        :param resumption: says that her client can resume it, or which session it resumes.
        """
        headers = [(RESUME_HEADER.encode(), resumption.encode())] if resumption else []
        await self.open(user="jane", query=query, headers=[*WEBSOCKET, *headers])
        return self.server._parts.sessions.live()[-1]

    async def ended(self, session: Session) -> str:
        """Wait for the end of a session; return its message."""
        await self.until(lambda: session.ending)
        assert session.ending is not None
        self.assertEqual(session.ending.reason, REVOKED)
        return session.ending.message

    async def refusals(self) -> list[Object]:
        """The Events about refusals by policies."""
        events = (await self.admin.list(kinds.EVENTS.resource, "default"))["items"]
        return [each for each in events if each["reason"] == "ConsoleRefused"]


class SessionTests(SessionCase):
    """Sessions under policies."""

    async def test_refused(self) -> None:
        """A refusal by a policy is an Event of the machine, at most one a minute for each user."""
        await self.make_policy(reason="Required")
        for _ in range(2):
            await self.refused(403, user="jane", query=STDIN)
        while not (found := await self.refusals()):
            pass  # the request takes its time
        (event,) = found
        self.assertEqual(event["involvedObject"]["name"], "vm")
        self.assertEqual((event["type"], event.get("count", 1)), ("Warning", 1))
        self.assertIn('user "jane"', event["message"])
        self.assertIn("default/p", event["message"])
        await self.refused(403, query=STDIN)
        while len(found := await self.refusals()) < 2:
            pass
        self.assertEqual({each.get("count", 1) for each in found}, {1})

    async def test_record(self) -> None:
        """The audit record of a session names the policies that it was held to."""
        await self.make_policy(viewers=3)
        end = await self.open(user="jane", query=STDIN)
        end.transport.loseConnection()  # type: ignore[union-attr]
        await self.until(lambda: self.audit[-1]["event"] == "end")
        self.assertEqual(self.audit[-1]["policy"], "default/p")

    async def test_other_approval(self) -> None:
        """
        A session that got its reason from an approval gets no more rights from an approval for another reason,
        and ends when its own is withdrawn.
        """
        await self.make_policy(approval="Required")
        name = await self.approve(reason="OPS-1")
        session = await self.opened()
        self.assertEqual(session.subject.reason, "OPS-1")
        before = session.terms
        await self.approve(reason="lunch", right="takeover", seconds=86000)
        await self.make_policy("other", viewers=3)
        await self.until(lambda: session.terms.viewers)  # reviewed again
        self.assertEqual((session.terms.right, session.terms.until), (before.right, before.until))
        patch = {"status": {"denied": True}}
        await self.admin.patch(REQUESTS, name, patch, "default", subresource="approval")
        self.assertIn("withdrew the approval", await self.ended(session))

    async def test_resumed(self) -> None:
        """A resumed session keeps to the approval that it was opened with."""
        self.poollet_.resumable = Resumable("k" * 43, 60).text()
        await self.make_policy(approval="Required")
        name = await self.approve(reason="OPS-1")
        session = await self.opened(resumption="marks")
        await self.approve(reason="lunch", right="takeover", seconds=86000)
        for _ in range(2):
            position = Position("0123456789abcdef", 7)
            resume = Resume("k" * 43, session.subject.session, position)
            session = await self.opened(resumption=resume.text())
            self.assertEqual(session.subject.reason, "OPS-1")
        patch = {"status": {"denied": True}}
        await self.admin.patch(REQUESTS, name, patch, "default", subresource="approval")
        self.assertIn("withdrew the approval", await self.ended(session))

    async def test_terms(self) -> None:
        """The poollet gets the terms."""
        await self.make_policy(people=2, viewers=3, idleSeconds=60)
        await self.open(user="jane", query=STDIN)
        terms = self.terms()
        self.assertEqual(
            terms["people"] + terms["viewers"] + terms["idle_seconds"], ["2", "3", "60"]
        )
        self.assertEqual(terms["policy"], ["default/p"])

    async def test_reason(self) -> None:
        """A session without a reason is refused, and the message says how to give it."""
        await self.make_policy(reason="Required")
        message = await self.refused(403, user="jane", query=STDIN)
        self.assertIn('ConsolePolicy "default/p" requires a reason: use kubectl console', message)
        await self.open(user="jane", query=f"{STDIN}&reason=OPS-1")

    async def test_several(self) -> None:
        """One policy that refuses is enough, whatever the others allow."""
        await self.make_policy("other", viewers=3)
        await self.make_policy(reason="Required")
        message = await self.refused(403, user="jane", query=STDIN)
        self.assertIn('ConsolePolicy "default/p" requires a reason', message)

    async def test_approval(self) -> None:
        """A session needs an approval, and ends when it is withdrawn."""
        await self.make_policy(approval="Required")
        self.assertIn("requires the approval", await self.refused(403, user="jane", query=STDIN))
        name = await self.approve()
        session = await self.opened()
        patch = {"status": {"denied": True}}
        await self.admin.patch(REQUESTS, name, patch, "default", subresource="approval")
        self.assertIn(
            f'your request "{name}" does not count, admin withdrew the approval',
            await self.ended(session),
        )

    async def test_once(self) -> None:
        """An approval for one session is for the first, which goes on."""
        await self.make_policy(approval="Once")
        await self.approve()
        await self.open(user="jane", query=STDIN)
        message = await self.refused(403, user="jane", query=STDIN)
        self.assertIn("its approval was for one session, which has begun", message)
        await self.recheck()
        self.assertEqual(self.endings(), [None])

    async def test_not_used_up(self) -> None:
        """A session that cannot find its pool uses up no approval."""
        await self.make_policy(approval="Once")
        await self.make_machine("lost", "pool-x")
        name = await self.approve(machine="lost")
        await self.refused(404, "lost", user="jane", query=STDIN)
        request = await self.admin.get(REQUESTS, name, "default")
        self.assertNotIn("session", request["status"])

    async def test_refused_in_time(self) -> None:
        """
        A session whose approval is withdrawn while the poollet opens it is refused, ends at the poollet, and
        its audit record says why with the code.
        """
        await self.make_policy(approval="Once")
        name = await self.approve()
        dispatch = self.poollet_.dispatch

        async def withdrawn(request: Request) -> None:
            if request.method != b"DELETE":
                patch = {"status": {"denied": True}}
                await self.admin.patch(REQUESTS, name, patch, "default", subresource="approval")
            await dispatch(request)

        self.patch(self.poollet_, "dispatch", withdrawn)
        message = await self.refused(403, user="jane", query=STDIN)
        self.assertIn("admin withdrew the approval", message)
        await self.until(lambda: self.poollet_.requests[-1][0] == "DELETE")
        await self.until(lambda: self.poollet_.lines[0].lost)
        (end,) = self.ends()
        self.assertIn("admin withdrew the approval", end[0])
        self.assertEqual(end[1], 403)

    async def test_screen(self) -> None:
        """A screen uses no approval that is for one session: it is refused, and no Event tells it."""
        await self.make_policy(approval="Once")
        screen = EXEC.replace("/exec", "/screen")
        message = await self.refused(403, user="jane", method=b"GET", path=screen, headers=())
        self.assertIn("requires the approval of another user", message)
        name = await self.approve()
        message = await self.refused(403, user="jane", method=b"GET", path=screen, headers=())
        self.assertIn("is for one session, which shows the screen", message)
        request = await self.admin.get(REQUESTS, name, "default")
        self.assertNotIn("session", request["status"])
        events = (await self.admin.list(kinds.EVENTS.resource, "default"))["items"]
        self.assertNotIn("ConsoleRefused", [each["reason"] for each in events])

    async def test_screen_of_session(self) -> None:
        """
        While a session is open that has used up the approval, its user reads screens, and nobody
        else does; after its end they are refused, also with its id.
        """
        self.poollet_.resumable = Resumable("k" * 43, 60).text()
        await self.make_policy(approval="Once")
        await self.approve()
        path = EXEC.replace("/exec", "/screen")
        session = await self.opened(resumption="marks")
        for _ in range(2):
            head = UpgradeRequest(b"GET", path.format("vm").encode(), b"server")
            reader = await read(self.endpoint("jane"), head)
            self.addCleanup(reader.download.abort)
            await self.until(lambda reader=reader: reader.complete)
            self.assertEqual(reader.got, b"<svg/>")
        await self.refused(403, method=b"GET", path=path, headers=())
        session.end(Ending("deleted"))
        await self.until(lambda: session not in self.server._parts.sessions.live())
        message = await self.refused(403, user="jane", method=b"GET", path=path, headers=())
        self.assertIn("its approval was for one session, which has begun", message)

    async def test_new_policy(self) -> None:
        """A policy that is created later ends sessions that it does not allow."""
        session = await self.opened()
        await self.make_policy(approval="Required")
        self.assertIn('ConsolePolicy "default/p" requires the approval', await self.ended(session))

    async def test_label(self) -> None:
        """A label brings a machine under a policy, and ends its sessions."""
        selector = {"matchLabels": {"tier": "gold"}}
        await self.make_policy(selector=selector, reason="Required")
        session = await self.opened()
        patch = {"metadata": {"labels": {"tier": "gold"}}}
        await self.admin.patch(kinds.MACHINES.resource, "vm", patch, "default")
        self.assertIn("requires a reason", await self.ended(session))

    async def exec_only(self) -> None:
        """Let jane open consoles as before there were verbs."""
        rule = {
            "verbs": ["create"],
            "apiGroups": ["compute.ironcore.dev"],
            "resources": ["machines/exec"],
        }
        role = {"metadata": {"name": "old"}, "rules": [rule]}
        await self.admin.create(kinds.CLUSTERROLES.resource, role)
        await self.admin.delete(kinds.ROLEBINDINGS.resource, "jane-edit", "default")
        await self.bind("jane", "old")

    async def test_strict(self) -> None:
        """Under a strict policy ``create machines/exec`` opens no console."""
        await self.exec_only()
        session = await self.opened()
        await self.make_policy(verbs="Strict")
        lacking = 'cannot drive resource "machines/console"'
        self.assertIn(lacking, await self.ended(session))
        self.assertIn(lacking, await self.refused(403, user="jane", query=STDIN))

    async def test_strict_label(self) -> None:
        """A label brings a machine under a strict policy, also for open sessions."""
        await self.exec_only()
        await self.make_policy(selector={"matchLabels": {"tier": "gold"}}, verbs="Strict")
        session = await self.opened()
        patch = {"metadata": {"labels": {"tier": "gold"}}}
        await self.admin.patch(kinds.MACHINES.resource, "vm", patch, "default")
        self.assertIn('cannot drive resource "machines/console"', await self.ended(session))

    async def test_strict_approver(self) -> None:
        """Under a strict policy ``create machines/exec`` makes nobody an approver."""
        await self.exec_only()
        await self.bind("jane", "console-approver")
        body = {"metadata": {"name": "r"}, "spec": {"machine": "vm"}}
        approved = {"status": {"approved": True}}
        jane = self.client("jane")
        await self.admin.create(REQUESTS, body, "default")
        await jane.patch(REQUESTS, "r", approved, "default", subresource="approval")
        await self.make_policy(verbs="Strict")
        body["metadata"] = {"name": "q"}
        await self.admin.create(REQUESTS, body, "default")
        with self.assertRaises(APIError) as caught:
            await jane.patch(REQUESTS, "q", approved, "default", subresource="approval")
        self.assertIn("must be allowed to drive", caught.exception.message)

    async def test_observer(self) -> None:
        """An approval to observe makes the session an observer's."""
        await self.make_policy(approval="Required")
        await self.approve(right="observe")
        await self.open(user="jane", query=STDIN)
        self.assertEqual(self.terms()["right"], ["observe"])

    async def test_request_of_observer(self) -> None:
        """
        A user with ``console-observer`` asks as the refusal says. The approval gives no more than
        that role, whatever right the request names.
        """
        await self.bind("eve", "console-observer")
        await self.make_policy(approval="Required")
        why = await self.refused(403, user="eve", query=STDIN)
        self.assertTrue(
            why.endswith(
                "request it with kubectl console --read-only --request --reason TICKET -n default vm"
            ),
            why,
        )
        await self.approve("eve", right="takeover")
        await self.open(user="eve", query=STDIN)
        self.assertEqual(self.terms()["right"], ["observe"])

    async def test_request_to_observe(self) -> None:
        """A user who may take over reads, with ``--read-only``, how to ask for an approval to observe."""
        await self.make_policy(approval="Required")
        for query, option in (
            ("?stdout=true&readOnly=true", "--read-only "),
            (STDIN, ""),
            (f"{STDIN}&force=true", "--force "),
        ):
            why = await self.refused(403, user="jane", query=query)
            self.assertTrue(
                why.endswith(
                    f"with kubectl console {option}--request --reason TICKET -n default vm"
                ),
                why,
            )

    async def test_may_not_request(self) -> None:
        """A user who may not create requests reads that with the refusal, and which right is missing."""
        rule = {"verbs": ["observe", "get"], "apiGroups": ["*"], "resources": ["machines/console"]}
        role = {"metadata": {"name": "looks"}, "rules": [rule]}
        await self.admin.create(kinds.CLUSTERROLES.resource, role)
        await self.bind("eve", "looks")
        await self.make_policy(approval="Required")
        why = await self.refused(403, user="eve", query=STDIN)
        self.assertTrue(
            why.endswith(
                "-n default vm, but you may not: consolerequests.console.twisted-exec.dev is forbidden: "
                'User "eve" cannot create resource "consolerequests" in API group "console.twisted-exec.dev" in '
                'the namespace "default": ask an administrator for the role console-observer in the '
                'namespace "default"'
            ),
            why,
        )

    async def test_every_path(self) -> None:
        """Policies apply to the observers' path, the screen and the machine's Pod as well."""
        await self.make_policy(approval="Required")
        for path in (EXEC.replace("/exec", "/console"), f"{POD}/attach", f"{POD}/exec"):
            query = f"{STDIN}&command=console"
            message = await self.refused(403, user="jane", method=b"GET", path=path, query=query)
            self.assertIn('ConsolePolicy "default/p" requires the approval', message)
        screen = EXEC.replace("/exec", "/screen")
        message = await self.refused(403, user="jane", method=b"GET", path=screen, headers=())
        self.assertIn('ConsolePolicy "default/p" requires the approval', message)
        self.assertEqual(self.poollet_.requests, [])

    async def test_log(self) -> None:
        """
        Policies do not apply to the log, not even while it is followed: it needs a permission of its
        own, which ``edit`` has, and the right to use the console does not include it.
        """
        await self.make_policy(approval="Required")
        self.poollet_.answer = (503, {"kind": "Status", "code": 503, "message": "busy"})
        path = EXEC.replace("/exec", "/log")
        log: dict[str, Any] = {"user": "jane", "method": b"GET", "path": path, "headers": ()}
        for query in ("", "?follow=true"):
            self.assertIn("busy", await self.refused(503, query=query, **log))
        await self.admin.delete(kinds.ROLEBINDINGS.resource, "jane-edit", "default")
        for name in ("view", "console-user"):
            await self.bind("jane", name)
        for query in ("", "?follow=true"):
            message = await self.refused(403, query=query, **log)
            self.assertIn('cannot get resource "machines/log"', message)

    async def test_client(self) -> None:
        """Our client declares its reason, whatever characters it has."""
        config = load(self.kubeconfig("user-jane"))
        self.poollet_.answer = (503, {"kind": "Status", "code": 503, "message": "busy"})
        for read_only in (False, True):
            options = replace(CONSOLE, read_only=read_only)
            opening = open_console(
                config,
                "default",
                "vm",
                RecordingUser(),
                reactor,
                ConsoleOptions(stream=options, reason="OPS-1: größer & + %20"),
            )
            await self.assertFailure(opening, APIError)
            reasons = {each["declared_reason"] for each in self.audit}
            self.assertEqual(reasons, {"OPS-1: größer & + %20"})


class LateTests(SessionCase):
    """A poollet that does not answer in time."""

    poollet_seconds = 2.5

    async def test_late_and_withdrawn(self) -> None:
        """The audit record of a session that was not opened has the reason which belongs to its code."""
        await self.make_policy(approval="Required")
        name = await self.approve()
        self.poollet_.silent = True
        dial = Deferred.fromCoroutine(self.refused(504, user="jane", query=STDIN))
        await self.until(lambda: self.poollet_.requests)
        patch = {"status": {"denied": True}}
        await self.admin.patch(REQUESTS, name, patch, "default", subresource="approval")
        self.assertIn("no answer to the upgrade request", await dial)
        ((reason, code),) = self.ends()
        self.assertEqual(code, 504)
        self.assertIn("no answer to the upgrade request", reason)

    async def test_not_opened(self) -> None:
        """
        Of twelve sessions that begin at once one opens, and uses the approval, although the poollet leaves
        one without an answer until its user leaves, another one until the time limit, and refuses a third.
        """
        await self.make_policy(approval="Once")
        name = await self.approve()
        dispatch, answers = self.poollet_.dispatch, ["none", "late", "refusal"]

        async def answer(request: Request) -> None:
            kind = answers.pop(0) if answers else ""
            self.poollet_.silent = kind in ("none", "late")
            refusal = {"kind": "Status", "code": 503, "message": "busy"}
            self.poollet_.answer = (503, refusal) if kind == "refusal" else None
            await dispatch(request)

        self.patch(self.poollet_, "dispatch", answer)
        leaving = Deferred.fromCoroutine(self.dial(user="jane", query=STDIN))
        await self.until(lambda: self.poollet_.requests)
        others = [Deferred.fromCoroutine(self.dial(user="jane", query=STDIN)) for _ in range(11)]
        leaving.addErrback(lambda failure: failure.trap(CancelledError))
        leaving.cancel()
        opened, codes = [], []
        for success, result in await DeferredList(others, consumeErrors=True):
            if success:
                opened.append(result)
                self.addCleanup(result.abort)
            else:
                codes.append(result.value.code)
        self.assertEqual(len(opened), 1, codes)
        self.assertEqual((codes.count(504), codes.count(503)), (1, 1))
        self.assertEqual(set(codes) - {403, 429}, {503, 504})
        request = await self.admin.get(REQUESTS, name, "default")
        (live,) = self.server._parts.sessions.live()
        self.assertEqual(request["status"]["session"], live.subject.session)
