"""
ConsolePolicies and ConsoleRequests behind a real kube-apiserver, as ada and bob type them.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.interop import chains
from tests.interop.aggregated_cluster import AggregatedCluster

GROUP = "console.twisted-exec.dev/v1alpha1"
RUN = ("--run", "echo $((40+2))")


class PolicyTests(SynchronousTestCase):
    """ada has ``edit`` and bob ``admin``, in a namespace with a machine."""

    skip = needs.aggregated()
    timeout = 600

    def setUp(self) -> None:
        cluster = self.cluster = AggregatedCluster("policies")
        self.addCleanup(cluster.stop)
        cluster.start()
        runtime = chains.our_runtime(cluster.programs, cluster.make.revision, class_name="pty")
        chains.our_poollet(cluster, "local", runtime)
        chains.shell(cluster, "local", {"tier": "gold"})
        for user, role in (("ada", "edit"), ("bob", "admin")):
            cluster.user(user, [])
            words = ("create", "rolebinding", user, f"--clusterrole={role}", f"--user={user}")
            self.assertEqual(self.kubectl("admin", *words)[0], 0)
        cluster.programs.until("the machine runs", self.runs, 60)

    def runs(self) -> bool:
        path = "jsonpath={.status.state}"
        return self.kubectl("admin", "get", "machine", "vm", "-o", path)[1] == "Running"

    def kubectl(self, user: str, *words: str, input: str = "") -> tuple[int, str]:
        """Exit code, and everything that was printed."""
        path = self.cluster.programs.path(f"{user}.kubeconfig")
        return self.said(["kubectl", *words, f"--kubeconfig={path}"], input)

    def said(self, words: list[str], input: str = "") -> tuple[int, str]:
        done = subprocess.run(
            words,
            input=input,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stdout

    def policy(self, **spec: Any) -> None:
        selector = {"matchLabels": {"tier": "gold"}}
        self.cluster.apply(
            {
                "apiVersion": GROUP,
                "kind": "ConsolePolicy",
                "metadata": {"name": "p", "namespace": "default"},
                "spec": {"selector": selector, **spec},
            }
        )

    def test_observer(self) -> None:
        """An observer of the host looks on at the observers' path, and cannot type."""
        self.cluster.user("carl", [])
        code, text = self.kubectl("carl", "console", "--read-only", "vm")
        self.assertEqual(code, 1)
        self.assertIn('User "carl" cannot', text)
        self.assertIn("ask an administrator for the role console-observer", text)
        words = ("create", "rolebinding", "carl", "--clusterrole=console-observer", "--user=carl")
        self.assertEqual(self.kubectl("admin", *words)[0], 0)
        self.assertEqual(self.kubectl("ada", "console", "vm", *RUN), (0, "42\n"))
        code, text = self.kubectl("carl", "console", "--read-only", "--from=start", "vm")
        self.assertEqual(code, 0, text)
        self.assertIn("42", text)
        code, text = self.kubectl("carl", "console", "vm", *RUN)
        self.assertEqual(code, 125, text)
        self.assertIn('User "carl" cannot', text)
        for verb, answer in (("observe", "yes"), ("drive", "no")):
            words = ("auth", "can-i", verb, "machines/vm", "--subresource=console")
            self.assertIn(answer, self.kubectl("carl", *words)[1].split())

    def test_conversation(self) -> None:
        """A reason, a label that stays, an approval by another user, and its withdrawal."""
        self.policy(reason="Required")
        code, text = self.kubectl("ada", "console", "vm", *RUN)
        self.assertEqual(code, 125, text)
        self.assertIn('ConsolePolicy "default/p" requires a reason', text)
        code, text = self.kubectl("ada", "console", "vm", *RUN, "--reason", "OPS-1")
        self.assertEqual((code, text.strip()), (0, "42"))
        code, text = self.kubectl("ada", "label", "machine", "vm", "tier-")
        self.assertEqual(code, 1)
        self.assertIn('user "ada" cannot update that policy', text)
        for user in ("ada", "bob"):
            code, text = self.kubectl(user, "delete", "consolepolicy", "p")
            self.assertIn(f'User "{user}" cannot delete resource "consolepolicies"', text)

        self.policy(approval="Required")
        code, text = self.kubectl("ada", "console", "vm", *RUN)
        self.assertIn("requires the approval of another user: request it with", text)
        request = {
            "apiVersion": GROUP,
            "kind": "ConsoleRequest",
            "metadata": {"name": "r"},
            "spec": {"machine": "vm", "user": "bob"},
        }
        code, text = self.kubectl("ada", "create", "-f", "-", input=json.dumps(request))
        self.assertEqual(code, 0, text)
        patch = ("--subresource=approval", "--type=merge", "-p", '{"status":{"approved":true}}')
        code, text = self.kubectl("ada", "patch", "consolerequest", "r", *patch)
        self.assertIn('User "ada" cannot get resource "consolerequests/approval"', text)
        code, text = self.kubectl("bob", "patch", "consolerequest", "r", *patch)
        self.assertEqual(code, 0, text)
        code, text = self.kubectl("ada", "console", "vm", *RUN)
        self.assertEqual((code, text.strip()), (0, "42"))

        request["metadata"] = {"name": "mine"}
        self.kubectl("bob", "create", "-f", "-", input=json.dumps(request))
        code, text = self.kubectl("bob", "patch", "consolerequest", "mine", *patch)
        self.assertIn("another user must approve or deny it", text)

        path = self.cluster.programs.path("bob.kubeconfig")
        code, text = self.said(["twisted-exec", "request", "deny", "r", f"--kubeconfig={path}"])
        withdrawn = 'approval of request "r" withdrawn; a session that still uses it ends\n'
        self.assertEqual((code, text), (0, withdrawn))
        code, text = self.kubectl("ada", "console", "vm", *RUN)
        self.assertIn('your request "r" does not count, bob withdrew the approval', text)
        code, text = self.kubectl("bob", "get", "events")
        for reason in ("ConsoleRequested", "ConsoleApproved", "ConsoleApprovalWithdrawn"):
            self.assertIn(reason, text)
