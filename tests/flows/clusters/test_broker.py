"""
Two nested clusters as six processes: a user of the first reaches a machine of the second.

The documented setup runs here: the broker's permissions in the second cluster are those of
``docs/howto/broker.yaml``.
"""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from twisted.internet import reactor as _reactor
from twisted.trial.unittest import TestCase

from tests import needs
from tests.docs import pages
from tests.flows import kubectls
from tests.flows.consoles import Screen, ending_after, watch
from tests.flows.deployment import POOL, Deployment, gone, pause
from tests.flows.programs import Program, script, terminal, twistd
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError
from twisted_exec.kube.interfaces import Object
from twisted_exec.streaming.splice import LOST
from twisted_exec.tls.pki.directory import SERVING
from twisted_exec.tls.pki.renewal import renew, replace_authorities, retire_authority
from twisted_exec.wire.resize import TerminalSize

reactor: Any = _reactor
BROKER, NAMESPACE = "broker-of-site-a", "site-a"
MACHINES, SESSIONS = kinds.MACHINES.resource, kinds.CONSOLESESSIONS.resource


def manifests() -> list[Object]:
    """Return the objects that the how-to page applies in the second cluster."""
    return list(yaml.safe_load_all((pages.DOCS / "howto" / "broker.yaml").read_text()))


class Front(Deployment):
    """The first cluster, whose runtime is a broker for the second one."""

    def __init__(self, directory: str, behind: Deployment) -> None:
        super().__init__(directory)
        self.behind = behind

    async def start_runtime(self, *options: str) -> None:
        """Start the broker, with its streams over TLS."""
        pair = self.pki.issue_runtime("host-a", ["localhost", "127.0.0.1"], replace=True)
        self.runtime = twistd(
            "exec-broker",
            f"--kubeconfig={self.behind.kubeconfig(BROKER)}",
            f"--namespace={NAMESPACE}",
            "--machine-pool-name=pool-a",
            "--source-cluster-name=site-a",
            f"--iri-listen={self.iri_target}",
            "--streaming-listen=tcp:0:interface=127.0.0.1",
            f"--tls-cert-file={pair.certificate}",
            f"--tls-private-key-file={pair.key}",
            f"--audit-log={self.path('broker.audit')}",
            self.drain,
            *options,
        )
        await self.runtime.until(rb"machine broker at ")


async def let_brokers_in(target: Deployment) -> None:
    """Apply the objects that the documentation gives an administrator of the target."""
    known = {(one.resource.api_version, one.resource.kind): one.resource for one in kinds.ALL}
    for one in manifests():
        resource = known[(one["apiVersion"], one["kind"])]
        await target.client.create(resource, one, one["metadata"].get("namespace", ""))


