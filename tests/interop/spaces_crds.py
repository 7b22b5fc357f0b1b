"""
A real kube-apiserver keeps Spaces by the CustomResourceDefinitions of
``docs/deploy/kubernetes/spaces/crds``: it accepts and refuses what ours does, and its table looks
alike.  A real kubectl does what is done.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.api.space_cases import CHANGING, HOME, MAKING, MANAGED, PROVIDER, Case
from tests.interop.chains import ours
from tests.interop.kube_apiserver import TOKEN, KubeAPIServer
from tests.interop.programs import Programs
from twisted_exec.api import kinds, spaces
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.kinds.jsonpath import condition as condition_at

CRDS = Path(__file__).parents[2] / "docs" / "deploy" / "kubernetes" / "spaces" / "crds"
KNOWN = (kinds.SPACES, kinds.SPACEPROVIDERDESCS, kinds.CLUSTERPROFILES)
MANAGER = "exec-spacemanager"
NAMESPACES = (HOME, "default")
Done = subprocess.CompletedProcess[str]
NOW = "2026-01-01T00:00:00Z"


def condition(type: str, status: str, message: str) -> Object:
    """A condition as the manager writes it."""
    return {
        "type": type,
        "status": status,
        "reason": "Tried",
        "message": message,
        "lastTransitionTime": NOW,
    }


class CRDCase(SynchronousTestCase):
    """A real kube-apiserver."""

    timeout = 300
    skip = needs.kube_apiserver() or needs.kubectl()

    def setUp(self) -> None:
        self.server = KubeAPIServer()
        self.addCleanup(self.server.stop)
        self.server.start()

    def until_served(self, kind: Kind) -> None:
        resource = kind.resource
        path = resource.path("default" if resource.namespaced else "")
        deadline = time.monotonic() + 60
        while self.server.ask("GET", path).code != 200:
            if time.monotonic() > deadline:
                raise AssertionError(f"{resource.qualified} is not served")

    def try_kubectl(self, *arguments: str, input: Any = None) -> Done:
        access = [f"--server={self.server.url}", f"--token={TOKEN}", "--insecure-skip-tls-verify"]
        return subprocess.run(
            ["kubectl", *access, *arguments],
            input=json.dumps(input),
            capture_output=True,
            text=True,
            timeout=60,
        )

    def run_kubectl(self, *arguments: str, input: Any = None) -> str:
        done = self.try_kubectl(*arguments, input=input)
        if done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def kubeconfig(self, token: str) -> str:
        cluster = {
            "server": self.server.url,
            "certificate-authority-data": base64.b64encode(self.server.authority).decode(),
        }
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "x", "cluster": cluster}],
                "users": [{"name": "x", "user": {"token": token}}],
                "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                "current-context": "x",
            }
        )


class DefinitionTests(CRDCase):
    """The definitions there."""

    def setUp(self) -> None:
        super().setUp()
        self.run_kubectl("apply", "--server-side", f"-f={CRDS}")
        self.run_kubectl("create", "namespace", HOME)
        for kind in KNOWN:
            self.until_served(kind)

    def test_all(self) -> None:
        """A single server for all steps: starting it takes longer than the requests."""
        for step in (
            self.making,
            self.changing,
            self.taken_away_and_set_anew,
            self.spelling,
            self.status,
            self.phase,
            self.old_finalizer,
            self.table,
            self.table_of_providers,
        ):
            step()
            self.clear()

    def clear(self) -> None:
        for kind in KNOWN:
            for namespace in NAMESPACES if kind.resource.namespaced else ("",):
                self.server.ask("DELETE", kind.resource.path(namespace))

    def make(self, case: Case, spec: Any) -> None:
        self.run_kubectl("create", "-f=-", input=case.body(spec))

    def remove(self, case: Case) -> None:
        self.run_kubectl("delete", "-f=-", input=case.body(case.after))

    def check(self, case: Case, told: str, say: Callable[[], Any]) -> None:
        done = say()
        refused = bool(case.told) and not case.ours
        self.assertEqual(bool(done.returncode), refused, f"{told}: {done.stderr}")
        if refused:
            self.assertIn(case.told, done.stderr, told)

    def making(self) -> None:
        """CRDs refuse the objects that our server refuses, except by rules about the namespace."""
        for told, case in MAKING.items():
            body = case.body(case.after)
            said = ("create", "--dry-run=server", "-f=-")
            self.check(case, told, lambda said=said, body=body: self.try_kubectl(*said, input=body))

    def changing(self) -> None:
        """Immutable fields can be neither changed nor removed."""
        for told, case in CHANGING.items():
            self.make(case, case.before)
            body = case.body(case.after)
            self.check(
                case, told, lambda body=body: self.try_kubectl("replace", "-f=-", input=body)
            )
            self.remove(case)

    def taken_away_and_set_anew(self) -> None:
        """As a patch, too, in which SF's rule had a hole."""
        case = MAKING["upstream's sample"]
        self.make(case, MANAGED)
        for spec in ({"SpaceProviderDescName": None}, None, {"Type": None}):
            patch = json.dumps({"spec": spec})
            done = self.try_kubectl(
                "-n", HOME, "patch", "spaces", case.name, "--type=merge", "-p", patch
            )
            left = json.loads(self.run_kubectl("-n", HOME, "get", "spa", case.name, "-o=json"))
            self.assertEqual(left["spec"], {**MANAGED, "accessscopetype": "Both"}, done.stderr)

    def spelling(self) -> None:
        """kubectl reports unknown fields."""
        case = MAKING["upstream's sample"]
        body = case.body({**MANAGED, "type": "managed", "accessScope": "Both"})
        done = self.try_kubectl("create", "-f=-", input=body)
        self.assertIn('unknown field "spec.accessScope", unknown field "spec.type"', done.stderr)

    def status(self) -> None:
        """It is written apart; SF's was anyone's who might write the object."""
        case = MAKING["upstream's sample"]
        body = case.body(MANAGED) | {"status": {"Phase": "Ready"}}
        self.run_kubectl("create", "-f=-", input=body)
        self.run_kubectl("replace", "-f=-", input=body)
        told = ("-n", HOME, "get", "space", case.name, "-o=json")
        self.assertNotIn("status", json.loads(self.run_kubectl(*told)))
        self.show(case, {"Phase": "Ready", "observedGeneration": 1})
        found = json.loads(self.run_kubectl(*told))
        self.assertEqual(found["status"], {"Phase": "Ready", "observedGeneration": 1})
        self.assertEqual(found["metadata"]["generation"], 1)

    def show(self, case: Case, status: Object) -> str:
        resource = case.kind.resource
        named = ("-n", case.namespace) if resource.namespaced else ()
        patch = json.dumps({"status": status})
        return self.run_kubectl(
            *named,
            "patch",
            resource.qualified,
            case.name,
            "--subresource=status",
            "--type=merge",
            "-p",
            patch,
        )

    def phase(self) -> None:
        """Phases are upstream's."""
        case = MAKING["upstream's sample"]
        self.make(case, MANAGED)
        with self.assertRaisesRegex(AssertionError, "status.Phase: Unsupported value"):
            self.show(case, {"Phase": "Done"})

    def old_finalizer(self) -> None:
        """Upstream's has no domain, and is accepted."""
        case = MAKING["upstream's sample"]
        body = case.body(MANAGED)
        body["metadata"]["finalizers"] = [spaces.OLD_FINALIZER]
        self.run_kubectl("create", "-f=-", input=body)
        free = '{"metadata":{"finalizers":null}}'
        self.run_kubectl("-n", HOME, "patch", "spa", case.name, "--type=merge", "-p", free)

    def table(self) -> None:
        """``kubectl get`` shows the columns for operators."""
        case = MAKING["upstream's sample"]
        self.make(case, MANAGED)
        endpoints = [
            {"viewpoint": "InCluster", "server": "https://in:1"},
            {"viewpoint": "External", "server": "https://out:2"},
        ]
        conditions = [
            condition(spaces.PROVIDER_REACHABLE, "True", "it answers"),
            condition(spaces.CREDENTIALS_VALID, "False", "they are refused"),
            condition(spaces.SYNCED, "Unknown", "not yet"),
        ]
        self.show(case, {"Phase": "NotReady", "endpoints": endpoints, "conditions": conditions})
        head, row = self.run_kubectl("-n", HOME, "get", "spaces", "-o=wide").splitlines()
        self.assertEqual(
            head.split(),
            [
                "NAME",
                "TYPE",
                "PROVIDER",
                "PHASE",
                "CREDENTIALS",
                "AGE",
                "REACHABLE",
                "SYNCED",
                "SCOPE",
                "SERVER",
                "MESSAGE",
            ],
        )
        cells = row.split(maxsplit=10)
        del cells[5]
        expected = [
            "space5",
            "managed",
            "pkflex",
            "NotReady",
            "False",
            "True",
            "Unknown",
            "Both",
            "https://out:2",
        ]
        self.assertEqual(cells, [*expected, "they are refused"])

    def table_of_providers(self) -> None:
        """Their Spaces are counted."""
        case = MAKING["a provider"]
        self.make(case, PROVIDER)
        conditions = [condition(spaces.PROVIDER_REACHABLE, "True", "it answers")]
        self.show(case, {"spaces": 3, "conditions": conditions})
        head, row = self.run_kubectl("get", "spd").splitlines()
        self.assertEqual(head.split(), ["NAME", "TYPE", "PHASE", "REACHABLE", "SPACES", "AGE"])
        self.assertEqual(row.split()[:-1], ["pkflex", "kubeflex", "Initializing", "True", "3"])


