"""
Tests for :mod:`twisted_exec.apiserver.aggregated.control_plane`: a server on a socket, behind a
host.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from twisted.internet.task import deferLater
from twisted.logger import capturedLogs, formatEvent

from tests.apiserver.aggregated.admission.webhooks import kind_of, rule
from tests.apiserver.aggregated.support import Host, configmap
from tests.apiserver.chain import EXEC, WEBSOCKET, ChainTestCase
from tests.apiserver.support import machine
from tests.audits import AuditList
from tests.chain import PATIENCE_SECONDS, endpoint, issued, pki, reactor
from twisted_exec.api import kinds
from twisted_exec.api.dialects import DEFAULT
from twisted_exec.api.kinds import Object
from twisted_exec.api.kinds.pods.machine_pods import EXPOSED_LABEL
from twisted_exec.api.status import APIError, BadGateway
from twisted_exec.api.users import EXPOSED, FORWARDING_USER
from twisted_exec.apiserver.aggregated.admission.objects import (
    VALIDATING_BINDINGS,
    VALIDATING_POLICIES,
)
from twisted_exec.apiserver.aggregated.control_plane import RBAC, Aggregated
from twisted_exec.apiserver.aggregated.trust import CONFIGMAPS, TrustError
from twisted_exec.apiserver.service import APIServer
from twisted_exec.apiserver.settings import Settings
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest, upgrade
from twisted_exec.streaming.interfaces import REVOKED
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.authority import Authority

FRONT = "apiserver-forwarding"
"""The pair that the host's proxy shows."""
MACHINES = "/apis/compute.ironcore.dev/v1alpha1/namespaces/default/machines"
ALL = "/apis/compute.ironcore.dev/v1alpha1/machines"
JANE = ((b"X-Remote-User", b"jane"), (b"X-Remote-Group", b"dev"))
POOLLET = (
    (b"X-Remote-User", b"compute.ironcore.dev:system:machinepool:pool-a"),
    (b"X-Remote-Group", b"compute.ironcore.dev:system:machinepools"),
)


def told(**data: Any) -> Object:
    """The host's ConfigMap."""
    users, proxies = read_file(pki().client_ca), read_file(pki().forwarding_ca)
    return configmap(users, proxies, **{"requestheader_allowed_names": [FORWARDING_USER], **data})


class BehindCase(ChainTestCase):
    """A server behind a host in memory; its administrator comes with a certificate."""

    async def setUp(self) -> None:
        self.host = Host()
        self.host.say(told())
        for versions in (VALIDATING_POLICIES, VALIDATING_BINDINGS):
            self.host.cluster.kinds[versions[0]] = kind_of(versions[0])
        await super().setUp()

    def settings(self, **more: Any) -> Settings:
        behind = Aggregated(lambda reactor: self.host.client)
        return super().settings(**{"aggregated": behind, "client_ca": "", **more})

    def front(self) -> Any:
        """The server's address, for the host's proxy."""
        return endpoint(self.server.address, issued(FRONT))

    def endpoint(self, user: str) -> Any:
        return self.front() if user == FRONT else super().endpoint(user)

    async def ask(
        self,
        path: str,
        who: Sequence[tuple[bytes, bytes]] = JANE,
        *,
        method: bytes = b"GET",
        user: str = FRONT,
    ) -> tuple[int, Any]:
        """Return code and document, or text, of a response to the host's proxy for a user."""
        head = UpgradeRequest(method, path.encode(), b"127.0.0.1", [*who])
        with self.assertRaises(UpgradeRefused) as caught:
            await upgrade(
                self.endpoint(user), head, clock=reactor, timeout_seconds=PATIENCE_SECONDS
            )
        answer = caught.exception
        whole = answer.body.strip().startswith(b"{")
        return answer.code, json.loads(answer.body) if whole else answer.body

    def allow(self, *rights: tuple[str, str], user: str = "jane") -> None:
        self.host.rights |= {(user, verb, resource) for verb, resource in rights}


