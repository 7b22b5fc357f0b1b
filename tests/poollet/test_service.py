"""
Tests for :mod:`twisted_exec.poollet.service`: consoles through a whole poollet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import Clock

from tests.poollet.chain import (
    API_SERVER,
    EXEC,
    FORWARDING,
    JANE,
    USERS,
    PoolletCase,
    reactor,
    status,
    until,
)
from tests.poollet.doubles import MACHINES, POOLS, machine
from twisted_exec.api.status import NotFound, ServiceUnavailable, TooManyRequests
from twisted_exec.apiserver import service as apiserver
from twisted_exec.poollet.consoles.exec_route import RUNTIME_SECONDS
from twisted_exec.poollet.interfaces import IPoollet
from twisted_exec.poollet.machines import loop
from twisted_exec.poollet.service import Poollet
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest, upgrade
from twisted_exec.testing.cluster import unreachable


class ConsoleTests(PoolletCase):
    """A console that may be opened."""

    async def test_33_stream(self) -> None:
        """Bytes go both ways; the session is on record once, with its facts."""
        await self.start()
        self.assertTrue(IPoollet.providedBy(self.poollet))
        viewer = await self.view([(b"Audit-Id", b"session-7")])
        viewer.transport.write(b" you")
        await until(lambda: viewer.data == b"hello you")
        viewer.transport.loseConnection()
        await until(lambda: len(self.audit.events) == 2)
        start, end = self.audit.events
        uid = next(iter(self.poollet.machines))["metadata"]["uid"]
        facts = {
            "hop": "poollet",
            "session": "session-7",
            "user": "jane",
            "namespace": "lab",
            "machine": "vm",
            "resource": "machines.compute.ironcore.dev",
            "uid": uid,
            "pool": "pool-a",
            "caller": "exec-apiserver",
        }
        self.assertEqual({key: start[key] for key in facts}, facts)
        self.assertEqual({key: end[key] for key in facts}, facts)
        self.assertEqual((end["bytes_to_machine"], end["bytes_to_user"]), (4, 9))
        (machine_id,) = self.runtime.machines
        self.assertEqual(self.runtime.execs, [(machine_id, "jane", uid, "session-7")])

    async def test_what_the_runtime_gets(self) -> None:
        """Identity in our own headers, nothing of the caller's credentials."""
        self.allowed.add(("jäne", "machines/exec", "vm"))
        await self.start()
        await self.view(
            [
                (b"Authorization", b"Bearer canary"),
                (b"X-Remote-Group", b"canary"),
                (b"X-Twisted-Exec-User", b"canary"),
                (b"Cookie", b"canary"),
                (b"Sec-WebSocket-Version", b"13"),
            ],
            user="jäne".encode(),
        )
        (head,) = self.lines.heads
        self.assertTrue(head.startswith(b"POST /exec/token-1 HTTP/1.1\r\n"))
        self.assertNotIn(b"canary", head)
        self.assertNotIn(b"X-Remote", head)
        self.assertIn(b"X-Twisted-Exec-User: " + quote("jäne").encode() + b"\r\n", head)
        self.assertIn(b"X-Twisted-Exec-Machine-Uid: ", head)
        self.assertIn(b"Audit-Id: ", head)
        self.assertIn(b"sec-websocket-version: 13\r\n", head.lower())

    async def test_reason(self) -> None:
        """The reason that the API server sends is on record and goes on to the runtime."""
        await self.start()
        await self.view([(b"X-Twisted-Exec-Reason", b"INC%207")])
        (head,) = self.lines.heads
        self.assertIn(b"X-Twisted-Exec-Reason: INC%207\r\n", head)
        self.assertEqual(self.audit.events[0]["declared_reason"], "INC 7")

    async def test_reason_of_a_direct_user(self) -> None:
        """The header of a user without a proxy does not count."""
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        await self.start()
        await self.view([(b"X-Twisted-Exec-Reason", b"INC%207")], user=b"", identity=JANE)
        (head,) = self.lines.heads
        self.assertNotIn(b"INC", head)
        self.assertEqual(self.audit.events[0]["declared_reason"], "")

    async def test_address(self) -> None:
        """The address that a trusted proxy reports is on record; a direct user cannot choose it."""
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        await self.start()
        header = (b"X-Forwarded-For", b"198.51.100.1, 192.0.2.9")
        await self.view([header])
        self.assertEqual(self.audit.events[0]["address"], "192.0.2.9")
        await self.view([(header[0], b"192.0.2.9, forged")])
        self.assertEqual(self.audit.events[1]["address"], "127.0.0.1")
        await self.view([header], user=b"", identity=JANE)
        self.assertEqual(self.audit.events[2]["address"], "127.0.0.1")

    async def test_direct_user(self) -> None:
        """A user without a proxy needs both permissions."""
        await self.start()
        with self.assertRaises(UpgradeRefused) as caught:
            await self.open(user=b"", identity=JANE)
        self.assertEqual(caught.exception.code, 403)
        self.assertIn("machinepools/proxy", status(caught.exception.body)["message"])
        await self.stop()
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        await self.start()
        await self.view(user=b"", identity=JANE)

    async def test_token(self) -> None:
        """A bearer token is reviewed by the API server."""
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        await self.start()
        await self.view([(b"Authorization", b"Bearer good")], user=b"", identity=None)

    async def test_session_id_of_a_user(self) -> None:
        """A user without a proxy does not choose the session's id."""
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        await self.start()
        await self.view([(b"Audit-Id", b"mine")], user=b"", identity=JANE)
        self.assertNotEqual(self.runtime.execs[0][3], "mine")

    async def test_pool_proxy_suffices(self) -> None:
        """A named foreign API server needs no permission on the machine."""
        foreign = USERS.issue_client("ironcore-apiserver")
        self.allowed = {("ironcore-apiserver", "machinepools/proxy", "pool-a")}
        await self.start(pool_proxy_suffices=["ironcore-apiserver"])
        await self.view(user=b"", identity=foreign)

    async def test_suffices_for_itself_only(self) -> None:
        """A user forwarded by such a server still needs the permission."""
        await self.start(pool_proxy_suffices=["exec-apiserver"])
        await self.view()
        self.allowed.remove(("jane", "machines/exec", "vm"))
        self.poollet.consoles._authorizer._cache._answers.clear()
        with self.assertRaises(UpgradeRefused) as caught:
            await self.open()
        self.assertEqual(caught.exception.code, 403)

    async def test_new_machine(self) -> None:
        """A machine that the watch has not delivered yet is requested from the API server."""
        await self.start()
        self.patch(self.poollet.machines, "_on_change", None)
        self.poollet.machines._objects.clear()
        await self.view()

    async def test_machine_known_by_name_only(self) -> None:
        """An outdated listing is repeated before the request is refused."""
        await self.start()
        self.poollet.loop.observed.clear()
        await self.view()


