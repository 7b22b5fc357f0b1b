"""
Tests of a gate that authenticates users by tokens, certificates and the headers of a proxy.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from tests.auth.support import CredentialsCase
from tests.auth.test_credentials import KeyAuthenticator
from tests.contracts.session_guard import Permissions, Tokens
from twisted_exec.api.status import APIError
from twisted_exec.auth.credentials import UnionAuthenticator
from twisted_exec.auth.gate import Gate, GatePolicy
from twisted_exec.auth.interfaces import IAuthenticator
from twisted_exec.auth.request_header import RequestHeaderAuthenticator
from twisted_exec.auth.x509 import X509Authenticator
from twisted_exec.streaming.context import RequestContext


class GateCase(CredentialsCase):
    """A gate, and requests to it."""

    def setUp(self) -> None:
        super().setUp()
        self.tokens, self.permissions = Tokens(), Permissions()
        self.tokens.users = {"t": "ann"}

    def authenticator(self) -> IAuthenticator:
        return UnionAuthenticator(
            [
                RequestHeaderAuthenticator(self.forwarding_ca, ["proxy"], self.clock),
                X509Authenticator(self.users_ca, self.clock),
                KeyAuthenticator(),
                self.tokens,
            ]
        )

    def gate(self, **policy: Any) -> Gate:
        return Gate(self.authenticator(), self.permissions, GatePolicy(**policy))

    def context(self, headers: dict[str, list[str]], shown: Any = None) -> RequestContext:
        request = self.request(headers, shown)
        request.isSecure = lambda: True
        request.method = b"POST"
        return RequestContext(request)

    def identified(
        self, gate: Gate, headers: dict[str, list[str]], shown: Any = None
    ) -> RequestContext:
        context = self.context(headers, shown)
        self.successResultOf(Deferred.fromCoroutine(gate.identify(context)))
        return context

    def refused(
        self, gate: Gate, error: type[APIError], headers: dict[str, list[str]], shown: Any = None
    ) -> str:
        context = self.context(headers, shown)
        identifying = Deferred.fromCoroutine(gate.identify(context))
        failure = self.failureResultOf(identifying, error)
        self.subject = context.subject
        return failure.getErrorMessage()

    token = {"Authorization": ["Bearer t"]}