class ServedTests(BehindCase):
    """Served resources, by user."""

    async def test_groups(self) -> None:
        """Only kinds that the host lacks are served; paths of the host's own kinds get 404."""
        groups = await self.admin.groups()
        self.assertIn("compute.ironcore.dev", groups)
        self.assertIn("console.twisted-exec.dev", groups)
        ours = {kind.resource.group for kind in kinds.aggregated((DEFAULT,))}
        self.assertEqual(set(groups), ours)
        for path in ("/api", "/api/v1/namespaces", "/apis/coordination.k8s.io/v1"):
            code, _ = await self.ask(path, user="admin")
            self.assertEqual(code, 404, path)

    async def test_authorization(self) -> None:
        """The host authorizes; system:masters needs no review."""
        code, status = await self.ask(MACHINES)
        self.assertEqual(code, 403)
        self.assertIn('User "jane" cannot list resource "machines"', status["message"])
        asked = self.host.asked[-1]
        self.assertEqual(
            (asked["user"], asked["groups"]), ("jane", ["dev", "system:authenticated"])
        )
        self.allow(("watch", "machines"), ("get", "/apis"))
        self.assertEqual((await self.ask("/apis"))[0], 200)
        before = len(self.host.asked)
        await self.admin.list(kinds.MACHINES.resource)
        self.assertEqual(len(self.host.asked), before)

    async def test_nobody(self) -> None:
        """Headers without a credential authenticate no user."""
        for user in ("", "jane"):
            code, _ = await self.ask(MACHINES, user=user)
            self.assertEqual(code, 401 if not user else 403)

    async def test_namespaces(self) -> None:
        """Namespaces are the host's: a missing or deleted one accepts no new objects."""
        await self.not_made(404, "nowhere")
        going = {"name": "going", "deletionTimestamp": "2026-01-01T00:00:00Z"}
        self.host.make(kinds.NAMESPACES, {"metadata": going})
        await self.not_made(403, "going")
        await self.make_machine()

    async def not_made(self, code: int, namespace: str) -> None:
        with self.assertRaises(APIError) as caught:
            await self.admin.create(kinds.MACHINES.resource, machine("vm"), namespace)
        self.assertEqual(caught.exception.code, code)

    async def test_emptied(self) -> None:
        """The host's controller empties a namespace through this server."""
        await self.make_machine("a")
        await self.make_machine("b")
        controller = [(b"X-Remote-User", b"system:serviceaccount:kube-system:namespace-controller")]
        user = controller[0][1].decode()
        self.allow(("deletecollection", "machines"), ("list", "machines"), user=user)
        code, _ = await self.ask(MACHINES, controller, method=b"DELETE")
        self.assertEqual(code, 200)
        code, left = await self.ask(MACHINES, controller)
        self.assertEqual((code, left["items"]), (200, []))

    async def test_collected(self) -> None:
        """Finalizers tell the host's garbage collector about a machine's dependents."""
        for told, finalizer in (
            ("propagationPolicy=Orphan", "orphan"),
            ("orphanDependents=true", "orphan"),
            ("propagationPolicy=Foreground", "foregroundDeletion"),
        ):
            made = await self.make_machine("a")
            code, held = await self.delete("a", told)
            self.assertEqual((code, held["metadata"]["finalizers"]), (200, [finalizer]))
            self.assertIn("deletionTimestamp", held["metadata"])
            self.assertEqual((await self.delete("a", told))[1], held)
            free = {"metadata": {"finalizers": [], "uid": made["metadata"]["uid"]}}
            await self.admin.patch(kinds.MACHINES.resource, "a", free, "default")
            self.assertEqual((await self.ask(f"{MACHINES}/a", user="admin"))[0], 404)
        await self.make_machine("a")
        code, gone = await self.delete("a", "propagationPolicy=Background")
        self.assertEqual((code, gone["kind"]), (200, "Status"))

    async def delete(self, name: str, query: str) -> tuple[int, Any]:
        return await self.ask(f"{MACHINES}/{name}?{query}", method=b"DELETE", user="admin")

    async def test_events(self) -> None:
        """Events of this server are recorded in the host."""
        await self.make_machine("vm", "")
        await self.until(lambda: self.told_of("vm"))
        self.assertEqual(self.told_of("vm")[0]["reason"], "FailedScheduling")

    def told_of(self, name: str) -> list[Object]:
        events = [
            obj for key, obj in self.host.cluster.objects.items() if key[0] == kinds.EVENTS.resource
        ]
        return [event for event in events if event["involvedObject"]["name"] == name]

    async def test_fence(self) -> None:
        """A poollet that connects through the host sees only its own pool's machines."""
        poollet = POOLLET[0][1].decode()
        self.allow(("list", "machines"), ("get", "machines"), user=poollet)
        await self.make_machine("mine", "pool-a")
        await self.make_machine("theirs", "pool-b")
        self.assertEqual((await self.ask(ALL, POOLLET))[0], 403)
        code, seen = await self.ask(
            f"{ALL}?fieldSelector=spec.machinePoolRef.name%3Dpool-a", POOLLET
        )
        self.assertEqual([each["metadata"]["name"] for each in seen["items"]], ["mine"])
        code, status = await self.ask(f"{MACHINES}/theirs", POOLLET)
        self.assertEqual(code, 404)
        _, absent = await self.ask(f"{MACHINES}/nix", POOLLET)
        self.assertEqual(status["message"], absent["message"].replace("nix", "theirs"))

    async def test_exposed(self) -> None:
        """The agent of another cluster sees exposed machines only, whatever the host allows it."""
        agent = ((b"X-Remote-User", b"root-berlin"), (b"X-Remote-Group", EXPOSED.encode()))
        rights = [("get", "machines"), ("list", "machines"), ("delete", "machines")]
        self.allow(*rights, ("create", "machines/exec"), user="root-berlin")
        await self.make_machine("shown", "")
        await self.make_machine("other", "")
        label = {"metadata": {"labels": {EXPOSED_LABEL: "true"}}}
        await self.admin.patch(kinds.MACHINES.resource, "shown", label, "default")
        _, seen = await self.ask(MACHINES, agent)
        self.assertEqual([each["metadata"]["name"] for each in seen["items"]], ["shown"])
        self.assertEqual((await self.ask(f"{MACHINES}/shown", agent))[0], 200)
        for name in ("other", "nowhere"):
            not_found = f'machines.compute.ironcore.dev "{name}" not found'
            for path in (f"{MACHINES}/{name}", f"{MACHINES}/{name}/exec"):
                code, status = await self.ask(path, agent)
                self.assertEqual((code, status["message"]), (404, not_found))
        code, status = await self.ask(f"{MACHINES}/shown", agent, method=b"DELETE")
        self.assertEqual(code, 403)
        self.assertIn("may only look at machines", status["message"])
        # Bound to no pool, so that is as far as an exposed machine's console gets.
        self.assertEqual((await self.ask(f"{MACHINES}/shown/exec", agent))[0], 400)


