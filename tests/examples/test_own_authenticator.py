"""
The authenticator of ``docs/howto/add-an-authenticator.rst``.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import yaml
from twisted.internet.endpoints import connectProtocol
from twisted.internet.threads import deferToThread

from tests import needs
from tests.examples.test_examples import EXAMPLES, ExamplesCase, reactor
from tests.flows import kubectls
from tests.flows.programs import Program, script
from tests.kube.test_console_endpoint import Collector
from tests.ports import reserved_port
from tests.tiers import PROGRAMS
from tests.tls.support import write
from twisted_exec.kube.console_endpoint import ConsoleEndpoint
from twisted_exec.kube.kubeconfig.loader import load

SECRET, OTHER = b"0123456789abcdef", b"fedcba9876543210"
REVIEW = "/apis/authentication.k8s.io/v1/tokenreviews"


class ContractTests(ExamplesCase):
    """``test_own_authenticator.py``"""

    starts = PROGRAMS

    async def test_from_outside(self) -> None:
        """The contract runs outside the checkout, as the page says."""
        for name in ("own_authenticator.py", "test_own_authenticator.py"):
            shutil.copy(EXAMPLES / name, self.directory)
        program = self.run_example(
            "-m",
            "twisted.trial",
            "test_own_authenticator",
            PYTHONPATH=f"{EXAMPLES.parents[1]}:{self.directory}",
        )
        self.assertEqual(await program.ended, 0, program.output)
        self.assertRegex(program.output, rb"PASSED \(successes=\d\)")


class OwnAuthenticatorTests(ExamplesCase):
    """``one_application.py`` with ``own_authenticator.py``, and kubectl with its tokens."""

    starts = PROGRAMS
    skip = needs.kubectl()

    def run_application(self, logins: str) -> Program:
        """Run copies of the files, as outside a checkout."""
        for name in ("one_application.py", "echo_runtime.py", "own_authenticator.py"):
            shutil.copy(EXAMPLES / name, self.directory)
        return self.run_example(
            script("twistd"),
            "--pidfile=",
            "-ny",
            os.path.join(self.directory, "one_application.py"),
            LAB_STATE=f"{self.directory}/state",
            LAB_PORT=str(reserved_port(self)),
            LAB_LOGINS=logins,
        )

    async def new_token(self, user: str, seconds: int) -> str:
        program = self.run_example(
            str(EXAMPLES / "own_authenticator.py"), self.logins, user, str(seconds)
        )
        self.assertEqual(await program.ended, 0, program.output)
        return program.output.decode().strip()

    async def kubectl(self, *argv: str, stdin: str = "", code: int = 0) -> str:
        """Run kubectl as the administrator, or as options in ``argv`` say."""
        env = {"KUBECONFIG": f"{self.directory}/state/admin.kubeconfig", "HOME": self.directory}
        path = kubectls.found()["kubectl"]
        ended, _, output = await kubectls.run(path, *argv, env=env, stdin=stdin.encode())
        self.assertEqual(ended, code, output)
        return output

    def using(self, value: str, url: str = "") -> list[str]:
        """Return kubectl's options of a user who has a token and no certificate."""
        with open(f"{self.directory}/state/admin.kubeconfig") as file:
            server = yaml.safe_load(file)["clusters"][0]["cluster"]["server"]
        ca = f"--certificate-authority={self.directory}/state/pki/ca.crt"
        options = [f"--server={url or server}", ca, f"--token={value}"]
        return ["--kubeconfig=/dev/null", *options]

    def refusal(self, url: str, value: str) -> str:
        """Return the body of a 401; kubectl does not show that of a server without kinds."""
        context = ssl.create_default_context(cafile=f"{self.directory}/state/pki/ca.crt")
        request = Request(url, headers={"Authorization": f"Bearer {value}"})
        with self.assertRaises(HTTPError) as raised:
            urlopen(request, context=context)
        with raised.exception as answer:
            self.assertEqual(answer.code, 401)
            return answer.read().decode()

    async def review(self, value: str) -> Any:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
        asked = json.dumps({**body, "spec": {"token": value}})
        return json.loads(await self.kubectl("create", "--raw", REVIEW, "-f-", stdin=asked))[
            "status"
        ]

    async def test_tokens(self) -> None:
        """A token is a user at the API server, at a console and at the poollet; others are refused."""
        self.logins = os.path.join(self.directory, "logins")
        os.mkdir(self.logins)
        write(self.logins, "secret", SECRET)
        write(self.logins, "groups", b"jane: dev\n")
        program = self.run_application(self.logins)
        await program.until(rb"ready: https://")
        good, expired = await self.new_token("jane", 3600), await self.new_token("jane", 0)
        wrong = good[:-4] + ("0000" if good[-4:] != "0000" else "1111")

        self.assertRegex(
            await self.kubectl("auth", "whoami", *self.using(good)), r"Groups +\[dev system:auth"
        )
        for bad, why in (
            (expired, "has expired"),
            (wrong, "is not signed with the present secret"),
        ):
            output = await self.kubectl("auth", "whoami", *self.using(bad), code=1)
            self.assertIn(f"the lab token {why}", output)
            self.assertIn(f"the lab token {why}", (await self.review(bad))["error"])
        self.assertEqual((await self.review(good))["user"]["username"], "jane")

        await self.kubectl(
            "create", "clusterrole", "metrics", "--verb=get", "--non-resource-url=/metrics"
        )
        await self.kubectl(
            "create", "clusterrolebinding", "metrics", "--clusterrole=metrics", "--group=dev"
        )
        address = await self.kubectl(
            "get",
            "machinepool",
            "lab",
            "-ojsonpath={.status.daemonEndpoints.machinepoolletEndpoint.port}",
        )
        poollet = f"https://127.0.0.1:{address}"
        output = await self.kubectl("get", "--raw", "/metrics", *self.using(good, poollet))
        self.assertIn("twisted_exec_sessions", output)
        message = await deferToThread(self.refusal, f"{poollet}/metrics", expired)
        self.assertIn("bearer token: the lab token has expired; log in again", message)

        await self.kubectl("create", "rolebinding", "dev", "--clusterrole=edit", "--group=dev")
        await self.kubectl("apply", "-f", str(EXAMPLES / "echo_machine.yaml"))
        await self.kubectl("wait", "machine/echo", "--for=jsonpath={.status.state}=Running")
        config = f"{self.directory}/jane.kubeconfig"
        with open(f"{self.directory}/state/admin.kubeconfig") as file:
            kubeconfig = yaml.safe_load(file)
        kubeconfig["users"][0]["user"] = {"token": good}
        write(self.directory, "jane.kubeconfig", json.dumps(kubeconfig).encode())
        console = await connectProtocol(
            ConsoleEndpoint(load(config), "default", "echo", reactor), Collector()
        )
        await console.until(b"default/echo echoes\r\n")
        write(self.logins, "secret", OTHER)
        await console.over  # long before the next review of all consoles
        for secret in (good, expired, wrong):
            mac = secret.rpartition(".")[2].encode()
            self.assertNotIn(mac, program.output)
            with open(f"{self.directory}/state/audit.jsonl", "rb") as file:
                self.assertNotIn(mac, file.read())

    async def test_no_secret(self) -> None:
        """Without its files the program ends with one line that says why, and exit code 1."""
        program = self.run_application(f"{self.directory}/nowhere")
        self.assertEqual(await program.ended, 1)
        self.assertNotIn(b"Traceback", program.output)
        why = f"lab: cannot read '{self.directory}/nowhere/secret': No such file"
        self.assertIn(why.encode(), program.output)
