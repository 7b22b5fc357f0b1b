"""Tests for :mod:`twisted_exec.kube.kubeconfig.expiry`."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.chain import pki
from twisted_exec.api.status import APIError, Forbidden, Unauthorized
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.kube.kubeconfig.expiry import expiry_of, explain_refusal
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.authority import Authority

USERS = Authority.create("users")


def token(claims: Any) -> str:
    """Return an unsigned JWT with these claims."""
    parts = (b"{}", json.dumps(claims).encode(), b"x")
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


class ExpiryTests(SynchronousTestCase):
    """Tests for :func:`expiry_of`."""

    def end(self, token: str = "", certificate: bytes = b"") -> float | None:
        config = ClientConfig("https://x", token=token, certificate=Material(data=certificate))
        return expiry_of(config)

    def test_token(self) -> None:
        """A token expires at its ``exp`` claim, in seconds since the epoch."""
        self.assertEqual(self.end(token({"exp": 1_900_000_000})), 1_900_000_000.0)

    def test_unknown(self) -> None:
        """Opaque tokens and invalid claims have no expiry."""
        odd: list[Any] = [{}, [], "x", *({"exp": each} for each in (True, "1", -1, 1e20, None))]
        known = ["", "opaque", "a.b.c", "a.b", token({"exp": float("nan")})]
        for each in [*known, *map(token, odd), f"a.{'x' * (65 << 10)}.c"]:
            self.assertIsNone(self.end(each), each[:80])
        self.assertIsNone(self.end(certificate=b"no certificate"))

    def test_first(self) -> None:
        """The earlier expiry of token and certificate counts."""
        certificate = read_file(pki().pair("user-admin").certificate)
        end = self.end(certificate=certificate)
        assert end is not None
        self.assertGreater(end, 1_000_000_000)
        self.assertEqual(self.end(token({"exp": 5}), certificate), 5)
        self.assertEqual(self.end(token({"exp": 1 << 39}), certificate), end)


class ToldWhyTests(SynchronousTestCase):
    """Tests for :func:`explain_refusal`: hints after a 401."""

    def told(self, code: type[APIError], **times: Any) -> str:
        certificate = b""
        if times:
            certificate = USERS.issue_client("jane", **times).certificate_pem
        config = ClientConfig("https://api.example", certificate=Material(data=certificate))
        return explain_refusal(code("no"), config).message

    def test_over(self) -> None:
        """The hint states when the client certificate expired or becomes valid."""
        now = datetime.now(UTC)
        ended = self.told(Unauthorized, now=now - timedelta(days=366))
        self.assertRegex(
            ended, r"^no \(the client certificate ended on \d{4}-\d\d-\d\d at .* UTC\)$"
        )
        early = self.told(Unauthorized, now=now + timedelta(days=1))
        self.assertIn("the client certificate begins on", early)
        self.assertIn("is the clock right?", early)

    def test_tokens(self) -> None:
        """The hint states when the token expired: by its own claim, or by its plugin's answer."""
        config = ClientConfig("https://api.example", token="opaque", expires=1_577_836_800.0)
        told = "no (the token ended on 2020-01-01 at 00:00:00 UTC)"
        refusal = explain_refusal(Unauthorized("no"), config)
        self.assertEqual(refusal.message, told)
        self.assertEqual(explain_refusal(refusal, config).message, told, "a second time")
        ahead = replace(config, expires=time.time() + 3600)
        self.assertEqual(explain_refusal(Unauthorized("no"), ahead).message, "no")

    def test_other_reasons(self) -> None:
        """Valid, missing or unreadable certificates, and other errors, get no hint."""
        self.assertEqual(self.told(Unauthorized, now=datetime.now(UTC)), "no")
        self.assertEqual(self.told(Unauthorized), "no")
        self.assertEqual(self.told(Forbidden, now=datetime(2020, 1, 1, tzinfo=UTC)), "no")
        config = ClientConfig("https://api.example", certificate=Material(path="/nowhere/me.crt"))
        self.assertEqual(explain_refusal(Unauthorized("no"), config).message, "no")
