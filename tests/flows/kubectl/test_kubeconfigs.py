"""
Kubeconfigs of every kind: our clients must treat them as kubectl does.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.trial.unittest import TestCase

from tests import needs
from tests.apiserver import chain
from tests.chain import pki
from tests.flows import kubectls, programs
from tests.flows.deployment import POOL, Deployment
from tests.kube.plugins import V1, PluginScript
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.testing.proxies import ConnectProxy, ProxyFactory, Socks5Proxy
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.directory import SERVING
from twisted_exec.tls.server import ServerTLS

reactor: Any = _reactor

V1BETA1 = "client.authentication.k8s.io/v1beta1"
TOKENS = "secret,jane,1,dev\nroot,admin,2,system:masters\n"
NAME = "api.lab.example"
"""A host name that only the proxies resolve."""


def encoded(path: str) -> str:
    return base64.b64encode(read_file(path)).decode("ascii")


class KubeconfigCase(TestCase):
    """Writes kubeconfigs into the test's own directory."""

    starts = PROGRAMS

    def kubeconfig(self, cluster: dict[str, Any], user: dict[str, Any]) -> str:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
        self.written = getattr(self, "written", 0) + 1
        path = self.directory / f"config-{self.written}"
        path.write_text(json.dumps(config))
        return str(path)

    def setUp(self) -> Any:
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir(parents=True)

    def script(self, body: str) -> PluginScript:
        return PluginScript(Path(self.mktemp()), body)

    async def proxy(self, proxy: ProxyFactory, tls: ServerTLS | None = None) -> str:
        """Start a proxy; return its ``HOST:PORT``."""
        proxy.names[NAME] = "127.0.0.1"
        endpoint = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        if tls is not None:
            endpoint = server_endpoint(reactor, "tcp:0:interface=127.0.0.1", tls)
        port = await endpoint.listen(proxy)
        self.addCleanup(port.stopListening)
        self.addCleanup(proxy.abort)
        return f"127.0.0.1:{port.getHost().port}"


