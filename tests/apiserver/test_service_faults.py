"""
Faults found in ironcore's API server and controllers, each as a test that ours is free of it.

The console faults are in ``test_admission``: ``get`` opens no console (6), a withdrawn right
and a deleted machine end the session (8), the next address is tried (36).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tests.apiserver.chain import ChainTestCase, Poollet
from tests.apiserver.rights import binding
from tests.apiserver.support import ALL_MACHINES, MACHINES, MERGE, POOLS, APITestCase, machine
from tests.apiserver.test_options import arguments
from tests.chain import reactor
from twisted_exec.api import kinds
from twisted_exec.apiserver import assembly
from twisted_exec.apiserver.options import Options, settings
from twisted_exec.apiserver.serving.request_limits import RequestLimits
from twisted_exec.streaming.http.site import Site
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.tls.pki.authority import Authority
from twisted_exec.tls.server import ServerTLS

SECRETS = "/api/v1/namespaces/default/secrets"


class FaultTests(APITestCase):
    """An API server with two pools and a machine in each."""

    def setUp(self) -> None:
        super().setUp()
        for name in ("pool-a", "pool-b"):
            self.make_pool(name, addresses=[{"type": "InternalIP", "address": "192.0.2.1"}])
            self.make_machine(f"of-{name}", name, ignitionRef={"name": f"of-{name}"})
            secret = {"metadata": {"name": f"of-{name}"}, "stringData": {"a": "b"}}
            self.answer("POST", SECRETS, secret, code=201)

    def test_3_what_poollets_know_it_by(self) -> None:
        """A server that no poollet could let in does not start, and says what it needs."""
        for name in ("machinepoollet-client-certificate", "machinepoollet-client-key"):
            with self.assertRaises(SystemExit) as caught:
                Options().parseOptions(arguments(**{name: ""}))
            self.assertIn(f"exec-apiserver: --{name} is missing: ", str(caught.exception.code))

    def test_4_no_authority(self) -> None:
        """Without the CA of poollets the server does not start: none is believed unseen."""
        with self.assertRaises(SystemExit) as caught:
            Options().parseOptions(arguments(machinepoollet_certificate_authority=""))
        told = str(caught.exception.code)
        self.assertIn("--machinepoollet-certificate-authority is missing: the CA", told)

    def test_13_another_pools_address(self) -> None:
        """A poollet redirects no other pool's consoles to itself."""
        body = {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.66"}]}}
        how = {"user": "pool-a", "content_type": MERGE}
        self.answer("PATCH", f"{POOLS}/pool-a/status", body, **how)
        for path in (f"{POOLS}/pool-b/status", f"{POOLS}/pool-b"):
            self.refused(403, "PATCH", path, body, **how)

    def test_13_another_pools_machines(self) -> None:
        """It neither reads nor writes them, nor takes them over."""
        how = {"user": "pool-a", "content_type": MERGE}
        state = {"status": {"state": "Running"}}
        self.answer("PATCH", f"{MACHINES}/of-pool-a/status", state, **how)
        self.refused(404, "PATCH", f"{MACHINES}/of-pool-b/status", state, **how)
        self.refused(404, "GET", f"{MACHINES}/of-pool-b", user="pool-a")
        self.refused(403, "GET", ALL_MACHINES, user="pool-a")
        self.make_machine("free", "")
        bound = {"spec": {"machinePoolRef": {"name": "pool-a"}}}
        self.refused(404, "PATCH", f"{MACHINES}/free", bound, **how)

    def test_13_secrets(self) -> None:
        """It reads the Secrets of its own machines and no others, one by one or listed."""
        self.answer("GET", f"{SECRETS}/of-pool-a", user="pool-a")
        self.refused(403, "GET", f"{SECRETS}/of-pool-b", user="pool-a")
        listed = self.answer("GET", "/api/v1/secrets", user="pool-a")["items"]
        self.assertEqual([each["metadata"]["name"] for each in listed], ["of-pool-a"])
        for method, path in (("POST", SECRETS), ("PATCH", f"{SECRETS}/of-pool-a")):
            body = {"metadata": {"name": "x"}} if method == "POST" else {"data": {}}
            self.refused(403, method, path, body, user="pool-a", content_type=MERGE)

    def test_39_status(self) -> None:
        """Creating or updating a machine cannot set its status, and generations are counted."""
        told = {"state": "Running", "machineID": "fake://1"}
        made = self.answer("POST", MACHINES, {**machine("vm"), "status": told}, code=201)
        self.assertEqual(made["status"], {"state": "Pending"})
        self.assertEqual(made["metadata"]["generation"], 1)
        body = {"spec": {"power": "Off"}, "status": told}
        changed = self.answer("PATCH", f"{MACHINES}/vm", body, content_type=MERGE)
        self.assertEqual(changed["status"], {"state": "Pending"})
        self.assertEqual(changed["metadata"]["generation"], 2)

    def test_41_scheduler(self) -> None:
        """Machines are placed unless that is switched off."""
        for flags, wanted in (([], True), (["--no-scheduler"], False)):
            options = Options()
            options.parseOptions([*arguments(), *flags])
            self.assertIs(settings(options).scheduling, wanted)


class ConsoleFaultTests(ChainTestCase):
    """A console through a whole API server."""

    pools_named = False

    async def setUp(self) -> None:
        self.patch(assembly, "RequestLimits", partial(RequestLimits, short=2))
        await super().setUp()

    async def strange_poollet(self) -> tuple[Poollet, int]:
        """A poollet with the right name, and a certificate of an unknown CA."""
        issued = Authority.create("anybody").issue_server(["127.0.0.1"], common_name="pool-a")
        files = [self.mktemp() for _ in range(2)]
        for path, content in zip(files, (issued.certificate_pem, issued.key_pem), strict=True):
            Path(path).write_bytes(content)
        made = Poollet()
        endpoint = server_endpoint(
            reactor, "tcp:0:interface=127.0.0.1", ServerTLS(*files, clock=reactor)
        )
        port: Any = await endpoint.listen(Site(made, reactor))
        self.addCleanup(port.stopListening)
        return made, port.getHost().port

    async def test_4_verified_whatever_is_asked(self) -> None:
        """No user can ask that a poollet be believed which cannot show who it is."""
        made, port = await self.strange_poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        for word in ("insecureSkipTLSVerifyBackend", "insecureSkipTlsVerifyBackend"):
            told = await self.refused(502, query=f"?stdin=true&{word}=true")
            self.assertIn("it is not signed by a trusted CA", told)
        self.assertEqual(made.requests, [])

    async def test_27_two_hundred_consoles(self) -> None:
        """201 consoles block no request, even with only two places for requests."""
        _, port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        for _ in range(201):
            await self.open()
        self.assertEqual(len(self.server._parts.sessions), 201)
        await self.admin.create(kinds.ROLEBINDINGS.resource, binding("jane", "edit"), "default")
        label = {"metadata": {"labels": {"a": "b"}}}
        for user in ("admin", "jane"):
            await self.client(user).patch(kinds.MACHINES.resource, "vm", label, "default")
        await self.open(user="jane")