class RefusalTests(PoolletCase):
    """Every reason not to open a console, as a Status."""

    async def refused(self, code: int, **more: Any) -> str:
        """The message of a refusal with ``code``."""
        before = len(self.audit.events)
        with self.assertRaises(UpgradeRefused) as caught:
            await self.open(**more)
        answer = status(caught.exception.body)
        self.assertEqual((caught.exception.code, answer["code"]), (code, code), answer)
        if "method" not in more:
            start, end = self.audit.events[before:]
            self.assertEqual((start["event"], end["event"], end["code"]), ("start", "end", code))
        message: str = answer["message"]
        return message

    async def retry_after(self) -> int | None:
        """The time after which a refusal suggests to try again."""
        with self.assertRaises(UpgradeRefused) as caught:
            await self.open()
        seconds: int | None = (
            status(caught.exception.body).get("details", {}).get("retryAfterSeconds")
        )
        return seconds

    async def test_unauthenticated(self) -> None:
        """No credential, a wrong token, a stranger's certificate: 401."""
        await self.start()
        self.assertEqual(
            await self.refused(401, user=b"", identity=None), 'machine "vm": Unauthorized'
        )
        await self.refused(
            401, user=b"", identity=None, headers=[(b"Authorization", b"Bearer bad")]
        )
        stranger = USERS.issue_client("exec-apiserver")
        self.allowed.clear()
        # A user's certificate with the proxy's name forwards nobody: it is that user.
        self.assertIn('User "exec-apiserver"', await self.refused(403, identity=stranger))

    async def test_unnamed_proxy(self) -> None:
        """A certificate of the forwarding CA that is not on the list forwards nobody."""
        await self.start()
        await self.refused(401, identity=FORWARDING.issue_client("other"))

    async def test_forbidden(self) -> None:
        """The user needs that very machine, the caller this pool."""
        await self.start()
        self.assertEqual(
            await self.refused(403, user=b"joe"),
            'machines.compute.ironcore.dev "vm" is forbidden: User "joe" cannot create resource '
            '"machines/exec" in API group "compute.ironcore.dev" in the namespace "lab"',
        )
        self.allowed.remove(("exec-apiserver", "machinepools/proxy", "pool-a"))
        self.assertIn("machinepools/proxy", await self.refused(403))

    async def test_22_cross_site(self) -> None:
        """A page of another site opens no console with the browser's certificate."""
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        await self.start()
        evil = [(b"Origin", b"https://evil.example")]
        answer = await self.refused(403, headers=evil, user=b"", identity=JANE)
        self.assertIn("another site", answer)
        await self.view(evil)  # the proxy has judged

    async def test_impersonation(self) -> None:
        """Impersonation headers are refused here, not ignored; only the API server permits them."""
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        await self.start()
        acting = [(b"Impersonate-User", b"root")]
        answer = await self.refused(403, headers=acting, user=b"", identity=JANE)
        self.assertIn("nobody can act as someone else here", answer)

    async def test_allowed_site(self) -> None:
        """A page of an allowed site opens a console."""
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        await self.start(allowed_origins=[b"https://dash.example"])
        dash = [(b"Origin", b"https://dash.example")]
        await self.view(dash, user=b"", identity=JANE)

    async def test_forbidden_before_unknown(self) -> None:
        """A user without permission does not learn whether the machine exists."""
        await self.start()
        await self.refused(403, path=EXEC.format("lab", "nothing"))

    async def test_unknown(self) -> None:
        """A machine that does not exist, or belongs to another pool: 404."""
        self.allowed |= {("jane", "machines/exec", name) for name in ("no", "elsewhere")}
        await self.client.create(MACHINES, machine("elsewhere", "pool-b"), "lab")
        await self.start()
        self.assertEqual(
            await self.refused(404, path=EXEC.format("lab", "no")),
            'machines.compute.ironcore.dev "no" not found in pool "pool-a"',
        )
        await self.refused(404, path=EXEC.format("lab", "elsewhere"))

    async def test_wrong_paths(self) -> None:
        """Encoded slashes, dot segments and trailing slashes lead nowhere."""
        await self.start()
        for path, code in (
            ("lab%2Fmachines", 400),
            ("..", 400),
            ("%2e%2e", 400),
        ):
            with self.assertRaises(UpgradeRefused) as caught:
                await self.open(path=EXEC.format(path, "vm"))
            self.assertEqual(caught.exception.code, code)
        with self.assertRaises(UpgradeRefused) as caught:
            await self.open(path=EXEC.format("lab", "vm") + "/")
        self.assertEqual(caught.exception.code, 404)
        self.assertEqual(self.runtime.execs, [])

    async def test_methods(self) -> None:
        """Only GET and POST open a console."""
        await self.start()
        self.assertIn("not allowed", await self.refused(405, method=b"PUT"))

    async def test_no_upgrade(self) -> None:
        """A request without an upgrade uses up no token: 400."""
        await self.start()
        code, body = await self.get(
            EXEC.format("lab", "vm"), identity=API_SERVER, headers=[(b"X-Remote-User", b"jane")]
        )
        message = 'machine "vm": Upgrade request required'
        self.assertEqual((code, status(body)["message"]), (400, message))
        self.assertEqual(self.runtime.execs, [])

    async def test_on_its_way_out(self) -> None:
        """A machine that is being deleted gets no new session: 409."""
        self.runtime.ends_slowly = True
        await self.start()
        await until(lambda: next(iter(self.poollet.machines))["metadata"].get("finalizers"))
        await self.client.delete(MACHINES, "vm", "lab")
        self.assertIn('machine "vm" is being deleted', await self.refused(409))
        self.runtime.settle()

    async def test_powered_off(self) -> None:
        """Neither is one that is powered off."""
        await self.start()
        await self.client.patch(MACHINES, "vm", {"spec": {"power": "Off"}}, "lab")
        self.assertIn('machine "vm" is powered off', await self.refused(409))

    async def test_not_running_yet(self) -> None:
        """A machine that the runtime does not have yet: 503, try again soon."""
        await self.start()
        self.runtime.machines.clear()
        self.runtime.refusals["create_machine"] = ServiceUnavailable("later")
        self.assertIn('machine "vm" is not running yet', await self.refused(503))
        self.assertEqual(await self.retry_after(), 1)

    async def test_never_running(self) -> None:
        """If the runtime refuses to create the machine, its user sees the reason and does not wait."""
        self.patch(loop, "UNSEEN_SECONDS", 0.0)  # it may be lost before it was ever listed
        await self.start()
        self.runtime.machines.clear()
        self.runtime.refusals["create_machine"] = ServiceUnavailable("no such class")

        def told() -> bool:
            (machine,) = self.poollet.machines
            conditions = machine.get("status", {}).get("conditions", [])
            return any(each.get("message") == "no such class" for each in conditions)

        await until(told)
        self.assertIn("is not running yet: no such class", await self.refused(503))
        self.assertIsNone(await self.retry_after())

    def while_asked(self, change: Callable[[], Awaitable[None]]) -> None:
        """Let a change arrive while the runtime creates the URL."""
        answer = self.runtime.exec

        async def late(request: Any, facts: Any) -> Any:
            url = await answer(request, **facts)
            await change()
            return url

        self.runtime.exec = lambda request, **facts: Deferred.fromCoroutine(  # type: ignore[method-assign]
            late(request, facts)
        )

    async def test_deleted_meanwhile(self) -> None:
        """A session that would miss the end of its machine does not begin."""
        self.runtime.ends_slowly = True
        await self.start()

        async def delete() -> None:
            await self.client.delete(MACHINES, "vm", "lab")
            await until(lambda: "deletionTimestamp" in self.known()["metadata"])

        self.while_asked(delete)
        self.assertIn('machine "vm" is being deleted', await self.refused(409))
        self.runtime.settle()

    async def test_made_anew_meanwhile(self) -> None:
        """A new machine of the same name is another machine."""
        await self.start()
        uid = self.known()["metadata"]["uid"]

        async def make_anew() -> None:
            self.cluster.remove((MACHINES, "lab", "vm"))
            await self.client.create(MACHINES, machine(), "lab")
            await until(lambda: self.known()["metadata"]["uid"] != uid)

        self.while_asked(make_anew)
        self.assertIn('"vm" not found in pool "pool-a"', await self.refused(404))

    def known(self) -> Any:
        """Return the poollet's copy of the Machine."""
        return self.poollet.machines.get("vm", "lab")

    async def test_two_machines(self) -> None:
        """Two machines for one Machine: the request is refused."""
        await self.start()
        (machine,) = self.runtime.machines.values()
        self.runtime.add(machine_uid=machine.metadata.labels[self.uid_label()])
        self.poollet.loop.observed.clear()
        self.assertIn("has 2 machines", await self.refused(409))

    def uid_label(self) -> str:
        return self.poollet.settings.dialect.uid_label

    async def test_runtime_full(self) -> None:
        """Too many tokens are out: 429 with Retry-After."""
        await self.start()
        self.runtime.refusals["exec"] = TooManyRequests("full", 7)
        with self.assertRaises(UpgradeRefused) as caught:
            await self.open()
        self.assertEqual(caught.exception.code, 429)
        self.assertIn((b"Retry-After", b"7"), caught.exception.headers)

    async def test_no_console(self) -> None:
        """A runtime without a URL: 501, and nothing is dialled."""
        await self.start()
        self.runtime.url = ""
        self.assertIn("no console", await self.refused(501))

    async def test_forbidden_url(self) -> None:
        """A URL to another host is neither dialled nor shown."""
        await self.start()
        self.runtime.url = "http://192.0.2.1/exec/canary"
        message = await self.refused(502)
        self.assertIn("http is possible on this host only", message)
        self.assertNotIn("canary", message)

    async def test_runtime_down(self) -> None:
        """A runtime that does not answer is 503, its stream server 502."""
        await self.start()
        self.runtime.refusals["exec"] = ServiceUnavailable("the machine runtime is away")
        await self.refused(503)
        del self.runtime.refusals["exec"]
        self.runtime.url = "http://127.0.0.1:1/exec/t"
        self.assertIn("connection refused", await self.refused(502))

    async def test_25_runtime_slow(self) -> None:
        """A runtime that takes too long is 504."""
        await self.start()
        object.__setattr__(self.poollet.consoles.proxy.locator, "runtime_seconds", 0.05)
        self.patch(self.runtime, "exec", lambda request, **facts: Deferred())
        self.assertIn("does not answer", await self.refused(504))

    async def test_runtime_slow_for_open_session(self) -> None:
        """A session that is open already waits for a slow runtime until the API server gives up."""
        await self.start()
        locator = self.poollet.consoles.proxy.locator
        clock = Clock()
        object.__setattr__(locator, "clock", clock)
        departed: Deferred[Any] = Deferred()
        self.patch(self.runtime, "exec", lambda request, **facts: departed)
        refused = Deferred.fromCoroutine(
            self.refused(
                503, headers=[(b"X-Twisted-Exec-Rejoin", b"key=%b; received=0" % (b"k" * 43))]
            )
        )
        await until(lambda: clock.getDelayedCalls())
        clock.advance(RUNTIME_SECONDS + 1)
        self.assertNoResult(refused)
        departed.errback(ServiceUnavailable("the machine runtime is away"))
        await refused

    async def test_runtime_slow_twice(self) -> None:
        """All calls to the runtime for one console share one timeout, shorter than the API server's."""
        self.assertLess(RUNTIME_SECONDS, apiserver.Settings.poollet_seconds)
        await self.start()
        clock = Clock()
        object.__setattr__(self.poollet.consoles.proxy.locator, "clock", clock)
        departed: Deferred[Any] = Deferred()
        listing: list[Deferred[Any]] = []
        self.patch(self.runtime, "exec", lambda request, **facts: departed)
        refused = Deferred.fromCoroutine(self.refused(504))
        await until(lambda: clock.getDelayedCalls())
        clock.advance(RUNTIME_SECONDS / 2)

        def never(_: Any) -> Deferred[Any]:
            listing.append(Deferred())
            return listing[-1]

        self.patch(self.runtime, "list_machines", never)
        departed.errback(NotFound("machines", "x"))
        await until(lambda: listing)
        clock.advance(RUNTIME_SECONDS / 2)
        self.assertIn("the machine runtime does not answer", await refused)

    async def test_token_refused(self) -> None:
        """The stream server's answer is passed on."""
        await self.start()
        self.lines.refusal = b"HTTP/1.1 404 Not Found\r\nContent-Length: 13\r\n\r\nunknown token"
        self.assertEqual(await self.refused(404), 'machine "vm": unknown token')

    async def test_api_server_away(self) -> None:
        """If the permission cannot be checked, the request is refused."""
        await self.start()
        self.cluster.problem = unreachable()
        self.patch(self.poollet.consoles._authorizer._reviews, "_retry_seconds", 0.05)
        await self.refused(503)
        self.cluster.problem = None


