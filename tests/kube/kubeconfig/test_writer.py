"""Tests for :mod:`twisted_exec.kube.kubeconfig.writer`."""

from __future__ import annotations

import os
from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.kube.kubeconfig.client_config import (
    NEVER,
    ClientConfig,
    ExecPlugin,
    ImpersonatedUser,
    Material,
)
from twisted_exec.kube.kubeconfig.loader import EXEC_V1, load, load_inline
from twisted_exec.kube.kubeconfig.writer import written

WHOLE = ClientConfig(
    server="https://api.example:6443/clusters/root:a",
    namespace="lab",
    ca=Material(data=b"CA"),
    certificate=Material(data=b"CERT"),
    key=Material(data=b"KEY"),
    token="secret",
    impersonate=ImpersonatedUser("jane", "7", ("a", "b"), (("scopes", ("x", "y")),)),
    tls_server_name="other.example",
    proxy_url="socks5://proxy.example:1080",
)


class WrittenTests(SynchronousTestCase):
    """Tests for :func:`written`."""

    def test_read_again(self) -> None:
        """A written configuration loads as the same configuration."""
        content = written(WHOLE, "a")
        found = load_inline(content, "it", environ={})
        self.assertEqual(replace(found, source=""), WHOLE)

    def test_basic(self) -> None:
        """Basic credentials and ``insecure-skip-tls-verify`` are written, too."""
        told = ClientConfig(
            "https://api", username="u", password="p", insecure_skip_tls_verify=True
        )
        self.assertEqual(
            replace(load_inline(written(told, "a"), "it", environ={}), source=""), told
        )

    def test_plugin(self) -> None:
        """
        A plugin is written with all its settings, including the cluster's configuration for it.
        """
        plugin = ExecPlugin(
            "helper",
            EXEC_V1,
            ("--for", "x"),
            (("KEY", "value"),),
            NEVER,
            True,
            '{"a": 1}',
            "install it",
        )
        told = ClientConfig("https://api.example", plugin=plugin)
        path = self.mktemp()
        with open(path, "wb") as file:
            file.write(written(told, "a"))
        self.assertEqual(replace(load(path, environ={}), source=""), told)

    def test_files(self) -> None:
        """PEM files become inline data; a token file stays a path, because its token is renewed."""
        path = os.path.abspath(self.mktemp())
        with open(path, "wb") as file:
            file.write(b"PEM")
        material = Material(path=path)
        told = ClientConfig("https://api", ca=material, token_file=path)
        other = self.mktemp()
        with open(other, "wb") as file:
            file.write(written(told, "a"))
        found = load(other, environ={})
        self.assertEqual((found.ca, found.token_file), (Material(data=b"PEM"), path))
