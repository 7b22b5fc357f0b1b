"""
The definition and the controller in ``docs/examples`` that are a package of their own, with a real
kube-apiserver, kubectl and ``twistd``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import yaml

from tests.examples.test_examples import EXAMPLES
from tests.flows.programs import script
from tests.interop.programs import Programs
from tests.interop.spaces_crds import CRDCase
from twisted_exec.api import schema
from twisted_exec.api.times import timestamp

DEFINITION = EXAMPLES / "window_crd.yaml"
WINDOWS = "maintenancewindows.maintenance.example.org"
NAME = "window-controller"
SOON = {"startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T01:00:00Z"}


def window(name: str, **spec: Any) -> Any:
    return {
        "apiVersion": "maintenance.example.org/v1alpha1",
        "kind": "MaintenanceWindow",
        "metadata": {"name": name},
        "spec": spec,
    }


class WindowTests(CRDCase):
    """``window_crd.yaml``, ``window_controller.py`` and ``window_application.py``."""

    def setUp(self) -> None:
        super().setUp()
        self.run_kubectl("apply", "--server-side", f"-f={DEFINITION}")
        self.run_kubectl("wait", "--for=condition=Established", f"crd/{WINDOWS}", "--timeout=60s")

    def test_refused(self) -> None:
        """It refuses wrong windows, in the words of our own schemas where these have the rule."""
        definition = next(yaml.safe_load_all(DEFINITION.read_text()))
        whole = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for machines in ([], ["a", "a", "b", "a"], ["a"] * 65, ["a" * 64]):
            spec = {**SOON, "machines": machines}
            done = self.try_kubectl("create", "-f=-", input=window("w", **spec))
            self.assertNotEqual(done.returncode, 0)
            for cause in schema.check(whole["properties"]["spec"], spec, "spec"):
                # kube-apiserver counts characters, too, and calls them bytes.
                message = cause["message"].replace("characters", "bytes")
                self.assertIn(f"{cause['field']}: {message}", done.stderr)
        spec = {"machines": ["a"], "startTime": SOON["endTime"], "endTime": SOON["endTime"]}
        done = self.try_kubectl("create", "-f=-", input=window("w", **spec))
        self.assertIn("spec.endTime: Invalid value", done.stderr)
        self.assertIn("must be after startTime", done.stderr)

    def test_program(self) -> None:
        """The program works with the rights of the file and releases its Lease; users see the state."""
        programs = Programs("window-")
        self.addCleanup(programs.stop)
        token = self.run_kubectl("-n", "maintenance", "create", "token", NAME).strip()
        environment = {
            "KUBECONFIG": programs.write("kubeconfig", self.kubeconfig(token)),
            "PYTHONPATH": os.pathsep.join([str(EXAMPLES), *sys.path]),
        }
        application = str(EXAMPLES / "window_application.py")
        words = [script("twistd"), "-ny", application, "--pidfile="]
        running = programs.run(NAME, *words, env=environment)
        spec = {"machines": ["vm-1", "vm-2"], "startTime": timestamp(time.time() - 1)}
        spec["endTime"] = timestamp(time.time() + 86_400)
        self.run_kubectl("create", "-f=-", input=window("w", **spec))

        def shows(expected: str, *arguments: str) -> None:
            programs.until(expected, lambda: self.try_kubectl(*arguments).stdout == expected)

        shows("Active", "get", "mw", "w", "-o=jsonpath={.status.state}")
        shows("maintenance of vm-1, vm-2", "get", "events", "-o=jsonpath={.items[*].message}")
        head, row = self.run_kubectl("get", "mw").splitlines()
        self.assertEqual(head.split(), ["NAME", "MACHINES", "STATE", "START", "AGE"])
        self.assertEqual(row.split()[:3], ["w", '["vm-1","vm-2"]', "Active"])
        # SIGINT is ignored where a shell runs the tests in its background.
        running.send_signal(signal.SIGTERM)
        running.wait()
        lease = ("-n", "maintenance", "get", "lease", NAME, "-o=jsonpath={.spec.holderIdentity}")
        self.assertEqual(self.run_kubectl(*lease), "")
        for word in ("forbidden", "Traceback"):
            self.assertNotIn(word, programs.log(NAME))