class DeployedTests(CRDCase):
    """A manager with the rights of the manifests, and no others."""

    def setUp(self) -> None:
        super().setUp()
        self.run_kubectl("apply", "--server-side", f"-k={CRDS.parent}")
        for kind in KNOWN:
            self.until_served(kind)
        self.programs = Programs("spaces-")
        self.addCleanup(self.programs.stop)
        self.programs.write("mine", self.kubeconfig(TOKEN))
        create = ("-n", MANAGER, "create", "token", MANAGER)
        config = self.programs.write("manager", self.kubeconfig(self.run_kubectl(*create).strip()))
        self.programs.run(
            MANAGER,
            *ours(MANAGER),
            f"--kubeconfig={config}",
            f"--state-dir={self.programs.path('state')}",
            f"--namespace={MANAGER}",
            "--health-listen=",
        )

    def until(self, expected: str, *arguments: str) -> None:
        """Until kubectl prints that."""
        self.programs.until(expected, lambda: self.try_kubectl(*arguments).stdout == expected)

    def test_rights(self) -> None:
        """They suffice for all that it does here, and it asks for nothing else."""
        secret = f"--from-file=kubeconfig={self.programs.path('mine')}"
        self.run_kubectl("create", "secret", "generic", "mine", secret)
        case = Case(kinds.SPACES, None, {}, name="own", namespace="default")
        spec = {
            "Type": spaces.IMPORTED,
            "externalSecretRef": {"name": "mine"},
            "accessscopetype": spaces.EXTERNAL,
        }
        self.run_kubectl("create", "-f=-", input=case.body(spec))
        provider = Case(kinds.SPACEPROVIDERDESCS, None, {}, name="inventory")
        self.run_kubectl("create", "-f=-", input=provider.body({"ProviderType": "clusterprofile"}))
        self.until("Ready", "get", "spa", "own", "-o=jsonpath={.status.Phase}")
        self.until("Ready", "get", "spd", "inventory", "-o=jsonpath={.status.Phase}")
        healthy = "{" + condition_at("ControlPlaneHealthy") + "}"
        self.until("True", "get", "clusterprofile", "own", f"-o=jsonpath={healthy}")
        self.until("Ready", "get", "events", "-o=jsonpath={.items[*].reason}")
        self.run_kubectl("annotate", "spa", "own", f"{spaces.FORGET}=true")
        self.run_kubectl("delete", "spa", "own", "--timeout=60s")
        self.run_kubectl("delete", "spd", "inventory")
        namespace = spaces.namespace_of("inventory")
        # The controller that would empty it runs elsewhere.
        self.until("Terminating", "get", "ns", namespace, "-o=jsonpath={.status.phase}")
        self.assertNotIn("forbidden", self.programs.log(MANAGER))
        self.assertNotIn("Traceback", self.programs.log(MANAGER))
