"""
A real kube-apiserver and ours, with the same options for an identity provider, get the same
tokens: both authenticate the same user, or both refuse the token.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from tests import needs
from tests.apiserver.chain import ChainTestCase
from tests.auth import forge
from tests.auth.provider import Provider
from tests.tls.support import write
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError
from twisted_exec.apiserver.identity.credentials import Identities
from twisted_exec.apiserver.identity.oidc_options import OIDCOptions, issuers
from twisted_exec.apiserver.settings import Settings
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.kube.kubeconfig.loader import load

from .kube_apiserver import KubeAPIServer

reactor: Any = _reactor

REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}

WHOLE = (
    "--oidc-username-claim=email",
    "--oidc-username-prefix=u:",
    "--oidc-groups-claim=roles",
    "--oidc-groups-prefix=g:",
    "--oidc-required-claim=hd=example.org",
    "--oidc-signing-algs=RS256,ES256",
)


CONFIG = """
apiVersion: apiserver.config.k8s.io/v1beta1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: {url}
    certificateAuthority: {ca}
    audiences: [exec, console]
    audienceMatchPolicy: MatchAny
  claimValidationRules:
  - claim: hd
    requiredValue: example.org
  claimMappings:
    username: {{claim: email, prefix: ""}}
    groups: {{claim: roles, prefix: "g:"}}
    uid: {{claim: oid}}
"""


EXPRESSIONS = """
apiVersion: apiserver.config.k8s.io/v1beta1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: {url}
    certificateAuthority: {ca}
    audiences: [exec]
  claimValidationRules:
  - expression: claims.email_verified == true
    message: verify your email
  - claim: hd
    requiredValue: example.org
  claimMappings:
    username:
      expression: claims.email.split("@")[0]
    groups:
      expression: "dyn(claims.?roles.orValue([])).map(r, 'g:' + r)"
    uid:
      expression: claims.oid
    extra:
    - key: example.com/team
      valueExpression: claims.?team.orValue([])
  userValidationRules:
  - expression: '!user.username.startsWith("root")'
    message: not root
  - expression: user.groups.size() < 3
