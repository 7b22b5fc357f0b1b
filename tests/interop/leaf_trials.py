"""
Incidents for users of a leaf cluster, with real kube-apiservers as root and as leaf: a command
that is silent for ten minutes, a Node that is dialled at another address than its own, a node
server that restarts during sessions, and a client without a certificate.

``SILENT_SECONDS`` overrides the time for which the command is silent.
"""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import ExitStack

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.flows import kubectls
from tests.interop.balancer import Balancer
from tests.interop.hosts import kubectl
from tests.interop.leaf_actions import Kubectl, expect
from tests.interop.leaf_clusters import LEAF_ADDRESS, NODE_SERVER, ROOT_NODE, LeafClusters
from tests.interop.programs import answers

SILENT_SECONDS = float(os.environ.get("SILENT_SECONDS") or 600)
SESSIONS = 8
ROUTES = (
    ("POST", "/exec/default/web/main?command=id&output=1"),
    ("GET", "/exec/default/web/main?command=id&output=1"),
    ("POST", "/exec/default/web/uid/main?command=id&output=1"),
    ("POST", "/attach/default/web/main?output=1"),
    ("POST", "/portForward/default/web"),
    ("POST", "/run/default/web/main?cmd=id"),
    ("GET", "/containerLogs/default/web/main"),
    ("GET", "/pods"),
    ("GET", "/runningpods/"),
    ("GET", "/stats/summary"),
    ("GET", "/metrics"),
    ("GET", "/metrics/resource"),
    ("GET", "/healthz"),
    ("GET", "/configz"),
    ("GET", "/debug/pprof/"),
    ("DELETE", "/exec/default/web/main"),
    ("GET", "/nothing"),
    ("GET", "/"),
)


