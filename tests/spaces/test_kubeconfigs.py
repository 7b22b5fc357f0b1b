"""Tests for :mod:`twisted_exec.spaces.kubeconfigs`."""

from __future__ import annotations

import base64
import json
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.spaces import EXTERNAL
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.loader import MAX_INLINE_BYTES
from twisted_exec.spaces.kubeconfigs import endpoint_of, load, minimal, read

CA = base64.b64encode(b"CA").decode()


def document(**user: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "c",
                "cluster": {"server": "https://api.example", "certificate-authority-data": CA},
            }
        ],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


PLAIN = yaml.safe_dump(document(token="t0ken")).encode()


def secret(content: bytes | None, key: str = "kubeconfig") -> dict[str, Any]:
    """Return a Secret as an API server does, with base64 ``data``."""
    data = {} if content is None else {key: base64.b64encode(content).decode()}
    return {"metadata": {"namespace": "lab", "name": "one"}, "data": data}


class ReadTests(SynchronousTestCase):
    """Tests for :func:`read` and :func:`load`."""

    def refused(self, told: dict[str, Any]) -> str:
        with self.assertRaises(KubeConfigError) as caught:
            load(told)
        message = str(caught.exception)
        self.assertTrue(message.startswith('secret lab/one, key "kubeconfig"'), message)
        self.assertNotIn("t0ken", message)
        self.assertNotIn("\n", message)
        return message

    def test_once(self) -> None:
        """A Secret encoded once, as kubectl creates it, is read."""
        self.assertEqual(read(secret(PLAIN)), PLAIN)
        config = load(secret(PLAIN))
        self.assertEqual((config.server, config.token), ("https://api.example", "t0ken"))

    def test_twice(self) -> None:
        """SF 14: a kubeconfig encoded twice is still read, with or without line ends."""
        for encode in (base64.b64encode, base64.encodebytes):
            self.assertEqual(read(secret(encode(PLAIN))), PLAIN)

    def test_json(self) -> None:
        """A kubeconfig may be JSON."""
        self.assertEqual(load(secret(json.dumps(document(token="t")).encode())).token, "t")

    def test_another_key(self) -> None:
        """Any key name works; a missing key is reported with the existing keys."""
        self.assertEqual(read(secret(PLAIN, "value"), "value"), PLAIN)
        self.assertIn("there is no such key; put the kubeconfig there", self.refused(secret(None)))
        self.assertIn(
            "put the kubeconfig there (there is another)", self.refused(secret(PLAIN, "value"))
        )
        users = {**secret(PLAIN, "alice"), "data": {"alice": "eA==", "bob": "eA=="}}
        told = self.refused(users)
        self.assertTrue(told.endswith("(there are 2 others)"), told)

    def test_half(self) -> None:
        """Truncated, empty or undecodable content is reported."""
        encoded = base64.b64encode(PLAIN)
        self.assertIn("not YAML", self.refused(secret(b"clusters: [{name: c")))
        self.assertIn(
            "neither a kubeconfig nor complete base64", self.refused(secret(encoded[:-2] + b"="))
        )
        self.assertIn("it is empty", self.refused(secret(b" \n")))
        self.assertIn("it is empty", self.refused(secret(b"")))
        broken = secret(PLAIN)
        broken["data"]["kubeconfig"] = "?"
        self.assertIn("it is not base64", self.refused(broken))

    def test_too_often(self) -> None:
        """Content encoded three times is refused."""
        thrice = base64.b64encode(base64.b64encode(PLAIN))
        self.assertIn("more than twice; encode it once", self.refused(secret(thrice)))

    def test_size(self) -> None:
        """The size limit is the same for content encoded once or twice."""
        for content in (b"#" * (MAX_INLINE_BYTES + 1), b"#" * (4 << 20)):
            for told in (content, base64.b64encode(content)):
                self.assertIn("larger than 256 KiB", self.refused(secret(told)))

    def test_no_credentials(self) -> None:
        """A kubeconfig without credentials is refused."""
        nobody = document()
        told = self.refused(secret(yaml.safe_dump(nobody).encode()))
        self.assertIn("holds no credentials; give its user a token", told)

    def test_in_the_clear(self) -> None:
        """Servers without TLS are refused, so that no Secret leads to a local kubectl proxy."""
        for server in ("http://127.0.0.1:8001", "http://169.254.169.254/latest", "http://[::1]"):
            for user in ({}, {"token": "t"}):
                told = document(**user)
                told["clusters"][0]["cluster"] = {"server": server}
                self.refused(secret(yaml.safe_dump(told).encode()))

    def test_leading_outside(self) -> None:
        """References to local files and programs are refused."""
        for user in (
            {"tokenFile": "/etc/passwd"},
            {"exec": {"command": "/bin/true", "apiVersion": "client.authentication.k8s.io/v1"}},
            {"client-certificate": "/a", "client-key": "/b"},
        ):
            told = self.refused(secret(yaml.safe_dump(document(**user)).encode()))
            self.assertIn("is not taken from here; use", told)

    @settings(max_examples=100, deadline=None, database=None)
    @given(st.binary(max_size=64))
    def test_any_bytes(self, content: bytes) -> None:
        """Any bytes give either a kubeconfig or an error message of one line."""
        try:
            load(secret(content))
        except KubeConfigError as error:
            self.assertNotIn("\n", str(error))


class MinimalTests(SynchronousTestCase):
    """Tests for :func:`minimal`."""

    def test_only_the_one(self) -> None:
        """SF 2: the result has only the user and the cluster of the current context."""
        whole = document(token="t0ken")
        whole["users"].append({"name": "admin", "user": {"token": "all-powerful"}})
        whole["clusters"].append({"name": "d", "cluster": {"server": "https://other.example"}})
        whole["contexts"].append({"name": "y", "context": {"cluster": "d", "user": "admin"}})
        content = minimal(yaml.safe_dump(whole).encode(), "it", "one")
        self.assertNotIn(b"all-powerful", content)
        self.assertNotIn(b"other.example", content)
        found = json.loads(content)
        self.assertEqual([each["name"] for each in found["users"]], ["one"])
        self.assertEqual(load(secret(content)).token, "t0ken")

    def test_proxy_of_this_process(self) -> None:
        """A proxy from the environment is not written to the result."""
        self.patch_environ("HTTPS_PROXY", "http://proxy.example:3128")
        self.assertNotIn(b"proxy.example", minimal(PLAIN, "it", "one"))

    def patch_environ(self, name: str, value: str) -> None:
        import os

        self.patch(os, "environ", {**os.environ, name: value})


class EndpointTests(SynchronousTestCase):
    """Tests for :func:`endpoint_of`."""

    def test_no_secret(self) -> None:
        """The endpoint has the server and its CA, but no credentials."""
        told = endpoint_of(load(secret(PLAIN)), EXTERNAL)
        self.assertEqual(
            told,
            {
                "viewpoint": "External",
                "server": "https://api.example",
                "certificateAuthorityData": CA,
            },
        )
