"""
Tests for :mod:`twisted_exec.apiserver.aggregated.admission.review`.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.aggregated.admission.test_matching import asked
from twisted_exec.apiserver.aggregated.admission.review import (
    GROUP,
    InvalidResponse,
    WebhookResponse,
    denial,
    printable,
    read_response,
    review,
    version_of,
)
from twisted_exec.auth.interfaces import User

UID = "u-1"
PATCH = [{"op": "add", "path": "/a", "value": 1}]


def encoded(told: Any) -> str:
    """As an answer holds a patch."""
    return base64.b64encode(json.dumps(told).encode()).decode()


def answer(version: str = "v1", **response: Any) -> bytes:
    """A webhook's answer, allowed unless it says otherwise."""
    told = {"uid": UID, "allowed": True, **response}
    document = {"kind": "AdmissionReview", "apiVersion": f"{GROUP}/{version}", "response": told}
    return json.dumps(document).encode()


class AskTests(SynchronousTestCase):
    """The request of a review."""

    def test_version(self) -> None:
        """The first of those that a webhook knows and we do."""
        self.assertEqual(version_of(["v2", "v1beta1", "v1"]), "v1beta1")
        self.assertRaises(InvalidResponse, version_of, [])

    def test_user(self) -> None:
        """Empty fields are left out, as in Go."""
        request = json.loads(review(UID, "v1", asked(user=User("bob"))))["request"]
        self.assertEqual(request["userInfo"], {"username": "bob"})
        self.assertEqual(request["uid"], UID)


class AnswerTests(SynchronousTestCase):
    """The response of a webhook."""

    def read(self, raw: bytes, *, mutating: bool = False, version: str = "v1") -> WebhookResponse:
        return read_response(raw, UID, version, mutating=mutating)

    def test_whole(self) -> None:
        """All that an answer may hold."""
        told = self.read(
            answer(
                allowed=False,
                status={"message": "no"},
                warnings=["w"],
                auditAnnotations={"k": "v"},
                patchType="JSONPatch",
                patch=encoded(PATCH),
            ),
            mutating=True,
        )
        self.assertEqual(told, WebhookResponse(False, {"message": "no"}, PATCH, ["w"], {"k": "v"}))

    def test_nothing_said(self) -> None:
        """Without ``allowed`` the response is invalid."""
        document = {"kind": "AdmissionReview", "apiVersion": f"{GROUP}/v1"}
        raw = json.dumps({**document, "response": {"uid": UID}}).encode()
        self.assertFalse(self.read(raw).allowed)

    def test_invalid(self) -> None:
        """Malformed responses, each with a one-line reason."""
        for raw, mutating, words in (
            (b"", False, "it is not JSON"),
            (b"\xff", False, "it is not JSON"),
            (b"null", False, "it is not an AdmissionReview"),
            (b'{"response": []}', False, "webhook response was absent"),
            (answer("v1beta1"), False, f"expected webhook response of {GROUP}/v1"),
            (answer(uid="x\ny"), False, 'expected response.uid="u-1", got "x y"'),
            (answer(uid=None), False, 'expected response.uid="u-1", got ""'),
            (answer(allowed=1), False, "response.allowed is not a boolean"),
            (answer(status="no"), False, "response.status is not an object"),
            (answer(auditAnnotations=[1]), False, "response.auditAnnotations is not an object"),
            (answer(warnings=[1]), False, "response.warnings is not a list of strings"),
            (answer(patch="e30="), False, "validating webhook may not return response.patch"),
            (answer(patchType=""), False, "validating webhook may not return response.patchType"),
            (answer(patch="e30="), True, "but not response.patchType"),
            (answer(patchType="JSONPatch"), True, "but not response.patch"),
            (answer(patchType="Merge", patch="e30="), True, 'unsupported patch type "Merge"'),
            (answer(patchType="JSONPatch", patch=1), True, "is not a JSON patch in base64"),
            (answer(patchType="JSONPatch", patch="?"), True, "is not a JSON patch in base64"),
            (answer(patchType="JSONPatch", patch="e30="), True, "is not a list of operations"),
        ):
            with self.assertRaises(InvalidResponse) as caught:
                self.read(raw, mutating=mutating)
            told = str(caught.exception)
            self.assertIn(words, told)
            self.assertNotIn("\n", told)

    def test_what_nobody_can_be_shown(self) -> None:
        """A patch is read as strictly as a client's: no halves of characters, no odd numbers."""
        for value in ('"\\ud800"', "NaN", "1e999", "[" * 100 + "]" * 100):
            patch = f'[{{"op": "add", "path": "/metadata/annotations/a", "value": {value}}}]'
            told = base64.b64encode(patch.encode()).decode()
            with self.assertRaisesRegex(InvalidResponse, "is not a JSON patch in base64"):
                self.read(answer(patchType="JSONPatch", patch=told), mutating=True)
        with self.assertRaisesRegex(InvalidResponse, "it is not JSON"):
            self.read(answer(warnings=["\ud800"]))

    def test_beta(self) -> None:
        """In the older version a patch is a JSON patch, and that of who only decides is no matter."""
        raw = answer("v1beta1", uid="another", patch=encoded(PATCH))
        self.assertEqual(self.read(raw, mutating=True, version="v1beta1").patch, PATCH)
        self.assertEqual(self.read(raw, version="v1beta1").patch, ())

    def test_bounded(self) -> None:
        """The number of warnings and annotations is limited."""
        many = answer(warnings=["w"] * 1000, auditAnnotations={str(n): "v" for n in range(1000)})
        told = self.read(many)
        self.assertEqual((len(told.warnings), len(told.annotations)), (64, 64))


class DenialTests(SynchronousTestCase):
    """Errors for the client."""

    def test_codes(self) -> None:
        """A webhook's code, unless it is none of a refusal."""
        for code, told in ((403, 403), (200, 400), (None, 400), (9999, 400), ("403", 400)):
            self.assertEqual(denial("w", {"code": code}).code, told, code)

    def test_odd(self) -> None:
        """Whatever else it says, it is a Status that can be shown."""
        error = denial("w", {"message": ["a"], "reason": {"b": 1}, "details": "x"})
        self.assertIn('admission webhook "w" denied the request: ', error.message)
        self.assertEqual(error.details, {})
        json.dumps(error.to_status())

    def test_retry(self) -> None:
        """A denial may allow a retry."""
        error = denial("w", {"code": 429, "details": {"retryAfterSeconds": 7}})
        self.assertEqual((error.code, error.retry_after_seconds), (429, 7))

    def test_shown(self) -> None:
        """Lines stay, controls go, and not too many of either."""
        self.assertEqual(printable(" a\x1b[2J\n\tb \n"), "a [2J\nb")
        self.assertEqual(len(printable("x\n" * 1000).splitlines()), 32)
