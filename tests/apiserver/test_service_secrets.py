"""
Tests for Secrets over HTTP: the right to read them, and tables and messages about them.
"""

from __future__ import annotations

from tests.apiserver.support import MERGE, APITestCase

SECRETS = "/api/v1/namespaces/default/secrets"


class SecretTests(APITestCase):
    """A Secret in the namespace ``default``."""

    def setUp(self) -> None:
        super().setUp()
        body = {"metadata": {"name": "keys"}, "stringData": {"password": "hunter2"}}
        self.answer("POST", SECRETS, body, code=201)

    def test_readers(self) -> None:
        """``edit`` reads them, ``view`` does not."""
        self.bind("jane", "edit")
        self.bind("bob", "view")
        self.assertEqual(
            self.answer("GET", f"{SECRETS}/keys", user="jane")["data"], {"password": "aHVudGVyMg=="}
        )
        for path in (SECRETS, f"{SECRETS}/keys", f"{SECRETS}?watch=1"):
            self.refused(403, "GET", path, user="bob")

    def test_columns(self) -> None:
        """``kubectl get secrets`` shows the type and how many values, and none of them."""
        accept = ("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        told = self.answer("GET", f"{SECRETS}?includeObject=None", headers=[accept])
        names = [column["name"] for column in told["columnDefinitions"]]
        self.assertEqual(names, ["Name", "Type", "Data", "Age"])
        self.assertEqual(told["rows"][0]["cells"][:3], ["keys", "Opaque", "1"])

    def test_not_quoted(self) -> None:
        """The error for a refused patch does not quote the old contents."""
        told = self.refused(
            422,
            "PATCH",
            f"{SECRETS}/keys?fieldValidation=Strict",
            {"nothing": 1},
            content_type=MERGE,
        )
        self.assertIn('unknown field "nothing"', told)
        self.assertNotIn("aHVudGVyMg", told)

    def test_select(self) -> None:
        """By type, as Kubernetes."""
        for kind, count in (("Opaque", 1), ("other", 0)):
            found = self.answer("GET", f"{SECRETS}?fieldSelector=type%3D{kind}")
            self.assertEqual(len(found["items"]), count)

    def test_applied_text(self) -> None:
        """Text that is applied becomes data, and applied again changes nothing."""
        config = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "applied"},
            "stringData": {"a": "b"},
        }
        path = f"{SECRETS}/applied?fieldManager=me"
        how = {"content_type": "application/apply-patch+yaml"}
        first = self.answer("PATCH", path, config, code=201, **how)
        self.assertEqual(first["data"], {"a": "Yg=="})
        again = self.answer("PATCH", path, config, **how)
        self.assertEqual(again["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"])
        other = {**config, "stringData": {"a": "c"}}
        self.assertEqual(self.answer("PATCH", path, other, **how)["data"], {"a": "Yw=="})
