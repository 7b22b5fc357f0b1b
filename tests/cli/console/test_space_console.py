"""
Tests for ``kubectl console --space``: the program, an API server with Spaces, and servers behind
these.
"""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.audits import AuditList
from tests.chain import pki
from tests.kube.console_cases import Consoles
from tests.spaces.hub import HubTestCase, reactor
from twisted_exec.api import spaces
from twisted_exec.api.conditions import with_conditions
from twisted_exec.api.kinds.rbac import CLUSTERROLEBINDINGS, CLUSTERROLES
from twisted_exec.cli.console.machine import MachineConsole
from twisted_exec.cli.console.options import parse_options
from twisted_exec.cli.console.space import user_agent_of
from twisted_exec.cli.console.streams import StandardStreams
from twisted_exec.cli.explanations import explain
from twisted_exec.cli.options import config_of
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.spaces.interfaces import SpaceName
from twisted_exec.spaces.lookup import FoundSpace
from twisted_exec.streaming.http.site import Site
from twisted_exec.testing.console import RecordingUser
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.tls.files import read_file
from twisted_exec.tls.server import ServerTLS
from twisted_exec.wire.stream_options import CONSOLE


class SpaceConsoleTests(HubTestCase):
    """The identity under which a Space's server sees the user."""

    async def setUp(self) -> None:
        self.token_file = os.path.abspath(self.mktemp())
        with open(self.token_file, "w", encoding="ascii") as file:
            file.write("secret-token,robot,r,system:masters\n")
        await super().setUp()

    async def console(self, *words: str, kubeconfig: str = "", user: str = "admin") -> str:
        """Return the error of a console that cannot be opened."""
        path = kubeconfig or self.kubeconfig(f"user-{user}")
        options = parse_options(["vm", "--kubeconfig", path, *words])
        program = MachineConsole(options, config_of(options), StandardStreams())
        try:
            await program.attempt(RecordingUser(), reactor, CONSOLE)
        except Exception as refused:
            return explain(refused)
        raise AssertionError("it is open")

    def refusals(self, audit: AuditList) -> list[dict[str, Any]]:
        """Return the sessions in the audit log of the Space's server."""
        return [each for each in audit if each["event"] == "start"]

    async def test_as_oneself(self) -> None:
        """By default the console uses the Space's server and CA, and the user's own certificate."""
        await self.start_space("t1")
        await self.put_space(self.config("t1"))
        told = await self.console("--space", "one", "-n", "lab")
        self.assertEqual(told, 'machine "vm" not found')
        (record,) = self.refusals(self.behind_audit)
        self.assertEqual((record["user"], record["namespace"]), ("admin", "lab"))
        self.assertEqual(record["agent"], "kubectl-console (twisted-exec)")
        self.assertEqual(self.refusals(self.audit), [])

    async def test_as_the_space(self) -> None:
        """
        ``--space-credentials`` connects as the Space's user; the user agent names the real user.
        """
        await self.start_space("t1")
        await self.put_space(self.config("t1"))
        told = await self.console("--space", "one", "--space-credentials")
        self.assertEqual(told, 'machine "vm" not found')
        (record,) = self.refusals(self.behind_audit)
        self.assertEqual((record["user"], record["namespace"]), ("space-t1", "default"))
        told = "kubectl-console (twisted-exec; credentials of space default/one, used by admin)"
        self.assertEqual(record["agent"], told)

    async def test_the_secret_is_not_for_all(self) -> None:
        """A user who may not read the Secret reaches the Space only under their own identity."""
        await self.start_space("t1")
        await self.put_space(self.config("t1"))
        await self.let("jane", ["spaces"])
        words = ("--space", "one", "--provider", "default")
        output = await self.console(*words, "--space-credentials", user="jane")
        self.assertIn('"jane" cannot get resource "secrets"', output)
        self.assertEqual(self.refusals(self.behind_audit), [])
        await self.console(*words, user="jane")
        self.assertEqual([each["user"] for each in self.refusals(self.behind_audit)], ["jane"])

    async def test_not_ready(self) -> None:
        """A Space that is not ready, or does not exist, is named in the error."""
        await self.put_space(ClientConfig("https://x", token="t"), Phase=spaces.NOT_READY)
        output = await self.console("--space", "one")
        self.assertEqual(output, 'space "default/one" cannot be reached: it is NotReady')
        output = await self.console("--space", "two")
        self.assertEqual(output, 'there is no space "two"; kubectl get spaces -A lists all spaces')

    async def test_refused_credentials(self) -> None:
        """If the Space's credentials are refused, the error is the message of CredentialsValid."""
        message = "the API server does not take the credentials; put them into secret lab/one"
        conditions = {
            spaces.PHYSICAL_SPACE_READY: ("Unknown", "NotProbed", "readiness is unknown"),
            spaces.CREDENTIALS_VALID: ("False", "Refused", message),
        }
        await self.put_space(
            ClientConfig("https://x", token="t"),
            Phase=spaces.NOT_READY,
            conditions=with_conditions([], conditions, "2026-01-01T00:00:00Z", 1),
        )
        for words in ((), ("--space-credentials",)):
            self.assertEqual(
                await self.console("--space", "one", *words),
                f'space "default/one" cannot be reached: it is NotReady: {message}',
            )

    async def hostile(self) -> Consoles:
        """Serve a Space whose server belongs to an attacker and records credentials."""
        consoles = Consoles()
        pair = pki().pair("apiserver")
        tls = ServerTLS(pair.certificate, pair.key, client_cas=[pki().client_ca], clock=reactor)
        site = Site(consoles, reactor)
        port: Any = await server_endpoint(reactor, "tcp:0:interface=127.0.0.1", tls).listen(site)
        self.addCleanup(port.stopListening)
        self.addCleanup(site.drain)
        url = f"https://127.0.0.1:{port.getHost().port}"
        await self.put_space(self.config("t1", url))
        return consoles

    def as_robot(self, token: str = "secret-token") -> str:
        """Return the path of a kubeconfig with a token and no client certificate."""
        path = self.mktemp()
        ca = Material(data=read_file(pki().serving_ca))
        with open(path, "wb") as file:
            file.write(written(ClientConfig(self.server.url, ca=ca, token=token), "hub"))
        return path

    async def test_hostile(self) -> None:
        """A token is not sent to a Space's server unless ``--send-token-to`` names that server."""
        consoles = await self.hostile()
        output = await self.console("--space", "one", kubeconfig=self.as_robot())
        self.assertEqual(consoles.heads, [])
        self.assertIn("which is not the server that your token is for", output)
        self.assertNotIn("secret-token", output)
        space = await self.admin.get(spaces.SPACES, "one", "spaceprovider-default")
        url = space["status"]["endpoints"][0]["server"]
        words = ("--space", "one", "--send-token-to")
        await self.console(
            *words, url.replace("127.0.0.1", "localhost"), kubeconfig=self.as_robot()
        )
        self.assertEqual(consoles.heads, [])
        await self.console(*words, url, kubeconfig=self.as_robot())
        shown = consoles.heads[0].getRawHeaders("authorization")
        self.assertEqual(shown, ["Bearer secret-token"])

    async def test_not_a_user_of_the_space(self) -> None:
        """If the Space's server does not know the user, the error names ``--space-credentials``."""
        await self.start_space("t1")
        await self.put_space(self.config("t1"))
        words = ("--space", "one", "--send-token-to", self.behind.url)
        output = await self.console(*words, kubeconfig=self.as_robot())
        self.assertTrue(output.startswith("the server does not accept these credentials: "), output)
        self.assertIn('the API server of space "default/one" has users of its own', output)
        self.assertIn("--space-credentials", output)

    async def test_no_such_hint(self) -> None:
        """``--space-credentials`` is no remedy if the hub, or the Space's own credentials, are refused."""
        await self.start_space("t1")
        await self.put_space(self.config("t1"))
        output = await self.console("--space", "one", kubeconfig=self.as_robot("unknown"))
        self.assertIn("does not accept these credentials", output)
        self.assertNotIn("--space-credentials", output)
        await self.take("t2")
        output = await self.console("--space", "one", "--space-credentials")
        self.assertIn("does not accept these credentials", output)
        self.assertNotIn("users of its own", output)

    async def test_hostile_and_a_certificate(self) -> None:
        """A client certificate is used with an untrusted server, and no token is sent."""
        consoles = await self.hostile()
        await self.console("--space", "one")
        self.assertIsNone(consoles.heads[0].getRawHeaders("authorization"))

    async def let(self, user: str, resources: list[str]) -> None:
        """Grant a user read access to these resources."""
        rules = [{"apiGroups": ["*"], "resources": resources, "verbs": ["get", "list"]}]
        role = {"metadata": {"name": "reader"}, "rules": rules}
        await self.admin.create(CLUSTERROLES.resource, role)
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        binding = {
            "metadata": {"name": "reader"},
            "roleRef": {**reference, "name": "reader"},
            "subjects": [subject],
        }
        await self.admin.create(CLUSTERROLEBINDINGS.resource, binding)


