"""
Tests for :mod:`twisted_exec.api.kinds.secrets`, through the way into the store.
"""

from __future__ import annotations

from base64 import b64encode

from tests.api.kinds.support import KindTestCase
from twisted_exec.api import strategy
from twisted_exec.api.kinds import SECRETS
from twisted_exec.api.kinds.secrets import value_of


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


class SecretTests(KindTestCase):
    """Secrets."""

    kind = SECRETS

    def test_text(self) -> None:
        """``stringData`` is encoded into ``data``, overrides it, and is not stored."""
        made = self.create(
            data={"a": encoded("old"), "b": encoded("kept")}, stringData={"a": "n\N{BULLET}w"}
        )
        self.assertNotIn("stringData", made)
        self.assertEqual(made["type"], "Opaque")
        self.assertEqual(value_of(made, "a"), "n\N{BULLET}w".encode())
        self.assertEqual(value_of(made, "b"), b"kept")
        self.assertIsNone(value_of(made, "c"))

    def test_wrapped(self) -> None:
        """Line breaks in base64, as in YAML, are accepted and removed."""
        made = self.create(data={"a": "aGVs\nbG8=\r\n"})
        self.assertEqual(made["data"], {"a": "aGVsbG8="})

    def test_not_base64(self) -> None:
        """A value that is not base64 is refused without quoting it."""
        for text in ("hunter2", "aGVsbG8", "aGVs bG8=", "aGVsbG8=é"):
            (told,) = self.refused(data={"password": text})
            self.assertIn("data[password]: Invalid value", told)
            self.assertIn("must be base64", told)
            self.assertNotIn(text, told)

    def test_keys(self) -> None:
        """Keys must be valid file names."""
        for key in ("", "a/b", "a b", ".", "..", "..a", "k" * 254):
            self.assertEqual(len(self.refused(data={key: ""})), 1, key)
        self.create(data={"ignition.yaml": "", "_A-b": "", "k" * 253: ""})

    def test_types(self) -> None:
        """Each Secret type requires its keys; other types require none."""
        self.assertEqual(
            self.refused(type="kubernetes.io/tls", data={"tls.crt": ""}),
            ["data[tls.key]: Required value"],
        )
        self.assertEqual(len(self.refused(type="kubernetes.io/basic-auth")), 2)
        self.create(type="kubernetes.io/basic-auth", stringData={"username": "jane"})
        docker = "kubernetes.io/dockerconfigjson"
        (told,) = self.refused(type=docker, stringData={".dockerconfigjson": "hunter2"})
        self.assertIn("must be JSON", told)
        self.assertNotIn("hunter2", told)
        self.create(type=docker, stringData={".dockerconfigjson": "{}"})
        self.create(type="compute.ironcore.dev/ignition")

    def test_type_stays(self) -> None:
        """The type of a Secret is immutable."""
        old = self.create(type="a")
        self.assertEqual(
            self.update_refused(old, type="b"),
            ['type: Invalid value: "b": field is immutable'],
        )

    def test_immutable(self) -> None:
        """An immutable Secret cannot be changed."""
        old = self.create(immutable=True, stringData={"a": "b"})
        told = "Forbidden: field is immutable when `immutable` is set"
        self.assertEqual(self.update_refused(old, immutable=False), [f"immutable: {told}"])
        self.assertEqual(self.update_refused(old, data={}), [f"data: {told}"])
        strategy.for_update(self.kind, {**old, "data": dict(old["data"])}, old)