class EndingTests(PoolletCase):
    """Events that end a session on the poollet's side."""

    async def ended(self, reason: str) -> bytes:
        """Wait until the session has ended for ``reason``; return the runtime's DELETE."""
        await until(lambda: len(self.audit.events) >= 2)
        self.assertEqual(self.audit.events[-1]["reason"], reason)
        await until(lambda: len(self.poollet.consoles.sessions) == 0)
        return self.lines.heads[-1]

    async def test_machine_deleted(self) -> None:
        """Deleting the Machine ends its sessions; the runtime receives the reason."""
        await self.start()
        viewer = await self.view([(b"Audit-Id", b"session-7")])
        await self.client.delete(MACHINES, "vm", "lab")
        head = await self.ended("MachineDeleted")
        self.assertTrue(
            head.startswith(
                b"DELETE /exec/token-1?session=session-7&reason=MachineDeleted&message="
            )
        )
        await until(lambda: viewer.lost is not None)

    async def test_pool_deleted(self) -> None:
        """Deleting the pool ends its sessions; then it is registered again."""
        await self.start()
        await self.view()
        await self.client.delete(POOLS, "pool-a")
        self.assertIn(b"reason=PoolDeleted", await self.ended("PoolDeleted"))
        await until(lambda: (POOLS, "", "pool-a") in self.cluster.objects)

    async def test_powered_off(self) -> None:
        """So does its power going off."""
        await self.start()
        await self.view()
        await self.client.patch(MACHINES, "vm", {"spec": {"power": "Off"}}, "lab")
        self.assertIn(b"reason=PoweredOff", await self.ended("PoweredOff"))

    async def test_other_sessions_go_on(self) -> None:
        """Another machine's sessions are not touched."""
        self.allowed.add(("jane", "machines/exec", "other"))
        await self.start()
        await self.client.create(MACHINES, machine("other"), "lab")
        await until(lambda: len(self.runtime.machines) == 2)
        viewer = await self.view(path=EXEC.format("lab", "other"))
        await self.client.delete(MACHINES, "vm", "lab")
        viewer.transport.write(b"!")
        await until(lambda: viewer.data == b"hello!")

    async def test_28_shutdown(self) -> None:
        """Stopping the poollet ends sessions first and signs the pool off."""
        await self.start()
        await self.view()
        await self.poollet.stopService()
        self.assertIn(b"reason=ShuttingDown", self.lines.heads[-1])
        self.assertEqual(self.audit.events[-1]["reason"], "ShuttingDown")
        pool = await self.client.get(POOLS, "pool-a")
        self.assertEqual(pool["status"]["state"], "Offline")
        self.assertEqual(pool["status"]["conditions"][0]["reason"], "PoolletStopped")

    async def test_withdrawn(self) -> None:
        """A permission that is withdrawn ends the session."""
        await self.start()
        await self.view()
        self.allowed.clear()
        self.poollet.consoles._authorizer._cache._answers.clear()
        await self.poollet.consoles.guard.stopService()
        self.poollet.consoles.guard._review_seconds = 0.01
        self.poollet.consoles.guard.startService()
        self.assertIn(b"reason=AuthorizationWithdrawn", await self.ended("AuthorizationWithdrawn"))

    async def test_other_server(self) -> None:
        """A kubeconfig of another API server, with other answers, ends sessions within a second."""
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        await self.start()
        await self.view([(b"Authorization", b"Bearer good")], user=b"", identity=None)
        self.good_tokens.clear()
        self.client.changes += 1
        waited = await until(lambda: not self.poollet.consoles.sessions.live())
        self.assertIn(b"reason=AuthorizationWithdrawn", await self.ended("AuthorizationWithdrawn"))
        await self.view()
        self.allowed.clear()
        self.client.changes += 1
        waited += await until(lambda: not self.poollet.consoles.sessions.live())
        self.assertLess(waited, 5, "the periodic reviews have ended them")

    async def ask_again(self) -> None:
        """Run the periodic review now, with empty caches."""
        gate: Any = self.poollet.consoles.guard._reviewer
        for part in (self.poollet.consoles._authorizer, gate._authenticator._authenticators[-1]):
            part._cache._answers.clear()
        await self.poollet.consoles.guard.review()

    async def test_direct_token(self) -> None:
        """A user with a bearer token keeps the console while the token is valid."""
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        await self.start()
        token = [(b"Authorization", b"Bearer good")]
        viewer = await self.view(token, user=b"", identity=None)
        await self.ask_again()
        viewer.transport.write(b"!")
        await until(lambda: viewer.data == b"hello!")
        self.good_tokens.clear()
        await self.ask_again()
        self.assertIn(b"reason=AuthorizationWithdrawn", await self.ended("AuthorizationWithdrawn"))

    async def test_direct_token_of_another(self) -> None:
        """A token that now identifies another user ends the session."""
        self.allowed |= {
            ("jane", "machinepools/proxy", "pool-a"),
            ("joe", "machinepools/proxy", "pool-a"),
            ("joe", "machines/exec", "vm"),
        }
        await self.start()
        await self.view([(b"Authorization", b"Bearer good")], user=b"", identity=None)
        self.good_tokens["good"] = "joe"
        await self.ask_again()
        self.assertIn(b"reason=AuthorizationWithdrawn", await self.ended("AuthorizationWithdrawn"))

    async def test_certificate(self) -> None:
        """Certificates of users and proxies stay valid."""
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        await self.start()
        await self.view(user=b"", identity=JANE)
        await self.view()
        await self.ask_again()
        self.assertEqual(len(self.poollet.consoles.sessions), 2)

    async def end_by_request(self, identity: Any, session: str) -> tuple[int, dict[str, Any]]:
        """End a session as the previous hop does."""
        path = f"{EXEC.format('lab', 'vm')}?session={session}&reason=MachineDeleted&message=gone"
        request = UpgradeRequest(b"DELETE", path.encode(), b"poollet", [])
        with self.assertRaises(UpgradeRefused) as caught:
            await upgrade(self.endpoint(identity), request, clock=reactor, timeout_seconds=10)
        return caught.exception.code, status(caught.exception.body)

    async def test_by_request(self) -> None:
        """The proxy that opened a session ends it, with a reason that is passed on."""
        await self.start()
        await self.view([(b"Audit-Id", b"session-7")])
        code, _ = await self.end_by_request(API_SERVER, "session-7")
        self.assertEqual(code, 200)
        self.assertIn(b"reason=MachineDeleted&message=gone", await self.ended("MachineDeleted"))

    async def test_by_somebody_else(self) -> None:
        """Another proxy cannot end it."""
        await self.start()
        await self.view([(b"Audit-Id", b"session-7")])
        self.assertEqual((await self.end_by_request(JANE, "session-7"))[0], 401)
        self.assertEqual((await self.end_by_request(None, "session-7"))[0], 401)
        self.assertEqual((await self.end_by_request(API_SERVER, "other"))[0], 404)
        self.assertEqual(len(self.poollet.consoles.sessions), 1)


