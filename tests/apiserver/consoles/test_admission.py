"""
Tests for consoles through the API server: :mod:`twisted_exec.apiserver.consoles.admission` and
``endings``.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from twisted.internet.task import deferLater

from tests.apiserver.chain import WEBSOCKET, MachineTestCase
from tests.apiserver.rights import BINDINGS, binding
from tests.auth.test_credentials import KeyAuthenticator
from tests.chain import POOL, reactor
from tests.retained import entries
from tests.streaming.raw import Raw
from twisted_exec.api import kinds
from twisted_exec.api.conditions import with_conditions
from twisted_exec.apiserver.identity.credentials import Identities
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused
from twisted_exec.streaming.sessions.hop_messages import session_id

_NOW = "2024-01-01T00:00:00Z"
MACHINES, POOLS = kinds.MACHINES.resource, kinds.MACHINEPOOLS.resource


class ConsoleTests(MachineTestCase):
    """A console through the API server."""

    async def setUp(self) -> None:
        self.token_file = self.mktemp()
        with open(self.token_file, "w") as file:
            file.write("joes-token,joe,u-2\n")
        keys = [KeyAuthenticator()]
        self.identities = Identities(token_file=self.token_file, authenticators=keys)
        await super().setUp()

    async def test_bytes(self) -> None:
        """Input reaches the poollet, and output reaches the user."""
        end = await self.open()
        end.transport.write(b"hello")  # type: ignore[union-attr]
        await self.until(lambda: end.received == b"hello")

    async def test_what_the_poollet_sees(self) -> None:
        """The poollet gets its own path without the query, the user's identity, no credentials."""
        await self.admin.create(BINDINGS, binding("jane", "edit"), "default")
        forged = [
            (b"X-Remote-User", b"root"),
            (b"Authorization", b""),
            (b"Cookie", b"x"),
            (b"Audit-Id", b"chosen"),
        ]
        query = "?insecureSkipTLSVerifyBackend=true"
        await self.open(user="jane", query=query, headers=[*WEBSOCKET, *forged])
        method, path, headers = self.pool.requests[0]
        self.assertEqual(method, "POST")
        self.assertEqual(path, "/apis/compute.ironcore.dev/namespaces/default/machines/vm/exec")
        self.assertEqual(headers["x-remote-user"], ["jane"])
        self.assertEqual(headers["x-remote-group"], ["dev", "system:authenticated"])
        self.assertIn("x-remote-extra-authentication.kubernetes.io%2fcredential-id", headers)
        for name in ("authorization", "cookie"):
            self.assertNotIn(name, headers)
        # Under an id that a user chose, one session's records would pass for another's.
        self.assertEqual(headers["audit-id"], [self.audit[0]["session"]])
        self.assertNotEqual(self.audit[0]["session"], "chosen")

    async def test_33_audit(self) -> None:
        """One start and one end, with who, what and how much."""
        end = await self.open()
        end.transport.write(b"hello")  # type: ignore[union-attr]
        await self.until(lambda: end.received == b"hello")
        end.transport.loseConnection()  # type: ignore[union-attr]
        await self.until(lambda: len(self.audit) == 2)
        start, last = self.audit
        self.assertEqual((start["event"], last["event"]), ("start", "end"))
        self.assertEqual(start["session"], self.pool.requests[0][2]["audit-id"][0])
        for key, value in {
            "hop": "apiserver",
            "user": "admin",
            "namespace": "default",
            "machine": "vm",
            "resource": "machines.compute.ironcore.dev",
            "uid": self.made["metadata"]["uid"],
            "pool": POOL,
        }.items():
            self.assertEqual(last[key], value)
        self.assertEqual((last["bytes_to_machine"], last["bytes_to_user"]), (5, 5))

    async def test_reason(self) -> None:
        """The reason of the query is on record and reaches the poollet in our own header."""
        await self.open(query="?reason=INC-7%20f%C3%BCr%20Ada&tty=1")
        self.assertEqual(self.audit[0]["declared_reason"], "INC-7 für Ada")
        _, path, headers = self.pool.requests[0]
        self.assertEqual(headers["x-twisted-exec-reason"], ["INC-7%20f%C3%BCr%20Ada"])
        self.assertNotIn("reason", path)

    async def test_bad_reason(self) -> None:
        """A reason with control characters, or a long one, is refused with the cause, and on record."""
        self.assertIn("U+001B", await self.refused(400, query="?reason=a%1B%5B2J"))
        self.assertIn("256", await self.refused(400, query="?reason=" + "x" * 257))
        self.assertEqual([code for _, code in self.ends()], [400, 400])
        self.assertEqual(self.pool.requests, [])

    async def test_reason_of_a_hop(self) -> None:
        """Only a caller that acts for another user may send the header of a hop."""
        header = (b"X-Twisted-Exec-Reason", b"INC%208")
        await self.open(headers=[*WEBSOCKET, header])
        self.assertEqual(self.audit[0]["declared_reason"], "")
        self.assertNotIn("x-twisted-exec-reason", self.pool.requests[0][2])
        acting = [(b"Impersonate-User", b"x"), (b"Impersonate-Group", b"system:masters")]
        await self.open(headers=[*WEBSOCKET, *acting, header])
        self.assertEqual(self.audit[1]["declared_reason"], "INC 8")
        self.assertEqual(self.pool.requests[1][2]["x-twisted-exec-reason"], ["INC%208"])
        await self.refused(400, headers=[*WEBSOCKET, *acting, (header[0], b"a%0Ab")])

    async def test_address(self) -> None:
        """The record names the address of the client."""
        await self.open()
        self.assertEqual(self.audit[0]["address"], "127.0.0.1")

    async def test_6_create_whatever_the_method(self) -> None:
        """Opening a console needs ``create``; ``get`` alone opens none, GET or POST."""
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "reader"},
            "rules": [{"verbs": ["get", "list", "watch"], "apiGroups": ["*"], "resources": ["*"]}],
        }
        await self.admin.create(kinds.CLUSTERROLES.resource, role)
        await self.admin.create(BINDINGS, binding("jane", "reader"), "default")
        for method in (b"GET", b"POST"):
            told = await self.refused(403, user="jane", method=method)
            self.assertIn('cannot create resource "machines/exec"', told)
        await self.admin.create(BINDINGS, binding("jane", "edit"), "default")
        for method in (b"GET", b"POST"):
            await self.open(user="jane", method=method)
        self.assertEqual([code for _, code in self.ends()], [403, 403])

    async def test_bad_requests(self) -> None:
        """Dry runs and requests without an upgrade are 400."""
        self.assertIn("dryRun", await self.refused(400, query="?dryRun=All"))
        told = 'machine "vm": Upgrade request required'
        self.assertEqual(await self.refused(400, headers=[]), told)
        h2c = [(b"Connection", b"Upgrade"), (b"Upgrade", b"h2c")]
        self.assertIn("cannot upgrade to 'h2c'", await self.refused(400, headers=h2c))
        await self.refused(405, method=b"PUT")

    async def test_22_cross_site(self) -> None:
        """A page of another site does not open a console with the browser's certificate."""
        for origin in (b"https://evil.example", b"null"):
            told = await self.refused(403, headers=[*WEBSOCKET, (b"Origin", origin)])
            self.assertIn("another site", told)
        named = [(b"Origin", b"https://evil.example"), (b"Authorization", b"Basic eDp5")]
        await self.refused(403, headers=[*WEBSOCKET, *named])  # of wss://x:y@HOST
        await self.open(headers=[*WEBSOCKET, (b"Origin", b"https://127.0.0.1")])
        self.assertNotIn("origin", self.pool.requests[0][2])
        self.assertEqual([code for _, code in self.ends()], [403, 403, 403])

    def settings(self, **more: Any) -> Any:
        return super().settings(allowed_origins=[b"https://dash.example"], **more)

    async def test_allowed_site(self) -> None:
        """A page of an allowed origin opens a console."""
        await self.open(headers=[*WEBSOCKET, (b"Origin", b"https://dash.example")])

    async def test_browser(self) -> None:
        """
        A web page sends its token as a subprotocol; it is neither forwarded nor logged.
        """
        await self.admin.create(BINDINGS, binding("joe", "edit"), "default")
        encoded = base64.urlsafe_b64encode(b"joes-token").rstrip(b"=")
        offered = b"base64url.bearer.authorization.k8s.io." + encoded + b", v5.channel.k8s.io"
        browser = [
            *WEBSOCKET,
            (b"Sec-WebSocket-Protocol", offered),
            (b"Origin", b"https://page.example"),
        ]
        self.pool.protocol = "v5.channel.k8s.io"
        await self.open(user="", method=b"GET", headers=browser)
        _, _, headers = self.pool.requests[0]
        self.assertEqual(headers["x-remote-user"], ["joe"])
        self.assertEqual(headers["sec-websocket-protocol"], ["v5.channel.k8s.io"])
        self.assertNotIn("authorization", headers)
        await self.recheck()
        self.assertEqual([each["user"] for each in self.audit], ["joe"])
        told = json.dumps([self.audit, self.pool.requests])
        self.assertNotIn(encoded.decode(), told)
        self.assertNotIn("joes-token", told)

    async def test_new_credential(self) -> None:
        """
        A header that an authenticator declares is all that there is to a new credential: sessions
        that it opened outlive reviews, and the next hop does not see it.
        """
        await self.admin.create(BINDINGS, binding("robot", "edit"), "default")
        end = await self.open(user="", headers=[*WEBSOCKET, (b"X-Lab-Key", b"secret")])
        _, _, headers = self.pool.requests[0]
        self.assertEqual(headers["x-remote-user"], ["robot"])
        self.assertNotIn("x-lab-key", headers)
        await self.recheck()
        self.assertEqual(self.endings(), [None])
        await self.admin.delete(BINDINGS, "robot-edit", "default")
        await self.until(lambda: end.lost)
        await self.until(self.ends)
        self.assertEqual(self.ends(), [("AuthorizationWithdrawn", None)])

    async def test_token_beside_a_certificate(self) -> None:
        """If the browser has a certificate, a token does not excuse a page of another site."""
        offered = b"base64url.bearer.authorization.k8s.io.eA, v5.channel.k8s.io"
        page = [(b"Sec-WebSocket-Protocol", offered), (b"Origin", b"https://page.example")]
        told = await self.refused(403, user="admin", method=b"GET", headers=[*WEBSOCKET, *page])
        self.assertIn("another site", told)

    async def test_wrong_token_of_a_browser(self) -> None:
        """A wrong or malformed token in the subprotocol gets 401."""
        bearer = b"base64url.bearer.authorization.k8s.io."
        for offered in (bearer + b"eA, v5.x", bearer + b"eA", bearer + b"eA==, v5.x"):
            headers = [*WEBSOCKET, (b"Sec-WebSocket-Protocol", offered)]
            await self.refused(401, user="", method=b"GET", headers=headers)

    async def test_missing(self) -> None:
        """A missing machine or pool gets 404, a machine without a pool 400."""
        self.assertEqual(
            await self.refused(404, "nobody"), 'machines.compute.ironcore.dev "nobody" not found'
        )
        await self.make_machine("free", "")
        self.assertRegex(
            await self.refused(400, "free"),
            '^machine "free" has no machine pool yet(: .+)?; twisted-exec doctor free -n default says',
        )
        await self.make_machine("lost", "pool-z")
        self.assertEqual(
            await self.refused(404, "lost"),
            'machinepools.compute.ironcore.dev "pool-z" not found: machine "lost" is assigned to it; '
            "twisted-exec doctor lost -n default says what to do",
        )

    async def test_not_running(self) -> None:
        """A machine that is off, or going, has no console."""
        await self.make_machine("off", power="Off")
        self.assertIn("is powered off", await self.refused(409, "off"))
        held = {"metadata": {"finalizers": ["x/y"]}}
        await self.admin.patch(MACHINES, "vm", held, "default")
        await self.admin.delete(MACHINES, "vm", "default")
        self.assertIn("is being deleted", await self.refused(409))

    async def test_still_on(self) -> None:
        """A machine that is to be off, and is still on, has a console: its poollet is asked."""
        conditions = with_conditions([], {"Ready": ("False", "PowerFailed", "it stays on")}, _NOW)
        await self.make_machine("off", power="Off")
        reported = {"status": {"state": "Running", "conditions": conditions}}
        await self.admin.patch(MACHINES, "off", reported, "default", subresource="status")
        full = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "full"}
        self.pool.answer = 429, full
        self.assertEqual(await self.refused(429, "off"), 'machine "off": full')

    async def test_refused_by_the_poollet(self) -> None:
        """The poollet's refusal is passed on to the user."""
        status = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "full"}
        self.pool.answer = 429, status
        self.assertEqual(await self.refused(429), 'machine "vm": full')
        self.assertEqual(self.ends(), [("full", 429)])
        self.pool.answer = 200, {}
        self.assertIn("status code 200", await self.refused(502))

    async def test_nothing_is_retained(self) -> None:
        """Refused requests leave nothing behind."""
        await self.make_machine("off", power="Off")
        status = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "full"}
        self.pool.answer = 429, status
        parts = self.server._parts.sessions, self.server._parts.guard
        beside = [reactor, self.audit, self.storage]
        counts = []
        for _ in range(5):
            await self.refused(404, "nobody")
            await self.refused(409, "off")
            await self.refused(429)
            await self.refused(403, user="jane")
            counts.append(entries(parts, beside=beside))
        self.assertEqual(counts[1:], counts[1:2] * 4)

    async def test_no_address(self) -> None:
        """A pool without a usable address gets 503, with the known addresses in the message."""
        body = {"status": {"addresses": [{"type": "InternalIP", "address": ""}]}}
        await self.admin.patch(POOLS, POOL, body, subresource="status")
        self.assertIn("known addresses: InternalIP=", await self.refused(503))
        await self.admin.patch(POOLS, POOL, {"status": None}, subresource="status")
        told = await self.refused(503)
        self.assertIn(f'machine pool "{POOL}" has no usable address', told)
        self.assertIn("known addresses: none", told)

    async def test_8_deleted_machine(self) -> None:
        """Deleting a machine ends its sessions with the reason, told beside the stream."""
        end = await self.open()
        await self.admin.delete(MACHINES, "vm", "default")
        await self.until(lambda: end.lost)
        await self.until(self.ends)
        self.assertEqual(self.ends(), [("MachineDeleted", None)])
        method, path, _ = self.pool.requests[-1]
        self.assertEqual(method, "DELETE")
        self.assertIn("reason=MachineDeleted&message=machine+%22vm%22+was+deleted", path)

    async def test_dying_machine(self) -> None:
        """Deleting a machine ends its sessions even while finalizers hold the machine."""
        held = {"metadata": {"finalizers": ["x/y"]}}
        await self.admin.patch(MACHINES, "vm", held, "default")
        end = await self.open()
        await self.admin.delete(MACHINES, "vm", "default")
        await self.until(lambda: end.lost)
        await self.until(self.ends)
        self.assertEqual(self.ends(), [("MachineDeleted", None)])

    async def test_powered_off(self) -> None:
        """Power off ends the machine's sessions, but no session of another machine."""
        await self.make_machine("other")
        end, other = await self.open(), await self.open("other")
        self.pool.lines.pop()
        await self.admin.patch(MACHINES, "vm", {"spec": {"power": "Off"}}, "default")
        await self.until(lambda: end.lost)
        await self.until(self.ends)
        self.assertEqual(self.ends(), [("PoweredOff", None)])
        other.transport.write(b"still here")  # type: ignore[union-attr]
        await self.until(lambda: other.received == b"still here")

    async def test_8_deleted_pool(self) -> None:
        """Deleting a pool ends the sessions of all its machines."""
        end = await self.open()
        await self.admin.delete(POOLS, POOL)
        await self.until(lambda: end.lost)
        await self.until(self.ends)
        self.assertEqual(self.ends(), [("PoolDeleted", None)])

    async def test_8_withdrawn(self) -> None:
        """Taking the role away ends the session soon, with the reason."""
        await self.admin.create(BINDINGS, binding("jane", "edit"), "default")
        end, other = await self.open(user="jane"), await self.open()
        self.pool.lines.pop()
        await self.admin.delete(BINDINGS, "jane-edit", "default")
        await self.until(lambda: end.lost)
        await self.until(self.ends)
        self.assertEqual(self.ends(), [("AuthorizationWithdrawn", None)])
        other.transport.write(b"still here")  # type: ignore[union-attr]
        await self.until(lambda: other.received == b"still here")

    async def test_impersonated(self) -> None:
        """Impersonation opens the impersonated user's consoles; the audit log names both users."""
        await self.admin.create(BINDINGS, binding("jane", "edit"), "default")
        jane = [*WEBSOCKET, (b"Impersonate-User", b"jane"), (b"Impersonate-Group", b"dev")]
        end = await self.open(headers=jane)
        headers = self.pool.requests[0][2]
        self.assertEqual(headers["x-remote-user"], ["jane"])
        self.assertEqual(headers["x-remote-group"], ["dev", "system:authenticated"])
        self.assertNotIn("impersonate-user", headers)
        self.assertEqual((self.audit[0]["user"], self.audit[0]["caller"]), ("jane", "admin"))
        await self.admin.delete(BINDINGS, "jane-edit", "default")
        await self.until(lambda: end.lost)
        await self.until(self.ends)
        self.assertEqual(self.ends(), [("AuthorizationWithdrawn", None)])

    async def test_session_brought_along(self) -> None:
        """An impersonating caller chooses the session id, and can end the session by it."""
        named = [*WEBSOCKET, (b"Impersonate-User", b"x"), (b"Impersonate-Group", b"system:masters")]
        headers = [*named, (b"Audit-Id", b"from-afar")]
        end = await self.open(headers=headers)
        self.assertEqual(self.audit[0]["session"], "from-afar")
        self.assertEqual(self.pool.requests[0][2]["audit-id"], ["from-afar"])
        query = "?session=from-afar&reason=MachineDeleted&message=gone"
        ending = {"method": b"DELETE", "query": query, "headers": ()}
        told = await self.refused(404, user="jane", **ending)
        self.assertIn("from-afar", told)
        with self.assertRaises(UpgradeRefused) as caught:
            await self.dial(**ending)
        self.assertEqual(caught.exception.code, 200)
        await self.until(lambda: end.lost)
        await self.until(self.ends)
        self.assertEqual(self.ends(), [("MachineDeleted", None)])
        self.assertIn("session=from-afar&reason=MachineDeleted", self.pool.requests[-1][1])

    async def test_session_id_taken(self) -> None:
        """A second session with the same id in Audit-Id gets another id."""
        named = [*WEBSOCKET, (b"Impersonate-User", b"x"), (b"Impersonate-Group", b"system:masters")]
        for _ in range(2):
            await self.open(headers=[*named, (b"Audit-Id", b"same")])
        ids = [each["session"] for each in self.audit]
        self.assertEqual((ids[0], len(set(ids))), ("same", 2))

    async def test_own_session(self) -> None:
        """A user may end their own session by the id in the response."""
        upgraded = await self.dial()
        end = Raw()
        upgraded.hand_over(end)
        session = session_id(upgraded.headers)
        self.assertEqual(session, self.audit[0]["session"])
        query = f"?session={session}&reason=MachineDeleted"
        with self.assertRaises(UpgradeRefused) as caught:
            await self.dial(method=b"DELETE", query=query, headers=())
        self.assertEqual(caught.exception.code, 200)
        await self.until(lambda: end.lost)

    async def test_impersonation_refused(self) -> None:
        """Impersonation without the right is refused; the audit log names the caller."""
        await self.admin.create(BINDINGS, binding("jane", "edit"), "default")
        headers = [*WEBSOCKET, (b"Impersonate-User", b"admin")]
        told = await self.refused(403, user="jane", headers=headers)
        self.assertIn('User "jane" cannot impersonate resource "users"', told)
        self.assertEqual((self.audit[0]["user"], self.audit[0]["caller"]), ("jane", ""))

    async def test_impersonation_withdrawn(self) -> None:
        """Withdrawing the right to impersonate ends sessions that were opened with it."""
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "as-anyone"},
            "rules": [
                {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users", "groups"]}
            ],
        }
        bindings = kinds.CLUSTERROLEBINDINGS.resource
        await self.admin.create(kinds.CLUSTERROLES.resource, role)
        await self.admin.create(
            bindings, binding("jane", "as-anyone") | {"kind": "ClusterRoleBinding"}
        )
        headers = [
            *WEBSOCKET,
            (b"Impersonate-User", b"root"),
            (b"Impersonate-Group", b"system:masters"),
        ]
        end = await self.open(user="jane", headers=headers)
        await self.admin.delete(bindings, "jane-as-anyone")
        await self.until(lambda: end.lost)
        await self.until(self.ends)
        self.assertEqual(self.ends(), [("AuthorizationWithdrawn", None)])

    async def test_28_shutting_down(self) -> None:
        """A server that stops ends its sessions and says why."""
        end = await self.open()
        await self.server.stopService()
        await self.until(lambda: end.lost)
        self.assertEqual(self.ends(), [("ShuttingDown", None)])
        await self.until(lambda: "reason=ShuttingDown" in self.pool.requests[-1][1])