class SameAsKubectlTests(KubeconfigCase, chain.ChainTestCase):
    """For one kubeconfig, every client is the same user to the server."""

    skip = needs.kubectl()

    async def setUp(self) -> None:  # type: ignore[override]
        KubeconfigCase.setUp(self)
        self.token_file = self.write("tokens", TOKENS)
        await chain.ChainTestCase.setUp(self)
        self.cluster = {"server": self.server.url, "certificate-authority": pki().serving_ca}
        found = list(kubectls.found().values())
        self.kubectls = list(dict.fromkeys((found[0], found[-1])))

    def client(self, user: str) -> KubeClient:
        """As the parent does, but from a kubeconfig."""
        pair = pki().pair(f"user-{user}")
        cluster = {"server": self.server.url, "certificate-authority": pki().serving_ca}
        path = self.kubeconfig(
            cluster, {"client-certificate": pair.certificate, "client-key": pair.key}
        )
        made = KubeClient(load(path), reactor)
        self.addCleanup(made.close)
        return made

    def write(self, name: str, content: str) -> str:
        path = self.directory / name
        path.write_text(content)
        return str(path)

    async def kubectl_says(self, kubectl: str, path: str) -> dict[str, Any] | None:
        """Return the UserInfo that kubectl reports; ``None`` when it fails."""
        env = {"KUBECONFIG": path, "HOME": str(self.directory)}
        code, out, _ = await kubectls.run(kubectl, "auth", "whoami", "-o", "json", env=env)
        return json.loads(out)["status"]["userInfo"] if code == 0 else None

    async def we_say(self, path: str) -> dict[str, Any] | None:
        """Return the UserInfo that our client reports; ``path`` is the value of ``$KUBECONFIG``."""
        try:
            config = load(environ={"KUBECONFIG": path})
        except KubeConfigError:
            return None
        client = KubeClient(config, reactor)
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            told = await client.create(kinds.SELFSUBJECTREVIEWS.resource, review)
        except APIError:
            return None
        finally:
            await client.close()
        found: dict[str, Any] = told["status"]["userInfo"]
        return found

    async def same(self, path: str) -> dict[str, Any] | None:
        """Return the UserInfo on which all clients must agree."""
        ours = await self.we_say(path)
        for kubectl in self.kubectls:
            self.assertEqual(await self.kubectl_says(kubectl, path), ours, kubectl)
        return ours

    async def is_user(self, name: str | None, user: Any, **cluster: Any) -> dict[str, Any]:
        """Check that all clients are this user, or that all fail if ``name`` is ``None``."""
        whole = {key: value for key, value in {**self.cluster, **cluster}.items() if value}
        told = await self.same(self.kubeconfig(whole, user))
        self.assertEqual(told and told["username"], name, (user, cluster))
        return told or {}

    async def test_credentials(self) -> None:
        """Tokens, token files, certificates, passwords, and which of them takes precedence."""
        pair = pki().pair("user-jane")
        self.write("token", "secret\n")
        jane_data = {
            "client-certificate-data": encoded(pair.certificate),
            "client-key-data": encoded(pair.key),
        }
        for name, user in (
            ("jane", {"token": "secret"}),
            ("jane", {"tokenFile": "token"}),
            ("jane", {"tokenFile": "token", "token": "root"}),
            ("admin", {"tokenFile": "nowhere", "token": "root"}),
            (None, {"tokenFile": "nowhere"}),
            (None, {"token": "wrong"}),
            ("jane", {"client-certificate": pair.certificate, "client-key": pair.key}),
            ("jane", jane_data),
            (None, {"client-certificate-data": encoded(pair.certificate)}),
            (None, {"username": "jane", "password": "p"}),
            (None, {"username": "jane", "password": "p", "token": "secret"}),
            (None, {"auth-provider": {"name": "gcp"}}),
            (None, {}),
        ):
            await self.is_user(name, user)

    async def test_trust(self) -> None:
        """CAs, server names and skipped verification decide whether the server is trusted."""
        jane = {"token": "secret"}
        data = encoded(pki().serving_ca)
        ca, ca_data = "certificate-authority", "certificate-authority-data"
        for name, cluster in (
            ("jane", {ca: "", ca_data: data}),
            (None, {ca: pki().client_ca}),
            (None, {ca: ""}),
            ("jane", {ca: "", "insecure-skip-tls-verify": True}),
            (None, {"insecure-skip-tls-verify": True}),
            ("jane", {"tls-server-name": "localhost"}),
            (None, {"tls-server-name": "elsewhere.example"}),
        ):
            await self.is_user(name, jane, **cluster)

    async def test_impersonation(self) -> None:
        """Impersonation applies the user, UID, groups and extra fields, and needs permission."""
        whole = {"as": "eve", "as-uid": "9", "as-groups": ["a", "b"]}
        extra = {"as-user-extra": {"Team/x": ["red", "blue"]}}
        told = await self.is_user("eve", {"token": "root", **whole, **extra})
        self.assertEqual(
            told,
            {
                "username": "eve",
                "uid": "9",
                "groups": ["a", "b", "system:authenticated"],
                "extra": {"team/x": ["red", "blue"]},
            },
        )
        await self.is_user(None, {"token": "secret", "as": "admin"})
        await self.is_user(None, {"token": "root", "as-groups": ["a"]})

    async def test_plugins(self) -> None:
        """Plugins receive the same input from every client, and their credentials are used."""
        pair = pki().pair("user-jane")
        extension = {"a": [1, "b"], "c": {"d": None}}
        extensions = [{"name": "client.authentication.k8s.io/exec", "extension": extension}]
        for version in (V1, V1BETA1):
            script = self.script("answer(token='secret')")
            plugin = {
                "command": os.path.relpath(script.path, self.directory),
                "apiVersion": version,
                "interactiveMode": "IfAvailable",
                "provideClusterInfo": True,
                "args": ["x", "y z"],
                "env": [{"name": "N", "value": "v"}],
            }
            await self.is_user(
                "jane", {"exec": plugin}, extensions=extensions, **{"tls-server-name": "localhost"}
            )
            ours, *theirs = script.runs()
            for run in theirs:
                self.assertEqual(run, ours)
        certificate = self.script(
            f"answer(clientCertificateData=open({pair.certificate!r}).read(),"
            f" clientKeyData=open({pair.key!r}).read())"
        )
        plugin = {"command": certificate.path, "apiVersion": V1, "interactiveMode": "Never"}
        await self.is_user("jane", {"exec": plugin})
        before = len(certificate.runs())
        await self.is_user("admin", {"exec": plugin, "token": "root"})
        self.assertEqual(len(certificate.runs()), before)

    async def test_plugins_that_fail(self) -> None:
        """Failing and misconfigured plugins yield no credentials."""
        good = {"apiVersion": V1, "interactiveMode": "Never"}
        for body in (
            "sys.exit(1)",
            "print('secret')",
            "answer()",
            "answer(token='secret', clientKeyData='x')",
            "info['apiVersion'] = 'client.authentication.k8s.io/v1beta1'; answer(token='secret')",
        ):
            await self.is_user(None, {"exec": {"command": self.script(body).path, **good}})
        script = self.script("answer(token='secret')")
        for wrong in (
            {"interactiveMode": "Always"},
            {"interactiveMode": None},
            {"apiVersion": "client.authentication.k8s.io/v1alpha1"},
            {"command": "/nonexistent/plugin"},
        ):
            await self.is_user(None, {"exec": {"command": script.path, **good, **wrong}})
        self.assertEqual(script.runs(), [])

    async def test_proxies(self) -> None:
        """Every kind of proxy works with the right password, and only with that."""
        jane = {"token": "secret"}
        issued = pki().authority(SERVING).issue_server(["127.0.0.1"])
        tls = ServerTLS(
            self.write("proxy.crt", issued.certificate_pem.decode()),
            self.write("proxy.key", issued.key_pem.decode()),
            clock=reactor,
        )
        port = self.server.url.rpartition(":")[2]
        server = {"server": f"https://{NAME}:{port}", "tls-server-name": ""}
        named = {"tls-server-name": "localhost", "server": f"https://{NAME}:{port}"}
        for kind, scheme, over in (
            (ConnectProxy, "http", None),
            (ConnectProxy, "https", tls),
            (Socks5Proxy, "socks5", None),
        ):
            proxy = kind(reactor, "ann:p@ss")
            where = await self.proxy(proxy, over)
            good = {"proxy-url": f"{scheme}://ann:p%40ss@{where}"}
            await self.is_user("jane", jane, **good)
            if over is None:
                # For HTTPS proxies, Go checks the server's name and we check the proxy's.
                await self.is_user("jane", jane, **named, **good)
            await self.is_user(None, jane, **server, **good)
            await self.is_user(None, jane, **{"proxy-url": f"{scheme}://ann:no@{where}"})
            await self.is_user(None, jane, **{"proxy-url": f"{scheme}://{where}"})
            self.assertIn(f"127.0.0.1:{port}", proxy.asked)
        await self.is_user(None, jane, **{"proxy-url": "http://127.0.0.1:1"})
        await self.is_user(None, jane, **{"proxy-url": "ftp://127.0.0.1:1"})

    async def test_several_files(self) -> None:
        """The first file that defines a name wins; relative paths start at their own file."""
        os.mkdir(self.directory / "deep")
        Path(self.directory / "deep/token").write_text("secret")
        Path(self.directory / "deep/config").write_text(
            json.dumps(
                {
                    "users": [{"name": "u", "user": {"tokenFile": "token"}}],
                    "current-context": "y",
                    "contexts": [{"name": "y", "context": {"cluster": "c", "user": "u"}}],
                }
            )
        )
        # Only the context of this file is overridden; its user is ignored.
        other = self.kubeconfig(self.cluster, {"token": "root", "as": "eve"})
        path = os.pathsep.join([str(self.directory / "deep/config"), "/nonexistent", other])
        told = await self.same(path)
        self.assertEqual(told and told["username"], "jane")
        told = await self.same(os.pathsep.join(path.split(os.pathsep)[::-1]))
        self.assertEqual(told and told["username"], "eve")


