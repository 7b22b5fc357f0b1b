"""
The real kubectl against a real API server.

Every kubectl beside the one on the ``PATH`` takes part (``kubectl.1.27`` ...),
the oldest, the newest and one between.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from tests import needs
from tests.apiserver.chain import ChainTestCase
from tests.apiserver.support import machine
from tests.chain import reactor
from tests.flows import kubectls
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds

CLASS = {
    "apiVersion": "compute.ironcore.dev/v1alpha1",
    "kind": "MachineClass",
    "metadata": {"name": "small"},
    "capabilities": {"cpu": "1", "memory": "1Gi"},
}


AGE = r"(\d+[hms])+"
NOTHING: Mapping[str, str] = {}
STREAMED = {"KUBE_FEATURE_WatchListClient": "true"}


class _Run(ProcessProtocol):
    """One kubectl."""

    def __init__(self, stdin: bytes) -> None:
        self.stdin, self.out, self.err = stdin, b"", b""
        self.ended: Deferred[int] = Deferred()

    def connectionMade(self) -> None:
        self.transport.write(self.stdin)  # type: ignore[union-attr]
        self.transport.closeStdin()  # type: ignore[union-attr]

    def outReceived(self, data: bytes) -> None:
        self.out += data

    def errReceived(self, data: bytes) -> None:
        self.err += data

    def processEnded(self, reason: Failure) -> None:
        self.ended.callback(reason.value.exitCode or 0)  # type: ignore[union-attr]


class KubectlCase(ChainTestCase):
    """A user's first commands."""

    skip = needs.kubectl()

    async def setUp(self) -> None:
        await super().setUp()
        self.config = self.kubeconfig("user-admin")

    def start(
        self, *words: str, stdin: Any = None, config: str = "", env: Mapping[str, str] = NOTHING
    ) -> _Run:
        """Run the kubectl under test."""
        run = _Run(b"" if stdin is None else json.dumps(stdin).encode())
        home = self.mktemp()
        os.makedirs(home)
        environment = {
            "HOME": os.path.abspath(home),
            "PATH": os.environ["PATH"],  # kubectl diff runs diff
            "KUBECONFIG": os.path.abspath(config or self.config),
            **env,
        }
        reactor.spawnProcess(run, self.kubectl, [self.kubectl, *words], env=environment)
        return run

    async def run_kubectl(self, *words: str, code: int = 0, **more: Any) -> str:
        """Return the output; the command must exit with ``code``."""
        run = self.start(*words, **more)
        ended = await run.ended
        self.assertEqual(ended, code, (self.kubectl, words, run.out, run.err))
        return (run.out + run.err).decode()

    async def each(self, story: Any) -> None:
        """Tell a story with the oldest and the newest kubectl."""
        paths = kubectls.found()
        for number, name in enumerate(kubectls.some()):
            self.kubectl = paths[name]
            await story(f"vm-{number}")


