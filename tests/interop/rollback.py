"""
Back to an older release and forward again on the same state, and programs of both releases together.

First the older release runs in place of all three programs; objects and virtual machines must
survive.  Then it runs in place of one of them, as in the middle of an upgrade.
"""

from __future__ import annotations

from twisted.internet.task import LoopingCall
from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows import kubectls, programs
from tests.flows.consoles import watch
from tests.flows.deployment import Deployment, gone, machine_class
from tests.flows.programs import Program, twistd
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object

MACHINES, SECRETS = kinds.MACHINES.resource, kinds.SECRETS.resource


class _Deployment(Deployment):
    """
    A deployment whose release can be changed between two starts.

    :ivar release: directory of the installed release to start; empty for this one.
    :ivar older: the only plugin that is started of that release; empty for all.
    """

    release = older = ""

    def twistd(self, plugin: str, *options: str) -> Program:
        is_older = self.release and self.older in ("", plugin)
        env = {"PYTHONPATH": self.release} if is_older else {}
        return twistd(plugin, *options, env=env, fork=False)


class RollbackTests(TestCase):
    """This release, the older one, and this one again."""

    timeout = 240
    skip = needs.older_release()

    async def up(self, release: str) -> None:
        """Start all programs of a release, and wait until the virtual machine runs."""
        self.place.release = release
        await self.place.start_api()
        await self.place.start_runtime("--keep-machines")
        await self.place.start_poollet()

    async def down(self) -> None:
        for program in (self.place.poollet, self.place.runtime, self.place.api):
            await program.stop()

    async def machine(self, name: str) -> Object:
        return await self.place.client.get(MACHINES, name, "default")

    async def check_console(self, name: str) -> None:
        """Wait for the machine, and use its console: the boot loader carries out a command."""
        await self.place.machine_in_state(name, "Running", seconds=60)
        screen = await watch(self.place.admin, name)
        # A new viewer reads earlier prompts again, so only this command has this answer.
        mark = b"m%d" % len(self.marks)
        self.marks.append(mark)
        answered = screen.until(rb"\r\n%b\r\n" % mark)
        # The first key may stop the countdown of a boot, instead of reaching the prompt.
        asking = LoopingCall(screen.type, b"\recho %b\r" % mark)
        asking.start(2)
        try:
            await answered
        finally:
            asking.stop()
        await screen.leave()

    async def test_there_and_back(self) -> None:
        """Objects of both releases are there in the other; virtual machines go on running."""
        self.marks: list[bytes] = []
        self.place = _Deployment(self.mktemp(), unix_streams=True)
        self.addCleanup(self.place.stop)
        await self.up("")
        client = self.place.client
        await client.create(self.place.dialect.workload_class, machine_class("vm", "128Mi"))
        secret = {"metadata": {"name": "password"}, "stringData": {"password": "x"}}
        await client.create(SECRETS, secret, "default")
        await self.place.create_machine("newer", "vm")
        await self.check_console("newer")
        first = (await self.machine("newer"))["status"]["machineID"]
        await self.down()

        await self.up(needs.older_releases()[0])
        await self.check_console("newer")
        self.assertEqual((await self.machine("newer"))["status"]["machineID"], first)
        await self.place.create_machine("older", "vm")
        labels = {"metadata": {"labels": {"written-by": "older"}}}
        await self.place.client.patch(MACHINES, "newer", labels, "default")
        second = (await self.machine("older"))["status"]["machineID"]
        await self.down()

        await self.up("")
        for name, expected in (("newer", first), ("older", second)):
            await self.check_console(name)
            self.assertEqual((await self.machine(name))["status"]["machineID"], expected)
        labelled = (await self.machine("newer"))["metadata"]["labels"]
        self.assertEqual(labelled["written-by"], "older")
        await self.place.client.get(SECRETS, "password", "default")
        for name in ("newer", "older"):
            await self.place.client.delete(MACHINES, name, "default")
            await gone(self.place.client, MACHINES, name, "default")