class WholeWayTests(KubeconfigCase):
    """The chain, with a poollet and a user that authenticate by plugins through proxies."""

    async def test_console(self) -> None:
        """
        A poollet renews its certificate by a plugin over SOCKS; a user impersonates over CONNECT.
        """
        deployment = Deployment(self.mktemp())
        self.addCleanup(deployment.stop)
        await deployment.start_api()
        await deployment.start_runtime()
        socks, connect = Socks5Proxy(reactor, "pool:secret"), ConnectProxy(reactor)
        cluster = {
            "server": deployment.url.replace("127.0.0.1", NAME).replace("localhost", NAME),
            "tls-server-name": "localhost",
            "certificate-authority": deployment.pki.serving_ca,
        }
        poollet = self.kubeconfig(
            {**cluster, "proxy-url": f"socks5://pool:secret@{await self.proxy(socks)}"},
            {"exec": self.certificate_of(deployment, f"poollet-{POOL}-client", "2020-01-01")},
        )
        await deployment.start_poollet(f"--kubeconfig={poollet}")
        await deployment.client.create(
            kinds.MACHINECLASSES.resource,
            {
                "apiVersion": kinds.MACHINECLASSES.resource.api_version,
                "kind": "MachineClass",
                "metadata": {"name": "shell"},
                "capabilities": {"cpu": "1", "memory": "64Mi"},
            },
        )
        await deployment.create_machine("sh", "shell")
        self.assertGreater(len(self.last.runs()), 2)
        user = self.kubeconfig(
            {**cluster, "proxy-url": f"http://{await self.proxy(connect)}"},
            {"exec": self.certificate_of(deployment, "user-admin", "2040-01-01")},
        )
        console = programs.start(
            [
                *(programs.script("kubectl-console"), "sh", "--kubeconfig", user),
                *("--as", "eve", "--as-group", "system:masters"),
            ]
        )
        console.type(b"echo by $((40+2)) proxies; exit 7\n")
        assert console.transport is not None
        await console.ended
        self.assertIn(b"by 42 proxies", console.stdout)
        self.assertEqual(console.exit_code, 7, console.output)
        self.assertEqual(len(self.last.runs()), 1)
        self.assertTrue(all(each.startswith(NAME) for each in (*socks.asked, *connect.asked)))
        lines = Path(deployment.path("api.audit")).read_text().splitlines()
        first = next(each for each in map(json.loads, lines) if each["event"] == "start")
        self.assertEqual((first["user"], first["caller"]), ("eve", "admin"))

    def certificate_of(self, deployment: Deployment, name: str, expires: str) -> dict[str, Any]:
        """A plugin that returns a certificate of the deployment's PKI."""
        pair = deployment.pki.pair(name)
        crt, key = os.path.abspath(pair.certificate), os.path.abspath(pair.key)
        self.last = self.script(
            f"answer(clientCertificateData=open({crt!r}).read(),"
            f" clientKeyData=open({key!r}).read(), expirationTimestamp='{expires}T00:00:00Z')"
        )
        return {"command": self.last.path, "apiVersion": V1, "interactiveMode": "IfAvailable"}