class ProgramTests(PoolletCase):
    """The poollet as a program."""

    async def test_advertised(self) -> None:
        """The pool reports the listening port and the addresses."""
        await self.start()
        pool = await self.client.get(POOLS, "pool-a")
        address: Any = self.poollet.address
        pool_status = pool["status"]
        self.assertEqual(
            pool_status["daemonEndpoints"], {"machinepoolletEndpoint": {"port": address.port}}
        )
        self.assertEqual(
            pool_status["addresses"][0], {"type": "InternalIP", "address": "127.0.0.1"}
        )
        self.assertEqual(
            {address["type"] for address in pool_status["addresses"]},
            {"InternalIP", "InternalDNS", "Hostname"},
        )

    async def test_probes(self) -> None:
        """/healthz answers every client; /readyz succeeds only if every dependency answers."""
        await self.start()
        self.assertEqual(await self.get("/healthz"), (200, b"ok"))
        code, body = await self.get("/readyz")
        self.assertEqual(code, 200, body)
        for name in (b"runtime", b"apiserver", b"caches", b"pool"):
            self.assertIn(b"[+]" + name + b" ok", body)
        self.runtime.problem = ServiceUnavailable("away")
        self.assertIn(b"[-]runtime failed", await self.not_ready(b"runtime"))
        self.runtime.problem = None
        self.cluster.problem = unreachable()
        self.assertIn(b"[+]runtime ok", await self.not_ready(b"apiserver"))
        self.cluster.problem = None

    async def not_ready(self, name: bytes) -> bytes:
        """Return the listing of /readyz once a probe fails; answers are cached for a second."""
        while True:
            code, body = await self.get("/readyz")
            if b"[-]" + name in body:
                self.assertEqual(code, 503)
                return body

    async def test_34_metrics(self) -> None:
        """Metrics need permission."""
        self.allowed.add(("jane", "/metrics", ""))
        await self.start()
        await self.view()
        self.assertEqual((await self.get("/metrics"))[0], 401)
        code, body = await self.get("/metrics", identity=JANE)
        self.assertEqual(code, 200)
        self.assertIn(b"twisted_exec_sessions_active 1.0", body)
        self.assertEqual((await self.get("/metrics", identity=USERS.issue_client("joe")))[0], 403)

    async def test_one_ca_for_users_and_proxies(self) -> None:
        """The CA of users must not vouch for proxies: one user could impersonate all others."""
        both = self.write("both.crt", FORWARDING.certificate_pem + USERS.certificate_pem)
        settings = self.settings(requestheader_ca=both)
        other = Poollet(settings, self.client, self.runtime, self.audit, reactor)
        ready = other.when_ready()
        other.startService()
        message = await ready.addErrback(lambda failure: failure.getErrorMessage())
        await other.stopService()
        self.assertIn("the CA of proxies must sign nothing else", message)

    async def test_cannot_listen(self) -> None:
        """A failed start fails when_ready with one line."""
        await self.start()
        address: Any = self.poollet.address
        for more in (
            {"listen": f"tcp:{address.port}:interface=127.0.0.1"},
            {"certificate": "/nonexistent/tls.crt"},
            {"client_ca": "/nonexistent/ca.crt"},
            {"runtime_ca": "/nonexistent/ca.crt"},
            {"listen": "nonsense"},
        ):
            other = Poollet(self.settings(**more), self.client, self.runtime, self.audit, reactor)
            ready = other.when_ready()
            other.startService()
            message = await ready.addErrback(lambda failure: failure.getErrorMessage())
            await other.stopService()
            self.assertNotIn("\n", message)
            told = str(next(iter(more.values())))
            if "nonexistent" in told:
                self.assertIn(told, message)

    async def test_many(self) -> None:
        """Many sessions at once, ended in every order, leave no state behind."""
        await self.start()
        viewers = await gatherResults([Deferred.fromCoroutine(self.view()) for _ in range(20)])
        for number, viewer in enumerate(viewers):
            if number % 3 == 0:
                viewer.transport.loseConnection()
            elif number % 3 == 1:
                viewer.transport.abortConnection()
            else:
                self.lines.lines[number].transport.abortConnection()
        await until(lambda: len(self.poollet.consoles.sessions) < 14)
        self.lines.end()
        await until(lambda: len(self.poollet.consoles.sessions) == 0)
        ends = [event for event in self.audit.events if event["event"] == "end"]
        self.assertEqual(len(ends), 20)