class ConsoleTests(BehindCase):
    """Consoles of users whom the host has authenticated."""

    async def setUp(self) -> None:
        await super().setUp()
        self.poollet_end, port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()

    async def test_get_is_not_enough(self) -> None:
        """A console needs ``create``, whatever the method."""
        self.allow(("get", "machines/exec"), ("get", "machines"), ("update", "machines/exec"))
        for method in (b"GET", b"POST"):
            for path in (EXEC, EXEC.replace("exec", "%65xec"), f"{EXEC}?command=x"):
                message = await self.refused(
                    403, user=FRONT, method=method, path=path, headers=(*WEBSOCKET, *JANE)
                )
                self.assertIn('cannot create resource "machines/exec"', message)
        self.assertEqual(self.poollet_end.requests, [])

    async def test_who_it_is(self) -> None:
        """The poollet gets the user, by our certificate, and no header of the request."""
        self.host.say(told(requestheader_username_headers=["X-User"]))
        self.allow(("create", "machines/exec"))
        asked = ((b"X-User", b"jane"), (b"X-Remote-User", b"root"), (b"Impersonate-Uid", b""))
        end = await self.open(user=FRONT, headers=(*WEBSOCKET, *asked))
        end.transport.write(b"hi")  # type: ignore[union-attr]
        await self.until(lambda: end.received == b"hi")
        _, _, headers = self.poollet_end.requests[0]
        self.assertEqual(headers["x-remote-user"], ["jane"])
        self.assertNotIn("x-user", headers)
        self.assertNotIn("impersonate-uid", headers)

    async def test_where_they_are(self) -> None:
        """The client address is the one that the host's proxy added, never the user's own claim."""
        self.allow(("create", "machines/exec"))
        for line, address in (
            (b"10.1.2.3", "10.1.2.3"),
            (b"6.6.6.6, 2001:db8::1", "2001:db8::1"),
            (b"10.1.2.3, unknown", "127.0.0.1"),
        ):
            await self.open(user=FRONT, headers=(*WEBSOCKET, *JANE, (b"X-Forwarded-For", line)))
            await self.until(lambda address=address: address in self.addresses())
        forged = (b"X-Forwarded-For", b"6.6.6.6")
        await self.open(user="admin", headers=(*WEBSOCKET, forged))
        await self.until(lambda: len(self.addresses()) == 4)
        self.assertNotIn("6.6.6.6", self.addresses())

    def addresses(self) -> list[str]:
        listing = self.successResultOf(self.storage.list(kinds.CONSOLESESSIONS.resource))
        return [session["spec"]["address"] for session in listing.items]

    async def test_rotation(self) -> None:
        """New CAs take effect, and a session ends when its proxy's CA is removed."""
        self.allow(("create", "machines/exec"))
        end = await self.open(user=FRONT, headers=(*WEBSOCKET, *JANE))
        self.host.say(told(requestheader_client_ca_file=NEWER.certificate_pem.decode()))
        self.assertEqual((await self.ask(MACHINES))[0], 401)
        # The ConfigMap is a hint: nothing has to ask for a review.
        await self.until(lambda: end.lost)
        await self.until(self.ends)
        self.assertEqual(self.ends()[0], (REVOKED, None))

    async def test_withdrawn(self) -> None:
        """A binding that is deleted in the host ends its user's session, past the cached answers."""
        for kind in RBAC:
            self.host.cluster.kinds[kind.resource] = kind
        allowed = {"allowed": True}
        self.host.cluster.reviews[kinds.SELFSUBJECTACCESSREVIEWS.resource] = lambda _: allowed
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
        binding = {
            "metadata": {"name": "jane", "namespace": "default"},
            "roleRef": role,
            "subjects": [{"kind": "User", "name": "jane"}],
        }
        await self.host.client.create(kinds.ROLEBINDINGS.resource, binding, "default")
        self.allow(("create", "machines/exec"))
        await self.open(user=FRONT, headers=(*WEBSOCKET, *JANE))
        await self.until(lambda: self.host.cluster.watches >= 4)
        self.host.rights.clear()
        await self.host.client.delete(kinds.ROLEBINDINGS.resource, "jane", "default")
        await self.until(self.ends)
        self.assertEqual(self.ends()[0], (REVOKED, None))
        # The change has ended it, not one of the periodic reviews.
        _, metrics = await self.ask("/metrics", user="admin")
        self.assertIn(b'revocation_seconds_count{cause="permission"} 1.0', metrics)
        self.assertIn(b'revocations_unobserved_total{cause="permission"} 0.0', metrics)

    async def test_other_host(self) -> None:
        """A kubeconfig of another host, with other answers, ends sessions within a second."""
        self.allow(("create", "machines/exec"))
        await self.open(user=FRONT, headers=(*WEBSOCKET, *JANE))
        self.host.rights.clear()
        self.host.client.changes += 1
        await self.until(self.ends)
        self.assertEqual(self.ends()[0], (REVOKED, None))
        _, metrics = await self.ask("/metrics", user="admin")
        self.assertIn(b'revocations_unobserved_total{cause="permission"} 0.0', metrics)

    async def test_host_down(self) -> None:
        """While the host is down no new user is accepted; sessions continue."""
        self.allow(("create", "machines/exec"))
        end = await self.open(user=FRONT, headers=(*WEBSOCKET, *JANE))
        self.host.cluster.problem = BadGateway("nobody listens")
        self.host.cluster.end_watches(self.host.cluster.problem)
        await self.recheck()
        bob = ((b"X-Remote-User", b"bob"),)
        message = await self.refused(503, user=FRONT, headers=(*WEBSOCKET, *bob))
        self.assertIn("the SubjectAccessReview could not be made: nobody listens", message)
        end.transport.write(b"still here")  # type: ignore[union-attr]
        await self.until(lambda: end.received == b"still here")
        code, _ = await self.ask("/readyz", user="")
        self.assertEqual(code, 200)


