"""
Tests for ``twisted-exec doctor`` against real servers.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.trial.unittest import TestCase

from tests.apiserver.chain import ChainTestCase, pki, read
from tests.cli.typed import typed
from twisted_exec.api import kinds
from twisted_exec.cli.doctor import server as server_checks
from twisted_exec.cli.doctor.report import Report, Unusable
from twisted_exec.cli.main import make_parser
from twisted_exec.standalone.service import Settings, Standalone
from twisted_exec.tls.pki.authority import Authority
from twisted_exec.tls.pki.directory import write_kubeconfig

reactor: Any = _reactor

Results = dict[str, tuple[str, str, str]]
"""Status, message and remedy of each check; of several the first with a problem."""


async def examined(test: TestCase, *words: str) -> tuple[int, Results]:
    """Run ``twisted-exec doctor -o json``; return the exit code and the results."""
    code, out, err = await typed(test, "doctor", "-o", "json", *words)
    test.assertEqual(err, "")
    document = json.loads(out)
    test.assertEqual(document["ok"], code == 0)
    results: Results = {}
    for each in document["checks"]:
        if results.get(each["check"], ("ok",))[0] == "ok":
            results[each["check"]] = each["status"], each["message"], each["remedy"]
    return code, results


class DemoTests(TestCase):
    """Against all programs of ``exec-standalone`` in this process."""

    timeout = 120

    async def setUp(self) -> None:
        directory = tempfile.mkdtemp(prefix="twisted-exec-test-")
        self.addCleanup(shutil.rmtree, directory, True)
        self.standalone = Standalone(Settings(directory, port=0, spaces=False), reactor)
        self.addCleanup(self.standalone.stopService)
        self.standalone.startService()
        await self.standalone.when_ready()

    async def examined(self, *words: str) -> tuple[int, Results]:
        return await examined(self, "--kubeconfig", self.standalone.kubeconfig, *words)

    async def test_healthy(self) -> None:
        """Every part of a console that works is ok."""
        code, results = await self.examined("demo-shell")
        self.assertEqual({status for status, _, _ in results.values()}, {"ok"}, results)
        self.assertEqual(
            " ".join(results),
            "kubeconfig credentials server clock user api rights machine pool poollet runtime line",
        )
        self.assertEqual(code, 0)
        self.assertIn("127.0.0.1", results["server"][1])
        self.assertIn("system:masters", results["user"][1])

    async def test_near_name(self) -> None:
        """For an unknown machine the remedy names a similar machine, or the right namespace."""
        code, results = await self.examined("demo-shall")
        self.assertEqual(code, 1)
        status, message, remedy = results["machine"]
        self.assertEqual(status, "error")
        self.assertEqual(message, 'machine "demo-shall" not found in namespace "default"')
        self.assertEqual(remedy, "did you mean demo-shell?")
        _, results = await self.examined("demo-shell", "-n", "lab")
        self.assertEqual(results["machine"][2], "it is in namespace default: use -n default")


class ServerTests(ChainTestCase):
    """The way to the API server."""

    async def examined(self, *words: str, user: str = "admin") -> tuple[int, Results]:
        return await examined(self, "--kubeconfig", self.kubeconfig(f"user-{user}"), *words)

    async def failure(self, check: str, *words: str) -> tuple[str, str]:
        """The message and the remedy of a failed check."""
        code, results = await examined(self, *words)
        self.assertEqual((code, results[check][0]), (1, "error"), results)
        return results[check][1:]

    def config(self, **more: Any) -> str:
        """A kubeconfig of the administrator with other contents."""
        path, pair = self.mktemp(), pki().pair("user-admin")
        contents: dict[str, Any] = {
            "server": self.server.url,
            "ca_pem": read(pki().serving_ca),
            "certificate_pem": read(pair.certificate),
            "key_pem": read(pair.key),
            "user": "admin",
        }
        write_kubeconfig(path, **{**contents, **more})
        return path

    async def test_no_machine(self) -> None:
        """Without a machine the checks end at the server."""
        code, results = await self.examined()
        self.assertEqual((code, list(results)[-1]), (0, "user"))

    async def test_text(self) -> None:
        """The text for people has a summary, and the exit code is 1."""
        path = self.kubeconfig("user-admin")
        code, out, err = await typed(self, "doctor", "nix", "--kubeconfig", path)
        self.assertEqual((code, err), (1, ""))
        self.assertEqual(out.splitlines()[-1], "nix: 1 error")

    async def test_no_kubeconfig(self) -> None:
        """A kubeconfig that does not exist is an error with a remedy."""
        message, remedy = await self.failure("kubeconfig", "--kubeconfig", "/nix")
        self.assertIn("/nix", message)
        self.assertIn("KUBECONFIG", remedy)

    async def test_nobody_listens(self) -> None:
        """A closed port is an error at the server."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        message, remedy = await self.failure("server", "--kubeconfig", self.config(server=url))
        self.assertIn(f"cannot reach {url}", message)
        self.assertIn("start the API server", remedy)

    async def test_other_name(self) -> None:
        """A certificate for other names is an error that shows these names."""
        words = ("--kubeconfig", self.config(), "--tls-server-name", "api.example")
        message, remedy = await self.failure("server", *words)
        self.assertIn("not valid for 'api.example': it names", message)
        self.assertIn("--tls-server-name", remedy)

    async def test_other_authority(self) -> None:
        """A certificate of another CA is an error."""
        other = Authority.create("other").certificate_pem
        _, remedy = await self.failure("server", "--kubeconfig", self.config(ca_pem=other))
        self.assertIn("certificate-authority", remedy)

    async def test_refused_credentials(self) -> None:
        """A token that the server does not know is an error of the user."""
        path = self.mktemp()
        with open(path, "wb") as file:
            file.write(read(pki().serving_ca))
        words = ("--server", self.server.url, "--certificate-authority", path, "--token", "nix")
        self.patch(os, "environ", {**os.environ, "KUBECONFIG": os.devnull})
        message, remedy = await self.failure("user", *words)
        self.assertIn("Unauthorized", message)
        self.assertIn("new credentials", remedy)

    async def test_clock(self) -> None:
        """A clock that differs by minutes is an error, by seconds a warning."""
        for difference, level in ((400, "error"), (-400, "error"), (60, "warning"), (5, "ok")):
            report, words = Report(), ["doctor", "--kubeconfig", self.config()]
            await server_checks.reach_server(
                make_parser().parse_args(words),
                reactor,
                report,
                10.0,
                now=lambda difference=difference: time.time() + difference,
            )
            (clock,) = [each for each in report.findings if each.check == "clock"]
            self.assertEqual(clock.level.value, level)
            if level != "ok":
                way = "ahead of" if difference > 0 else "behind"
                self.assertIn(f"{way} the server's", clock.message)
                self.assertIn("NTP", clock.remedy)

    async def test_expiry(self) -> None:
        """Certificates that have expired or expire soon are named with their date."""
        path = self.config()
        options = make_parser().parse_args(["doctor", "--kubeconfig", path])
        for days, level in ((-1, "error"), (3, "warning")):
            report = Report()
            end = _end(pki().pair("user-admin").certificate) - timedelta(days=days)
            await server_checks.reach_server(
                options, reactor, report, 10.0, now=lambda end=end: end.timestamp()
            )
            results = {each.check: each for each in report.findings}
            for check in ("credentials", "server"):
                self.assertEqual(results[check].level.value, level)
                self.assertRegex(results[check].message, r"expire[sd] on 2\d{3}-\d\d-\d\d")

    async def test_unusable(self) -> None:
        """A malformed certificate ends the examination."""
        report, bad = Report(), self.mktemp()
        with open(bad, "w") as file:
            file.write("nonsense")
        words = ["doctor", "--kubeconfig", self.config()]
        words += ["--client-certificate", bad, "--client-key", bad]
        options = make_parser().parse_args(words)
        with self.assertRaises(Unusable):
            await server_checks.reach_server(options, reactor, report, 10.0)
        self.assertEqual(report.findings[-1].check, "credentials")