class TokenTests(MachineTestCase):
    """Sessions opened with a token."""

    async def setUp(self) -> None:
        self.token_file = self.mktemp()
        self.write("secret,jane,1,dev\n")
        await super().setUp()
        await self.admin.create(BINDINGS, binding("jane", "edit"), "default")
        self.token = (b"Authorization", b"Bearer secret")

    def write(self, lines: str) -> None:
        with open(self.token_file, "w") as stream:
            stream.write(lines)

    async def test_good(self) -> None:
        """A token that is still good keeps its session."""
        end = await self.open(user="", headers=[*WEBSOCKET, self.token])
        self.assertEqual(self.audit[-1]["user"], "jane")
        await self.recheck()
        # An ended session still passes bytes until the poollet has heard of it.
        self.assertEqual(self.endings(), [None])
        end.transport.write(b"still here")  # type: ignore[union-attr]
        await self.until(lambda: end.received == b"still here")

    async def test_8_token_taken_away(self) -> None:
        """A session ends at the next review after its token was removed from the file."""
        end = await self.open(user="", headers=[*WEBSOCKET, self.token])
        self.write("other,jane,1,dev\n")
        while not self.ends():
            await self.recheck()  # the file is checked once a second
            await deferLater(reactor, 0.05)
        await self.until(lambda: end.lost)
        self.assertEqual(self.ends(), [("AuthorizationWithdrawn", None)])

    async def test_now_anothers(self) -> None:
        """A session ends when its token is reassigned to another user."""
        await self.open(user="", headers=[*WEBSOCKET, self.token])
        self.write("secret,admin,1,system:masters\n")
        while not self.ends():
            await self.recheck()
            await deferLater(reactor, 0.05)
        self.assertEqual(self.ends(), [("AuthorizationWithdrawn", None)])

    async def test_unauthenticated(self) -> None:
        """Unauthenticated requests get 401 and are audited."""
        self.assertEqual(await self.refused(401, user=""), 'machine "vm": Unauthorized')
        wrong = (b"Authorization", b"Bearer wrong")
        await self.refused(401, user="", headers=[*WEBSOCKET, wrong])
        self.assertEqual(self.ends(), [("Unauthorized", 401)] * 2)
        self.assertEqual(self.audit[0]["machine"], "vm")