class LeafTrials(SynchronousTestCase):
    """One pair of clusters for each."""

    timeout = 1200
    skip = needs.leaf_clusters()

    def setUp(self) -> None:
        self.clusters = clusters = LeafClusters("trials")
        self.addCleanup(clusters.stop)
        clusters.start()

    def serve(self, *options: str) -> int:
        """Start a node server, and have the Pod; :return: its port."""
        port = self.clusters.start_node_server(*options)
        self.clusters.wait_for_node()
        self.clusters.add_pod()
        return port

    def client(self, program: str, name: str) -> Kubectl:
        """A kubectl at the root."""
        scratch = self.clusters.programs.directory / name
        scratch.mkdir()
        root = self.clusters.root.kubeconfig
        return Kubectl(program, root, scratch, self.clusters.logged_between)

    def test_silent_command(self) -> None:
        """A session survives ten minutes of silence, and then carries output."""
        self.serve()
        programs = dict(kubectls.found())
        if oldest := needs.oldest_kubectl_program():
            programs["kubectl.1.20"] = oldest  # It never pings.
        command = f"sleep {SILENT_SECONDS}; echo alive; exit 3"
        with ExitStack() as stack:
            running = {}
            for name, path in programs.items():
                one = self.client(path, name)
                argv = ("exec", "web", "-c", "main", "--", "sh", "-c", command)
                running[name] = stack.enter_context(one.running(*argv))
            for name, process in running.items():
                assert process.stdout is not None
                told = process.stdout.read()
                expect((name, told[:6], process.wait()), (name, b"alive\n", 3), told)

    def test_addresses(self) -> None:
        """The Node shows the leaf's own address, though the root dials us; and exec works."""
        self.serve()
        shown = kubectl(self.clusters.root.kubeconfig, "get", "nodes", "-o", "wide")
        (line,) = [line for line in shown.splitlines() if line.startswith(ROOT_NODE)]
        self.assertEqual(line.split()[5], LEAF_ADDRESS, shown)
        root = self.clusters.root.kubeconfig
        said = kubectl(root, "exec", "web", "-c", "main", "--", "echo", "hello")
        self.assertEqual(said, "hello\n")

    def test_rolling_restart(self) -> None:
        """
        Every session of a stopping replica ends with a status that says so; the other replica
        serves new requests meanwhile, without a failure.
        """
        balancer = Balancer()
        self.addCleanup(balancer.stop)
        for name in ("a", "b"):
            self.start_replica(name, balancer)
        self.clusters.wait_for_node()
        self.clusters.add_pod()
        for stopped in ("a", "b"):
            self.restart_below_sessions(stopped, balancer)

    def test_killed(self) -> None:
        """
        Below a killed node server every command ends.  No kubectl knows that: the root's kube-apiserver reports no
        error, and kubectl exits with 0, as below a kubelet that is killed.
        """
        self.serve()
        with ExitStack() as stack:
            running = {}
            for name, path in kubectls.found().items():
                argv = ("exec", "web", "-c", "main", "--", "sh", "-c", "echo up; sleep 300")
                running[name] = stack.enter_context(self.client(path, name).running(*argv))
            for process in running.values():
                assert process.stdout is not None
                expect(process.stdout.readline(), b"up\n")
            os.kill(self.clusters.programs.pid(NODE_SERVER), signal.SIGKILL)
            for name, process in running.items():
                expect((name, process.wait()), (name, 0))
        self.clusters.programs.ends(NODE_SERVER)

    def start_replica(self, name: str, balancer: Balancer) -> None:
        clusters = self.clusters
        published = f"--node-port={balancer.port}"
        patient = "--shutdown-delay-seconds=1"
        port = clusters.start_node_server(published, patient, name=f"{NODE_SERVER}-{name}")
        probes = clusters.health_ports[f"{NODE_SERVER}-{name}"]
        balancer.replicas = {**balancer.replicas, name: (port, probes)}

    def restart_below_sessions(self, name: str, balancer: Balancer) -> None:
        """Sessions on both replicas, and others that come while one of them stops."""
        one = self.client(kubectls.found()["kubectl"], f"stops-{name}")
        printing = "while :; do echo x; sleep 0.05; done"
        argv = ("exec", "web", "-c", "main", "--", "sh", "-c", printing)
        with ExitStack() as stack:
            running = [stack.enter_context(one.running(*argv)) for _ in range(SESSIONS)]
            for process in running:
                assert process.stdout is not None
                expect(process.stdout.readline(), b"x\n")
            os.kill(self.clusters.programs.pid(f"{NODE_SERVER}-{name}"), signal.SIGTERM)
            probe = f"http://127.0.0.1:{balancer.replicas[name][1]}/readyz"
            self.clusters.programs.until("it is not ready any more", lambda: not answers(probe))
            self.others_are_served(one, name, balancer)
            ended = [process for process in running if process.poll() is not None]
            expect(0 < len(ended) < SESSIONS, True)
            for process in ended:
                assert process.stdout is not None
                told = process.stdout.read()
                expect(
                    (process.returncode != 0, b"exec-nodeserver is restarting" in told),
                    (True, True),
                    told,
                )
        self.start_replica(name, balancer)

    def others_are_served(self, one: Kubectl, stopping: str, balancer: Balancer) -> None:
        """Run commands in sequence until the replica has ended."""
        ends = self.clusters.programs.ends(f"{NODE_SERVER}-{stopping}")
        deadline = time.monotonic() + 60
        while True:
            gone = ends()
            before = len(balancer.served)
            code, out, err = one.run("exec", "web", "-c", "main", "--", "echo", "served")
            expect((code, out), (0, b"served\n"), err)
            expect(stopping in balancer.served[before:], False)
            if gone:
                return
            assert time.monotonic() < deadline, "it does not end"

    def test_no_certificate(self) -> None:
        """Without a certificate, every path and method gets 401 and no information."""
        port = self.serve()
        context = ssl.create_default_context(cafile=self.clusters.root.pki.serving_ca)
        for method, path in ROUTES:
            request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", method=method)
            with self.assertRaises(urllib.error.HTTPError, msg=path) as caught:
                urllib.request.urlopen(request, context=context, timeout=20)
            told = caught.exception.read()
            self.assertEqual((caught.exception.code, told.strip()), (401, b"Unauthorized"), path)
            caught.exception.close()
            curl = ("curl", "-sk", "-X", method, "-w", " %{http_code}")
            upgrade = ("-H", "Connection: Upgrade", "-H", "Upgrade: SPDY/3.1")
            told = subprocess.run(
                [*curl, *upgrade, f"https://127.0.0.1:{port}{path}"],
                capture_output=True,
                timeout=20,
            ).stdout
            self.assertTrue(re.fullmatch(rb"Unauthorized\s* 401", told), (path, told))
