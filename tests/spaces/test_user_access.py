"""
Tests for :mod:`twisted_exec.spaces.user_access`: the user's credentials that a Space's server may
see.

The author of the Space is an attacker who wants to act as the user.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.spaces import EXTERNAL, IN_CLUSTER
from twisted_exec.api.status import Forbidden, ServiceUnavailable
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, ImpersonatedUser, Material
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
        """A client certificate is sent to any server, because it does not reveal the key."""
        found = self.go(CERTIFICATE)
        self.assertEqual(found.certificate, CERTIFICATE.certificate)
        self.assertEqual((found.server, found.ca.data), (EVIL, b"CA of the space"))

    def test_token(self) -> None:
        """Tokens, token files and passwords are not sent; the message names the options."""
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
        """With both a certificate and a token, only the certificate is sent."""
        found = self.go(replace(CERTIFICATE, token="secret", token_file="/run/token"))
        self.assertEqual((found.token, found.token_file), ("", ""))
        self.assertTrue(found.certificate)

    def test_of_the_same_server(self) -> None:
        """
        A Space behind the user's own server gets the token; the user's CA verifies the server.
        """
        found = self.go(TOKEN, "https://hub.example:6443/clusters/root:one")
        self.assertEqual(found.token, "secret")
        self.assertEqual(found.server, "https://hub.example:6443/clusters/root:one")
        self.assertEqual(found.ca, HUB.ca)

    def test_not_by_an_objects_ca(self) -> None:
        """
        At the address of the user's server, the CA and the TLS name of the Space are ignored.
        """
        trusting = replace(TOKEN, ca=Material(), tls_server_name="hub")
        told = endpoint("https://hub.example:6443", tlsServerName="evil")
        found = with_user_credentials(trusting, told, "it")
        self.assertEqual((found.ca, found.tls_server_name), (Material(), "hub"))

    def test_nearly_the_same(self) -> None:
        """Similar names and other ports are other servers; TLS is always verified."""
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
        """The server named with ``send_token_to`` gets the token; others do not."""
        self.assertEqual(self.go(TOKEN, send_token_to=EVIL).token, "secret")
        self.assertEqual(self.go(TOKEN, send_token_to=f"{EVIL}:443/x").token, "secret")
        self.refused(TOKEN, send_token_to="https://space.example")
        self.refused(TOKEN, send_token_to="http://evil.example")

    def test_without_tls(self) -> None:
        """A server without TLS is refused for all kinds of credentials."""
        for mine in (TOKEN, CERTIFICATE, HUB):
            for server in ("http://evil.example", "http://127.0.0.1:8001"):
                with self.assertRaises(ServiceUnavailable) as caught:
                    self.go(mine, server, send_token_to=server)
                self.assertIn("has no TLS", caught.exception.message)

    def test_paths(self) -> None:
        """Paths on the user's own server that lead to other APIs are refused."""
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
        """An invalid server URL or CA is refused."""
        for told in (
            endpoint("ftp://x"),
            endpoint("https://user:password@x"),
            endpoint("x"),
            {**endpoint(), "certificateAuthorityData": "?"},
        ):
            with self.assertRaises(ServiceUnavailable):
                with_user_credentials(CERTIFICATE, told, "it")

    def test_acting(self) -> None:
        """Impersonation is passed on to the Space's server, which authorizes it."""
        mine = replace(CERTIFICATE, impersonate=ImpersonatedUser("joe"))
        self.assertEqual(self.go(mine).impersonate.user, "joe")

    def test_same_server(self) -> None:
        """The default port may be left out; URLs without TLS never match."""
        self.assertTrue(same_server("https://a", "https://A:443/x"))
        self.assertFalse(same_server("http://a", "http://a"))


class EndpointTests(SynchronousTestCase):
    """Tests for :func:`endpoint_in`."""

    def test_viewpoints(self) -> None:
        """Each viewpoint has its own endpoint; a missing endpoint fails with 503."""
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
