"""
``twistd exec-standalone`` as a user starts it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import sys
import tempfile
from typing import Any

import yaml
from twisted.internet import reactor as _reactor
from twisted.internet.endpoints import connectProtocol
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from tests import needs, procfs
from tests.flows import forks, kubectls, programs
from tests.kube.test_console_endpoint import Collector
from tests.tiers import PROGRAMS
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.console_endpoint import ConsoleEndpoint
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.kube.transport import HTTPTransport, Request

reactor: Any = _reactor

MACHINES = IRONCORE.workload


class StandaloneCase(TestCase):
    """Programs share a state directory in ``self.directory``."""

    def setUp(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="twisted-exec-test-")
        self.addCleanup(shutil.rmtree, self.directory, True)
        self.state = os.path.join(self.directory, "exec-state")
        self.kubeconfig = os.path.join(self.state, "admin.kubeconfig")

    def start(self, *options: str) -> programs.Program:
        program = programs.twistd("exec-standalone", "--port", "0", *options, cwd=self.directory)
        self.addCleanup(program.stop)
        return program

    async def ready(self, *options: str) -> programs.Program:
        program = self.start(*options)
        await program.until(
            rb"\nReady. In another terminal, type:\n\nexport .*\nexport .*\n.*\nkubectl console \S+\ntwisted-exec web \S+\n\n"
        )
        return program

    async def kept(self, *options: str) -> programs.Program:
        """Start a program whose machines continue."""
        words = ["-n", "--pidfile=", "exec-standalone", "--port", "0", "--without-spaces", *options]
        program = programs.start([programs.script("twistd"), *words], cwd=self.directory)
        self.addCleanup(self.end_machines)
        self.addCleanup(program.stop)
        await program.until(rb"kubectl console \S+\n")
        return program

    def end_machines(self) -> None:
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):  # it has ended with its parent
                os.kill(process, signal.SIGKILL)

    def processes(self) -> list[int]:
        """Those that carry the mark of this state directory's runtime."""
        return procfs.machines_of(os.path.join(self.state, "runtime"))

    def config(self) -> ClientConfig:
        return load(self.kubeconfig)

    def client(self) -> KubeClient:
        client = KubeClient(self.config(), reactor)
        self.addCleanup(client.close)
        return client

    async def refused(self, line: str, *options: str) -> None:
        """It ends with code 1 after one line, of which ``line`` is a pattern, and no traceback."""
        program = programs.twistd("exec-standalone", *options, cwd=self.directory)
        self.addCleanup(program.stop)
        self.assertEqual(await program.ended, 1, program.output)
        said = program.output.decode()
        self.assertNotIn("Traceback", said)
        self.assertEqual(len(re.findall(f"exec-standalone: {line}", said)), 1, said)


_INTERRUPTED = """\
import os, re, signal, sys

def interrupt(event, words):
    global at
    if at and re.match(at, f"{event} {words}"):
        at = ""
        os.kill(os.getpid(), signal.SIGINT)

at = sys.argv.pop(1)
sys.addaudithook(interrupt)
from twisted.scripts.twistd import run
run()
"""


class InterruptTests(StandaloneCase):
    """Ctrl-C while the program starts."""

    starts = PROGRAMS

    async def test_at_any_moment(self) -> None:
        """The program ends by the signal, with no traceback, and can start again."""
        script = os.path.join(self.directory, "interrupted.py")
        with open(script, "w") as file:
            file.write(_INTERRUPTED)
        words = ["-n", "--pidfile=", "exec-standalone", "--port", "0", "--no-keep-machines"]
        for at in (
            r"import .'twisted_exec.standalone.service'",
            r"os.mkdir .*/exec-state'",
            r"socket.bind ",
            r"import .'twisted_exec.standalone.space_manager'",
            r"os.rename .*admin.kubeconfig'",
        ):
            if at.startswith("import"):  # a fork has imported the modules
                program = programs.start([sys.executable, script, at, *words], cwd=self.directory)
            else:
                program = programs.fork([script, at, *words], forks.nursery(), cwd=self.directory)
            self.addCleanup(program.stop)
            self.assertEqual(await program.ended, -signal.SIGINT, f"{at}: {program.output!r}")
            self.assertNotIn(b"Traceback", program.output, at)
        await self.ready()