"""


class _Options(OIDCOptions):
    program = "exec-some"


class SameAsKubeAPIServerTests(ChainTestCase):
    """SelfSubjectReviews with the same token, in both servers."""

    timeout = 400
    skip = needs.kube_apiserver()

    async def setUp(self) -> None:
        self.directory = self.mktemp()
        self.provider = Provider()
        await self.provider.listen(reactor, self.directory)
        self.addCleanup(self.provider.stop)

    async def both(self, *options: str) -> None:
        """Start both with these options, and those that all of ``--oidc-`` need."""
        ca = write(self.directory, "ca.crt", self.provider.ca_pem)
        await self.start(
            f"--oidc-issuer-url={self.provider.url}",
            "--oidc-client-id=exec",
            f"--oidc-ca-file={os.path.abspath(ca)}",
            *options,
        )

    async def start(self, *told: str) -> None:
        """Start both with exactly these."""
        options_read = _Options()
        options_read.parseOptions(told)
        self.identities = Identities(issuers=issuers(options_read))
        await super().setUp()
        self.other = KubeAPIServer(*told)
        self.addCleanup(deferToThread, self.other.stop)
        await deferToThread(self.other.start)

    def settings(self, **more: Any) -> Settings:
        return super().settings(identities=self.identities, **more)

    def clients(self, token: bytes) -> Iterator[KubeClient]:
        nobody = ClientConfig(server=self.other.url, insecure_skip_tls_verify=True)
        ours = replace(load(self.kubeconfig("user-admin")), certificate=Material(), key=Material())
        for config in (nobody, ours):
            made = KubeClient(replace(config, token=token.decode()), reactor)
            self.addCleanup(made.close)
            yield made

    async def said(self, client: KubeClient) -> dict[str, Any] | None:
        """Return the user of the client's token, or ``None`` if it is refused with 401."""
        try:
            told = await client.create(kinds.SELFSUBJECTREVIEWS.resource, REVIEW)
        except APIError as error:
            self.assertEqual(error.code, 401, error.message)
            return None
        found: dict[str, Any] = told["status"]["userInfo"]
        return found

    async def same(self, token: bytes) -> dict[str, Any] | None:
        """Require that both servers agree, and return the user."""
        there, here = [await self.said(client) for client in self.clients(token)]
        self.assertEqual(here, there, token)
        return here

    def claims(self, **more: Any) -> dict[str, Any]:
        told = {"iss": self.provider.url, "aud": "exec", "sub": "jane", "exp": time.time() + 600}
        return {**told, **more}

    async def until_known(self, token: bytes) -> None:
        """kube-apiserver asks the provider every 10 seconds until it answers."""
        there, _ = self.clients(token)
        deadline = time.monotonic() + 60
        while await self.said(there) is None:
            self.assertLess(time.monotonic(), deadline)
            await deferLater(reactor, 0.2)

    async def test_defaults(self) -> None:
        """The subject after the issuer, no groups, RS256."""
        await self.both()
        await self.until_known(forge.token(self.claims()))
        told = await self.same(forge.token(self.claims(groups=["dev"], jti="t-1")))
        self.assertEqual(told and told["username"], f"{self.provider.url}#jane")
        attacker = forge.rsa_key("attacker")
        for token in (
            forge.token(self.claims(), attacker),
            forge.token(self.claims(), attacker, kid="other"),
            forge.token(self.claims(), attacker, jwk=forge.jwk(attacker)),
            forge.token(self.claims(), alg="none"),
            forge.token(self.claims(), alg="none").rpartition(b".")[0] + b".",
            forge.hmac_token(self.claims(), forge.public_pem(forge.rsa_key())),
            forge.token(self.claims(), crit=["x"], x=1),
            forge.token(self.claims(aud="other")),
            forge.token(self.claims(aud=["other"])),
            forge.token(self.claims(iss=f"{self.provider.url}/")),
            forge.token(self.claims(exp=time.time() - 60)),
            forge.token(self.claims(nbf=time.time() + 3600)),
            forge.token(self.claims(sub=5)),
        ):
            self.assertIsNone(await self.same(token))
        for token in (
            forge.token(self.claims(aud=["other", "exec"])),
            forge.token(self.claims(), kid=None),
            forge.token(self.claims(), jku="https://elsewhere.example/keys"),
            forge.token(self.claims(nbf=time.time() - 1, iat=time.time() - 1)),
            forge.token(self.claims(email="a@b", email_verified=False)),
        ):
            self.assertIsNotNone(await self.same(token))
        # There that is a user whose name is the prefix alone.
        there, here = self.clients(forge.token(self.claims(sub=None)))
        self.assertIsNotNone(await self.said(there))
        self.assertIsNone(await self.said(here))

    async def test_everything(self) -> None:
        """Claims, prefixes, and what is required."""
        await self.both(*WHOLE)
        good = {"email": "ada@example.org", "hd": "example.org"}
        await self.until_known(forge.token(self.claims(**good)))
        for roles in (None, [], ["dev", "ops"], "dev", ["system:x"]):
            told = await self.same(forge.token(self.claims(**good, roles=roles)))
            self.assertEqual(told and told["username"], "u:ada@example.org", roles)
        self.assertIsNotNone(await self.same(forge.token(self.claims(**good, email_verified=True))))
        for bad in (
            {"email_verified": False},
            {"email_verified": "true"},
            {"hd": "example.com"},
            {"hd": ["example.org"]},
            {"hd": None},
            {"roles": 5},
            {"roles": ["dev", 5]},
            {"roles": {"dev": 1}},
            {"email": 5},
        ):
            self.assertIsNone(await self.same(forge.token(self.claims(**{**good, **bad}))), bad)

    async def test_configuration(self) -> None:
        """An AuthenticationConfiguration, as it is."""
        text = CONFIG.format(url=self.provider.url, ca=json.dumps(self.provider.ca_pem.decode()))
        path = write(self.directory, "auth.yaml", text.encode())
        await self.start(f"--authentication-config={os.path.abspath(path)}")
        good = {"email": "ada@example.org", "hd": "example.org", "oid": "1"}
        await self.until_known(forge.token(self.claims(**good)))
        for more in ({}, {"aud": "console"}, {"oid": "7", "roles": ["dev"]}):
            told = await self.same(forge.token(self.claims(**{**good, **more})))
            self.assertEqual(told and told["username"], "ada@example.org", more)
        for bad in ({"aud": "other"}, {"hd": "x"}, {"email_verified": False}, {"oid": 5}):
            claims = self.claims(**{**good, **bad})
            self.assertIsNone(await self.same(forge.token(claims)), bad)

    async def test_expressions(self) -> None:
        """One with CEL."""
        text = EXPRESSIONS.format(
            url=self.provider.url, ca=json.dumps(self.provider.ca_pem.decode())
        )
        path = write(self.directory, "auth.yaml", text.encode())
        await self.start(f"--authentication-config={os.path.abspath(path)}")
        good = {"email": "ada@example.org", "email_verified": True, "hd": "example.org", "oid": "1"}
        await self.until_known(forge.token(self.claims(**good)))
        for more in (
            {},
            {"roles": ["dev", "ops"]},
            {"team": "red"},
            {"team": ["red", "", "blue"]},
            {"team": []},
            {"team": ""},
            {"team": None},
            {"jti": "t-1", "team": ["x"]},
        ):
            told = await self.same(forge.token(self.claims(**{**good, **more})))
            self.assertEqual(told and told["username"], "ada", more)
        for bad in (
            {"email_verified": False},
            {"email_verified": "true"},
            {"email": 5},
            {"email": "root@example.org"},
            {"email": "@example.org"},
            {"hd": "x"},
            {"oid": 5},
            {"roles": [1]},
            {"roles": ["a", "b", "c"]},
            {"team": 5},
            {"team": ["a", 5]},
        ):
            claims = self.claims(**{**good, **bad})
            self.assertIsNone(await self.same(forge.token(claims)), bad)

    async def test_stricter(self) -> None:
        """Ours refuses claims that name system users or groups, which kube-apiserver accepts."""
        await self.both("--oidc-username-prefix=-", "--oidc-groups-claim=groups")
        await self.until_known(forge.token(self.claims()))
        for more in ({"sub": "system:admin"}, {"groups": ["system:masters"]}, {"sub": "a\nb"}):
            there, here = self.clients(forge.token(self.claims(**more)))
            self.assertIsNotNone(await self.said(there), more)
            self.assertIsNone(await self.said(here), more)
