"""
Tests for :mod:`twisted_exec.spaces.user_access`: what may be shown to a server that only a Space
names.

The Space is written by somebody who would like to be the user.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.spaces import EXTERNAL, IN_CLUSTER
from twisted_exec.api.status import Forbidden, ServiceUnavailable
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Impersonation, Material
from twisted_exec.spaces.space_view import view_of
from twisted_exec.spaces.user_access import endpoint_in, same_server, with_user_credentials

HUB = ClientConfig(
    "https://hub.example:6443", ca=Material(data=b"CA of the hub"), source="/home/jane/config"
)
TOKEN = replace(HUB, token="secret")
CERTIFICATE = replace(HUB, certificate=Material(data=b"C"), key=Material(data=b"K"))
EVIL = "https://evil.example"
THEIR_CA = base64.b64encode(b"CA of the space").decode()


def endpoint(server: str = EVIL, **more: Any) -> dict[str, Any]:
    return {"server": server, "certificateAuthorityData": THEIR_CA, **more}


class VisitingTests(SynchronousTestCase):
    """Tests for :func:`with_user_credentials`."""

    def go(self, mine: ClientConfig, server: str = EVIL, **more: Any) -> ClientConfig:
        return with_user_credentials(mine, endpoint(server), 'space "default/one"', **more)

    def refused(self, mine: ClientConfig, **more: Any) -> str:
        with self.assertRaises(Forbidden) as caught:
            self.go(mine, **more)
        self.assertNotIn("secret", caught.exception.message)
        return caught.exception.message

    def test_certificate(self) -> None:
        """A certificate is shown to anybody: they can do nothing with it."""
        found = self.go(CERTIFICATE)
        self.assertEqual(found.certificate, CERTIFICATE.certificate)
        self.assertEqual((found.server, found.ca.data), (EVIL, b"CA of the space"))

    def test_token(self) -> None:
        """A token, a token's file and a password stay here, and it is said what would help."""
        for mine in (
            TOKEN,
            replace(HUB, token_file="/run/token"),
            replace(HUB, username="jane", password="secret"),
        ):
            told = self.refused(mine)
            self.assertIn(f"is at {EVIL}, which is not the server that your ", told)
            self.assertIn("--space-credentials", told)
            self.assertIn("--send-token-to", told)

    def test_both(self) -> None:
        """Of a certificate and a token only the certificate is shown."""
        found = self.go(replace(CERTIFICATE, token="secret", token_file="/run/token"))
        self.assertEqual((found.token, found.token_file), ("", ""))
        self.assertTrue(found.certificate)

    def test_of_the_same_server(self) -> None:
        """
        A Space behind the very server that the token is for may have it, as the user knows that
        server.
        """
        found = self.go(TOKEN, "https://hub.example:6443/clusters/root:one")
        self.assertEqual(found.token, "secret")
        self.assertEqual(found.server, "https://hub.example:6443/clusters/root:one")
        self.assertEqual(found.ca, HUB.ca)

    def test_not_by_an_objects_ca(self) -> None:
        """
        Who answers at the server's address must be known by the user's CA: an object's own is not
        taken.
        """
        trusting = replace(TOKEN, ca=Material(), tls_server_name="hub")
        told = endpoint("https://hub.example:6443", tlsServerName="evil")
        found = with_user_credentials(trusting, told, "it")
        self.assertEqual((found.ca, found.tls_server_name), (Material(), "hub"))

    def test_nearly_the_same(self) -> None:
        """Other names, ports and spellings are other servers; no trust in one is carried to another."""
        for server in (
            "https://hub.example:6444",
            "https://hub.example",
            "https://hub.example.evil.example:6443",
            "https://hub.examp1e:6443",
            "https://127.0.0.1:6443",
        ):
            self.refused(TOKEN, server=server)
        careless = replace(CERTIFICATE, insecure_skip_tls_verify=True, ca=Material())
        self.assertFalse(self.go(careless).insecure_skip_tls_verify)

    def test_named_by_the_user(self) -> None:
        """Who names the server says that it may have the token; another one may not."""
        self.assertEqual(self.go(TOKEN, send_token_to=EVIL).token, "secret")
        self.assertEqual(self.go(TOKEN, send_token_to=f"{EVIL}:443/x").token, "secret")
        self.refused(TOKEN, send_token_to="https://space.example")
        self.refused(TOKEN, send_token_to="http://evil.example")

    def test_without_tls(self) -> None:
        """Nothing goes where others could read it, and nothing is typed there."""
        for mine in (TOKEN, CERTIFICATE, HUB):
            for server in ("http://evil.example", "http://127.0.0.1:8001"):
                with self.assertRaises(ServiceUnavailable) as caught:
                    self.go(mine, server, send_token_to=server)
                self.assertIn("has no TLS", caught.exception.message)

    def test_paths(self) -> None:
        """Behind the user's own server a path could be anything that the user may ask for."""
        hub = "https://hub.example:6443"
        for path in (
            "/api/v1/namespaces/evil/services/x/proxy",
            "/apis/x",
            "/clusters/a%2f..%2f",
            "/../api/v1",
            "/a//b",
            "/a b",
            "/x?command=y",
        ):
            with self.assertRaises(ServiceUnavailable, msg=path):
                self.go(TOKEN, hub + path)

    def test_no_server(self) -> None:
        """What is no server's URL, and no certificate, is said to be none."""
        for told in (
            endpoint("ftp://x"),
            endpoint("https://user:password@x"),
            endpoint("x"),
            {**endpoint(), "certificateAuthorityData": "?"},
        ):
            with self.assertRaises(ServiceUnavailable):
                with_user_credentials(CERTIFICATE, told, "it")

    def test_acting(self) -> None:
        """Whom the user acts as goes along: the server there decides about that."""
        mine = replace(CERTIFICATE, impersonate=Impersonation("joe"))
        self.assertEqual(self.go(mine).impersonate.user, "joe")

    def test_same_server(self) -> None:
        """The port may be said or not; without TLS nobody is the same."""
        self.assertTrue(same_server("https://a", "https://A:443/x"))
        self.assertFalse(same_server("http://a", "http://a"))


class EndpointTests(SynchronousTestCase):
    """Tests for :func:`endpoint_in`."""

    def test_viewpoints(self) -> None:
        """Each viewpoint has its own; where there is none, that is said."""
        space = {
            "metadata": {"name": "one", "namespace": "spaceprovider-default"},
            "spec": {"SpaceProviderDescName": "default"},
            "status": {"endpoints": [{"viewpoint": EXTERNAL, "server": EVIL}, {}, "x"]},
        }
        view = view_of(space, EXTERNAL)
        assert view is not None
        self.assertEqual(endpoint_in(space, view, EXTERNAL)["server"], EVIL)
        with self.assertRaises(ServiceUnavailable):
            endpoint_in(space, view, IN_CLUSTER)
