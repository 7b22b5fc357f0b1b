"""
Every kubectl, from a real root to containers of a real containerd, by way of the node server, a
real API server and a real kubelet: nothing between is a double.  Once the node server records them.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.flows import kubectls, programs
from tests.interop.containerd_node import IMAGE, ContainerdNode
from tests.interop.hosts import kubectl
from tests.interop.leaf_actions import ACTIONS, Kubectl, until
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
LOGIN = """
echo login:
while read -r name; do
    stty -echo; echo password:; read -r secret; stty echo; echo "welcome $name, ${#secret}"
done
"""
COMMANDS = {
    "main": MAIN,
    "echo": 'echo ready; while read -r line; do echo "<$line>"; done',
    "login": LOGIN,
    "talker": "n=0; while :; do n=$((n+1)); echo tick $n; sleep 0.2; done",
    "ended": "exit 0",
}
RUNNING = ["echo", "login", "main", "talker"]
PASSWORD = "open-sesame"
LOGINS = {
    "exec": ("exec", "-it", "web", "-c", "main", "--", "sh", "-c", LOGIN),
    "attach": ("attach", "-it", "web", "-c", "login"),
}
RECORDED = ("exec", "exec -i", "exec -it", "exit code", "attach", "cp in", "cp out")
"""Actions that are recorded."""
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


def _terminal(name: str) -> dict[str, bool]:
    """Fields of a container that is attached to."""
    return {"stdin": name in ("echo", "login"), "tty": name == "login"}


class ContainerdCase(SynchronousTestCase):
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
        clusters.start_node_server(*self.options())
        clusters.wait_for_node()
        self.logged_between = datetime.now(UTC)
        self.put_pods()

    def options(self) -> Sequence[str]:
        """Return options of the node server."""
        return ()

    def put_pods(self) -> None:
        """Create the Pod in the root, where no kubelet runs it, and in the leaf, where one does."""
        clusters = self.clusters
        root, leaf = (pod("web", list(COMMANDS), node) for node in (ROOT_NODE, LEAF_NODE))
        for container in root["spec"]["containers"]:
            container |= _terminal(container["name"])
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
                    **_terminal(name),
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


class ContainerdTrials(ContainerdCase):
    """All actions, and refusals."""

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


class RecordedTrials(ContainerdCase):
    """The node server records every session."""

    def options(self) -> Sequence[str]:
        """See :meth:`ContainerdCase.options`."""
        recorder = self.clusters.root.pki.issue_recorder("node-a")
        self.unstored = self.clusters.programs.directory / "recordings"
        self.store = self.clusters.programs.directory / "store"
        return (
            "--record-namespaces=default",
            "--record-input=masked",
            "--recording-required",
            f"--recorder-certificate={recorder.certificate}",
            f"--recorder-key={recorder.key}",
            f"--recording-dir={self.unstored}",
            f"--recording-store=file://{self.store}",
        )

    def test_recorded(self) -> None:
        """Each session of each kubectl has a recording that is verified with the CA alone."""
        verified: set[Path] = set()
        for name, program in kubectls.found().items():
            client = self.client(name, program)
            for subresource, argv in LOGINS.items():
                self.log_in(client, argv)
                (path,) = self.stored(1, verified)
                self.check_login(path, subresource)
            for action in RECORDED:
                ACTIONS[action](client)
            paths = self.stored(len(RECORDED), verified)
            data = {self.played(path) for path in paths}
            self.assertIn((client.scratch / "copy").read_bytes()[:100], b"".join(data))

    def log_in(self, client: Kubectl, argv: Sequence[str]) -> None:
        """Type a name and a hidden password."""
        ours, theirs = pty.openpty()
        try:
            with client.running(*argv, stdin=theirs):
                until(ours, rb"login:|pressing enter")
                os.write(ours, b"jane\n")
                until(ours, rb"password:")
                os.write(ours, f"{PASSWORD}\n".encode())
                until(ours, rb"welcome jane, %d" % len(PASSWORD))
        finally:
            os.close(ours)
            os.close(theirs)

    def stored(self, least: int, verified: set[Path]) -> list[Path]:
        """Wait for recordings in the store, and verify them; return the new ones."""

        def complete() -> bool:
            new = {*self.store.glob("*.cast")} - verified
            return len(new) >= least and not any(self.unstored.iterdir())

        self.clusters.programs.until("recordings", complete)
        paths = sorted({*self.store.glob("*.cast")} - verified)
        for path in paths:
            ca = f"--ca={self.clusters.root.pki.serving_ca}"
            self.assertIn(b", closed\n", self.twisted_exec("verify", str(path), ca))
        verified.update(paths)
        return paths

    def played(self, path: Path) -> bytes:
        """Return all output of a recording."""
        return self.twisted_exec("play", str(path))

    def twisted_exec(self, *words: str) -> bytes:
        """Return the standard output of ``twisted-exec recording``, which knows no cluster."""
        argv = [programs.script("twisted-exec"), "recording", *words]
        done = subprocess.run(
            argv, env={**os.environ, "KUBECONFIG": os.devnull}, capture_output=True
        )
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return done.stdout

    def check_login(self, path: Path, subresource: str) -> None:
        """The recording has the output, the echoed input, and an unknown user."""
        text = path.read_text()
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("[")]
        typed = "".join(data for _, code, data in lines if code == "i")
        self.assertEqual(typed, "jane\n")
        self.assertNotIn(PASSWORD, text)
        self.assertIn(f"welcome jane, {len(PASSWORD)}", self.played(path).decode())
        self.assertIn('"user":"unknown"', text)
        self.assertIn(f'"subresource":"{subresource}"', text)