class KubectlTests(KubectlCase):
    """The oldest and the newest kubectl at hand."""

    starts = PROGRAMS

    async def test_look_around(self) -> None:
        """Resources, the current user, and permissions."""

        async def story(_: str) -> None:
            told = await self.run_kubectl("api-resources")
            self.assertRegex(told, r"machines +compute.ironcore.dev/v1alpha1 +true +Machine")
            self.assertIn("Username", await self.run_kubectl("auth", "whoami"))
            self.assertEqual(
                await self.run_kubectl("auth", "can-i", "create", "machines/exec"), "yes\n"
            )
            self.assertIn("*.*", await self.run_kubectl("auth", "can-i", "--list"))
            self.assertIn("Server Version", await self.run_kubectl("version"))
            told = await self.run_kubectl("explain", "machine.spec.power")
            self.assertIn("power is On or Off.", told)
            older = await self.run_kubectl(
                "explain", "--output=plaintext-openapiv2", "machine.spec.power"
            )
            self.assertIn("power is On or Off.", older)
            self.assertRegex(await self.run_kubectl("get", "ns"), rf"default +Active +{AGE}\b")

        await self.each(story)

    async def test_as_someone_else(self) -> None:
        """``--as`` and its companions, for whoever may."""

        async def story(_: str) -> None:
            whole = ("--as", "eve", "--as-group", "dev", "--as-group", "ops", "--as-uid", "7")
            told = json.loads(await self.run_kubectl("auth", "whoami", "-o", "json", *whole))
            self.assertEqual(
                told["status"]["userInfo"],
                {"username": "eve", "uid": "7", "groups": ["dev", "ops", "system:authenticated"]},
            )
            told = await self.run_kubectl("get", "machines", "--as", "eve", code=1)
            self.assertIn('User "eve" cannot list resource "machines"', told)
            self.assertEqual(
                await self.run_kubectl("auth", "can-i", "list", "machines", "--as=eve", code=1),
                "no\n",
            )
            jane = self.kubeconfig("user-jane")
            raw = ("get", "--raw", "/api", "--as", "admin")
            told = await self.run_kubectl(*raw, config=jane, code=1)
            self.assertIn('User "jane" cannot impersonate resource "users"', told)

        await self.each(story)

    async def test_objects(self) -> None:
        """Create, apply, patch, label, wait, delete."""
        # Or the machines' condition would soon say that their pool is missing.
        await self.make_pool(("InternalIP", "127.0.0.1"), port=1)
        await self.admin.create(kinds.MACHINECLASSES.resource, CLASS)

        async def story(name: str) -> None:
            body = machine(name)
            dry = await self.run_kubectl("create", "--dry-run=server", "-f", "-", stdin=body)
            self.assertIn("created (server dry run)", dry)
            self.assertIn("created", await self.run_kubectl("apply", "-f", "-", stdin=body))
            self.assertIn("unchanged", await self.run_kubectl("apply", "-f", "-", stdin=body))
            off = machine(name, power="Off")
            self.assertIn(
                '+  power: "Off"', await self.run_kubectl("diff", "-f", "-", stdin=off, code=1)
            )
            self.assertIn("configured", await self.run_kubectl("apply", "-f", "-", stdin=off))
            applied = ("apply", "--server-side", "--force-conflicts", "-f", "-")
            self.assertIn(
                "serverside-applied",
                await self.run_kubectl(
                    *applied, stdin=body | {"metadata": {"name": name, "labels": {"a": "b"}}}
                ),
            )
            await self.patches(name)
            table = await self.run_kubectl("get", "machines")
            self.assertRegex(
                table,
                r"NAME +MACHINECLASSREF +STATE +READY +REASON +AGE\n"
                rf"{name} +small +Running +<unknown> +<none> +{AGE}\n",
            )
            self.assertIn("Events:", await self.run_kubectl("describe", "machine", name))
            await self.run_kubectl(
                "wait",
                "--for=jsonpath={.status.state}=Running",
                f"machine/{name}",
                "--timeout=600s",
            )
            self.assertIn("deleted", await self.run_kubectl("delete", "machine", name))
            told = await self.run_kubectl("get", "machine", name, code=1)
            self.assertEqual(
                told,
                f'Error from server (NotFound): machines.compute.ironcore.dev "{name}" not found\n',
            )

        await self.each(story)

    async def patches(self, name: str) -> None:
        for words in (
            ("patch", "machine", name, "-p", '{"spec":{"power":"Off"}}'),
            ("patch", "machine", name, "--type=merge", "-p", '{"spec":{"power":"On"}}'),
            (
                "patch",
                "machine",
                name,
                "--type=json",
                "-p",
                '[{"op":"remove","path":"/metadata/labels/a"}]',
            ),
            (
                "patch",
                "machine",
                name,
                "--subresource=status",
                "--type=merge",
                "-p",
                '{"status":{"state":"Running"}}',
            ),
            ("annotate", "machine", name, "x=y"),
            ("label", "machine", name, "x=y"),
        ):
            await self.run_kubectl(*words)

    async def test_mistakes(self) -> None:
        """Error messages of kubectl."""

        async def story(name: str) -> None:
            told = await self.run_kubectl(
                "create", "-f", "-", stdin=machine(name, pwoer="On"), code=1
            )
            self.assertIn('strict decoding error: unknown field "spec.pwoer"', told)
            told = await self.run_kubectl("create", "-f", "-", stdin=machine("A_b"), code=1)
            self.assertIn('The Machine "A_b" is invalid: metadata.name: Invalid value', told)
            jane = self.kubeconfig("user-jane")
            told = await self.run_kubectl("get", "machines", config=jane, code=1)
            self.assertIn('User "jane" cannot list resource "machines"', told)
            told = await self.run_kubectl("get", "nonsense", code=1)
            self.assertIn("the server doesn't have a resource type", told)

        await self.each(story)

    async def test_typed_creates(self) -> None:
        """Typed creates, which newer kubectl sends as protobuf."""

        async def story(name: str) -> None:
            await self.run_kubectl("create", "namespace", name)
            await self.run_kubectl("create", "role", name, "--verb=get", "--resource=machines")
            words = ("--clusterrole=edit", "--user=jane", "--group=dev")
            await self.run_kubectl("create", "rolebinding", name, *words)
            await self.run_kubectl("create", "clusterrolebinding", name, *words)
            bound = await self.admin.get(kinds.ROLEBINDINGS.resource, name, "default")
            self.assertEqual([item["name"] for item in bound["subjects"]], ["jane", "dev"])
            role = await self.admin.get(kinds.ROLES.resource, name, "default")
            self.assertEqual(role["rules"][0]["verbs"], ["get"])
            await self.run_kubectl("delete", "namespace", name)
            gone = await self.run_kubectl("get", "namespace", name, code=1)
            self.assertIn("not found", gone)

        await self.each(story)

    async def test_streamed_list(self) -> None:
        """A client that streams what there is instead of listing it need not fall back."""

        async def story(name: str) -> None:
            await self.make_machine(name)
            words = (f"machine/{name}", "--for=jsonpath={.spec.power}=On", "--timeout=600s")
            told = await self.run_kubectl("wait", *words, "-v=6", env=STREAMED)
            self.assertIn("condition met", told)
            streamed, listed = "sendInitialEvents=true" in told, "limit=500" in told
            # kubectl up to 1.29 does not know how; whoever does, and is refused, does both.
            self.assertNotEqual(streamed, listed, told)

        await self.each(story)

    async def test_watch(self) -> None:
        """``get -w`` shows what happens."""

        async def story(name: str) -> None:
            await self.make_machine(name)
            run = self.start("get", "machine", name, "-w")
            await self.until(lambda: name.encode() in run.out)
            status = {"status": {"state": "Running"}}
            await self.admin.patch(
                kinds.MACHINES.resource, name, status, "default", subresource="status"
            )
            count = 0
            while b"Running" not in run.out:
                # kubectl never shows what changes between its first look and its watch.
                count += 1
                label = {"metadata": {"labels": {"count": str(count)}}}
                await self.admin.patch(kinds.MACHINES.resource, name, label, "default")
                await deferLater(reactor, 0.1)
            run.transport.signalProcess("TERM")  # type: ignore[union-attr]
            await run.ended
            self.assertEqual(run.out.count(b"NAME"), 1)

        await self.each(story)