class MixedTests(TestCase):
    """One of three programs is of the older release."""

    timeout = 120
    skip = needs.older_release() or needs.kubectl()

    async def check(self, older: str, without_log: str = r"\(NotFound\)") -> None:
        """
        Use a console and its logs with one older program.

        :param without_log: pattern of the error for the log of the deleted machine.
        """
        place = self.place = _Deployment(self.mktemp(), unix_streams=True)
        self.addCleanup(place.stop)
        place.release, place.older = needs.older_releases()[0], older
        await place.start()
        await place.create_machine("sh", "shell")
        screen = await watch(place.admin, "sh")
        await screen.ask(b"echo $((20 + 3))\r", rb"\r\n23\r\n")
        await screen.leave()
        await self.check_observer(place)
        self.env = {"KUBECONFIG": place.admin}
        code, whole, told = await self.kubectl("logs", "sh")
        self.assertEqual(code, 0, told)
        self.assertIn("\r\n23\r\n", whole)
        code, last, told = await self.kubectl("logs", "sh", "--tail=2", "--timestamps")
        self.assertEqual((code, len(last.splitlines())), (0, 2), told)
        code, _, told = await self.kubectl("logs", "sh", "--previous")
        self.assertEqual(code, 1)
        self.assertIn("Error from server (BadRequest)", told)
        # Words that one of the hops does not know have a defined answer: they are ignored, or refused.
        path = "/apis/compute.ironcore.dev/v1alpha1/namespaces/default/machines/sh/log"
        code, out, told = await self.kubectl("get", "--raw", f"{path}?fromOffset=5&plain=true")
        self.assertTrue(code == 0 and "23" in out, told)
        follower = programs.start(["kubectl", "logs", "sh", "-f"], env=self.env)
        self.addCleanup(follower.stop)
        await follower.until(rb"23\r\n")
        uid = (await place.client.get(MACHINES, "sh", "default"))["metadata"]["uid"]
        await place.client.delete(MACHINES, "sh", "default")
        await gone(place.client, MACHINES, "sh", "default")
        await follower.ended
        path = "/apis/console.twisted-exec.dev/v1alpha1/namespaces/default/deletedconsoles"
        code, _, told = await self.kubectl("get", "--raw", f"{path}/sh-{uid[:8]}/log")
        self.assertEqual(code, 1)
        self.assertRegex(told, f"Error from server {without_log}")

    async def check_observer(self, place: Deployment) -> None:
        """With a hop that knows no rights an observer is refused: today's rules, never wider ones."""
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "observers"},
            "rules": [
                {
                    "verbs": ["observe", "get"],
                    "apiGroups": ["compute.ironcore.dev"],
                    "resources": ["machines", "machines/console"],
                }
            ],
        }
        await place.client.create(kinds.CLUSTERROLES.resource, role)
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "carl"},
            "roleRef": {"kind": "ClusterRole", "name": "observers"},
            "subjects": [{"kind": "User", "name": "carl"}],
        }
        await place.client.create(kinds.ROLEBINDINGS.resource, binding, "default")
        self.env = {"KUBECONFIG": place.kubeconfig("carl")}
        code, _, told = await self.kubectl(
            "exec", "-i", "sh", "--", "console", stdin=b"echo X$((1+1))\n"
        )
        self.assertEqual(code, 1)
        self.assertNotIn("X2", told)
        self.assertRegex(told, "is forbidden|cannot hold a session to its terms")

    async def kubectl(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        code, out, told = await kubectls.run("kubectl", *arguments, env=self.env, stdin=stdin)
        return code, out, told

    async def test_apiserver(self) -> None:
        """An older API server before a poollet and runtime of this release."""
        await self.check("exec-apiserver")

    async def test_poollet(self) -> None:
        """An older poollet between an API server and a runtime of this release."""
        await self.check("exec-poollet", r"\(NotImplemented\): .* it is of an older release")

    async def test_runtime(self) -> None:
        """An older runtime behind a poollet and API server of this release."""
        await self.check("exec-runtime")