class ReadyTests(StandaloneCase):
    """What a user finds when it is ready."""

    starts = PROGRAMS

    async def test_first_start(self) -> None:
        """Both machines, a kubeconfig for kubectl, and everything private."""
        program = await self.ready()
        for path in (self.kubeconfig, self.state):
            self.assertFalse(stat.S_IMODE(os.stat(path).st_mode) & 0o077, path)
        client = self.client()
        listed = await client.list(MACHINES, "default")
        names = [each["metadata"]["name"] for each in listed["items"]]
        self.assertEqual(sorted(names), ["demo-shell", "demo-vm"])
        shell = await client.get(MACHINES, "demo-shell", "default")
        self.assertEqual(shell["status"]["state"], "Running")
        self.assertRegex(
            program.output,
            rb"\nexport KUBECONFIG=/\S+/exec-state/admin.kubeconfig\nexport PATH=/\S+:\$PATH\n",
        )
        self.assertIn(b"\nkubectl console demo-vm\ntwisted-exec web demo-vm\n", program.stdout)
        self.assertRegex(program.output, rb"machines of class pty are shells of .*uid \d+")
        self.assertEqual(b"#warn] started as root: " in program.output, os.geteuid() == 0)

    async def test_root_directory(self) -> None:
        """The log of a program that is started in ``/``, as a service is, names files by absolute paths."""
        options = ("--port", "0", "--state-dir", self.state)
        program = programs.twistd("exec-standalone", *options, cwd="/")
        self.addCleanup(program.stop)
        kubeconfig = re.escape(self.kubeconfig).encode()
        await program.until(rb"the administrator's kubeconfig is \S+\n")
        self.assertRegex(program.output, rb"kubeconfig is " + kubeconfig + rb"\n")

    async def test_terminal(self) -> None:
        """A terminal shows what a user needs, and the file has the log; ``--verbose`` shows the log."""
        for verbose in ([], ["--verbose"]):
            state = os.path.join(self.directory, f"state{len(verbose)}")
            words = ["--port", "0", "--state-dir", state, "--no-keep-machines", *verbose]
            script = programs.script("twistd")
            program = programs.terminal([script, "-n", "--pidfile=", "exec-standalone", *words])
            self.addCleanup(program.stop)
            await program.until(rb"twisted-exec web \S+\r\n")
            log = os.path.join(state, "exec-standalone.log")
            self.assertIs(b"pool local is registered" in program.output, bool(verbose))
            self.assertIs(os.path.exists(log), not verbose)
            if not verbose:
                before = program.output.partition(b"\r\nReady. In another terminal, type:")[0]
                self.assertRegex(before, rb"starting; the log is in \S+/exec-standalone.log\r\n")
                self.assertIn(b"API server at https://127.0.0.1:", before)
                self.assertLess(before.count(b"\n"), 6, before)
                with open(log) as file:
                    self.assertIn("pool local is registered", file.read())
            program.type(b"\x03")
            await program.ended

    async def test_probe(self) -> None:
        """``/readyz`` fails until the kubeconfig exists."""
        program = self.start()
        url = (await program.until(rb"API server listens at (\S+)"))[1].decode()
        transport = HTTPTransport(ClientConfig(url, insecure_skip_tls_verify=True), reactor)
        self.addCleanup(transport.close)
        request, code = Request("GET", "/readyz"), 503
        while code == 503:
            code, _, body = await transport.collect(request, timeout_seconds=600, limit_bytes=1000)
        self.assertEqual((code, body), (200, b"ok"))
        self.assertTrue(os.path.exists(self.kubeconfig))

    async def test_kubectl(self) -> None:
        """kubectl shows the machines and opens consoles."""
        await self.ready()
        path = f"{os.path.dirname(programs.script('kubectl-console'))}:{os.environ['PATH']}"
        env = {"KUBECONFIG": self.kubeconfig, "PATH": path, "HOME": self.directory}
        code, shown, said = await kubectls.run("kubectl", "get", "machines", env=env)
        self.assertEqual(code, 0, said)
        columns = r"NAME +MACHINECLASSREF +STATE +READY +REASON +AGE\n"
        self.assertRegex(shown, columns)
        self.assertRegex(shown, r"demo-shell +pty +Running +True +<none> +\d+[ms]\S*\n")
        code, shown, said = await kubectls.run(
            "kubectl",
            *("console", "demo-shell", "--send", r"echo a$((6*7))z\n", "--expect", "a42z"),
            env=env,
        )
        self.assertEqual(code, 0, said)
        self.assertIn("a42z", shown)
        code, shown, said = await kubectls.run(
            "kubectl", "console", "demo-shell", "--linger", "100", env=env, stdin=b"exit 7\n"
        )
        self.assertEqual(code, 7, said)
        self.assertIn("session ended: Completed: ", said)

    async def test_without_demo(self) -> None:
        """Without machines, the first commands create a shell and open its console."""
        program = await self.ready("--without-demo", "--without-spaces")
        commands = program.stdout.decode().split("type:\n\n")[1].split("\n\n")[0]
        argv = ["/bin/sh", "-ec", commands]
        user = programs.start(argv, cwd=self.directory, env={"HOME": self.directory})
        self.addCleanup(user.stop)
        user.type(b"exit 7\n")
        self.assertEqual(await user.ended, 7, user.output)

    async def test_further_classes(self) -> None:
        """A machine of a class of ``--classes`` runs, and has a console."""
        path = os.path.join(self.directory, "classes.yaml")
        command = (
            "{name: lab, driver: pty, command: [/bin/sh, -c, 'read word; exit 9'], same_user: true"
        )
        with open(path, "w") as file:
            file.write(f"classes:\n- {command}, capabilities: {{cpu: 2, memory: 64Mi}}}}\n")
        await self.ready("--without-demo", "--without-spaces", "--classes", path)
        directory = os.path.dirname(programs.script("kubectl-console"))
        env = {
            "KUBECONFIG": self.kubeconfig,
            "PATH": f"{directory}:{os.environ['PATH']}",
            "HOME": self.directory,
        }
        body = {
            "apiVersion": "compute.ironcore.dev/v1alpha1",
            "kind": "Machine",
            "metadata": {"name": "one"},
            "spec": {"machineClassRef": {"name": "lab"}},
        }
        kubectl = kubectls.found()["kubectl"]
        code, _, said = await kubectls.run(
            kubectl, "create", "-f", "-", env=env, stdin=json.dumps(body).encode()
        )
        self.assertEqual(code, 0, said)
        user = programs.start(["kubectl", "console", "one"], env=env)
        self.addCleanup(user.stop)
        user.type(b"word\n")
        self.assertEqual(await user.ended, 9, user.output)

    async def test_own_machine(self) -> None:
        """The tutorial's machine names no pool, and runs."""
        await self.ready()
        env = {"KUBECONFIG": self.kubeconfig, "HOME": self.directory}
        kubectl = kubectls.found()["kubectl"]
        mine = os.path.join(os.path.dirname(__file__), "../../docs/tutorial/mine.yaml")
        for argv in (
            ("apply", "-f", mine),
            ("wait", "machine", "mine", "--for=jsonpath={.status.state}=Running", "--timeout=600s"),
        ):
            code, _, said = await kubectls.run(kubectl, *argv, env=env)
            self.assertEqual(code, 0, said)
        placed = r'Normal +Scheduled +machine/mine +placed in machine pool "local"'
        shown = ""
        while not re.search(placed, shown):  # the scheduler writes it behind the placement
            _, shown, _ = await kubectls.run(kubectl, "get", "events", env=env)

    async def test_kubectl_console_of_the_machine(self) -> None:
        """Firmware is talked to by a script."""
        await self.ready()
        console = await self.open("demo-vm")
        while b"=> " not in console.received:
            console.transport.write(b"\r")
            await deferLater(reactor, 0.3)
        console.transport.loseConnection()
        await console.over
        path = f"{os.path.dirname(programs.script('kubectl-console'))}:{os.environ['PATH']}"
        code, shown, said = await kubectls.run(
            kubectls.found()["kubectl"],
            *("console", "demo-vm", "--send", r"version\r", "--expect", r"U-Boot \d{4}\."),
            env={"KUBECONFIG": self.kubeconfig, "PATH": path, "HOME": self.directory},
        )
        self.assertEqual(code, 0, said)
        self.assertRegex(shown, r"version\r\nU-Boot \d{4}\.")

    async def test_token(self) -> None:
        """Users besides the administrator come with a token, and may what RBAC says."""
        tokens = os.path.join(self.directory, "tokens.csv")
        with open(tokens, "w") as file:
            file.write("s3cret,ada,1,system:masters\n")
        await self.ready("--token-auth-file", "tokens.csv")
        with open(self.kubeconfig) as file:
            document = yaml.safe_load(file)
        document["users"][0]["user"] = {"token": "s3cret"}
        with open(self.kubeconfig, "w") as file:
            yaml.safe_dump(document, file)
        shell = await self.client().get(MACHINES, "demo-shell", "default")
        self.assertEqual(shell["status"]["state"], "Running")

    async def test_pods(self) -> None:
        """Each machine is a Pod as well, unless it is told otherwise."""
        pods = Resource("", "v1", "pods", "Pod")
        program = await self.ready()
        shown = await self.client().get(pods, "demo-shell", "default")
        self.assertEqual(shown["status"]["phase"], "Running")
        await program.stop()
        await self.ready("--no-pods-view")
        with self.assertRaises(APIError) as caught:
            await self.client().list(pods, "default")
        self.assertEqual(caught.exception.code, 404)

    test_first_start.skip = needs.qemu()  # type: ignore[attr-defined]
    test_kubectl.skip = needs.kubectl()  # type: ignore[attr-defined]
    test_further_classes.skip = needs.kubectl()  # type: ignore[attr-defined]
    test_own_machine.skip = needs.kubectl()  # type: ignore[attr-defined]
    test_without_demo.skip = needs.kubectl()  # type: ignore[attr-defined]
    test_kubectl_console_of_the_machine.skip = (  # type: ignore[attr-defined]
        needs.qemu() or needs.kubectl()
    )

    async def open(self, name: str) -> Any:
        endpoint = ConsoleEndpoint(self.config(), "default", name, reactor)
        return await connectProtocol(endpoint, Collector())