class AdmissionTests(BehindCase):
    """The host's admission applies here too."""

    async def setUp(self) -> None:
        await super().setUp()
        self.poollet_end, port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()

    async def forbid(self, expression: str, *operations: str) -> None:
        """The host has a policy: only what fulfils an expression is allowed."""
        rules = [rule(*operations, resources=("machines", "machines/exec"))]
        spec = {
            "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": expression, "message": "not on Fridays"}],
        }
        policies, bindings = VALIDATING_POLICIES[0], VALIDATING_BINDINGS[0]
        client = self.host.client
        await client.create(policies, {"metadata": {"name": "fridays"}, "spec": spec})
        bound = {"policyName": "fridays", "validationActions": ["Deny"]}
        await client.create(bindings, {"metadata": {"name": "all"}, "spec": bound})

    async def test_writes(self) -> None:
        """Policies apply to direct and proxied writes, with the host's messages."""
        await self.forbid("oldObject != null && object.metadata.name != 'vm'", "CREATE", "UPDATE")
        with self.assertRaises(APIError) as caught:
            await self.make_machine("other")
        error = caught.exception
        self.assertEqual(error.code, 422)
        self.assertTrue(error.message.endswith("denied request: not on Fridays"), error.message)
        with self.assertRaises(APIError):
            await self.admin.patch(
                kinds.MACHINES.resource, "vm", {"metadata": {"labels": {"a": "b"}}}, "default"
            )
        await self.admin.delete(kinds.MACHINES.resource, "vm", "default")

    async def test_consoles(self) -> None:
        """A refused console connects to no poollet."""
        self.allow(("create", "machines/exec"))
        await self.forbid("request.userInfo.username != 'jane'", "CONNECT")
        message = await self.refused(422, user=FRONT, headers=(*WEBSOCKET, *JANE))
        self.assertIn("denied request: not on Fridays", message)
        self.assertEqual(self.poollet_end.requests, [])
        await self.open()


