"""
Programs as users: a ServiceAccount at a console, and a poollet with a bootstrap token.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import yaml
from twisted.internet import reactor as _reactor
from twisted.trial.unittest import TestCase

from tests import needs
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError

from . import kubectls, programs
from .consoles import Screen, watch
from .deployment import POOL, Deployment, gone, machine_class, pause
from .programs import Program, script

reactor: Any = _reactor
TOKEN = "/api/v1/namespaces/default/serviceaccounts/robot/token"


class ServiceAccountTests(TestCase):
    """``exec-standalone`` with its initial objects, and kubectl."""

    starts = PROGRAMS
    skip = needs.kubectl()

    async def setUp(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="twisted-exec-test-")
        self.addCleanup(shutil.rmtree, self.directory, True)
        program = programs.twistd("exec-standalone", "--port", "0", cwd=self.directory)
        self.addCleanup(program.stop)
        await program.until(rb"kubectl console \S+\n")
        self.admin = os.path.join(self.directory, "exec-state", "admin.kubeconfig")

    async def kubectl(self, *argv: str, name: str = "kubectl", stdin: str = "") -> tuple[int, str]:
        """Return the exit code and standard output, or all output if that is empty."""
        env = {"KUBECONFIG": self.admin, "HOME": self.directory}
        path = kubectls.found()[name]
        code, out, both = await kubectls.run(path, *argv, env=env, stdin=stdin.encode())
        return code, out or both

    async def done(self, *argv: str, **more: str) -> str:
        code, said = await self.kubectl(*argv, **more)
        self.assertEqual(code, 0, said)
        return said.strip()

    def known_by(self, token: str) -> list[str]:
        """Return kubectl options that authenticate with a token only."""
        with open(self.admin) as file:
            server = yaml.safe_load(file)["clusters"][0]["cluster"]["server"]
        ca = os.path.join(self.directory, "exec-state", "pki", "ca.crt")
        told = ("--kubeconfig=/dev/null", f"--server={server}", f"--certificate-authority={ca}")
        return [*told, f"--token={token}", "--namespace=default"]

    async def tokens(self) -> list[str]:
        """
        Return a token from the TokenRequest API, and one from each kubectl with a command for it.
        """
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = await self.done("create", "--raw", TOKEN, "-f", "-", stdin=json.dumps(body))
        tokens = [json.loads(answer)["status"]["token"]]
        for name in kubectls.some():
            code, said = await self.kubectl("create", "token", "robot", name=name)
            tokens += [said.strip()] if code == 0 else []
        return tokens

    async def test_console(self) -> None:
        """A token has its account's permissions; deleting the account ends its sessions."""
        await self.done("create", "serviceaccount", "robot")
        account = "--serviceaccount=default:robot"
        await self.done("create", "rolebinding", "robot", "--clusterrole=edit", account)
        for token in await self.tokens():
            words = ("auth", "can-i", "create", "machines/exec")
            self.assertEqual(await self.done(*self.known_by(token), *words), "yes")
        known = self.known_by(token)
        kubectl = [kubectls.found()["kubectl"], *known]
        console = programs.start([*kubectl, "exec", "-i", "demo-shell", "--", "console"])
        self.addCleanup(console.stop)
        console.type(b"echo $((40+2))\n")
        await console.until(rb"42")
        await self.done("delete", "serviceaccount", "robot")
        self.assertNotEqual(await console.ended, 0)
        code, said = await self.kubectl(*known, "get", "machines")
        self.assertEqual(code, 1)
        self.assertIn("must be logged in", said)


