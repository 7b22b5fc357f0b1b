"""Tests for :mod:`twisted_exec.kube.kubeconfig.client_config`."""

from __future__ import annotations

import base64
import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.chain import pki
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material, expiry_of
from twisted_exec.tls.files import read_file


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