NEWER = Authority.create("newer front-proxy CA")


class StartTests(BehindCase):
    """A host that does not say, or not usably, whom to trust when this server starts."""

    async def setUp(self) -> None:
        self.host = Host()

    async def test_role_missing(self) -> None:
        """A server whose role is missing is up and not ready; it needs no restart once the role is there."""
        self.host.say(told())
        self.host.cluster.forbidden.add(CONFIGMAPS)
        self.allow(("get", "/apis"))
        server = APIServer(self.settings(), MemoryStorage(), AuditList(), reactor)
        self.addCleanup(server.stopService)
        waiting = server.when_ready()
        with capturedLogs() as logged:
            server.startService()
            await self.until(lambda: server.address)
            self.server = server
            answers = [await self.ask(path, user="") for path in ("/readyz", "/healthz", "/apis")]
            code, status = await self.ask("/apis", JANE)
        self.assertEqual([code for code, _ in answers], [503, 200, 503])
        message = "the host cluster has not said yet whom to trust; this server's log says why"
        self.assertEqual((code, status["message"]), (503, message))
        self.assertNoResult(waiting)
        remedy = (
            "bind its user to the role extension-apiserver-authentication-reader in kube-system"
        )
        lines = [formatEvent(each) for each in logged]
        self.assertTrue(
            [each for each in lines if each.startswith("waiting for") and remedy in each]
        )
        self.host.cluster.forbidden.clear()
        await waiting
        self.assertEqual((await self.ask("/apis", JANE))[0], 200)
        while (await self.ask("/readyz", user=""))[0] != 200:  # whose results are kept for a second
            await deferLater(reactor, 0.1)

    def configmap_requests(self, since: int) -> list[tuple[str, str, str, str]]:
        return [each for each in self.host.cluster.requests[since:] if each[1] == "configmaps"]

    async def test_any_name_of_users(self) -> None:
        """One CA for users and proxies, and no names: one line, and nothing is served."""
        users = read_file(pki().client_ca)
        self.host.say(configmap(users, users, requestheader_allowed_names=[]))
        server = APIServer(self.settings(), MemoryStorage(), AuditList(), reactor)
        self.addCleanup(server.stopService)
        waiting = server.when_ready()
        server.startService()
        with self.assertRaises(TrustError) as caught:
            await waiting
        self.assertIn(
            "start kube-apiserver with --requestheader-allowed-names", str(caught.exception)
        )
        self.assertIsNone(server.address)
