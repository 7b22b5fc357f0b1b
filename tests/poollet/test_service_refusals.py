"""
Tests for :mod:`twisted_exec.poollet.service`: consoles that a poollet refuses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from tests.chain import until
from tests.poollet.chain import API_SERVER, EXEC, FORWARDING, JANE, USERS, PoolletCase, status
from tests.poollet.doubles import MACHINES, machine
from twisted_exec.api.conditions import is_powered_off
from twisted_exec.api.status import (
    GatewayTimeout,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
)
from twisted_exec.apiserver.settings import Settings as APIServerSettings
from twisted_exec.auth.delegated import DelegatedAuthorizer
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.poollet.admission import RUNTIME_SECONDS
from twisted_exec.poollet.machines import loop
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused
from twisted_exec.testing.cluster import unreachable


class RefusalTests(PoolletCase):
    """Every reason not to open a console, as a Status."""

    async def refused(self, code: int, **more: Any) -> str:
        """The message of a refusal with ``code``."""
        before = len(self.audit)
        with self.assertRaises(UpgradeRefused) as caught:
            await self.open(**more)
        answer = status(caught.exception.body)
        self.assertEqual((caught.exception.code, answer["code"]), (code, code), answer)
        if "method" not in more:
            start, end = self.audit[before:]
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
        self.assertIn("this server accepts no impersonation (kubectl --as)", answer)

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

    def _is_still_on(self) -> bool:
        (found,) = self.poollet.machines
        return found["spec"].get("power") == "Off" and not is_powered_off(found)

    async def test_still_on(self) -> None:
        """One that is to be off, and is still on, has a console: the runtime is asked."""
        await self.start()
        (found,) = self.runtime.machines.values()
        why = pb.MachineCondition(
            type="Ready", status="False", reason="PowerFailed", message="it stays on"
        )
        self.patch(self.runtime, "_power", lambda _: found.status.machine_conditions.append(why))
        await self.client.patch(MACHINES, "vm", {"spec": {"power": "Off"}}, "lab")
        await until(self._is_still_on)
        self.runtime.refusals["exec"] = TooManyRequests("full")
        self.assertIn("full", await self.refused(429))

    async def test_not_running_yet(self) -> None:
        """A machine that the runtime does not have yet: 503, try again soon."""
        await self.start()
        await self.poollet.loop.stop()  # otherwise it would soon make another one
        self.runtime.machines.clear()
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
        """Let a change arrive while the runtime creates the URL, however long that takes."""
        answer = self.runtime.exec
        self.give_time()

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
        object.__setattr__(self.poollet.consoles.proxy.admission, "runtime_seconds", 0.05)
        self.patch(self.runtime, "exec", lambda request, **facts: Deferred())
        self.assertIn("does not answer", await self.refused(504))

    async def test_runtime_slow_for_many(self) -> None:
        """While the runtime answers others, a user waits for it, and then no longer than for a silent one."""
        await self.start()
        admission, clock = self.poollet.consoles.proxy.admission, Clock()
        object.__setattr__(admission.parts, "clock", clock)
        slow = Deferred.fromCoroutine(admission._in_time(Deferred()))
        for _ in range(10):
            clock.advance(RUNTIME_SECONDS - 1)
            await admission._in_time(succeed(None))
        clock.advance(RUNTIME_SECONDS - 1)
        self.assertNoResult(slow)
        clock.advance(1)
        self.failureResultOf(slow, GatewayTimeout)

    async def test_runtime_slow_for_open_session(self) -> None:
        """A session that is open already waits for a slow runtime until the API server gives up."""
        await self.start()
        admission = self.poollet.consoles.proxy.admission
        clock = Clock()
        object.__setattr__(admission.parts, "clock", clock)
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
        self.assertLess(RUNTIME_SECONDS, APIServerSettings.poollet_seconds)
        await self.start()
        clock = Clock()
        object.__setattr__(self.poollet.consoles.proxy.admission.parts, "clock", clock)
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
        await self.start(DelegatedAuthorizer(self.client, reactor, retry_seconds=0.05))
        self.cluster.problem = unreachable()
        await self.refused(503)
        self.cluster.problem = None