class BrokerTests(TestCase):
    """Cluster A, a broker and cluster B."""

    starts = PROGRAMS

    async def setUp(self) -> None:
        self.b = Deployment(self.mktemp())
        self.a = Front(self.mktemp(), self.b)
        self.addCleanup(self.stop)
        await self.b.start()
        await let_brokers_in(self.b)
        await self.a.start()
        self.jane = self.a.kubeconfig("jane", ["system:masters"])

    async def stop(self) -> None:
        await self.a.stop()
        await self.b.stop()

    def audit(self, cluster: Deployment, hop: str) -> list[dict[str, Any]]:
        """Return a hop's audit records of sessions so far."""
        lines = Path(cluster.path(f"{hop}.audit")).read_text().splitlines()
        return [each for each in map(json.loads, lines) if each["event"] != "request"]

    async def there(self) -> Object:
        """Return the only machine of cluster B."""
        (found,) = (await self.b.client.list(MACHINES, NAMESPACE))["items"]
        return found

    async def test_7_who_did_what(self) -> None:
        """Six hops record a session with one id and reason; cluster B records the user's own name."""
        await self.a.create_machine("sh", "shell")
        screen = await watch(self.jane, "sh", reason="INC 7 für Ada")
        screen.transport.window_changed(TerminalSize(101, 42))
        await screen.ask(b"stty size; echo $((6*7))\n", rb"42 101\r\n42\r\n")
        screen.type(b"exit 7\n")
        lost = await screen.ended
        self.assertEqual(lost.ending.exit_code, 7)
        ids = set()
        for cluster, hop, user in (
            (self.a, "api", "jane"),
            (self.a, "poollet", "jane"),
            (self.a, "broker", "jane"),
            (self.b, "api", "site-a:jane"),
            (self.b, "poollet", "site-a:jane"),
            (self.b, "runtime", "site-a:jane"),
        ):
            start, end = await self.both(cluster, hop)
            self.assertEqual((start["event"], end["event"]), ("start", "end"), hop)
            self.assertEqual((start["user"], end["user"]), (user, user), hop)
            self.assertGreater(end["bytes_to_user"], 0, hop)
            self.assertEqual(start["declared_reason"], "INC 7 für Ada", hop)
            ids.add(end["session"])
        self.assertEqual(len(ids), 1)
        self.assertEqual(self.audit(self.b, "api")[0]["caller"], BROKER)

    async def until_opens(self) -> Screen:
        """Open a session, as soon as the broker and cluster B trust each other again."""
        while True:
            try:
                return await watch(self.jane, "sh")
            except APIError:
                await pause()

    async def session(self, known: set[str]) -> str:
        """Wait for a session of cluster A that is not known; return its name, which is known now."""
        while True:
            found = (await self.a.client.list(SESSIONS, "default"))["items"]
            new = {str(each["metadata"]["name"]) for each in found} - known
            if new:
                known |= new
                return new.pop()
            await pause()

    async def open(self) -> Screen:
        """Open a session that answers."""
        screen = await watch(self.jane, "sh")
        await screen.ask(b"echo $((6*7))\n", rb"42\r\n")
        return screen

    async def power(self, power: str) -> None:
        """Switch the machine of cluster A on or off."""
        await self.a.client.patch(MACHINES, "sh", {"spec": {"power": power}}, "default")
        await self.a.machine_in_state("sh", "Running" if power == "On" else "Shutdown")

    async def delete(self) -> None:
        """Delete the machine, from both clusters."""
        await self.a.client.delete(MACHINES, "sh", "default")
        await gone(self.a.client, MACHINES, "sh", "default")

    async def both(self, cluster: Deployment, hop: str) -> list[dict[str, Any]]:
        """Wait until a hop has recorded a start and an end, and return both."""
        while len(self.audit(cluster, hop)) < 2:
            await pause()
        return self.audit(cluster, hop)

    async def exchange(self) -> None:
        """Replace all credentials of cluster B, and the broker's credentials there."""
        pki, now = self.b.pki, datetime.now(UTC)
        replace_authorities(pki, now)
        renew(pki, now, None)
        self.b.kubeconfig(BROKER)
        self.b.write_poollet_kubeconfig(POOL)
        await self.b.use_admin()
        # Keep the old CAs of clients and of forwarding: their certificates opened the session.
        retire_authority(pki, SERVING)

    async def test_ends(self) -> None:
        """
        The reason of an end passes through all hops from either cluster, also after every
        certificate of the second one was replaced; no machine is left.
        """
        await self.a.create_machine("sh", "shell")
        older = await self.open()
        known: set[str] = set()
        name = await self.session(known)
        await self.exchange()
        await older.ask(b"echo $((6*7))\n", rb"42\r\n")
        screen = await self.until_opens()
        await self.session(known)
        # The older session is ended from the first cluster.
        await self.a.client.delete(SESSIONS, name, "default")
        while (lost := await older.ended).ending is None:  # a late hop was cut off: end another one
            older = await self.open()
            await self.a.client.delete(SESSIONS, await self.session(known), "default")
        self.assertEqual(lost.ending.reason, "SessionDeleted")
        await screen.ask(b"echo $((6*7))\n", rb"42\r\n")
        ending = await ending_after(self.open, lambda: self.power("Off"), lambda: self.power("On"))
        self.assertEqual(ending.reason, "PoweredOff")
        self.assertEqual((await self.there())["spec"]["power"], "Off")
        with self.assertRaises(APIError) as caught:
            await watch(self.jane, "sh")
        self.assertEqual(caught.exception.code, 409)

        await self.power("On")
        ending = await ending_after(
            self.open, self.delete, lambda: self.a.create_machine("sh", "shell")
        )
        self.assertEqual(ending.reason, "MachineDeleted")
        self.assertEqual((await self.b.client.list(MACHINES, NAMESPACE))["items"], [])

    async def test_not_permitted(self) -> None:
        """A user that the broker may not impersonate gets 403, and so does a system user."""
        await self.a.create_machine("sh", "shell")
        for user in ("eve", "system:eve"):
            other = self.a.kubeconfig(user, ["system:masters"])
            with self.assertRaises(APIError) as caught:
                await watch(other, "sh")
            self.assertEqual(caught.exception.code, 403)
        self.assertIn(
            "is a component of its cluster and cannot open consoles in another cluster",
            caught.exception.message,
        )
        (_, end) = await self.both(self.b, "api")
        self.assertEqual((end["user"], end["code"]), (BROKER, 403))
        self.assertIn("cannot impersonate", end["reason"])

    async def test_virtual_machine(self) -> None:
        """U-Boot under QEMU behind two clusters, with kubectl's own plugin on a terminal."""
        await self.a.create_machine("vm", "vm")
        screen = terminal([script("kubectl-console"), "vm"], KUBECONFIG=self.jane)
        self.addCleanup(screen.stop)
        await screen.until(rb"Hit any key")
        screen.type(b"\r")
        await screen.until(rb"=> ")
        screen.type(b"echo q$arch\r")
        await screen.until(rb"\nqx86\r?\n")

    async def test_kubectl_console(self) -> None:
        """Every kubectl reaches the machine by the plugin and exits with the shell's exit code."""
        await self.a.create_machine("sh", "shell")
        env = {
            "KUBECONFIG": self.jane,
            "PATH": f"{Path(script('kubectl-console')).parent}:/usr/bin:/bin",
        }
        for name in kubectls.some():
            kubectl = kubectls.found()[name]
            # The shell ends the session, however long its answer takes.
            question = ("console", "sh", "--linger", "100")
            code, out, told = await kubectls.run(
                kubectl, *question, env=env, stdin=b"echo $((6*7)); exit 7\n"
            )
            self.assertEqual(code, 7, f"{name}: {told}")
            self.assertIn("42\r\n", out, name)
        code, out, told = await kubectls.run(kubectl, "logs", "sh", env=env)
        self.assertIn("42", out, told)

    test_virtual_machine.skip = needs.qemu()  # type: ignore[attr-defined]
    test_kubectl_console.skip = needs.kubectl()  # type: ignore[attr-defined]