class RestartTests(StandaloneCase):
    """What another start finds."""

    starts = PROGRAMS

    async def test_stopped(self) -> None:
        """Objects stay, deleted machines stay deleted, and the kubeconfig is that of the next start."""
        program = await self.ready()
        client = self.client()
        await client.delete(MACHINES, "demo-vm", "default")
        before = (await client.get(MACHINES, "demo-shell", "default"))["metadata"]["uid"]
        self.assertEqual(await program.stop(), -signal.SIGTERM)
        self.assertTrue(os.path.exists(self.kubeconfig))
        self.assertEqual(self.processes(), [])

        await self.ready()
        client = self.client()
        after = (await client.get(MACHINES, "demo-shell", "default"))["metadata"]["uid"]
        self.assertEqual(after, before)
        error = await self.assertFailure(client.get(MACHINES, "demo-vm", "default"), APIError)
        self.assertEqual(error.code, 404)

    async def test_other_storage(self) -> None:
        """A kept state directory with another store is refused; its machines are not deleted."""
        first = await self.ready("--without-spaces")
        await first.stop()
        runtime = os.listdir(os.path.join(self.state, "runtime"))
        for storage in ("memory", f"sqlite:{self.directory}/o.db", "etcd:http://127.0.0.1:1"):
            await self.refused("the objects of .* are in sqlite:objects.db", "--storage", storage)
        self.assertEqual(os.listdir(os.path.join(self.state, "runtime")), runtime)
        again = f"sqlite:{self.state}/objects.db"
        await self.ready("--without-spaces", "--storage", again)

    async def test_stopped_while_it_waits(self) -> None:
        """Before etcd was ever there it is stopped like any other program, without complaint."""
        silent = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(silent.close)
        program = self.start("--storage", f"etcd:http://127.0.0.1:{silent.getsockname()[1]}")
        await program.until(b"etcd at .* does not serve the store")
        self.assertEqual(await program.stop(), -signal.SIGTERM)
        self.assertNotIn(b"#critical]", program.output)

    async def test_killed(self) -> None:
        """After kill -9 the next start ends what was left, and a console can be opened."""
        program = await self.ready()
        left = self.processes()
        self.assertTrue(left)
        await program.stop(signal.SIGKILL)
        await self.ready()
        self.assertFalse(set(left) & set(self.processes()))
        endpoint = ConsoleEndpoint(self.config(), "default", "demo-shell", reactor)
        console = await connectProtocol(endpoint, Collector())
        console.transport.write(b"echo a$((6*7))z\r")
        await console.until(b"a42z")
        console.transport.loseConnection()
        await console.over

    async def test_machines_continue(self) -> None:
        """By default machines continue; the next start finds them, and can delete them."""
        first = await self.kept()
        for name in (b"demo-vm", b"demo-shell"):
            while b'machine "default/%s" is running' % name not in first.output:
                await deferLater(reactor, 0.1)
        left, machines = self.processes(), self.virtual_machines()
        await first.stop()
        self.assertEqual((self.virtual_machines(), self.processes()), (machines, left))
        message = (
            b"machines that continue without this runtime: default/demo-shell, default/demo-vm"
        )
        self.assertIn(message, first.output)

        second = await self.kept()
        while second.output.count(b"has been running without the runtime") < 2:
            await deferLater(reactor, 0.1)
        self.assertEqual(self.processes(), left)
        for machine in ("demo-vm", "demo-shell"):
            await self.client().delete(MACHINES, machine, "default")
        while self.processes():
            await deferLater(reactor, 0.1)

    test_machines_continue.skip = needs.qemu()  # type: ignore[attr-defined]

    def virtual_machines(self) -> list[int]:
        found = []
        for process in self.processes():
            with open(f"/proc/{process}/cmdline", "rb") as file:
                if b"qemu" in file.read().partition(b"\0")[0]:
                    found.append(process)
        return found