class BootstrapTests(TestCase):
    """API server and runtime as processes, and a poollet without a certificate."""

    starts = PROGRAMS

    async def setUp(self) -> None:
        self.deployment = Deployment(self.mktemp())
        self.addCleanup(self.deployment.stop)
        pki = self.deployment.pki
        serving, client = pki.pair("ca"), pki.pair("client-ca")
        prefix = "--cluster-signing-kube-apiserver-client-"
        await self.deployment.start_api(
            "--enable-bootstrap-token-auth",
            f"--cluster-signing-cert-file={serving.certificate}",
            f"--cluster-signing-key-file={serving.key}",
            f"{prefix}cert-file={client.certificate}",
            f"{prefix}key-file={client.key}",
        )
        await self.deployment.start_runtime()

    async def token(self, *words: str) -> str:
        """Return the standard output of ``twisted-exec token``."""
        program = programs.start(
            [script("twisted-exec"), "token", *words, "--kubeconfig", self.deployment.admin]
        )
        self.assertEqual(await program.ended, 0, program.output)
        return program.stdout.decode().strip()

    def start_poollet(self) -> Program:
        deployment = self.deployment
        poollet = programs.twistd(
            "exec-poollet",
            f"--bootstrap-kubeconfig={deployment.path('bootstrap.kubeconfig')}",
            f"--cert-dir={deployment.path('certificates')}",
            f"--machine-pool-name={POOL}",
            f"--machine-runtime-endpoint={deployment.iri_target}",
            "--listen=tcp:0:interface=127.0.0.1",
            "--addresses=InternalIP=127.0.0.1",
            f"--requestheader-client-ca-file={deployment.pki.forwarding_ca}",
            "--requestheader-allowed-names=exec-apiserver",
            f"--runtime-ca-file={deployment.pki.serving_ca}",
            f"--audit-log={deployment.path('poollet.audit')}",
            deployment.drain,
        )
        deployment.poollet = poollet
        return poollet

    async def opened(self, machine: str) -> Screen:
        """
        Open a console as soon as the poollet serves its signed certificate, within about a second.
        """
        while True:
            try:
                return await watch(self.deployment.admin, machine)
            except APIError as refused:
                self.assertIn("it is self-signed", refused.message)
            await pause()

    async def test_poollet(self) -> None:
        """
        With a token the poollet gets its certificates, serves consoles, and later starts without
        it.
        """
        deployment = self.deployment
        path = deployment.path("bootstrap.kubeconfig")
        token = await self.token("create", "--ttl", "10m", "--bootstrap-kubeconfig", path)
        poollet = self.start_poollet()
        await poollet.until(rb"certificate of \S+-serving-\S+ installed")
        await poollet.until(rb"pool pool-a is registered")
        names = ["client.crt", "client.key", "tls.crt", "tls.key"]
        directory = Path(deployment.path("certificates"))
        self.assertEqual(sorted(os.listdir(directory)), names)
        for name in names:
            self.assertEqual((directory / name).stat().st_mode & 0o777, 0o600, name)
        made = await deployment.client.list(kinds.CERTIFICATESIGNINGREQUESTS.resource)
        by = {each["spec"]["signerName"]: each["spec"]["username"] for each in made["items"]}
        self.assertEqual(
            by,
            {
                "kubernetes.io/kube-apiserver-client": f"system:bootstrap:{token[:6]}",
                "twisted-exec.dev/poollet-serving": f"compute.ironcore.dev:system:machinepool:{POOL}",
            },
        )
        shell = machine_class("shell", "64Mi", deployment.dialect)
        await deployment.client.create(deployment.dialect.workload_class, shell)
        await deployment.create_machine("sh", "shell")
        screen = await self.opened("sh")
        await screen.ask(b"echo $((40+2))\n", rb"42")
        await screen.leave()
        self.assertNotIn(token[7:].encode(), poollet.output + deployment.api.output)

        await self.token("delete", token)
        secrets = kinds.SECRETS.resource
        await gone(deployment.client, secrets, f"bootstrap-token-{token[:6]}", "kube-system")
        await poollet.stop()
        poollet = self.start_poollet()
        await poollet.until(rb"pool pool-a is registered")
        self.assertNotIn(b"asked", poollet.output)
