"""
Faults that were found in ironcore's machinepoollet, each as the promise that ours keeps.

Those of its reconcile (37, 40) are in ``test_lies``, of the classes (38) in ``test_pool``, of
sessions' ends (8, 25, 28, 33, 34) in ``test_service``; that certificates are read again (11) is
in ``tests.tls`` and ``tests.flows``.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.chain import reactor, until
from tests.poollet.chain import EXEC, PoolletCase, status
from tests.poollet.doubles import MACHINES
from tests.poollet.test_options import KUBECONFIG
from twisted_exec.api.status import TooManyRequests
from twisted_exec.poollet.options import Options
from twisted_exec.poollet.service import Poollet
from twisted_exec.poollet.tap import PoolletProgram, makeService
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused


class FaultTests(PoolletCase):
    """A poollet with one machine, whose runtime misbehaves."""

    async def refused(self, **more: Any) -> UpgradeRefused:
        """Return why a console is refused: always a Status, with the code of its answer."""
        with self.assertRaises(UpgradeRefused) as caught:
            await self.open(**more)
        answer = status(caught.exception.body)
        self.assertEqual((answer["kind"], answer["code"]), ("Status", caught.exception.code))
        return caught.exception

    async def test_1_unauthenticated_is_401(self) -> None:
        """A request without credentials gets 401, not 200 with an empty body."""
        await self.start()
        self.assertEqual((await self.refused(user=b"", identity=None)).code, 401)

    async def test_2_exhausted_is_429(self) -> None:
        """A runtime that is full is 429 with the time to wait, not a broken connection."""
        await self.start()
        self.runtime.refusals["exec"] = TooManyRequests("too many tokens", retry_after_seconds=7)
        refused = await self.refused()
        self.assertEqual(refused.code, 429)
        self.assertEqual(status(refused.body)["details"]["retryAfterSeconds"], 7)

    async def test_3_no_proxy_can_come(self) -> None:
        """A poollet that no API server can use says so when it starts, with a remedy."""
        events: list[Any] = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        await self.start()
        self.assertEqual(self.warnings(events), [])
        await self.stop()
        await self.start(client_ca="", requestheader_ca="")
        (message,) = self.warnings(events)
        self.assertIn("no API server can forward consoles", message)
        self.assertIn("--requestheader-client-ca-file", message)
        self.assertIn("--client-ca-file", message)

    def warnings(self, events: list[Any]) -> list[str]:
        return [
            str(each["log_format"]) for each in events if each.get("log_level") is LogLevel.warn
        ]

    async def test_5_each_machine_is_authorised(self) -> None:
        """Permission for the pool does not include every console on it."""
        await self.start()
        self.allowed = {
            ("exec-apiserver", "machinepools/proxy", "pool-a"),
            ("joe", "machinepools/proxy", "pool-a"),
        }
        self.assertEqual((await self.refused(user=b"joe")).code, 403)

    async def test_7_the_runtime_knows_the_user(self) -> None:
        """The user's name goes as far as the token."""
        await self.start()
        await self.view()
        self.assertEqual(self.runtime.execs[0][1], "jane")

    async def test_9_by_uid(self) -> None:
        """After a machine is replaced under the same name, a console of the old one is not served."""
        old = self.runtime.add(machine_uid="u-old", machine_namespace="lab", machine_name="vm")
        self.poollet = Poollet(self.settings(), self.client, self.runtime, self.audit, reactor)
        self.poollet.startService()
        self.addCleanup(self.stop)
        await until(lambda: len(self.runtime.machines) == 2)  # the old one is not ours to end
        uid = (await self.client.get(MACHINES, "vm", "lab"))["metadata"]["uid"]
        await until(lambda: self.poollet.loop.machine_of(uid))
        await self.view()
        self.assertNotEqual(self.runtime.execs[0][0], old.metadata.id)

    async def test_12_probes(self) -> None:
        """Probes need no certificate, and readiness asks the runtime."""
        await self.start()
        self.assertEqual((await self.get("/healthz"))[0], 200)
        self.assertEqual((await self.get("/readyz"))[0], 200)

    async def test_19_only_where_it_may(self) -> None:
        """A URL to another host is not dialled; nor are credentials sent where it may be dialled."""
        await self.start()
        for url in (
            "http://169.254.169.254/latest/canary",
            "https://internal.example/canary",
            "gopher://127.0.0.1/canary",
            "http://canary@127.0.0.1:1/",
        ):
            self.runtime.url, good = url, self.runtime.url
            refused = await self.refused()
            self.runtime.url = good
            self.assertEqual(refused.code, 502)
            self.assertNotIn(b"canary", refused.body)
        await self.view([(b"Authorization", b"Bearer canary"), (b"Cookie", b"canary")])
        self.assertNotIn(b"canary", self.lines.heads[0])

    async def test_20_no_host(self) -> None:
        """A URL without a host, as one provider makes them by default, is refused, not guessed."""
        await self.start()
        self.runtime.url = "http://:20251/exec/T"
        refused = await self.refused()
        self.assertEqual(refused.code, 502)
        self.assertIn("has no host", status(refused.body)["message"])

    async def test_20_empty(self) -> None:
        """An empty URL is a runtime without consoles, not this host's port 80."""
        await self.start()
        self.runtime.url = ""
        self.assertEqual((await self.refused()).code, 501)

    async def test_35_states(self) -> None:
        """A machine that is off has no console: the refusal is immediate, without a call to the runtime."""
        await self.start()
        await self.client.patch(MACHINES, "vm", {"spec": {"power": "Off"}}, "lab")
        refused = await self.refused(path=EXEC.format("lab", "vm"))
        self.assertIn(refused.code, (409, 503))
        self.assertEqual(self.runtime.execs, [])

    async def test_36_host_name(self) -> None:
        """The address type that API servers prefer, Hostname, is among the defaults."""
        await self.start(addresses=())
        pool = self.poollet.pools.get("pool-a")
        assert pool is not None
        addresses = {address["type"]: address["address"] for address in pool["status"]["addresses"]}
        self.assertEqual(addresses["Hostname"], socket.gethostname())


class StartTests(SynchronousTestCase):
    """The files that the program needs."""

    def test_42_one_kubeconfig(self) -> None:
        """The given kubeconfig is the only one: without leader election there is no other."""
        self.patch(os, "environ", {"HOME": "/nonexistent"})
        path = Path(self.mktemp())
        path.write_text(KUBECONFIG)
        options = Options()
        self.assertFalse([name for name in options.longOpt if "leader" in name])
        options.parseOptions(
            [
                f"--kubeconfig={path}",
                "--machine-pool-name=pool-a",
                "--machine-runtime-endpoint=unix:///run/x.sock",
                "--tls-cert-file=tls.crt",
                "--tls-private-key-file=tls.key",
            ]
        )
        self.assertIsInstance(makeService(options), PoolletProgram)
