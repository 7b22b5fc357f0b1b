"""
Faults that were found in ironcore's API server and controllers, each as the promise that ours
keeps.

Those of consoles are in ``test_connect``: that ``get`` opens none (6), that a right withdrawn
and a machine deleted end the session (8), that the state is asked first (35), and that the next
address is tried (36).
"""

from __future__ import annotations

from tests.apiserver.support import ALL_MACHINES, MACHINES, MERGE, POOLS, APITestCase, machine
from tests.apiserver.test_tap import arguments
from twisted_exec.apiserver import tap

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
        self.refused(403, "PATCH", f"{MACHINES}/of-pool-b/status", state, **how)
        self.refused(403, "GET", f"{MACHINES}/of-pool-b", user="pool-a")
        self.refused(403, "GET", ALL_MACHINES, user="pool-a")
        self.make_machine("free", "")
        bound = {"spec": {"machinePoolRef": {"name": "pool-a"}}}
        self.refused(403, "PATCH", f"{MACHINES}/free", bound, **how)

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
        """What a machine is nobody says who makes or changes it, and generations are counted."""
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
            options = tap.Options()
            options.parseOptions([*arguments(), *flags])
            self.assertIs(tap.settings(options).scheduling, wanted)
