"""
Back to release 0.2.0 and forward again on the same state, and programs of both releases together.

First 0.2.0 runs in place of all three programs; objects and virtual machines must survive.  Then it runs in
place of one of them, as in the middle of an upgrade.  Last, the programs change their release one after the
other, by a restart, while consoles are open; one that is told by SIGUSR2 to do so keeps running.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from twisted.internet.task import LoopingCall
from twisted.trial.unittest import TestCase

import twisted_exec
from tests import needs
from tests.flows import kubectls, programs
from tests.flows.consoles import watch
from tests.flows.deployment import Deployment, gone, machine_class
from tests.flows.programs import Program, script, terminal, twistd
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object

MACHINES, SECRETS = kinds.MACHINES.resource, kinds.SECRETS.resource
PROGRAMS = {"exec-apiserver": "api", "exec-runtime": "runtime", "exec-poollet": "poollet"}
"""Attributes of a deployment by the plugin."""
ROOT = Path(twisted_exec.__file__).parents[1]
_REMEDY = rb"replaced by a restart"
_REASONS = rb"is shutting\s+down|is\s+restarting|open\s+the\s+console\s+again"


class _Deployment(Deployment):
    """
    A deployment whose programs can change their release.

    :ivar older: the plugins that are started of release 0.2.0.
    """

    drain = "--drain-seconds=1"  # release 0.2.0 lets sessions go on for that time
    older: Collection[str] = ()

    def twistd(self, plugin: str, *options: str) -> Program:
        return twistd(plugin, *options, env={"PYTHONPATH": self.link(plugin)}, fork=False)

    def link(self, plugin: str) -> str:
        """Return a link to the release of a program, as hosts have it."""
        target = needs.older_release_directory() if plugin in self.older else str(ROOT)
        path = os.path.abspath(self.path(f"{plugin}-release"))
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink(target, path)
        return path

    async def refuse_signal(self, plugin: str) -> None:
        """Tell a program to let the release that is to run now take its place; fires when it has refused."""
        self.link(plugin)
        program = getattr(self, PROGRAMS[plugin])
        start = len(program.output)
        os.kill(program.pid, signal.SIGUSR2)
        await program.until(_REMEDY, start=start)


class _MachineTestCase(TestCase):
    """
    A deployment with virtual machines.

    :ivar place: the deployment.
    :ivar marks: what was typed at consoles; each once.
    """

    skip = needs.older_release()
    place: _Deployment

    def setUp(self) -> None:
        self.marks: list[bytes] = []

    def deployment(self) -> _Deployment:
        """Return a deployment that is stopped in the end."""
        place = _Deployment(self.mktemp(), unix_streams=True)
        self.addCleanup(place.stop)
        return place

    async def up(self) -> None:
        """Start all programs."""
        for plugin in PROGRAMS:
            await self.start(plugin)

    async def start(self, plugin: str) -> None:
        """Start a program, and wait until it is ready."""
        if plugin == "exec-apiserver":
            await self.place.start_api()
        elif plugin == "exec-runtime":
            await self.place.start_runtime("--keep-machines")
        else:
            await self.place.start_poollet()

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


class RollbackTests(_MachineTestCase):
    """This release, release 0.2.0, and this one again."""

    timeout = 480

    async def run_release(self, older: Collection[str]) -> None:
        """Let all programs be of release 0.2.0, or none of them."""
        if hasattr(self.place, "api"):
            for plugin in ("exec-poollet", "exec-runtime", "exec-apiserver"):
                await getattr(self.place, PROGRAMS[plugin]).stop()
        self.place.older = older
        await self.up()

    async def test_there_and_back(self) -> None:
        """Objects of both releases are there in the other; virtual machines go on running."""
        self.place = self.deployment()
        await self.run_release(())
        client = self.place.client
        await client.create(self.place.dialect.workload_class, machine_class("vm", "128Mi"))
        secret = {"metadata": {"name": "password"}, "stringData": {"password": "x"}}
        await client.create(SECRETS, secret, "default")
        await self.place.create_machine("newer", "vm")
        await self.check_console("newer")
        first = (await self.machine("newer"))["status"]["machineID"]

        await self.run_release(PROGRAMS)
        await self.check_console("newer")
        self.assertEqual((await self.machine("newer"))["status"]["machineID"], first)
        await self.place.create_machine("older", "vm")
        labels = {"metadata": {"labels": {"written-by": "older"}}}
        await self.place.client.patch(MACHINES, "newer", labels, "default")
        second = (await self.machine("older"))["status"]["machineID"]

        await self.run_release(())
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
    """One of three programs is of release 0.2.0."""

    timeout = 120
    skip = needs.older_release() or needs.kubectl()

    async def check(self, older: str) -> None:
        """Use a console and its logs with one older program."""
        place = self.place = _Deployment(self.mktemp(), unix_streams=True)
        self.addCleanup(place.stop)
        place.older = [older]
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
        code, out, told = await self.kubectl("get", "--raw", f"{path}/sh-{uid[:8]}/log")
        self.assertEqual(code, 0, told)
        self.assertIn("\r\n23\r\n", out)

    async def check_observer(self, place: Deployment) -> None:
        """A user who may only observe reads the console, and types nothing into it."""
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
        screen = await watch(place.kubeconfig("carl"), "sh")
        await screen.until(rb"you may only observe this console")
        screen.type(b"echo X$((1+1))\r")
        await screen.until(rb"what you type is not sent")
        await screen.leave()
        admin = await watch(place.admin, "sh")
        await admin.ask(b"echo Y$((1+1))\r", rb"\r\nY2\r\n")
        self.assertNotIn(b"X2", admin.output)
        await admin.leave()

    async def kubectl(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        code, out, told = await kubectls.run("kubectl", *arguments, env=self.env, stdin=stdin)
        return code, out, told

    async def test_apiserver(self) -> None:
        """An API server of 0.2.0 before a poollet and runtime of this release."""
        await self.check("exec-apiserver")

    async def test_poollet(self) -> None:
        """A poollet of 0.2.0 between an API server and a runtime of this release."""
        await self.check("exec-poollet")

    async def test_runtime(self) -> None:
        """A runtime of 0.2.0 behind a poollet and API server of this release."""
        await self.check("exec-runtime")


class OpenConsoleTests(_MachineTestCase):
    """Consoles that are open while the three programs change their release, one after the other, and change it back."""

    timeout = 1200
    skip = needs.older_release() or needs.kubectl()

    async def opened(self) -> str:
        """Start the programs of release 0.2.0, and open consoles of a virtual machine; return its id."""
        place = self.place = self.deployment()
        place.older = list(PROGRAMS)
        await self.up()
        await place.client.create(place.dialect.workload_class, machine_class("vm", "128Mi"))
        await place.create_machine("vm", "vm")
        await self.check_console("vm")
        self.consoles = {name: await self.open(name) for name in ("this", "older", "stock")}
        return str((await self.machine("vm"))["status"]["machineID"])

    def changes(self) -> Iterator[str]:
        """Let each program change its release, and then change it back."""
        for plugin in (*PROGRAMS, *PROGRAMS):
            self.place.older = list({*self.place.older} ^ {plugin})
            yield plugin

    async def test_restarts(self) -> None:
        """
        A console goes on if its program can resume it; otherwise it ends with the reason.

        SIGUSR2 changes nothing: the program says what to do, and every console goes on.
        """
        machine = await self.opened()
        for plugin in self.changes():
            starts = {name: len(console.output) for name, console in self.consoles.items()}
            await self.place.refuse_signal(plugin)
            await self.check_console("vm")
            for name, console in self.consoles.items():
                await console.until(rb"\r\n%b\r\n" % self.marks[-1], start=starts[name])
            await self.restart(plugin)
        self.assertEqual((await self.machine("vm"))["status"]["machineID"], machine)

    async def restart(self, plugin: str) -> None:
        """
        Restart a program, of the release that is to run now.

        Consoles of stock clients may end, and those of all clients with a runtime of release 0.2.0; they are
        opened again.
        """
        is_older = plugin not in self.place.older  # until now
        goes_on = [] if is_older and plugin == "exec-runtime" else ["this", "older"]
        starts = {name: len(console.output) for name, console in self.consoles.items()}
        await getattr(self.place, PROGRAMS[plugin]).stop()
        await self.start(plugin)
        await self.check_console("vm")
        for name, console in self.consoles.items():
            try:
                await console.until(rb"\r\n%b\r\n" % self.marks[-1], start=starts[name])
            except AssertionError:
                self.assertNotIn(name, goes_on, plugin)
                self.assertEqual(console.exit_code, 1)
                self.assertRegex(console.output[starts[name] :], _REASONS)
                self.consoles[name] = await self.open(name)

    async def open(self, name: str) -> Program:
        """Open the console with the client of this or release 0.2.0, or with a stock kubectl."""
        env = {"KUBECONFIG": str(Path(self.place.admin).resolve()), "TERM": "dumb"}
        if name == "stock":
            argv = [kubectls.found()["kubectl"], "attach", "-it", "vm"]
        elif name == "older":
            # The script of a release imports what that release has.
            env["PYTHONPATH"] = release = needs.older_release_directory()
            argv = [sys.executable, f"{release}/bin/kubectl-console", "vm"]
        else:
            argv = [script("kubectl-console"), "vm"]
        console = terminal(argv, columns=80, rows=24, **env)
        self.addCleanup(console.stop)
        await console.until(rb"=> ")
        return console
