"""
Tests for ``twisted-exec doctor`` against real servers.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import tempfile
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IHostnameResolver
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from tests.apiserver.chain import ChainTestCase
from tests.chain import begin, pki
from tests.cli.typed import typed
from tests.ports import reserved_port
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.apiserver.service import APIServer
from twisted_exec.apiserver.settings import Settings as APIServerSettings
from twisted_exec.cli.commands.registry import make_parser
from twisted_exec.cli.doctor import server_checks
from twisted_exec.cli.doctor.findings import Findings, Unusable
from twisted_exec.console.notices import LINE_BACK, line_lost, notice
from twisted_exec.kube.kubeconfig.writer import write_kubeconfig
from twisted_exec.standalone.service import Standalone
from twisted_exec.standalone.settings import Settings
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.streaming.http.responses import Dispatcher, respond_json, respond_text
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.authority import Authority
from twisted_exec.wire.channel import V5

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

    starts = PROGRAMS

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
        self.assertEqual(
            results["machine"][2],
            'this namespace does not exist; the machine is in namespace "default": use -n default',
        )


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
            "ca_pem": read_file(pki().serving_ca),
            "certificate_pem": read_file(pair.certificate),
            "key_pem": read_file(pair.key),
            "user": "admin",
        }
        write_kubeconfig(path, **{**contents, **more})
        return path

    async def test_no_machine(self) -> None:
        """Without a machine the checks end at the server, and the user reads what was not checked."""
        code, results = await self.examined()
        self.assertEqual((code, list(results)[-1]), (0, "machine"))
        status, message, _ = results["machine"]
        self.assertEqual(status, "skipped")
        self.assertIn("type twisted-exec doctor MACHINE", message)

    async def test_missing_namespace(self) -> None:
        """A namespace that does not exist is an error, also without a machine."""
        message, remedy = await self.failure(
            "namespace", "--kubeconfig", self.config(), "-n", "nope"
        )
        self.assertEqual(message, 'namespace "nope" does not exist')
        self.assertIn("kubectl get namespaces lists the namespaces", remedy)
        code, results = await self.examined("-n", "nope", user="jane")
        self.assertEqual((code, "namespace" in results), (0, False))  # jane may not read it

    async def test_text(self) -> None:
        """The text for people has a summary, and the exit code is 1."""
        path = self.kubeconfig("user-admin")
        code, out, err = await typed(self, "doctor", "nix", "--kubeconfig", path)
        self.assertEqual((code, err), (1, ""))
        self.assertEqual(out.splitlines()[-1], "nix: 1 error")

    async def test_no_kubeconfig(self) -> None:
        """A kubeconfig that does not exist is an error with a remedy."""
        message, remedy = await self.failure("kubeconfig", "--kubeconfig", "/nix")
        self.assertEqual(message, "no kubeconfig: /nix does not exist")
        self.assertEqual(remedy, "set KUBECONFIG or give --kubeconfig")

    async def test_no_context(self) -> None:
        """The contexts that can be chosen are no remedy, but a part of the message."""
        path = self.kubeconfig("user-admin")
        message, remedy = await self.failure(
            "kubeconfig", "--kubeconfig", path, "--context", "nope"
        )
        self.assertRegex(message, 'no context "nope"; there are: ')
        self.assertRegex(remedy, "^correct the kubeconfig, or choose another")

    async def test_nobody_listens(self) -> None:
        """A closed port is an error at the server."""
        url = f"https://127.0.0.1:{reserved_port(self)}"
        message, remedy = await self.failure("server", "--kubeconfig", self.config(server=url))
        self.assertIn(f"cannot reach {url}", message)
        self.assertIn("start that API server", remedy)

    async def test_stopped_server(self) -> None:
        """A server that is stopped, whose kernel accepts connections, is no fault of the network."""
        stopped = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(stopped.close)
        url = f"https://127.0.0.1:{stopped.getsockname()[1]}"
        words = ("--kubeconfig", self.config(server=url), "--request-timeout", "0.2s")
        message, remedy = await self.failure("server", *words)
        self.assertIn(f"cannot reach {url}: its program does not answer: no TLS handshake", message)
        self.assertIn("stopped", remedy)

    async def test_without_tls(self) -> None:
        """The remedy for an http:// address of a server with TLS is https://."""
        url = self.server.url.replace("https://", "http://")
        _, remedy = await self.failure("server", "--kubeconfig", self.config(), "--server", url)
        self.assertEqual(remedy, "use https:// if the server speaks TLS on this port")

    async def test_other_name(self) -> None:
        """A certificate for other names is an error that shows these names."""
        words = ("--kubeconfig", self.config(), "--tls-server-name", "api.example")
        message, remedy = await self.failure("server", *words)
        self.assertIn('not valid for "api.example": it names', message)
        self.assertIn("--tls-server-name", remedy)

    async def test_other_authority(self) -> None:
        """A certificate of another CA is an error that says where the right CA belongs."""
        other = Authority.create("other").certificate_pem
        kubeconfig, path = self.config(ca_pem=other), os.path.abspath(self.mktemp())
        with open(path, "wb") as file:
            file.write(other)
        message, remedy = await self.failure("server", "--kubeconfig", kubeconfig)
        self.assertTrue(
            message.startswith(f"cannot reach {self.server.url}: the server's "), message
        )
        self.assertIn("give --certificate-authority FILE, or set certificate-authority", remedy)
        origin = f"the kubeconfig {os.path.abspath(kubeconfig)}"
        self.assertTrue(remedy.startswith(f"{origin} has another CA: get the CA of "), remedy)
        words = ("--kubeconfig", kubeconfig, "--certificate-authority", path)
        _, remedy = await self.failure("server", *words)
        self.assertTrue(remedy.startswith(f"{path} has another CA: get the CA of the "), remedy)

    async def test_refused_credentials(self) -> None:
        """A token that the server does not know is an error of the user."""
        path = self.mktemp()
        with open(path, "wb") as file:
            file.write(read_file(pki().serving_ca))
        words = ("--server", self.server.url, "--certificate-authority", path, "--token", "nix")
        self.patch(os, "environ", {**os.environ, "KUBECONFIG": os.devnull})
        message, remedy = await self.failure("user", *words)
        refused = "does not accept the bearer token of the command line: Unauthorized"
        self.assertEqual(message, f"{self.server.url} {refused}")
        self.assertIn("new credentials", remedy)

    async def test_clock(self) -> None:
        """A clock that differs by minutes is an error, by seconds a warning."""
        for difference, level in ((400, "error"), (-400, "error"), (60, "warning"), (5, "ok")):
            report, words = Findings(), ["doctor", "--kubeconfig", self.config()]
            await server_checks.reach_server(
                make_parser().parse_args(words),
                reactor,
                report,
                600.0,
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
            report = Findings()
            end = _end(pki().pair("user-admin").certificate) - timedelta(days=days)
            await server_checks.reach_server(
                options, reactor, report, 600.0, now=lambda end=end: end.timestamp()
            )
            results = {each.check: each for each in report.findings}
            for check in ("credentials", "server"):
                self.assertEqual(results[check].level.value, level)
                self.assertRegex(results[check].message, r"expire[sd] on 2\d{3}-\d\d-\d\d")

    async def test_unusable(self) -> None:
        """A malformed certificate ends the examination."""
        report, bad = Findings(), self.mktemp()
        with open(bad, "w") as file:
            file.write("nonsense")
        words = ["doctor", "--kubeconfig", self.config()]
        words += ["--client-certificate", bad, "--client-key", bad]
        options = make_parser().parse_args(words)
        with self.assertRaises(Unusable):
            await server_checks.reach_server(options, reactor, report, 600.0)
        self.assertEqual(report.findings[-1].check, "credentials")


class LimitedStorage(MemoryStorage):
    """A store that says which writes it refuses, or fails."""

    limit = "the disk of the store is full: free space on the disk of the server"
    broken = False

    def probe(self) -> Deferred[object]:
        return fail(ServiceUnavailable("a secret path")) if self.broken else succeed(self.limit)


class StorageTests(ChainTestCase):
    """An API server whose own storage has a problem."""

    storage: LimitedStorage

    def make_storage(self) -> LimitedStorage:
        return LimitedStorage()

    async def test_full(self) -> None:
        """A full disk of the server is a warning with the server's words, for each user whom the server knows."""
        for user in ("admin", "jane"):
            path = self.kubeconfig(f"user-{user}")
            code, results = await examined(self, "--kubeconfig", path)
            status, message, remedy = results["storage"]
            self.assertEqual((code, status, message), (0, "warning", self.storage.limit))
            self.assertIn("Events of machines are out of date", remedy)

    async def test_not_ready(self) -> None:
        """A health check that fails is an error of the server, which withholds the reason."""
        self.storage.broken = True
        code, results = await examined(self, "--kubeconfig", self.kubeconfig("user-admin"))
        status, message, remedy = results["server"]
        self.assertEqual((code, status), (1, "error"))
        self.assertTrue(message.endswith(" is not ready: its health checks fail: storage"), message)
        self.assertIn("log of the API server", remedy)


def _end(path: str) -> datetime:
    from cryptography import x509

    return x509.load_pem_x509_certificate(read_file(path)).not_valid_after_utc.astimezone(UTC)


class Kubernetes(Dispatcher):
    """
    A kube-apiserver, as far as discovery: no API server answers for the machines that it forwards.

    :ivar service: its APIService of machines; ``None`` if the user may not read it.
    """

    def __init__(self, service: kinds.Object | None) -> None:
        super().__init__()
        self.service = service

    async def dispatch(self, request: Request) -> None:
        path = request.path.decode()
        if path == "/version":
            respond_json(request, 200, {"gitVersion": "v1.33.1"})
        elif path.endswith("/selfsubjectreviews"):
            respond_json(request, 201, {"status": {"userInfo": {"username": "ada"}}})
        elif path == "/apis":
            respond_json(request, 200, {"groups": [{"name": kinds.MACHINES.resource.group}]})
        elif not path.startswith("/apis/apiregistration.k8s.io/v1/apiservices/"):
            respond_text(request, 503, "service unavailable\n")
        elif not path.endswith("/v1alpha1.compute.ironcore.dev"):
            respond_json(request, 404, {"kind": "Status", "code": 404, "message": "not found"})
        elif self.service is None:
            respond_json(request, 403, {"kind": "Status", "code": 403, "message": "forbidden"})
        else:
            respond_json(request, 200, self.service)


class AggregatedTests(TestCase):
    """A Kubernetes whose aggregated API server of machines is down."""

    async def failure(self, service: kinds.Object | None) -> tuple[str, str]:
        """Return message and remedy of the failed discovery."""
        site = Site(Kubernetes(service), reactor)
        port: Any = reactor.listenTCP(0, site, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.patch(os, "environ", {**os.environ, "KUBECONFIG": os.devnull})
        url = f"http://127.0.0.1:{port.getHost().port}"
        code, results = await examined(self, "vm", "--server", url)
        self.assertEqual((code, list(results)[-1], results["api"][0]), (1, "api", "error"))
        return results["api"][1:]

    def service(self, status: str, reason: str, message: str) -> kinds.Object:
        """An APIService of machines."""
        condition = {"type": "Available", "status": status, "reason": reason, "message": message}
        return {
            "metadata": {"name": "v1alpha1.compute.ironcore.dev"},
            "spec": {"service": {"namespace": "twisted-exec", "name": "exec-apiserver"}},
            "status": {"conditions": [condition]},
        }

    async def test_unavailable(self) -> None:
        """The condition of the APIService is quoted, and the remedy names its Service."""
        why = 'endpoints for service/exec-apiserver in "twisted-exec" have no addresses'
        message, remedy = await self.failure(self.service("False", "MissingEndpoints", why))
        self.assertEqual(
            message,
            f"APIService v1alpha1.compute.ironcore.dev is not available: MissingEndpoints: {why}",
        )
        self.assertIn("Service twisted-exec/exec-apiserver", remedy)
        self.assertIn("kubectl describe apiservices v1alpha1.compute.ironcore.dev", remedy)

    async def test_just_down(self) -> None:
        """Before kube-apiserver has noticed, the message is that of its proxy."""
        message, remedy = await self.failure(self.service("True", "Passed", "all checks passed"))
        self.assertEqual(message, "service unavailable")
        self.assertIn("Service twisted-exec/exec-apiserver", remedy)

    async def test_unreadable(self) -> None:
        """A user who may not read the APIService is sent to an administrator."""
        message, remedy = await self.failure(None)
        self.assertEqual(message, "service unavailable")
        self.assertIn("ask an administrator", remedy)
        self.assertIn("kubectl get apiservices", remedy)
        self.assertNotIn("rights", remedy)


@implementer(IHostnameResolver)
class NoNames:
    """Knows no host."""

    def resolveHostName(self, receiver: Any, *rest: Any, **more: Any) -> Any:
        receiver.resolutionBegan(None)
        receiver.resolutionComplete()


class MachineTests(ChainTestCase):
    """What is behind the API server."""

    def settings(self, **more: Any) -> APIServerSettings:
        # Tests write conditions and Events themselves.
        return super().settings(scheduling=False, **more)

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

    async def machine_ready(self, reason: str, message: str, **more: str) -> None:
        """Set the condition Ready of the machine to False."""
        condition = {"type": "Ready", "status": "False", "reason": reason, "message": message}
        condition |= more
        await self.admin.patch(
            kinds.MACHINES.resource,
            "vm",
            {"status": {"state": "Running", "conditions": [condition]}},
            "default",
            subresource="status",
        )

    async def make_class(self) -> None:
        """Create the class of the machine."""
        made = {"metadata": {"name": "small"}, "capabilities": {"cpu": "1", "memory": "1Gi"}}
        await self.admin.create(kinds.MACHINECLASSES.resource, made)

    async def make_event(
        self, about: kinds.Object, type: str, reason: str, message: str, year: str
    ) -> None:
        """Create an Event about the machine."""
        self.events = getattr(self, "events", 0) + 1
        metadata = about["metadata"]
        event = {
            "metadata": {"name": f"vm.{self.events}", "namespace": "default"},
            "involvedObject": {
                "kind": "Machine",
                "name": "vm",
                "namespace": "default",
                "uid": metadata["uid"],
            },
            "type": type,
            "reason": reason,
            "message": message,
            "lastTimestamp": f"{year}-01-01T00:00:00Z",
        }
        await self.admin.create(kinds.EVENTS.resource, event, "default")

    async def test_rights(self) -> None:
        """A user without rights reads which one is missing, and how an administrator grants it."""
        await self.make_machine()
        message, remedy = await self.problem("rights", user="jane")
        self.assertIn("may not create machines/exec in namespace default", message)
        self.assertIn("kubectl create rolebinding", remedy)
        self.assertTrue(
            remedy.startswith('is the namespace "default" right? If so, ask an'), remedy
        )
        _, results = await self.examined(user="jane")
        self.assertEqual(
            results["machine"][:2],
            (
                "skipped",
                'cannot read machine "vm" and its pool: may not get machines in namespace default; '
                "the role view has this right",
            ),
        )

    async def test_rights_to_read(self) -> None:
        """A user who may read the machine is not asked whether its namespace is right."""
        await self.make_machine()
        await self.grant(("get", "machines"))
        _, remedy = await self.problem("rights", user="jane")
        self.assertTrue(remedy.startswith("ask an administrator"), remedy)

    async def test_roles(self) -> None:
        """Such a user reads no second role for what the first role includes."""
        await self.make_machine()
        path = self.kubeconfig("user-jane")
        _, text, _ = await typed(self, "doctor", "vm", "--kubeconfig", path)
        roles = re.findall(r"for the role ([\w-]+)", text)
        self.assertEqual(roles, ["console-user", "console-log-reader"], text)

    async def grant(self, *rules: tuple[str, str]) -> None:
        """Give jane verbs on resources of machines."""
        api = {"apiVersion": "rbac.authorization.k8s.io/v1"}
        group = "compute.ironcore.dev"
        role = {
            **api,
            "kind": "Role",
            "metadata": {"name": "jane"},
            "rules": [
                {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
                for verb, resource in rules
            ],
        }
        binding = {
            **api,
            "kind": "RoleBinding",
            "metadata": {"name": "jane"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "jane"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
        }
        await self.admin.create(kinds.ROLES.resource, role, "default")
        await self.admin.create(kinds.ROLEBINDINGS.resource, binding, "default")

    async def test_verbs(self) -> None:
        """The verbs of the console are rights, too, and who may only observe reads that."""
        await self.make_machine()
        reading = (("get", "machines"), ("get", "machines/log"))
        await self.grant(("drive", "machines/console"), *reading)
        _, results = await self.examined(user="jane")
        self.assertEqual(
            results["rights"][:2],
            (
                "ok",
                "may drive machines/console, get machines, get machines/log in namespace default",
            ),
        )
        for resource in (kinds.ROLES.resource, kinds.ROLEBINDINGS.resource):
            await self.admin.delete(resource, "jane", "default")
        await self.grant(("observe", "machines/console"), *reading)
        _, results = await self.examined(user="jane")
        status, message, remedy = results["rights"]
        self.assertEqual(status, "warning")
        self.assertEqual(
            message, "may not drive machines/console in namespace default; --read-only works now"
        )
        self.assertIn("the role console-user: kubectl create rolebinding", remedy)

    async def test_policies(self) -> None:
        """
        If a policy requires a reason or an approval, the user reads this and the command that gives
        it; only a condition that no command meets is an error.
        """
        await self.make_pool(("InternalIP", "127.0.0.1"), port=1)
        await self.make_machine()
        policies = kinds.CONSOLEPOLICIES.resource
        reading = (("get", "machines"), ("get", "machines/log"))
        await self.grant(("observe", "machines/console"), *reading)
        start = 'ConsolePolicy "default/p" '
        for spec, user, message, options in (
            ({"reason": "Required"}, "admin", "requires a reason", ""),
            ({"reason": "Required"}, "jane", "requires a reason", "--read-only "),
            (
                {"reason": "Required", "approval": "Required"},
                "admin",
                f"requires a reason; {start}requires the approval of another user",
                "--request ",
            ),
        ):
            made = {"metadata": {"name": "p"}, "spec": spec}
            await self.admin.create(policies, made, "default")
            code, results = await self.examined(user=user)
            command = f"kubectl console {options}--reason TICKET -n default vm"
            self.assertEqual(
                (code, results["console"]),
                (0, ("skipped", f"was not opened: {start}{message}", command)),
            )
            await self.admin.delete(policies, "p", "default")
        yesterday = f"{datetime.now(UTC) - timedelta(days=2):%a}"
        hours = [{"days": [yesterday], "from": "08:00", "to": "09:00"}]
        made = {"metadata": {"name": "p"}, "spec": {"reason": "Required", "hours": hours}}
        await self.admin.create(policies, made, "default")
        message, remedy = await self.problem("console")
        self.assertIn(f"{start}does not allow this console at this hour; its hours begin", message)
        # Without a command that an observer may not run.
        self.assertEqual(remedy, "do as the policy says, or ask an administrator to change it")

    async def test_waiting_request(self) -> None:
        """A user whose request waits for an approval reads its name, and what follows."""
        await self.make_pool(("InternalIP", "127.0.0.1"), port=1)
        await self.make_machine()
        policy = {"metadata": {"name": "p"}, "spec": {"approval": "Required"}}
        await self.admin.create(kinds.CONSOLEPOLICIES.resource, policy, "default")
        requests, spec = kinds.CONSOLEREQUESTS.resource, {"machine": "vm", "reason": "OPS-1"}
        await self.admin.create(requests, {"metadata": {"name": "r"}, "spec": spec}, "default")
        code, results = await self.examined()
        _, message, remedy = results["console"]
        self.assertEqual(code, 0)
        self.assertTrue(message.endswith('; your request "r" (drive, "OPS-1") waits'), message)
        self.assertEqual(
            remedy,
            "another user runs twisted-exec request approve -n default r; "
            "after its approval, open the console without --request",
        )

    async def test_unreadable(self) -> None:
        """The user reads which parts could not be checked, which right that needs, and which role has it."""
        machine = await self.make_machine()
        await self.make_event(machine, "Warning", "Odd", "the disk is full", "2026")
        await self.machine_ready("Odd", "no disk")
        reading = (("get", "machines"), ("get", "machines/log"))
        await self.grant(("drive", "machines/console"), *reading)
        path = self.kubeconfig("user-jane")
        _, out, _ = await typed(self, "doctor", "vm", "--kubeconfig", path)
        skipped = [
            re.split("  +", line, maxsplit=2)[1:]
            for line in out.splitlines()
            if line.startswith("skipped")
        ]
        self.assertEqual(
            skipped,
            [
                [
                    "machine",
                    'cannot read class "small": may not get machineclasses',
                ],
                [
                    "machine",
                    'cannot read the Events of machine "vm": may not list events in namespace default; '
                    "the role view has this right",
                ],
                [
                    "pool",
                    'cannot read machine pool "pool-a": may not get machinepools',
                ],
            ],
            out,
        )
        self.assertIn(", 3 checks skipped", out.splitlines()[-1])
        for kind in ("machineclasses", "machinepools"):
            role = f"get-{kind}"
            commands = (
                f"kubectl create clusterrole {role} --verb=get --resource={kind}.compute.ironcore.dev, and "
                f"kubectl create clusterrolebinding jane-{role} --clusterrole={role} --user=jane"
            )
            self.assertIn(f"-> ask an administrator for this right: {commands}\n", out)

    async def test_no_pool(self) -> None:
        """A machine without a pool is an error."""
        await self.make_machine(pool="")
        message, remedy = await self.problem("machine")
        self.assertIn('machine "vm" has no machine pool', message)
        self.assertIn('class "small" does not exist; there are: none', message)
        self.assertIn("create the MachineClass small, or delete the machine", remedy)
        self.assertIn("spec.machineClassRef is immutable", remedy)

    async def test_no_class(self) -> None:
        """A class that does not exist is named once, also if the scheduler says so."""
        await self.make_machine(pool="")
        missing = 'class "small" does not exist; there are: none'
        await self.machine_ready("FailedScheduling", missing)
        message, _ = await self.problem("machine")
        self.assertEqual(message, f'machine "vm" has no machine pool: FailedScheduling: {missing}')

    async def test_unplaced(self) -> None:
        """A machine that cannot be scheduled is quoted with its newest Warning Event."""
        await self.make_class()
        made = await self.make_machine(pool="")
        await self.make_event(made, "Warning", "FailedScheduling", "an old reason", "2020")
        await self.make_event(made, "Warning", "FailedScheduling", "no room for it", "2099")
        await self.make_event(made, "Normal", "Other", "no matter", "2100")
        message, remedy = await self.problem("machine")
        self.assertEqual(
            message, 'machine "vm" has no machine pool: FailedScheduling: no room for it'
        )
        self.assertIn("kubectl describe machinepools", remedy)
        self.assertIn("delete the machine and create it again", remedy)

    async def test_expired_event(self) -> None:
        """Without an Event, the condition says why a machine waits."""
        await self.make_class()
        await self.make_machine(pool="")
        await self.machine_ready("FailedScheduling", "no pool fits")
        message, _ = await self.problem("machine")
        self.assertEqual(
            message, 'machine "vm" has no machine pool: FailedScheduling: no pool fits'
        )

    async def test_unlabelled_pools(self) -> None:
        """Labels that no pool has can be given to a pool, or the machine selects others."""
        await self.make_class()
        await self.make_machine(pool="", machinePoolSelector={"zone": "mars"})
        await self.machine_ready(
            "FailedScheduling", "no machine pool has the labels zone=mars (there is 1 pool)"
        )
        _, remedy = await self.problem("machine")
        self.assertIn("kubectl label machinepools NAME zone=mars; or change", remedy)
        self.assertTrue(remedy.endswith("the machine's spec.machinePoolSelector"), remedy)

    async def test_missing_pool_condition(self) -> None:
        """A pool that does not exist is one error, with the Event of the scheduler."""
        await self.make_class()
        made = await self.make_machine()
        missing = 'machine pool "pool-a" does not exist'
        await self.machine_ready("FailedScheduling", missing)
        event = f"{missing}; there are: pool-b"
        await self.make_event(made, "Warning", "FailedScheduling", event, "2099")
        _, results = await self.examined()
        self.assertEqual(results["machine"][0], "ok", results)
        self.assertEqual(results["pool"][:2], ("error", f"FailedScheduling: {event}"))

    async def test_unready(self) -> None:
        """For a machine that is not ready there is its newest Warning Event, unless it says the same."""
        await self.make_class()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=1)
        made = await self.make_machine()
        await self.machine_ready("CreateFailed", "the disk is full")
        await self.make_event(made, "Warning", "CreateFailed", "the disk is full", "2099")
        await self.make_event(made, "Warning", "LineLost", "the line was lost", "2098")
        _, results = await self.examined()
        status, message, remedy = results["machine"]
        self.assertEqual(status, "warning")
        self.assertTrue(message.endswith("not ready: CreateFailed: the disk is full"), message)
        self.assertEqual(
            remedy, "mend what the message names; see kubectl describe machines vm -n default"
        )
        await self.make_event(made, "Warning", "NoImage", "there is no image", "2100")
        _, results = await self.examined()
        self.assertTrue(
            results["machine"][1].endswith("newest Warning Event: NoImage: there is no image")
        )

    async def test_earlier_event(self) -> None:
        """An Event from before the machine was not ready says nothing about the cause."""
        await self.make_class()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=1)
        made = await self.make_machine()
        await self.make_event(made, "Warning", "LineLost", "the line was lost", "2098")
        for moment, shown in (("2099-01-01T00:00:00Z", False), ("2097-01-01T00:00:00Z", True)):
            await self.machine_ready("TokenRefused", "token expired", lastTransitionTime=moment)
            _, results = await self.examined()
            self.assertEqual("LineLost" in results["machine"][1], shown, results)

    async def test_power(self) -> None:
        """A machine that is powered off is an error, with the command that switches it on."""
        await self.make_machine(power="Off")
        message, remedy = await self.problem("machine")
        self.assertEqual(message, 'machine "vm" is powered off')
        self.assertIn('{"spec":{"power":"On"}}', remedy)

    async def test_not_switched(self) -> None:
        """A console that is closed by the power of its machine is not called a machine that is off."""
        await self.make_machine(power="Off")
        condition = {"type": "PowerSwitched", "status": "False", "reason": "ConsoleOnly"}
        status = {"status": {"state": "Shutdown", "conditions": [condition]}}
        await self.admin.patch(
            kinds.MACHINES.resource, "vm", status, "default", subresource="status"
        )
        message, remedy = await self.problem("machine")
        self.assertEqual(
            message,
            'the console of machine "vm" is closed by spec.power, which does not switch the machine itself',
        )
        self.assertIn('{"spec":{"power":"On"}}', remedy)

    async def test_stays_on(self) -> None:
        """A machine that cannot be powered off is not called off: the message says why it is still on."""
        await self.make_class()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=1)
        await self.make_machine(power="Off")
        why = (
            "the server could not be powered off: cannot reach the BMC; it may be on; trying again"
        )
        await self.machine_ready("PowerFailed", why)
        _, results = await self.examined()
        self.assertEqual(
            results["machine"][:2],
            ("warning", f'machine "vm" is Running and not ready: PowerFailed: {why}'),
        )

    async def test_server_off(self) -> None:
        """A machine whose server others have switched off says so, with the remedy."""
        await self.make_class()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=1)
        await self.make_machine()
        await self.machine_ready("ServerOff", "the server is off; set spec.power to Off and On")
        _, results = await self.examined()
        _, message, remedy = results["machine"]
        self.assertIn("the server is off; set spec.power to Off and On", message)
        self.assertIn("do what the message says", remedy)

    async def test_pool(self) -> None:
        """A pool that does not exist is an error."""
        await self.make_machine()
        message, remedy = await self.problem("pool")
        self.assertEqual(message, 'machine pool "pool-a" does not exist')
        self.assertIn("spec.machinePoolRef is immutable", remedy)
        for name in ("pool-c", "pool-b"):
            await self.admin.create(kinds.MACHINEPOOLS.resource, {"metadata": {"name": name}})
        message, _ = await self.problem("pool")
        self.assertTrue(message.endswith("; existing machinepools: pool-b, pool-c"), message)
        _, results = await self.examined()
        self.assertNotIn("console", results)  # the pool's error is the reason for its refusal

    async def test_unreadable_pool(self) -> None:
        """
        A user who may not read the pool, or the machine, reads which part is missing and what to ask for; doctor never
        names itself.
        """
        await self.make_machine()
        drive, read = ("drive", "machines/console"), ("get", "machines")
        await self.grant(drive, read)
        await self.check_last_error(
            "pool",
            'machinepools.compute.ironcore.dev "pool-a" not found: machine "vm" is assigned to it',
            "-> ask an administrator to start the poollet of the pool",
        )
        await self.admin.delete(kinds.MACHINES.resource, "vm", "default")
        await self.make_machine(pool="")
        rules = {
            "rules": [
                {
                    "apiGroups": ["compute.ironcore.dev"],
                    "resources": ["machines/console"],
                    "verbs": ["drive"],
                }
            ]
        }
        await self.admin.patch(kinds.ROLES.resource, "jane", rules, "default")
        await self.check_last_error(
            "machine",
            'machine "vm" has no machine pool yet',
            "-> ask an administrator for a pool that has room for the machine",
        )

    async def check_last_error(self, check: str, message: str, remedy: str) -> None:
        _, out, _ = await typed(self, "doctor", "vm", "--kubeconfig", self.kubeconfig("user-jane"))
        *_, error, advice, _ = out.splitlines()
        self.assertEqual(error.split(maxsplit=2), ["error", check, message], out)
        self.assertTrue(advice.strip().startswith(remedy), out)
        self.assertNotIn("twisted-exec doctor", out)

    async def test_not_created(self) -> None:
        """A refusal that repeats the machine's condition is one error with it, of the machine and not of the runtime."""
        poollet, port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        problem = 'class "small" does not exist'
        await self.machine_ready("MachineClassNotReady", problem)
        message = f'machines.compute.ironcore.dev "vm" is not running yet: {problem}'
        poollet.answer = (503, {"kind": "Status", "message": message, "code": 503})
        code, results = await self.examined()
        self.assertNotIn("runtime", results)
        status, message, _ = results["machine"]
        self.assertEqual((code, status), (1, "error"))
        self.assertTrue(message.endswith("; its console cannot be opened"), message)

    async def stored(self, name: str, status: str) -> None:
        """Set the condition of a machine about its output."""
        message = "console output is in memory only, not on disk: No space left on device"
        condition = {"type": "ConsoleStored", "status": status, "message": message}
        await self.admin.patch(
            kinds.MACHINES.resource,
            name,
            {"status": {"conditions": [condition]}},
            "default",
            subresource="status",
        )

    async def test_full_disk(self) -> None:
        """Output that is not on the disk of the runtime is a warning with pool, machines and remedy, while it lasts."""
        poollet, port = await self.poollet()
        poollet.protocol = V5
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        for name in ("vm", "db", "web"):
            await self.make_machine(name)
        await self.make_machine("away", "pool-b")
        for name in ("db", "web", "away"):
            await self.stored(name, "False")
        code, results = await self.examined()
        status, message, remedy = results["output"]
        self.assertEqual((code, status), (0, "warning"))
        self.assertEqual(
            message,
            'in machine pool "pool-a": console output is in memory only, not on disk: No space left on device: '
            "default/db, default/web",
        )
        self.assertIn("free space on the disk of the runtime's --state-dir", remedy)
        for name in ("db", "web"):
            await self.stored(name, "True")
        _, results = await self.examined()
        self.assertNotIn("output", results)

    async def test_full_disk_of_user(self) -> None:
        """A user who may not list machines reads of the one that is examined."""
        await self.make_pool(("InternalIP", "127.0.0.1"), port=1)
        await self.make_machine()
        await self.stored("vm", "False")
        await self.grant(("drive", "machines/console"), ("get", "machines"))
        _, results = await self.examined(user="jane")
        self.assertTrue(results["output"][1].endswith(": default/vm"), results)

    async def test_needless_pool(self) -> None:
        """A pool that the user may not read is no row if the console opens: then the pool works."""
        poollet, port = await self.poollet()
        poollet.protocol = V5
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        await self.grant(
            ("drive", "machines/console"), ("get", "machines"), ("get", "machines/log")
        )
        _, results = await self.examined(user="jane")
        self.assertEqual({status for status, _, _ in results.values()}, {"ok"}, results)

    async def test_class_of_runtime(self) -> None:
        """A class that exists, but not in the runtime, is one error with its own remedy."""
        poollet, port = await self.poollet()
        await self.make_class()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        problem = 'the machine runtime offers no class "small"'
        await self.machine_ready("MachineClassNotReady", problem)
        message = f'machines.compute.ironcore.dev "vm" is not running yet: {problem}'
        poollet.answer = (503, {"kind": "Status", "message": message, "code": 503})
        _, remedy = await self.problem("machine")
        self.assertTrue(remedy.startswith("add the class small to the runtime's --classes"), remedy)
        _, results = await self.examined()
        others = {each for each, (status, _, _) in results.items() if status != "ok"}
        self.assertEqual(others, {"machine"}, results)

    async def test_lost_line(self) -> None:
        """A line that is lost is an error with the condition's message, though the session opens."""
        poollet, port = await self.poollet()
        poollet.protocol = V5
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        await self.machine_ready("LineLost", 'line "vm" was lost: refused; trying again')
        message, remedy = await self.problem("line")
        self.assertEqual(message, 'LineLost: line "vm" was lost: refused; trying again')
        self.assertIn("or the line's user and password file; the runtime tries again", remedy)
        _, results = await self.examined()
        checks = {each: results[each][0] for each in ("machine", "pool", "poollet", "runtime")}
        self.assertEqual(set(checks.values()), {"ok"}, results)

    async def test_own_reason(self) -> None:
        """An outage with a reason of the line's driver is an error of the line, reported once."""
        poollet, port = await self.poollet()
        poollet.protocol = V5
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        outage = 'line "vm" was lost: the token is refused'
        printed = b"\1" + notice(outage)
        poollet.greeting = bytes([0x82, len(printed)]) + printed
        await self.machine_ready("TokenRefused", f"{outage}; trying again")
        message, remedy = await self.problem("line")
        self.assertEqual(message, f"TokenRefused: {outage}; trying again")
        self.assertEqual(
            remedy,
            "mend what the message names; the runtime tries again. After a change in the file of its "
            "--classes, reload it",
        )
        _, results = await self.examined()
        self.assertEqual(results["machine"][0], "ok", results)

    async def test_newly_lost_line(self) -> None:
        """A line that was lost just now is an error with its notice, before the condition says so."""
        poollet, port = await self.poollet()
        poollet.protocol = V5
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        lost = 'line "vm" was lost: refused'
        for texts, error in (
            ([lost], lost),
            ([line_lost("refused")], "the console line was lost: refused"),
            ([lost, LINE_BACK], ""),
        ):
            printed = b"\1" + b"".join(map(notice, texts))
            poollet.greeting = bytes([0x82, len(printed)]) + printed
            code, results = await self.examined()
            expected = (1, "error", error) if error else (0, "ok", "is open, and has output")
            self.assertEqual((code, *results["line"][:2]), expected)

    async def test_unknown_power(self) -> None:
        """A console that is open while its BMC refuses the runtime is a warning with the BMC's answer."""
        poollet, port = await self.poollet()
        poollet.protocol = V5
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        for message, result in (
            ("the console is open by ssh: the server announces it", "ok"),
            (
                "the power of the server is not known: refused; the console is open by ssh",
                "warning",
            ),
        ):
            way = {"type": "ConsoleLine", "status": "True", "reason": "SSH", "message": message}
            status = {"status": {"state": "Running", "conditions": [way]}}
            await self.admin.patch(
                kinds.MACHINES.resource, "vm", status, "default", subresource="status"
            )
            _, results = await self.examined()
            self.assertEqual(results["line"][0], result)
            self.assertIn(message, results["line"][1])

    async def test_no_line(self) -> None:
        """A machine without a line is an error of the line, reported once."""
        poollet, port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        problem = 'no line is called "default/vm"; free lines are: web-1'
        await self.machine_ready("NoLine", problem)
        message = f'machine "default/vm" cannot start: {problem}'
        poollet.answer = (409, {"kind": "Status", "message": message, "code": 409})
        message, remedy = await self.problem("line")
        self.assertEqual(message, f"NoLine: {problem}")
        self.assertIn("create it again with the name of a free line", remedy)
        _, results = await self.examined()
        errors = [check for check, (status, _, _) in results.items() if status == "error"]
        self.assertEqual(errors, ["line"])

    async def test_refused_row(self) -> None:
        """A machine whose row of a list is wrong waits for the operator to correct that row."""
        _, port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        problem = 'the row of "default/vm" is refused: /rack.csv: vm: 192.0.2.9 is in none of the networks (line 9)'
        await self.machine_ready("RowRefused", problem)
        message, remedy = await self.problem("line")
        self.assertEqual(message, f"RowRefused: {problem}")
        self.assertIn("correct the row", remedy)

    async def test_silent_poollet(self) -> None:
        """A pool without heartbeat, and the poollet that does not answer, are errors of the poollet."""
        await self.make_pool(("InternalIP", "127.0.0.1"), port=reserved_port(self))
        await self.make_machine()
        message, remedy = await self.problem("poollet")
        self.assertIn('pool "pool-a" at 127.0.0.1', message)
        self.assertIn("exec-poollet", remedy)
        await self.ready("Unknown", "MachinePoolStatusUnknown", "not heard of for 50 s")
        message, _ = await self.problem("poollet")
        self.assertIn("not heard of for 50 s", message)

    async def test_address_without_host(self) -> None:
        """An address of the poollet whose name no resolver knows is an error with a fitting remedy."""
        resolver = reactor.installNameResolver(NoNames())
        self.addCleanup(reactor.installNameResolver, resolver)
        await self.make_pool(("Hostname", "hypervisor.example"), port=1)
        await self.make_machine()
        message, remedy = await self.problem("poollet")
        self.assertIn('pool "pool-a" at hypervisor.example:1: its name is not known', message)
        self.assertIn("--addresses", remedy)
        self.assertIn("DNS", remedy)

    async def test_other_poollet_authority(self) -> None:
        """A poollet whose certificate is of another CA than the API server's is an error."""
        await self.server.stopService()
        settings = self.settings(poollet_ca=pki().client_ca)
        self.server = APIServer(settings, self.storage, self.audit, reactor)
        await begin(self.server, self.addCleanup)
        self.admin = self.client("admin")
        _, port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        message, remedy = await self.problem("poollet")
        self.assertIn("is refused: it is not signed by a trusted CA", message)
        self.assertIn("--machinepoollet-certificate-authority", remedy)

    async def test_forwarding_authority(self) -> None:
        """A poollet that does not know the CA of the API server's certificate is an error."""
        poollet, port = await self.poollet()
        poollet.answer = (401, {"kind": "Status", "message": "Unauthorized", "code": 401})
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        message, remedy = await self.problem("poollet")
        self.assertIn("does not accept this server's credentials", message)
        self.assertIn("--machinepoollet-client-certificate", remedy)
        self.assertIn("--requestheader-client-ca-file", remedy)

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