class OptionsTests(SynchronousTestCase):
    """Options of the command line."""

    def refused(self, *words: str) -> None:
        with self.assertRaises(SystemExit), redirect_stderr(io.StringIO()):
            parse_options(["vm", *words])

    def test_only_with_space(self) -> None:
        """Options that concern a Space require ``--space``."""
        for words in (
            ("--provider=x",),
            ("--space-credentials",),
            ("--in-cluster",),
            ("--send-token-to=https://x",),
        ):
            self.refused(*words)
            parse_options(["vm", "--space=one", *words])

    def test_no_server(self) -> None:
        """``--send-token-to`` takes a complete https URL only."""
        for server in ("x", "http://x", "https://", "https://x:y"):
            self.refused("--space=one", f"--send-token-to={server}")

    def test_agent(self) -> None:
        """The user's name is escaped in the User-Agent header."""
        found = FoundSpace(SpaceName("one", "kcp", "spaceprovider-kcp"), {})
        for user, told in (
            ("a) evil; (b", "a%29%20evil%3B%20%28b"),
            ("Zoë\r\nX: y", "Zo%C3%AB%0D%0AX:%20y"),
            ("system:serviceaccount:a:b", "system:serviceaccount:a:b"),
            ("", "somebody unknown"),
        ):
            self.assertEqual(
                user_agent_of(found, user),
                f"kubectl-console (twisted-exec; credentials of space kcp/one, used by {told})",
            )
