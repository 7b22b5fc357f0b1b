"""
A user with read access to machines opens no console, through a real kube-apiserver or directly.

All of ``tests/apiserver/attacks.py``, as users who may ``get``, ``list`` and ``watch`` machines,
and ``machines/exec`` as well, but not ``create`` it; with forged certificates of kube-apiserver;
and without credentials.  A command line follows each request: no machine may have run it.
"""

from __future__ import annotations

import json
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.apiserver.attacks import SPDY, WEBSOCKET, Attack, Attacker, Headers, Target, attacks
from tests.flows.sessions.test_hostile import frame
from tests.interop import chains
from tests.interop.aggregated_cluster import FRONT, AggregatedCluster
from tests.interop.hosts import kubectl
from twisted_exec.tls.pki.authority import Authority
from twisted_exec.tls.pki.directory import CLIENT, FORWARDING, Pair

TARGET = Target(pool="local")
GROUP = TARGET.group
ADMIN: Headers = (("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters"))


class AttackerTests(SynchronousTestCase):
    """One machine, whose console is a shell."""

    timeout = 1200
    skip = needs.aggregated()

    def setUp(self) -> None:
        self.cluster = cluster = AggregatedCluster("attacked")
        self.addCleanup(cluster.stop)
        cluster.start()
        chains.prepare(cluster)
        chains.our_poollet(
            cluster, TARGET.pool, chains.our_runtime(cluster.programs, cluster.make.revision)
        )
        spec = {"machineClassRef": {"name": chains.CLASS}, "machinePoolRef": {"name": TARGET.pool}}
        cluster.apply(
            {
                "apiVersion": f"{GROUP}/{TARGET.version}",
                "kind": "Machine",
                "metadata": {"name": TARGET.name, "namespace": TARGET.namespace},
                "spec": spec,
            }
        )
        state = ("get", "machine", TARGET.name, "-o", "jsonpath={.status.state}")
        cluster.programs.until(
            "the machine runs",
            lambda: kubectl(cluster.kubeconfig, *state, check=False) == "Running",
        )
        self.ports = {"kube-apiserver": cluster.port, "exec-apiserver": cluster.own_port}

    def user(self, name: str, **verbs: list[str]) -> Pair:
        """A user with these verbs on machines, and on ``machines/exec``."""
        resources = {"machines": "machines", "consoles": "machines/exec"}
        rules = [
            {"apiGroups": [GROUP], "resources": [resources[key]], "verbs": allowed}
            for key, allowed in verbs.items()
        ]
        return self.cluster.may(name, *rules)

    def attacker(self, port: int, pair: Pair | None, mark: Path) -> Attacker:
        """Return an attacker whose input, if typed into a console, creates the file ``mark``."""
        typed = frame(2, b"\0touch %s\n" % str(mark).encode())
        shown = (pair.certificate, pair.key) if pair else ("", "")
        return Attacker(port, self.cluster.pki.serving_ca, *shown, typed=typed)

    def mark(self, name: str) -> Path:
        return self.cluster.programs.directory / f"typed-{name}"

    def nothing_opens(self, name: str, pair: Pair | None) -> None:
        """By none of them, at neither server."""
        mark = self.mark(name)
        for port in self.ports.values():
            attacker = self.attacker(port, pair, mark)
            for attack in attacks(TARGET):
                code, told = attacker.send(attack)
                self.assertNotEqual(code, 101, (name, attack, told))
        self.assertFalse(mark.exists())
        self.on_record(name)

    def on_record(self, name: str) -> None:
        """Of a user who was refused there are ends with a code, and the poollet heard of none."""
        for hop in ("apiserver", f"poollet-{TARGET.pool}"):
            path = self.cluster.programs.directory / f"{hop}.audit"
            lines = path.read_text().splitlines() if path.exists() else []
            ends = [
                line
                for line in map(json.loads, lines)
                if line["user"] == name and line["event"] == "end"
            ]
            self.assertEqual([line for line in ends if line.get("code", 0) < 400], [], hop)
            if hop != "apiserver":
                self.assertEqual(ends, [])

    def opens(self, name: str, port: int, pair: Pair) -> None:
        """With the right, the same requests open the console, and the input is typed."""
        mark = self.mark(name)
        attacker = self.attacker(port, pair, mark)
        asked = f"{TARGET.path}?{TARGET.query}"
        for attack in (Attack("GET", asked, WEBSOCKET), Attack("POST", asked, SPDY)):
            code, told = attacker.send(attack)
            self.assertEqual(code, 101, told)
        self.cluster.programs.until("it is typed", mark.exists, 20)

    def test_looking(self) -> None:
        """Users who may look; and one who may open, by the same requests."""
        look = ["get", "list", "watch"]
        self.nothing_opens("looking", self.user("looking", machines=look))
        self.nothing_opens("peeping", self.user("peeping", machines=look, consoles=look))
        opening = self.user("opening", machines=look, consoles=["create", "get"])
        for name, port in self.ports.items():
            self.opens(f"opening-{name}", port, opening)

    def test_nobody(self) -> None:
        """Without a certificate, and with one that looks like kube-apiserver's."""
        self.nothing_opens("", None)
        own = Authority.create("front proxy CA")
        authorities = {name: self.cluster.pki.authority(name) for name in (CLIENT, FORWARDING)}
        for name, authority in {"own": own, **authorities}.items():
            pair = self.cluster.pki.pair(f"forged-{name}")
            authority.issue_client(FRONT).write(pair.certificate, pair.key)
            self.forged(f"forged-{name}", pair)
        self.forged("pool", self.cluster.pki.pair(f"poollet-{TARGET.pool}-client"))

    def forged(self, name: str, pair: Pair) -> None:
        """Identity headers are refused from a client with this certificate."""
        asked = f"{TARGET.path}?{TARGET.query}"
        mark = self.mark(name)
        for port in self.ports.values():
            attacker = self.attacker(port, pair, mark)
            for method in ("GET", "POST"):
                code, told = attacker.send(Attack(method, asked, (*WEBSOCKET, *ADMIN)))
                self.assertIn(code, (0, 401, 403), (name, told))
        self.assertFalse(mark.exists())
