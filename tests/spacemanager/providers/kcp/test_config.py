"""Tests for :mod:`twisted_exec.spacemanager.providers.kcp.config`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.spaces import EXTERNAL, IN_CLUSTER
from twisted_exec.api.status import Invalid
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.spacemanager.interfaces import ProviderSpec
from twisted_exec.spacemanager.providers.kcp.config import (
    KcpSettings,
    kcp_settings,
    split_server,
    workspace_server,
)


def kubeconfig(server: str = "https://kcp.example:6443/clusters/root", **more: str) -> bytes:
    """Of a user with a token."""
    return written(ClientConfig(server, **{"token": "s3cret", **more}), "root")  # type: ignore[arg-type]


def told(**secret: bytes) -> KcpSettings:
    """What a Secret with these keys says."""
    return kcp_settings(ProviderSpec("lab", "kcp", secret, "default/kcp"))


class ServerTests(SynchronousTestCase):
    """Tests for :func:`split_server`."""

    def test_names_with_root(self) -> None:
        """SF 3: a host that is called root-something stays whole, as do prefixes and paths."""
        for host in (
            "https://root.example:6443",
            "https://kcp-root-clusters.example",
            "https://[::1]:6443",
            "https://h/root/prefix",
        ):
            for path in ("root", "root:root-org:team", "2xkvk3gvg1n9"):
                server = workspace_server(host, path)
                self.assertEqual(split_server(server), (host, path))
            self.assertEqual(split_server(host), (host, ""))

    def test_slashes(self) -> None:
        """A slash at the end says nothing."""
        self.assertEqual(split_server("https://h/"), ("https://h", ""))
        self.assertEqual(split_server("https://h/clusters/"), ("https://h", ""))
        self.assertEqual(split_server("https://h/clusters"), ("https://h", ""))
        self.assertEqual(split_server("https://h/clusters/root/"), ("https://h", "root"))


class SettingsTests(SynchronousTestCase):
    """Tests for :func:`kcp_settings`."""

    def refused(self, **secret: bytes) -> str:
        """Why a Secret cannot be used."""
        with self.assertRaises(Invalid) as caught:
            told(**secret)
        message = caught.exception.message
        self.assertNotIn("s3cret", message)
        self.assertIn("default/kcp", message)
        return message

    def test_alone(self) -> None:
        """One kubeconfig will do: workspaces are reached from outside then."""
        found = told(kubeconfig=kubeconfig())
        self.assertEqual(found.config.server, "https://kcp.example:6443")
        self.assertEqual(found.config.token, "s3cret")
        self.assertEqual(found.default_parent, "root")
        self.assertEqual(list(found.viewpoints), [EXTERNAL])

    def test_incluster(self) -> None:
        """With ``incluster``, ``kubeconfig`` is how it is reached from outside, as upstream has it."""
        inside = kubeconfig("https://kcp.kcp.svc")
        found = told(kubeconfig=kubeconfig(), incluster=inside)
        self.assertEqual(found.config.server, "https://kcp.example:6443")
        servers = {name: each.server for name, each in found.viewpoints.items()}
        expected = {IN_CLUSTER: "https://kcp.kcp.svc", EXTERNAL: "https://kcp.example:6443"}
        self.assertEqual(servers, expected)

    def test_external(self) -> None:
        """With ``external``, it is how it is reached from inside."""
        found = told(kubeconfig=kubeconfig("https://kcp.kcp.svc"), external=kubeconfig())
        self.assertEqual(found.config.server, "https://kcp.kcp.svc")
        servers = {name: each.server for name, each in found.viewpoints.items()}
        expected = {IN_CLUSTER: "https://kcp.kcp.svc", EXTERNAL: "https://kcp.example:6443"}
        self.assertEqual(servers, expected)

    def test_three(self) -> None:
        """With both, the manager may have a way of its own."""
        found = told(
            kubeconfig=kubeconfig("https://127.0.0.1:6443"),
            incluster=kubeconfig("https://kcp.kcp.svc"),
            external=kubeconfig(),
        )
        servers = {name: each.server for name, each in found.viewpoints.items()}
        expected = {IN_CLUSTER: "https://kcp.kcp.svc", EXTERNAL: "https://kcp.example:6443"}
        self.assertEqual(servers, expected)
        self.assertEqual(found.config.server, "https://127.0.0.1:6443")

    def test_viewpoints_hold_no_credentials(self) -> None:
        """SF 2: nothing that opens the whole server is in what becomes a Space's kubeconfig."""
        found = told(kubeconfig=kubeconfig(), incluster=kubeconfig())
        for each in found.viewpoints.values():
            self.assertFalse(each.has_credentials)

    def test_default_parent(self) -> None:
        """Spaces are where the kubeconfig leads; without a path that is root."""
        found = told(kubeconfig=kubeconfig("https://h/clusters/root:org"))
        self.assertEqual(found.default_parent, "root:org")
        self.assertEqual(told(kubeconfig=kubeconfig("https://h")).default_parent, "root")

    def test_parents(self) -> None:
        """More workspaces are named by their paths; the default one is no second one."""
        found = told(kubeconfig=kubeconfig(), parents=b"root:a, root:b\nroot root:a")
        self.assertEqual(found.parents, ("root:a", "root:b"))

    def test_bad_parents(self) -> None:
        """A path that cannot be is named."""
        self.assertIn('"root:../x"', self.refused(kubeconfig=kubeconfig(), parents=b"root:../x"))
        many = b" ".join(b"root:x%d" % number for number in range(300))
        self.assertIn("more than 200", self.refused(kubeconfig=kubeconfig(), parents=many))
        self.assertIn("parents", self.refused(kubeconfig=kubeconfig(), parents=b"\xff\xfe"))

    def test_no_secret(self) -> None:
        """What is missing is said."""
        with self.assertRaises(Invalid) as caught:
            kcp_settings(ProviderSpec("lab", "kcp"))
        self.assertIn("needs a Secret with the key kubeconfig", caught.exception.message)
        self.assertIn("is missing", self.refused())
        self.assertIn("is missing", self.refused(kubeconfig=b" \n"))

    def test_no_kubeconfig(self) -> None:
        """What is none, leads out of the Secret or trusts anybody is refused."""
        for content in (b"no: {yaml", b"[]", b"x" * (300 << 10)):
            self.assertIn('key "kubeconfig"', self.refused(kubeconfig=content))
        config = {"token": "", "token_file": "/etc/passwd"}
        self.assertIn("tokenFile", self.refused(kubeconfig=kubeconfig(**config)))
        trusting = written(
            ClientConfig("https://h", token="s3cret", insecure_skip_tls_verify=True), "x"
        )
        self.assertIn("insecure-skip-tls-verify", self.refused(kubeconfig=trusting))
        self.assertIn('"incluster"', self.refused(kubeconfig=kubeconfig(), incluster=trusting))

    def test_no_credentials(self) -> None:
        """A manager without a name is nobody; a viewpoint needs none."""
        self.assertIn("no credentials", self.refused(kubeconfig=kubeconfig(token="")))
        found = told(kubeconfig=kubeconfig(), incluster=kubeconfig(token=""))
        self.assertEqual(len(found.viewpoints), 2)

    def test_shards(self) -> None:
        """Contexts of kcp's kubeconfig that have no workspaces say which one does."""
        config = kubeconfig("https://h/clusters/system:admin")
        self.assertIn("use context root", self.refused(kubeconfig=config))
        self.assertIn(
            "use context root", self.refused(kubeconfig=kubeconfig("https://h/clusters/*"))
        )
