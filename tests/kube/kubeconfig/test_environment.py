"""Tests for :mod:`twisted_exec.kube.kubeconfig.environment`; pods are in ``test_kubeconfig``."""

from __future__ import annotations

from urllib.parse import urlsplit

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.environment import proxy_for

PROXY = "http://p:3128"


class ProxyTests(SynchronousTestCase):
    """Tests for :func:`proxy_for`."""

    def proxy(self, server: str = "https://api.lab.example:6443", **environ: str) -> str:
        return proxy_for(urlsplit(server), environ)

    def test_chosen(self) -> None:
        """
        The server's scheme selects the variable, upper case first; the proxy's scheme is optional.
        """
        self.assertEqual(self.proxy(), "")
        self.assertEqual(self.proxy(HTTPS_PROXY=PROXY, https_proxy="http://q"), PROXY)
        self.assertEqual(self.proxy(https_proxy="p:3128"), PROXY)
        self.assertEqual(self.proxy(HTTP_PROXY=PROXY), "")
        self.assertEqual(self.proxy("http://api.lab.example", http_proxy=PROXY), PROXY)

    def test_this_machine(self) -> None:
        """Loopback servers are reached without a proxy."""
        for host in ("localhost", "127.0.0.1", "[::1]"):
            self.assertEqual(self.proxy(f"https://{host}:1", HTTPS_PROXY=PROXY), "")

    def test_exceptions(self) -> None:
        """NO_PROXY lists domains with their subdomains, addresses, networks, ports or ``*``."""
        server = "https://api.lab.example:6443"
        for exceptions in (
            "*",
            "other, lab.example",
            ".lab.example",
            "*.lab.example",
            "API.lab.example",
            "api.lab.example:6443",
        ):
            told = self.proxy(server, HTTPS_PROXY=PROXY, NO_PROXY=exceptions)
            self.assertEqual(told, "", exceptions)
        for others in (
            "",
            "ab.example",
            "api.lab.example:443",
            "api.lab.example:\xb2",
            ".api.lab.example",
            "10.0.0.0/8",
        ):
            told = self.proxy(server, HTTPS_PROXY=PROXY, no_proxy=others)
            self.assertEqual(told, PROXY, others)
        for server, exceptions in (
            ("https://10.1.2.3", "10.0.0.0/8"),
            ("https://10.1.2.3", "10.1.2.3"),
            ("https://10.1.2.3", "10.1.2.3:443"),
            ("https://[fd00::1]:6443", "fd00::/8"),
            ("https://[fd00::1]:6443", "[fd00::1]:6443"),
        ):
            self.assertEqual(self.proxy(server, HTTPS_PROXY=PROXY, NO_PROXY=exceptions), "")

    def test_no_proxy(self) -> None:
        """An invalid proxy is refused; ignoring it would change the route."""
        for told in ("ftp://canary", "http://", "socks4://p"):
            with self.assertRaises(KubeConfigError) as caught:
                self.proxy(HTTPS_PROXY=told)
            self.assertIn("HTTPS_PROXY in the environment is not", str(caught.exception))
            self.assertNotIn("canary", str(caught.exception))
