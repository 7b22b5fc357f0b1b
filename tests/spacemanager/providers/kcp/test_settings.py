"""Tests for :mod:`twisted_exec.spacemanager.providers.kcp.settings`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.spaces import EXTERNAL, IN_CLUSTER
from twisted_exec.api.status import Invalid
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.spacemanager.interfaces import ProviderSpec
from twisted_exec.spacemanager.providers.kcp.settings import (
    KcpSettings,
    kcp_settings,
    split_server,
    workspace_server,
)


def kubeconfig(server: str = "https://kcp.example:6443/clusters/root", **more: str) -> bytes:
    """Return a kubeconfig with a token."""
    return written(ClientConfig(server, **{"token": "s3cret", **more}), "root")  # type: ignore[arg-type]


def told(**secret: bytes) -> KcpSettings:
    """Return the settings from a Secret with these keys."""
    return kcp_settings(ProviderSpec("lab", "kcp", secret, "default/kcp"))


class ServerTests(SynchronousTestCase):
    """Tests for :func:`split_server`."""

    def test_names_with_root(self) -> None:
        """SF 3: hosts and prefixes that contain ``root`` or ``clusters`` are kept whole."""
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
        """Trailing slashes are ignored."""
        self.assertEqual(split_server("https://h/"), ("https://h", ""))
        self.assertEqual(split_server("https://h/clusters/"), ("https://h", ""))
        self.assertEqual(split_server("https://h/clusters"), ("https://h", ""))
        self.assertEqual(split_server("https://h/clusters/root/"), ("https://h", "root"))


class SettingsTests(SynchronousTestCase):
    """Tests for :func:`kcp_settings`."""

    def refused(self, **secret: bytes) -> str:
        """Return the message that refuses a Secret."""
        with self.assertRaises(Invalid) as caught:
            told(**secret)
        message = caught.exception.message
        self.assertNotIn("s3cret", message)
        self.assertIn("default/kcp", message)
        return message

    def test_alone(self) -> None:
        """A single kubeconfig gives the external viewpoint only."""
        found = told(kubeconfig=kubeconfig())
        self.assertEqual(found.config.server, "https://kcp.example:6443")
        self.assertEqual(found.config.token, "s3cret")
        self.assertEqual(found.default_parent, "root")
        self.assertEqual(list(found.viewpoints), [EXTERNAL])

    def test_incluster(self) -> None:
        """With ``incluster``, ``kubeconfig`` is the external viewpoint, as upstream."""
        inside = kubeconfig("https://kcp.kcp.svc")
        found = told(kubeconfig=kubeconfig(), incluster=inside)
        self.assertEqual(found.config.server, "https://kcp.example:6443")
        servers = {name: each.server for name, each in found.viewpoints.items()}
        expected = {IN_CLUSTER: "https://kcp.kcp.svc", EXTERNAL: "https://kcp.example:6443"}
        self.assertEqual(servers, expected)

    def test_external(self) -> None:
        """With ``external``, ``kubeconfig`` is the in-cluster viewpoint."""
        found = told(kubeconfig=kubeconfig("https://kcp.kcp.svc"), external=kubeconfig())
        self.assertEqual(found.config.server, "https://kcp.kcp.svc")
        servers = {name: each.server for name, each in found.viewpoints.items()}
        expected = {IN_CLUSTER: "https://kcp.kcp.svc", EXTERNAL: "https://kcp.example:6443"}
        self.assertEqual(servers, expected)

    def test_three(self) -> None:
        """With both other keys, ``kubeconfig`` is only for the manager itself."""
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
        """SF 2: viewpoints, the base of Spaces' kubeconfigs, have no credentials."""
        found = told(kubeconfig=kubeconfig(), incluster=kubeconfig())
        for each in found.viewpoints.values():
            self.assertFalse(each.has_credentials)

    def test_default_parent(self) -> None:
        """The default parent is the workspace of the kubeconfig, or root without a path."""
        found = told(kubeconfig=kubeconfig("https://h/clusters/root:org"))
        self.assertEqual(found.default_parent, "root:org")
        self.assertEqual(told(kubeconfig=kubeconfig("https://h")).default_parent, "root")

    def test_parents(self) -> None:
        """``parents`` lists further workspaces; the default and repetitions are dropped."""
        found = told(kubeconfig=kubeconfig(), parents=b"root:a, root:b\nroot root:a")
        self.assertEqual(found.parents, ("root:a", "root:b"))

    def test_bad_parents(self) -> None:
        """Invalid or too many parents are refused, with the invalid path."""
        self.assertIn('"root:../x"', self.refused(kubeconfig=kubeconfig(), parents=b"root:../x"))
        many = b" ".join(b"root:x%d" % number for number in range(300))
        self.assertIn("more than 200", self.refused(kubeconfig=kubeconfig(), parents=many))
        self.assertIn("parents", self.refused(kubeconfig=kubeconfig(), parents=b"\xff\xfe"))

    def test_no_secret(self) -> None:
        """A missing Secret or an empty kubeconfig is refused."""
        with self.assertRaises(Invalid) as caught:
            kcp_settings(ProviderSpec("lab", "kcp"))
        self.assertIn("needs a Secret with the key kubeconfig", caught.exception.message)
        self.assertIn("is missing", self.refused())
        self.assertIn("is missing", self.refused(kubeconfig=b" \n"))

    def test_no_kubeconfig(self) -> None:
        """Invalid kubeconfigs, local files and disabled verification are refused."""
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
        """``kubeconfig`` needs credentials; ``incluster`` does not."""
        self.assertIn("no credentials", self.refused(kubeconfig=kubeconfig(token="")))
        found = told(kubeconfig=kubeconfig(), incluster=kubeconfig(token=""))
        self.assertEqual(len(found.viewpoints), 2)

    def test_shards(self) -> None:
        """Contexts without workspaces are refused with a pointer to the context root."""
        config = kubeconfig("https://h/clusters/system:admin")
        self.assertIn("use context root", self.refused(kubeconfig=config))
        self.assertIn(
            "use context root", self.refused(kubeconfig=kubeconfig("https://h/clusters/*"))
        )
