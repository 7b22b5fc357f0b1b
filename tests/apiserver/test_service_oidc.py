"""
People with tokens of an identity provider, through a whole API server.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import time
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from twisted.internet import reactor as _reactor

from tests.apiserver.chain import WEBSOCKET, ChainTestCase
from tests.auth import forge
from tests.auth.provider import AUTHORIZATION, DISCOVERY, Provider
from tests.chain import PATIENCE_SECONDS, POOL, patient
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError
from twisted_exec.apiserver.identity.credentials import Identities
from twisted_exec.apiserver.settings import Settings
from twisted_exec.auth.oidc.authenticator import LEEWAY_SECONDS
from twisted_exec.auth.oidc.claims import Issuer, MappedClaim
from twisted_exec.auth.oidc.configuration import Issuers
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import Material
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.kube.transport import HTTPTransport, Request
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused
from twisted_exec.streaming.interfaces import REVOKED
from twisted_exec.web.oidc import WebClient

reactor: Any = _reactor
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


class OIDCChainTests(ChainTestCase):
    """A server with one issuer, whose group ``masters`` may do everything."""

    async def setUp(self) -> None:
        self.provider = Provider()
        await self.provider.listen(reactor, self.mktemp())
        self.addCleanup(self.provider.stop)
        await super().setUp()
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "oidc-masters"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{"kind": "Group", "name": "oidc:masters"}],
        }
        await self.admin.create(kinds.CLUSTERROLEBINDINGS.resource, binding)

    def settings(self, **more: Any) -> Settings:
        issuer = Issuer(
            self.provider.url,
            ("exec", "page"),
            MappedClaim("sub", "oidc:"),
            groups=MappedClaim("groups", "oidc:"),
            ca_pem=self.provider.ca_pem,
        )
        identities = Identities(issuers=Issuers(issuer=issuer))
        return super().settings(identities=identities, web_client=WebClient("page"), **more)

    async def test_page(self) -> None:
        """
        The page's way to a token: authorization endpoint, code, and the exchange by the server, with
        a verifier that only the page has.
        """
        config = load(self.kubeconfig("user-admin"))
        nobody = replace(config, certificate=Material(), key=Material())
        transport = HTTPTransport(nobody, reactor)
        self.addCleanup(transport.close)

        async def collect(request: Request) -> tuple[int, bytes]:
            code, _, body = await transport.collect(
                request, timeout_seconds=PATIENCE_SECONDS, limit_bytes=9000
            )
            return code, body

        path = f"/console/oidc/authorization?issuer={quote(self.provider.url, safe='')}"
        code, body = await collect(Request("GET", path))
        endpoint = {"endpoint": self.provider.url + AUTHORIZATION}
        self.assertEqual((code, json.loads(body)), (200, endpoint))
        verifier, back = "v" * 43, f"{self.server.url}/console/"
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "client_id": "page",
            "redirect_uri": back,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        exchange = {"issuer": self.provider.url, "redirectUri": back}
        spoilt = self.provider.code(query)
        for given, issued, expected in (
            ("w" * 43, spoilt, 400),
            (verifier, spoilt, 400),
            (verifier, self.provider.code(query), 200),
        ):
            form = json.dumps({**exchange, "verifier": given, "code": issued}).encode()
            code, body = await collect(Request("POST", "/console/oidc/token", form))
            self.assertEqual(code, expected, body)
        user = await self.who(json.loads(body)["token"].encode())
        self.assertEqual(user["username"], "oidc:jane")

    def token(self, seconds: float = 3600, **claims: Any) -> bytes:
        told = {"aud": "exec", "sub": "jane", "groups": ["masters"], "exp": time.time() + seconds}
        return self.provider.token(**{**told, **claims})

    def by_token(self, token: bytes) -> KubeClient:
        """A client without a certificate."""
        config = load(self.kubeconfig("user-admin"))
        shown = replace(config, certificate=Material(), key=Material(), token=token.decode())
        made = patient(shown)
        self.addCleanup(made.close)
        return made

    async def who(self, token: bytes) -> dict[str, Any]:
        told = await self.by_token(token).create(kinds.SELFSUBJECTREVIEWS.resource, REVIEW)
        found: dict[str, Any] = told["status"]["userInfo"]
        return found

    async def assertNobody(self, token: bytes) -> None:
        """It is 401 in one word of the server; the client says by itself when a token has ended."""
        with self.assertRaises(APIError) as caught:
            await self.who(token)
        word = caught.exception.message.partition(" (the token ended on ")[0]
        self.assertEqual((caught.exception.code, word), (401, "Unauthorized"))

    async def test_user(self) -> None:
        """A token is a user with groups, whom roles know."""
        told = await self.who(self.token())
        self.assertEqual(told["username"], "oidc:jane")
        self.assertEqual(told["groups"], ["oidc:masters", "system:authenticated"])
        await self.by_token(self.token()).list(kinds.MACHINES.resource, "default")

    async def test_never_anonymous(self) -> None:
        """Every invalid token is 401."""
        attacker = forge.rsa_key("attacker")
        claims = {"iss": self.provider.url, "aud": "exec", "sub": "x", "exp": time.time() + 60}
        for token in (
            forge.token(claims, attacker),
            forge.token(claims, attacker, jwk=forge.jwk(attacker)),
            forge.token(claims, alg="none").rpartition(b".")[0] + b".",
            forge.hmac_token(claims, forge.public_pem(forge.rsa_key())),
            self.token(aud="another"),
            self.token(seconds=-60),
            self.token(nbf=time.time() + 1800),
            self.token(sub=""),
            self.token(iss="https://elsewhere.example"),
            b"nonsense",
        ):
            await self.assertNobody(token)

    async def test_reviewed(self) -> None:
        """A TokenReview knows them, too."""
        for token, authenticated in ((self.token(), True), (self.token(aud="another"), False)):
            review = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": token.decode()},
            }
            told = await self.admin.create(kinds.TOKENREVIEWS.resource, review)
            self.assertEqual(told["status"].get("authenticated", False), authenticated)
            if authenticated:
                self.assertEqual(told["status"]["user"]["username"], "oidc:jane")

    async def test_session_outlives_no_token(self) -> None:
        """A console that was opened with a token ends soon after the token."""
        _, port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine(pool=POOL)
        user, seconds = None, 2
        while user is None:  # a slow machine needs a token that ends later
            seconds *= 2
            # Good for some seconds more, because clocks may differ.
            header = (b"Authorization", b"Bearer " + self.token(seconds=seconds - LEEWAY_SECONDS))
            with contextlib.suppress(UpgradeRefused):
                user = await self.open(user="", headers=[*WEBSOCKET, header])
        while not user.lost:
            await self.recheck()
            began = reactor.seconds()
            await self.until(lambda began=began: reactor.seconds() > began + 0.1)
        self.assertEqual(self.ends()[-1], (REVOKED, None))

    async def test_provider_is_down(self) -> None:
        """A server whose provider does not answer is ready, serves all others, and asks the provider's users to try again."""
        await self.stop()
        self.provider.answers[DISCOVERY] = (503, {}, b"")
        await super().setUp()
        # The client's own methods ask for objects.
        code, *_ = await self.admin._http.collect(
            Request("GET", "/readyz"), timeout_seconds=PATIENCE_SECONDS, limit_bytes=10000
        )
        self.assertEqual(code, 200)
        with self.assertRaises(APIError) as caught:
            await self.who(self.token())
        self.assertEqual(caught.exception.code, 503)
        self.assertIn("try again later", caught.exception.message)
        await self.admin.list(kinds.MACHINES.resource, "default")
