"""Tests for :mod:`twisted_exec.kube.kubeconfig.writer`."""

from __future__ import annotations

import base64
import os
import stat
from dataclasses import replace

import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from twisted.trial.unittest import SynchronousTestCase

from tests.tls.support import authority
from twisted_exec.kube.kubeconfig.client_config import (
    NEVER,
    ClientConfig,
    ExecPlugin,
    ImpersonatedUser,
    Material,
)
from twisted_exec.kube.kubeconfig.loader import EXEC_V1, load, load_inline
from twisted_exec.kube.kubeconfig.writer import write_kubeconfig, written
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError

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


class WriteTests(SynchronousTestCase):
    """Tests for :func:`write_kubeconfig`."""

    def setUp(self) -> None:
        self.path = self.mktemp()
        self.key_pem = authority("a").key_pem

    def kubeconfig(self, *, replace: bool = False) -> None:
        write_kubeconfig(
            self.path,
            server="https://localhost:6443",
            ca_pem=b"CA",
            certificate_pem=b"CRT",
            key_pem=self.key_pem,
            user="admin: 'x'",
            replace=replace,
        )

    def test_content(self) -> None:
        """The kubeconfig is private YAML with embedded certificates and key."""
        self.kubeconfig()
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
        with open(self.path) as stream:
            document = yaml.safe_load(stream)
        cluster = document["clusters"][0]["cluster"]
        self.assertEqual(cluster["server"], "https://localhost:6443")
        self.assertEqual(base64.b64decode(cluster["certificate-authority-data"]), b"CA")
        user = document["users"][0]["user"]
        self.assertEqual(base64.b64decode(user["client-key-data"]), self.key_pem)
        context = document["contexts"][0]
        self.assertEqual(document["current-context"], context["name"])
        self.assertEqual(context["context"]["user"], "admin: 'x'")

    def test_older_key(self) -> None:
        """An EC key of an older directory, in PKCS #8, is embedded in the form that fabric8 reads."""
        key = pem.private_key(self.key_pem, "key")
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self.key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.kubeconfig()
        with open(self.path) as stream:
            user = yaml.safe_load(stream)["users"][0]["user"]
        embedded = base64.b64decode(user["client-key-data"])
        self.assertTrue(embedded.startswith(b"-----BEGIN EC PRIVATE KEY-----\n"))
        again = pem.private_key(embedded, "key")
        assert isinstance(again, ec.EllipticCurvePrivateKey)
        self.assertEqual(again.private_numbers(), key.private_numbers())

    def test_no_overwriting(self) -> None:
        """An existing kubeconfig is kept unless replace is true."""
        self.kubeconfig()
        with self.assertRaises(TLSConfigError):
            self.kubeconfig()
        self.kubeconfig(replace=True)
