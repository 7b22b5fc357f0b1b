"""
Every authenticator keeps the contract of :class:`~twisted_exec.auth.interfaces.IAuthenticator`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from tests.apiserver.aggregated.support import PROXY, Host, configmap
from tests.auth.oidc.test_authenticator import OIDCCase
from tests.auth.support import CredentialsCase
from tests.auth.test_credentials import KEY, KeyAuthenticator
from tests.auth.test_delegated import Reviewer
from tests.auth.test_token_file import FILE
from tests.contracts.authenticator import AuthenticatorContract, Sent
from tests.tls.support import authority, client_identity
from twisted_exec.apiserver.aggregated.authentication import HostAuthenticator
from twisted_exec.apiserver.aggregated.trust import HostTrust
from twisted_exec.auth.credentials import UnionAuthenticator
from twisted_exec.auth.delegated import DelegatedAuthenticator
from twisted_exec.auth.interfaces import IAuthenticator
from twisted_exec.auth.request_header import RequestHeaderAuthenticator
from twisted_exec.auth.token_file import TokenFileAuthenticator
from twisted_exec.auth.tokens import BearerAuthenticator
from twisted_exec.auth.x509 import X509Authenticator
from twisted_exec.nodeserver.kubelet_api.gate import NamedCertificateAuthenticator

TWO_TOKENS: Sent = ({"Authorization": ["Bearer token-1", "Bearer token-2"]}, None)


def bearer(token: str) -> Sent:
    """Return the headers of a request with a bearer token."""
    return {"Authorization": [f"Bearer {token}"]}, None


class X509ContractTests(AuthenticatorContract, CredentialsCase):
    """Client certificates."""

    def make_authenticator(self) -> IAuthenticator:
        return X509Authenticator(self.users_ca, self.clock)

    def known(self) -> Sent:
        return {}, client_identity("jane", "dev")


class NamedCertificatesContractTests(X509ContractTests):
    """Client certificates of some names."""

    def make_authenticator(self) -> IAuthenticator:
        return NamedCertificateAuthenticator(super().make_authenticator(), ["jane"])

    def invalid(self) -> list[Sent]:
        return [({}, client_identity("eve"))]


class RequestHeaderContractTests(AuthenticatorContract, CredentialsCase):
    """Users whom a proxy names."""

    proxy = client_identity("proxy", ca="forwarding")

    def make_authenticator(self) -> IAuthenticator:
        return RequestHeaderAuthenticator(self.forwarding_ca, ["proxy"], self.clock)

    def known(self) -> Sent:
        return {"X-Remote-User": ["jane"], "X-Remote-Extra-A": ["b"]}, self.proxy

    def invalid(self) -> list[Sent]:
        return [({"X-Remote-User": ["jane", "root"]}, self.proxy)]


class TokenFileContractTests(AuthenticatorContract, CredentialsCase):
    """Tokens of a file."""

    def make_authenticator(self) -> IAuthenticator:
        return TokenFileAuthenticator(self.write("tokens.csv", FILE), self.clock)

    def known(self) -> Sent:
        return bearer("token-1")

    def invalid(self) -> list[Sent]:
        return [bearer("other"), TWO_TOKENS]


class BearerContractTests(TokenFileContractTests):
    """Tokens of several sources."""

    def make_authenticator(self) -> IAuthenticator:
        source = TokenFileAuthenticator(self.write("tokens.csv", FILE), self.clock)
        return BearerAuthenticator([source])


class UnionContractTests(TokenFileContractTests):
    """Several kinds of credentials."""

    def make_authenticator(self) -> IAuthenticator:
        certificates = X509Authenticator(self.users_ca, self.clock)
        return UnionAuthenticator([certificates, super().make_authenticator()])


class DelegatedContractTests(AuthenticatorContract, CredentialsCase):
    """Tokens that an API server reviews."""

    def make_authenticator(self) -> IAuthenticator:
        reviewer: Any = Reviewer()
        reviewer.answer = self.answer
        return DelegatedAuthenticator(reviewer, self.clock)

    def answer(self, spec: dict[str, Any]) -> Any:
        is_good = spec["token"] == "good"
        return {"authenticated": is_good, "user": {"username": "jane"}}

    def known(self) -> Sent:
        return bearer("good")

    def invalid(self) -> list[Sent]:
        return [bearer("other"), TWO_TOKENS]


class OIDCContractTests(AuthenticatorContract, OIDCCase, CredentialsCase):
    """ID tokens."""

    def setUp(self) -> None:
        CredentialsCase.setUp(self)
        OIDCCase.setUp(self)

    def make_authenticator(self) -> IAuthenticator:
        OIDCCase.known(self)
        return self.authenticator

    def known(self, *kids: str) -> Any:
        return bearer(self.token().decode())

    def invalid(self) -> list[Sent]:
        return [bearer(self.token(aud="other").decode()), TWO_TOKENS]


class HostContractTests(AuthenticatorContract, CredentialsCase):
    """Contract tests for :class:`HostAuthenticator`."""

    front = client_identity(PROXY, ca="forwarding")

    def make_authenticator(self) -> IAuthenticator:
        host = Host()
        cas = [authority(name).certificate_pem for name in ("users", "forwarding")]
        host.say(configmap(*cas))
        trust = HostTrust(host.client, self.clock)
        self.successResultOf(Deferred.fromCoroutine(trust.begin()))
        tokens = DelegatedAuthenticator(host.client, self.clock)
        return HostAuthenticator(trust, tokens, self.clock)

    def known(self) -> Sent:
        return {"X-Remote-User": ["jane"]}, self.front

    def invalid(self) -> list[Sent]:
        return [bearer("bad"), ({"X-Remote-User": ["jane", "root"]}, self.front)]


class HeaderContractTests(AuthenticatorContract, CredentialsCase):
    """Contract tests for :class:`KeyAuthenticator`, an embedder's own."""

    def make_authenticator(self) -> IAuthenticator:
        return KeyAuthenticator()

    def known(self) -> Sent:
        return {KEY: ["secret"]}, None

    def invalid(self) -> list[Sent]:
        return [({KEY: ["wrong"]}, None)]