class LostBrokerTests(TestCase):
    """A program between two clusters is lost, below ``kubectl console`` and a kubectl of each protocol."""

    starts = PROGRAMS
    skip = needs.kubectl()

    async def setUp(self) -> None:
        self.b = Deployment(self.mktemp())
        self.a = Front(self.mktemp(), self.b)
        self.addCleanup(self.stop)
        await self.b.start()
        await let_brokers_in(self.b)
        await self.a.start()
        self.jane = str(Path(self.a.kubeconfig("jane", ["system:masters"])).resolve())
        await self.a.create_machine("sh", "shell")
        self.ours = await self.opened("ours", [script("kubectl-console"), "sh"])
        self.stock = await self.attached()

    async def stop(self) -> None:
        await self.a.stop()
        await self.b.stop()

    async def opened(self, name: str, argv: list[str]) -> Program:
        program = terminal(argv, columns=80, rows=24, KUBECONFIG=self.jane, HOME=self.mktemp())
        self.addCleanup(program.stop)
        await program.until(rb"press enter|[$#] ")
        await self.says(program, name)
        return program

    async def attached(self) -> dict[str, Program]:
        return {
            name: await self.opened(name, [kubectls.found()[name], "attach", "-it", "sh"])
            for name in kubectls.some()
        }

    async def says(self, program: Program, word: str) -> None:
        """Check both directions."""
        start = len(program.output)
        program.type(f"echo {word[:2]}''{word[2:]}\n".encode())
        await program.until(word.encode(), start=start)

    async def goes_on(self) -> None:
        """Check that our client's session goes on: it may discard keys that are typed while it reconnects."""
        await self.ours.asked(b"echo on-$((6*7))\n", rb"on-(42)\r?\n")

    async def codes(self) -> dict[str, int]:
        """Wait until each kubectl has ended; return the exit codes."""
        return {name: await program.ended for name, program in self.stock.items()}

    async def test_stopped(self) -> None:
        """Our session goes on at the next broker; both clients show the reason."""
        await self.a.runtime.stop(signal.SIGTERM)
        await self.ours.until(rb"exec-broker\s+is\s+restarting")
        await self.a.start_runtime()
        self.assertEqual(set((await self.codes()).values()), {1})
        for name, program in self.stock.items():
            self.assertIn(b"error: exec-broker is restarting", program.output, name)
        await self.goes_on()

    async def test_killed(self) -> None:
        """
        Our session goes on at the next broker; kubectl shows the reason, because no hop before a broker can rejoin its
        stream.  The target's API server rejoins the streams behind it.
        """
        await self.b.poollet.stop(signal.SIGKILL)
        await self.b.start_poollet()
        await self.goes_on()
        for name, program in self.stock.items():
            await self.says(program, f"{name}-behind")
        for killed in ("runtime", "poollet"):
            await getattr(self.a, killed).stop(signal.SIGKILL)
            await (self.a.start_poollet() if killed == "poollet" else self.a.start_runtime())
            self.assertEqual(set((await self.codes()).values()), {1})
            for name, program in self.stock.items():
                self.assertIn(LOST.encode(), program.output, name)
            await self.goes_on()
            self.stock = await self.attached()
