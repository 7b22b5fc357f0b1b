"""
Tests for :mod:`twisted_exec.apiserver.identity.reviews`.
"""

from __future__ import annotations

import json
from typing import Any

from tests.api.test_bodies import VECTORS
from tests.apiserver.identity.test_credentials import TokenAuthenticator
from tests.apiserver.support import APITestCase
from twisted_exec.api.status import (
    InternalError,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from twisted_exec.apiserver.identity.credentials import Identities

AUTHENTICATION = "/apis/authentication.k8s.io/v1"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
MACHINES_EXEC = {
    "verb": "create",
    "group": "compute.ironcore.dev",
    "resource": "machines",
    "subresource": "exec",
    "namespace": "default",
    "name": "a",
}


class ReviewTests(APITestCase):
    """Questions and answers."""

    def setUp(self) -> None:
        self.own = TokenAuthenticator()
        self.identities = Identities(authenticators=[self.own])
        super().setUp()

    def status(self, path: str, spec: Any, **more: Any) -> Any:
        return self.answer("POST", path, {"spec": spec}, code=201, **more)["status"]

    def test_token(self) -> None:
        """The user of a token; an unknown token is no error."""
        path = f"{AUTHENTICATION}/tokenreviews"
        self.assertEqual(
            self.status(path, {"token": "jane", "audiences": ["x"]}),
            {
                "authenticated": True,
                "user": {"username": "jane", "uid": "2", "groups": ["dev", "system:authenticated"]},
            },
        )
        self.assertIs(self.status(path, {"token": "wrong"})["authenticated"], False)
        for spec in ({}, {"token": "\ud800"}):
            self.refused(400, "POST", path, {"spec": spec})
        self.refused(403, "POST", path, {"spec": {"token": "x"}}, user="jane")

    def test_failing_authenticator(self) -> None:
        """A token that nobody can check now gets the error, and no status, which would be a refusal."""
        path = f"{AUTHENTICATION}/tokenreviews"
        for problem, code, after in (
            (ServiceUnavailable("the database is down", retry_after_seconds=7), 503, "7"),
            (ServiceUnavailable("the database is down"), 503, None),
            (TooManyRequests("the database is busy"), 503, "1"),
            (InternalError("the database is odd"), 503, None),
        ):
            self.own.problem = problem
            response = self.ask("POST", path, {"spec": {"token": "lab.jane"}})
            self.assertEqual(response.code, code)
            self.assertEqual(response.headers.get("retry-after"), after)
            self.assertEqual(response.json()["message"], problem.message)
        self.own.problem = Unauthorized("the lab token has expired")
        self.assertEqual(
            self.status(path, {"token": "lab.jane"}),
            {"authenticated": False, "error": "the lab token has expired"},
        )

    def test_subject_access(self) -> None:
        """The decision about a user, with the reason."""
        path, asked = f"{AUTHORIZATION}/subjectaccessreviews", {"resourceAttributes": MACHINES_EXEC}
        self.assertEqual(self.status(path, {"user": "jane", **asked}), {"allowed": False})
        self.bind("jane", "edit")
        told = self.status(path, {"user": "jane", **asked})
        self.assertTrue(told["allowed"])
        self.assertIn("jane-edit", told["reason"])
        by_group = self.status(path, {"groups": ["system:masters"], **asked})
        self.assertTrue(by_group["allowed"])
        url = {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}
        self.assertFalse(self.status(path, {"user": "jane", **url})["allowed"])

    def test_large(self) -> None:
        """A review is small, and a larger one is refused before anything is made of it."""
        path = f"{AUTHORIZATION}/selfsubjectaccessreviews"
        fields = {"fieldSelector": {"requirements": [{"key": "a", "operator": "Exists"}] * 1000}}
        spec = {"resourceAttributes": {**MACHINES_EXEC, **fields}}
        message = self.refused(413, "POST", path, {"spec": spec}, user="jane")
        self.assertIn("more than 2048 values", message)
        self.refused(413, "POST", path, b"[" + b"0," * 1_400_000, user="jane")
        groups = [f"CN=group-{number},OU=users,DC=example,DC=org" for number in range(1000)]
        spec = {"user": "jane", "groups": groups, "resourceAttributes": MACHINES_EXEC}
        self.status(f"{AUTHORIZATION}/subjectaccessreviews", spec)

    def test_bad_questions(self) -> None:
        """A review without user or action, or with two actions, is refused."""
        path = f"{AUTHORIZATION}/subjectaccessreviews"
        for spec, wrong in (
            ({}, ["spec.resourceAttributes", "spec.user"]),
            ({"user": "jane"}, ["spec.resourceAttributes"]),
            ({"resourceAttributes": MACHINES_EXEC}, ["spec.user"]),
            (
                {"user": "j", "resourceAttributes": {}, "nonResourceAttributes": {}},
                ["spec.nonResourceAttributes"],
            ),
        ):
            status = self.answer("POST", path, {"spec": spec}, code=422)
            causes = status["details"]["causes"]
            self.assertEqual([cause["field"] for cause in causes], wrong)
            self.assertEqual(status["details"]["kind"], "SubjectAccessReview")
        self.refused(422, "POST", f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": {}})
        told = self.refused(400, "POST", path, b"{")
        self.assertIn("is unrecognized (must be of type SubjectAccessReview)", told)
        self.refused(422, "POST", path, {"spec": {"user": 5}})
        self.refused(400, "POST", path, {"kind": "Other", "spec": {}})

    def test_local(self) -> None:
        """Within one namespace."""
        path = f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews"
        spec = {"user": "jane", "resourceAttributes": MACHINES_EXEC}
        self.assertFalse(self.status(path, spec)["allowed"])
        other = {**MACHINES_EXEC, "namespace": "other"}
        self.refused(422, "POST", path, {"spec": {"user": "jane", "resourceAttributes": other}})
        url = {"user": "jane", "nonResourceAttributes": {"path": "/", "verb": "get"}}
        self.refused(422, "POST", path, {"spec": url})
        elsewhere = {"metadata": {"namespace": "other"}, "spec": spec}
        self.refused(400, "POST", path, elsewhere)

    def test_self(self) -> None:
        """Anyone may ask about themselves."""
        self.bind("jane", "view")
        view = {"resourceAttributes": {**MACHINES_EXEC, "verb": "get", "subresource": ""}}
        path = f"{AUTHORIZATION}/selfsubjectaccessreviews"
        self.assertTrue(self.status(path, view, user="jane")["allowed"])
        rules = self.status(
            f"{AUTHORIZATION}/selfsubjectrulesreviews", {"namespace": "default"}, user="jane"
        )
        self.assertIn(
            "machines", [name for rule in rules["resourceRules"] for name in rule["resources"]]
        )
        self.assertIn("/version", rules["nonResourceRules"][0]["nonResourceURLs"])
        self.refused(400, "POST", f"{AUTHORIZATION}/selfsubjectrulesreviews", {}, user="jane")
        for version in ("v1", "v1beta1"):
            path = f"/apis/authentication.k8s.io/{version}/selfsubjectreviews"
            told = self.answer("POST", path, {}, user="jane", code=201)
            self.assertEqual(told["status"]["userInfo"]["username"], "jane")
            self.assertEqual(told["apiVersion"], f"authentication.k8s.io/{version}")

    def test_protobuf(self) -> None:
        """kubectl 1.32 and later ask in protobuf, and read JSON."""
        kind = "application/vnd.kubernetes.protobuf"
        for vector in json.loads(VECTORS.read_text())["vectors"]:
            if vector["path"].endswith("/token"):
                continue  # no review, and this server makes none
            raw = bytes.fromhex(vector["hex"])
            self.answer("POST", vector["path"], raw, content_type=kind, code=201)