class RefusedTests(StandaloneCase):
    """Starts that cannot be."""

    starts = PROGRAMS

    async def test_in_use(self) -> None:
        """A second start in the same directory."""
        program = await self.ready()
        assert program.transport is not None
        holder = program.transport.pid
        await self.refused(rf"{self.state} is in use by process {holder}: stop that one")

    async def test_port_in_use(self) -> None:
        """Another program has the port."""
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            await self.refused(rf".*127\.0\.0\.1:{port}.*in use", "--port", str(port))
        self.assertFalse(os.path.exists(self.kubeconfig))

    async def test_newer(self) -> None:
        """The directory is of a newer version."""
        os.makedirs(self.state, 0o700)
        with open(os.path.join(self.state, "version"), "w") as file:
            file.write("99\n")
        await self.refused(r".*was written by a newer version", "--port", "0")

    def make_used(self, objects: str = "") -> str:
        """Make a state directory as an earlier start leaves it; return the path of its store."""
        os.makedirs(self.state, 0o700)
        path = os.path.join(self.state, "objects.db")
        for name, text in (("objects.db", objects), ("storage", "sqlite:objects.db\n")):
            with open(os.path.join(self.state, name), "w") as file:
                file.write(text)
        return path

    async def test_other_dialect(self) -> None:
        """The directory is of another dialect."""
        self.make_used()
        with open(os.path.join(self.state, "dialect"), "w") as file:
            file.write("onmetal")
        await self.refused(
            r".*has machines of onmetal: set --dialect onmetal, or choose another --state-dir",
            *("--port", "0", "--dialect", "ironcore"),
        )

    async def test_damaged_store(self) -> None:
        """What is no database is not touched."""
        path = self.make_used("what?\n" * 1000)
        await self.refused(r".*objects\.db", "--port", "0")
        with open(path) as file:
            self.assertEqual(file.read(), "what?\n" * 1000)

    async def test_options(self) -> None:
        """Options that make no sense."""
        await self.refused(r"--port: '99999' is no port from 0 to 65535; see", "--port", "99999")
        await self.refused(r"--drain-seconds: .*soon", "--drain-seconds", "soon")
        await self.refused(r"--dialect: there is no dialect 'x': choose one of", "--dialect", "x")
        await self.refused(
            r"cannot read '.*/nix': No such file or directory",
            *("--port", "0", "--token-auth-file", "nix"),
        )
        await self.refused(
            r"--pods-view and --no-pods-view: give one of them", "--pods-view", "--no-pods-view"
        )
        await self.refused(
            r"cannot read /.*/nix: No such file or directory", "--port", "0", "--classes", "nix"
        )
        await self.refused(r".*--prot.*; see twistd exec-standalone --help", "--prot", "1")
