"""
ironcore's own poollet, as released, under our API server and over our runtime.

It begins with a token that may only ask for certificates, and is known by the certificate that
our signer gives it; so all it does here it does inside the fence.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows import kubectls, programs
from tests.flows.deployment import POOL, Deployment, machine_class
from tests.interop.programs import free_port

TOKEN = "only-to-begin-with"
BEGINNERS = "system:bootstrappers:compute-ironcore-dev:machinepools"


class MachinepoolletTests(TestCase):
    """Its pool, its machines and their consoles."""

    timeout = 300
    skip = needs.machinepoollet()

    async def setUp(self) -> None:
        self.place = Deployment(self.mktemp(), unix_streams=True)
        self.addCleanup(self.place.stop)
        await self.start_api()
        # It dials http and https only, and trusts no CA of ours.
        await self.place.start_runtime("--streaming-listen=tcp:0:interface=127.0.0.1")
        await self.kubectl("create", "-f", "-", stdin=machine_class("shell", "64Mi"))
        await self.start_poollet()

    async def start_api(self) -> None:
        pki, tokens = self.place.pki, Path(self.place.path("tokens.csv"))
        tokens.write_text(f"{TOKEN},beginner,1,{BEGINNERS}\n")
        serving, clients = pki.pair("ca"), pki.pair("client-ca")
        await self.place.start_api(
            f"--token-auth-file={tokens}",
            f"--cluster-signing-cert-file={serving.certificate}",
            f"--cluster-signing-key-file={serving.key}",
            f"--cluster-signing-kube-apiserver-client-cert-file={clients.certificate}",
            f"--cluster-signing-kube-apiserver-client-key-file={clients.key}",
        )

    async def start_poollet(self) -> None:
        place = self.place
        pair, _ = place.pki.issue_poollet(POOL, ["127.0.0.1"])
        serving = Path(place.path("serving"))
        serving.mkdir()
        shutil.copy(pair.certificate, serving / "tls.crt")
        shutil.copy(pair.key, serving / "tls.key")
        self.own = place.path("machinepoollet.kubeconfig")
        beginning = Path(place.path("beginning.kubeconfig"))
        beginning.write_text(json.dumps(self.kubeconfig()))
        program = needs.machinepoollet_program()
        assert program is not None
        self.poollet = programs.start(
            [
                program,
                f"--bootstrap-kubeconfig={beginning}",
                f"--kubeconfig={self.own}",
                "--rotate-certificates",
                f"--machine-pool-name={POOL}",
                f"--provider-id=interop://{POOL}",
                f"--machine-runtime-endpoint={place.iri_target}",
                f"--address=127.0.0.1:{free_port()}",
                f"--cert-dir={serving}",
                f"--client-ca-file={place.pki.forwarding_ca}",
                "--addresses-ip-override=127.0.0.1",
                "--health-probe-bind-address=0",
            ],
            # It asks for one to elect leaders with, even to elect none.
            env={"KUBECONFIG": str(beginning)},
        )
        self.addCleanup(self.poollet.stop)

    def kubeconfig(self) -> dict[str, Any]:
        cluster = {"server": self.place.url, "certificate-authority": self.place.pki.serving_ca}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": cluster}],
            "users": [{"name": "a", "user": {"token": TOKEN}}],
        }

    async def kubectl(
        self, *argv: str, stdin: object = None, kubeconfig: str = "", code: int = 0
    ) -> str:
        """Run kubectl, which must exit with ``code``, and return its output."""
        env = {"KUBECONFIG": kubeconfig or self.place.admin, "HOME": self.place.path("home")}
        told = json.dumps(stdin).encode() if stdin is not None else b""
        found = kubectls.found()["kubectl"]
        ended, stdout, output = await kubectls.run(found, *argv, env=env, stdin=told)
        self.assertEqual(ended, code, output)
        return stdout if not code else output

    async def make_machine(self, name: str, **spec: Any) -> None:
        """A machine that no user has given a pool, running."""
        body = {
            "apiVersion": "compute.ironcore.dev/v1alpha1",
            "kind": "Machine",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"machineClassRef": {"name": "shell"}, **spec},
        }
        await self.kubectl("create", "-f", "-", stdin=body)
        await self.place.machine_in_state(name, "Running", seconds=120)

    async def test_console(self) -> None:
        """From its first certificate to a console, which is that of a shell."""
        await self.make_machine("vm")
        requests = await self.kubectl("get", "csr")
        self.assertRegex(requests, r"kube-apiserver-client +beginner +\S+ +Approved,Issued\n")
        lease = ("get", "lease", "-n", "ironcore-machinepool-lease", POOL)
        self.assertIn(f"{POOL}_", await self.kubectl(*lease))
        argv = [programs.script("kubectl-console"), f"--kubeconfig={self.place.admin}", "vm"]
        console = programs.terminal(argv, HOME=self.place.path("home"))
        self.addCleanup(console.stop)
        await console.until(rb"[$#] ")
        console.type(b"echo a$((6*7))z; stty size\r")
        await console.until(rb"a42z\r\n24 80\r\n")
        console.type(b"exit 7\r")
        self.assertEqual(await console.ended, 7)
        self.assertIn(b"the process ended with exit code 7", console.output)

    async def test_log(self) -> None:
        """It serves no logs: 501 with the reason, not the poollet's own ``404 page not found``."""
        await self.make_machine("vm")
        path = "/apis/compute.ironcore.dev/v1alpha1/namespaces/default/machines/vm/log"
        for command in (("logs", "vm"), ("get", "--raw", path)):
            output = await self.kubectl(*command, code=1)
            self.assertIn(f'the poollet of pool "{POOL}" does not serve logs', output)
            self.assertNotIn("404", output)

    async def test_end(self) -> None:
        """It removes a machine from the runtime before the Machine goes."""
        await self.make_machine("vm")
        found = await self.kubectl("get", "machine", "vm", "-o", "jsonpath={.metadata.finalizers}")
        self.assertIn("machinepoollet.ironcore.dev/machine", found)
        await self.kubectl("delete", "machine", "vm", "--timeout=60s")
        await self.kubectl("get", "machine", "vm", code=1)
        self.assertIn(b"deleted", self.place.runtime.output)

    async def test_fence(self) -> None:
        """The poollet may read the Secret that its machine names, and no other."""
        for name in ("ignition", "other"):
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name},
                "type": "compute.ironcore.dev/ignition",
                "stringData": {"ignition.yaml": "x"},
            }
            await self.kubectl("create", "-f", "-", stdin=secret)
        await self.make_machine("vm", ignitionRef={"name": "ignition"})
        seen = await self.kubectl("get", "secrets", "-A", "-o", "name", kubeconfig=self.own)
        self.assertEqual(seen.split(), ["secret/ignition"])
        told = await self.kubectl("get", "secret", "other", kubeconfig=self.own, code=1)
        self.assertIn("no machine of it needs that", told)
        self.assertFalse(re.search(rb"forbidden", self.poollet.output))
