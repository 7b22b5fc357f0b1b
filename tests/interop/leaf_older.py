"""
A leaf much older than its root, with real kube-apiservers: its API server and its kubelet know
neither version 5 of a WebSocket nor port-forwarding in one, and the root passes both on, for the
Node declares that it takes WebSockets.  What the node server does about that, kubectl must not
notice.

And a leaf whose API server is killed below a command: kubectl must notice that.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import ExitStack

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.flows import kubectls
from tests.interop.hosts import kubectl
from tests.interop.leaf_actions import ACTIONS, Kubectl, until
from tests.interop.leaf_clusters import ROOT_NODE, LeafClusters
from twisted_exec.streaming.splice import LOST

STREAMS = ("exec", "exec -i", "exec -it", "exit code", "attach", "port-forward", "cp in", "cp out")


class OlderLeafTrials(SynchronousTestCase):
    """One pair of clusters for each."""

    timeout = 600
    skip = needs.leaf_clusters() or needs.newest_kube_apiserver()

    def start(self, root: str | None, leaf: str | None, *options: str) -> LeafClusters:
        clusters = LeafClusters("older", root_program=root, leaf_program=leaf)
        self.addCleanup(clusters.stop)
        clusters.start()
        clusters.start_node_server(*options)
        clusters.wait_for_node()
        clusters.add_pod()
        return clusters

    def client(self, clusters: LeafClusters, name: str) -> Kubectl:
        """A kubectl at the root."""
        scratch = clusters.programs.directory / name
        scratch.mkdir()
        program = kubectls.found()[name]
        return Kubectl(program, clusters.root.kubeconfig, scratch, clusters.logged_between)

    def test_streams(self) -> None:
        """Every kubectl action works as with a recent leaf, without a fallback to SPDY."""
        oldest = needs.oldest_kube_apiserver_program()
        if not oldest:
            self.skipTest("there is no kube-apiserver of an older release")
        newest = needs.newest_kube_apiserver_program()
        clusters = self.start(newest, oldest, "--declare-websockets")
        declared = "jsonpath={.status.declaredFeatures}"
        told = kubectl(clusters.root.kubeconfig, "get", "node", ROOT_NODE, "-o", declared)
        self.assertIn("ExtendWebSocketsToKubelet", told)
        for name in kubectls.found():
            one = self.client(clusters, name)
            for action in STREAMS:
                ACTIONS[action](one)
        _, _, said = one.run("exec", "web", "-v=6", "--", "true")
        self.assertNotIn(b"fallback", said.lower())

    def test_killed_leaf(self) -> None:
        """
        After its leaf is killed, a command fails in every kubectl, although no status arrived.
        """
        clusters = self.start(None, None)
        with ExitStack() as stack:
            running = []
            for name in kubectls.found():
                one = self.client(clusters, name)
                command = ("exec", "web", "--", "sh", "-c", "echo up; sleep 300")
                running.append(stack.enter_context(one.running(*command)))
            for each in running:
                until(_output(each), b"up\n")
            os.kill(clusters.leaf.programs.pid("kube-apiserver"), signal.SIGKILL)
            for each in running:
                until(_output(each), LOST.encode())
                self.assertEqual(each.wait(30), 1)
        clusters.leaf.programs.ends("kube-apiserver")


def _output(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    return process.stdout.fileno()
