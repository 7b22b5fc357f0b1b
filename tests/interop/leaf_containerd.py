"""
Every kubectl, from a real root to containers of a real containerd, by way of the node server, a
real API server and a real kubelet: nothing between is a double.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.flows import kubectls
from tests.interop.containerd_node import IMAGE, ContainerdNode
from tests.interop.hosts import kubectl
from tests.interop.leaf_actions import ACTIONS, Kubectl
from tests.interop.leaf_clusters import LEAF_NODE, LINES, ROOT_NODE, LeafClusters, pod

AGED = {"--since"}
"""Actions that want a log of an hour ago, which no kubelet has of a container so young."""
MARK = "second-half"

MAIN = f"""
if [ ! -e $SCRATCH/started ]; then touch $SCRATCH/started; echo crashed; exit 1; fi
n=0; while [ $n -lt {len(LINES) // 2} ]; do n=$((n+1)); echo line $n; done
while [ ! -e $SCRATCH/{MARK} ]; do sleep 0.1; done
while [ $n -lt {len(LINES)} ]; do n=$((n+1)); echo line $n; done
while :; do sleep 1; done
"""
COMMANDS = {
    "main": MAIN,
    "echo": 'echo ready; while read -r line; do echo "<$line>"; done',
    "talker": "n=0; while :; do n=$((n+1)); echo tick $n; sleep 0.2; done",
    "ended": "exit 0",
}
RUNNING = ["echo", "main", "talker"]
REFUSED: dict[tuple[str, ...], bytes] = {
    ("exec", "web", "-c", "main", "--", "nothing"): b'exec: "nothing": executable file not found',
    ("exec", "web", "-c", "ended", "--", "true"): b'container not found ("ended")\n',
    ("attach", "web", "-c", "ended"): b"container ended not found in pod web_default\n",
    ("exec", "web", "-c", "nobody", "--", "true"): b"container nobody is not valid for pod web\n",
    ("logs", "web", "-c", "echo", "--previous"): b'container "echo" in pod "web" not found\n',
}
"""What the leaf's API server, kubelet or runtime refuses, and their words for it."""


class Clusters(LeafClusters):
    """As those, but for the leaf's node, which is added when both answer."""

    def start_kubelet(self, pods: object) -> None:
        """It comes later."""


class ContainerdTrials(SynchronousTestCase):
    """One pair of clusters, and one Pod."""

    timeout = 900
    skip = needs.leaf_clusters() or needs.containerd()

    def setUp(self) -> None:
        self.clusters = clusters = Clusters("containerd")
        self.addCleanup(clusters.stop)
        clusters.start()
        kubectl(clusters.leaf.kubeconfig, "delete", "node", LEAF_NODE)
        self.node = ContainerdNode(clusters.leaf)
        self.scratch = clusters.programs.directory / "scratch"
        self.scratch.mkdir()
        self.addCleanup(self.node.stop)
        self.node.start()
        clusters.start_node_server()
        clusters.wait_for_node()
        self.logged_between = datetime.now(UTC)
        self.put_pods()

    def put_pods(self) -> None:
        """Create the Pod in the root, where no kubelet runs it, and in the leaf, where one does."""
        clusters = self.clusters
        root, leaf = (pod("web", list(COMMANDS), node) for node in (ROOT_NODE, LEAF_NODE))
        clusters.root.apply(root)
        uid = self.get("root", "{.metadata.uid}")
        leaf["metadata"] |= {
            "labels": {"leaf.twisted-exec.dev/root": "root"},
            "annotations": {"leaf.twisted-exec.dev/pod-uid": uid},
        }
        shared = {"name": "scratch", "mountPath": str(self.scratch)}
        leaf["spec"] |= {
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "restartPolicy": "OnFailure",
            "volumes": [{"name": "scratch", "hostPath": {"path": str(self.scratch)}}],
            "containers": [
                {
                    "name": name,
                    "image": IMAGE,
                    "imagePullPolicy": "Never",
                    "command": ["sh", "-c", command],
                    "stdin": name == "echo",
                    "env": [{"name": "SCRATCH", "value": str(self.scratch)}],
                    "volumeMounts": [shared],
                }
                for name, command in COMMANDS.items()
            ],
        }
        clusters.leaf.apply(leaf)
        clusters.patch_status(clusters.root, "namespaces/default/pods/web", {"phase": "Running"})
        ready = "{range .status.containerStatuses[?(@.ready==true)]}{.name} {end}"
        clusters.programs.until("containers", lambda: self.get("leaf", ready).split() == RUNNING)

    def get(self, where: str, path: str) -> str:
        cluster = self.clusters.root if where == "root" else self.clusters.leaf
        return kubectl(
            cluster.kubeconfig, "get", "pod", "web", "-o", f"jsonpath={path}", check=False
        )

    def client(self, name: str, program: str) -> Kubectl:
        """A kubectl at the root, with files that the containers have as well."""
        scratch = self.scratch / name
        scratch.mkdir()
        root = self.clusters.root.kubeconfig
        return Kubectl(program, root, scratch, self.logged_between)

    def write_log(self) -> None:
        """Ten lines, a while, ten lines."""
        self.clusters.programs.until("first half", lambda: self.lines() == LINES[:10])
        second = time.time() + 1  # Requests name whole seconds.
        self.clusters.programs.until("a second", lambda: time.time() > second)
        self.logged_between = datetime.now(UTC)
        (self.scratch / MARK).touch()
        self.clusters.programs.until("second half", lambda: self.lines() == LINES)

    def lines(self) -> list[str]:
        leaf = self.clusters.leaf.kubeconfig
        return kubectl(leaf, "logs", "web", "-c", "main", check=False).splitlines()

    def test_actions(self) -> None:
        """Everything that is in the table of clients, but for a log of an hour ago."""
        self.write_log()
        programs = dict(kubectls.found())
        for one in (needs.oldest_kubectl_program(), needs.newest_kubectl_program()):
            if one:
                programs[Path(one).name] = one
        for name, program in programs.items():
            client = self.client(name, program)
            for action, act in ACTIONS.items():
                if action in AGED:
                    continue
                try:
                    act(client)
                except AssertionError as problem:
                    raise AssertionError(f"{name}, {action}: {problem}") from None

    def test_refused(self) -> None:
        """Refusals by the kubelet or its runtime have the same message through the root."""
        for name in kubectls.some():
            program = kubectls.found()[name]
            through = self.client(name, program)
            direct = Kubectl(
                program, self.clusters.leaf.kubeconfig, through.scratch, datetime.now(UTC)
            )
            for argv, words in REFUSED.items():
                for one in (direct, through):
                    code, out, err = one.run(*argv)
                    self.assertEqual((code, out, words in err), (1, b"", True), (name, argv, err))