def _end(path: str) -> datetime:
    from cryptography import x509

    return x509.load_pem_x509_certificate(read(path)).not_valid_after_utc.astimezone(UTC)


class MachineTests(ChainTestCase):
    """What is behind the API server."""

    async def examined(
        self, *words: str, user: str = "admin", name: str = "vm"
    ) -> tuple[int, Results]:
        path = self.kubeconfig(f"user-{user}")
        return await examined(self, "--kubeconfig", path, name, *words)

    async def problem(self, check: str, **more: Any) -> tuple[str, str]:
        """The message and the remedy of an error."""
        code, results = await self.examined(**more)
        self.assertEqual((code, results[check][0]), (1, "error"), results)
        return results[check][1:]

    async def ready(self, status: str, reason: str, message: str = "") -> None:
        """Set the condition Ready of the pool."""
        condition = {"type": "Ready", "status": status, "reason": reason, "message": message}
        await self.admin.patch(
            kinds.MACHINEPOOLS.resource,
            "pool-a",
            {"status": {"conditions": [condition]}},
            subresource="status",
        )

    async def test_rights(self) -> None:
        """A user without rights reads which one is missing, and how an administrator grants it."""
        await self.make_machine()
        message, remedy = await self.problem("rights", user="jane")
        self.assertIn("may not create machines/exec in namespace default", message)
        self.assertIn("kubectl create rolebinding", remedy)
        _, results = await self.examined(user="jane")
        self.assertNotIn("machine", results)

    async def test_no_pool(self) -> None:
        """A machine without a pool is an error."""
        await self.make_machine(pool="")
        message, remedy = await self.problem("machine")
        self.assertEqual(message, "vm has no machine pool")
        self.assertIn("kubectl describe machines vm -n default", remedy)

    async def test_power(self) -> None:
        """A machine that is powered off is an error, with the command that switches it on."""
        await self.make_machine(power="Off")
        message, remedy = await self.problem("machine")
        self.assertEqual(message, "vm is powered off")
        self.assertIn('{"spec":{"power":"On"}}', remedy)

    async def test_pool(self) -> None:
        """A pool that does not exist is an error."""
        await self.make_machine()
        message, _ = await self.problem("pool")
        self.assertEqual(message, "machine pool pool-a does not exist")

    async def test_silent_poollet(self) -> None:
        """A pool without heartbeat, and the poollet that does not answer, are errors of the poollet."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        message, remedy = await self.problem("poollet")
        self.assertIn('pool "pool-a" at 127.0.0.1', message)
        self.assertIn("exec-poollet", remedy)
        await self.ready("Unknown", "MachinePoolStatusUnknown", "not heard of for 50 s")
        message, _ = await self.problem("poollet")
        self.assertIn("not heard of for 50 s", message)

    async def test_runtime(self) -> None:
        """A runtime that does not answer its poollet, or refuses the console, is an error."""
        poollet, port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        status = {"kind": "Status", "message": "the machine runtime does not answer", "code": 504}
        poollet.answer = (504, status)
        message, remedy = await self.problem("runtime")
        self.assertEqual(message, 'machine "vm": the machine runtime does not answer')
        self.assertIn("--machine-runtime-endpoint", remedy)
        await self.ready("False", "RuntimeUnreachable", "connection refused")
        message, _ = await self.problem("runtime")
        self.assertIn("RuntimeUnreachable: connection refused", message)

    async def test_other_kind(self) -> None:
        """A dialect that the server does not have is an error of the API."""
        await self.make_machine()
        code, results = await self.examined("--dialect", "spheric")
        self.assertEqual((code, results["api"][0]), (1, "error"))
        self.assertIn("has none of instances.core.spheric.cloud", results["api"][1])
