"""
Tests for :mod:`twisted_exec.apiserver.identity.service_accounts`, and for what becomes of such
tokens in a server.
"""

from __future__ import annotations

import json
from typing import Any

from joserfc import jwt
from joserfc.jwk import KeySet
from twisted.logger import capturedLogs, formatEvent

from tests.api.test_bodies import VECTORS
from tests.apiserver.support import APITestCase
from tests.auth import forge
from tests.auth.test_bootstrap_tokens import token_secret
from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.controllers.expiry import LOOK_SECONDS
from twisted_exec.apiserver.identity.credentials import Accounts, Identities

ISSUER = "https://exec.example"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SECRETS = "/api/v1/namespaces/default/secrets"
TOKENS = f"{ACCOUNTS}/robot/token"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ROBOT = "system:serviceaccount:default:robot"


class AccountsCase(APITestCase):
    """A server that makes tokens, and a ServiceAccount ``robot``."""

    issuer = ISSUER
    longest_seconds = 0

    def setUp(self) -> None:
        key = self.mktemp()
        with open(key, "wb") as stream:
            stream.write(forge.private_pem(forge.ec_key()))
        self.identities = Identities(
            accounts=Accounts(
                [self.issuer], signing_key_file=key, longest_seconds=self.longest_seconds
            ),
            bootstrap_tokens=True,
            api_audiences=[self.issuer, "exec"],
        )
        super().setUp()
        self.account = self.answer("POST", ACCOUNTS, {"metadata": {"name": "robot"}}, code=201)

    def request(self, **spec: Any) -> Object:
        return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}

    def token(self, **spec: Any) -> str:
        answer = self.answer("POST", TOKENS, self.request(**spec), code=201)
        return str(answer["status"]["token"])

    def review(self, token: str, **spec: Any) -> Object:
        body = {"spec": {"token": token, **spec}}
        status: Object = self.answer("POST", REVIEWS, body, code=201)["status"]
        return status


class TokenRequestTests(AccountsCase):
    """Tests for :class:`TokenRequests`."""

    def test_answer(self) -> None:
        """By default a token is valid for an hour, for this server."""
        answer = self.answer("POST", TOKENS, self.request(), code=201)
        self.assertEqual(
            answer["metadata"],
            {
                "name": "robot",
                "namespace": "default",
                "creationTimestamp": "2023-11-14T22:13:20Z",
            },
        )
        self.assertEqual(answer["spec"], {"audiences": [ISSUER, "exec"], "expirationSeconds": 3600})
        self.assertEqual(answer["status"]["expirationTimestamp"], "2023-11-14T23:13:20Z")

    def test_used(self) -> None:
        """The token authenticates the ServiceAccount, with the permissions bound to it."""
        token = self.token()
        info = self.answer("POST", WHO, {}, code=201, user=token)["status"]["userInfo"]
        self.assertEqual((info["username"], info["uid"]), (ROBOT, self.account["metadata"]["uid"]))
        self.assertEqual(
            info["groups"],
            [
                "system:serviceaccounts",
                "system:serviceaccounts:default",
                "system:authenticated",
            ],
        )
        (credential,) = info["extra"]["authentication.kubernetes.io/credential-id"]
        self.assertTrue(credential.startswith("JTI="))
        self.assertIn(ROBOT, self.refused(403, "GET", SECRETS, user=token))
        binding = {
            "metadata": {"name": "robot"},
            "roleRef": {"kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
        }
        rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
        self.answer("POST", rbac, binding, code=201)
        self.answer("GET", SECRETS, user=token)

    def test_who_may(self) -> None:
        """``edit`` of the namespace may create tokens; ``view`` may not."""
        self.bind("jane", "edit")
        self.bind("bob", "view")
        self.answer("POST", TOKENS, self.request(), code=201, user="jane")
        self.answer("GET", ACCOUNTS, user="bob")
        told = self.refused(403, "POST", TOKENS, self.request(), user="bob")
        self.assertIn('resource "serviceaccounts/token"', told)
        self.answer("POST", TOKENS, self.request(), code=401, user="nobody")

    def test_create_only(self) -> None:
        """Tokens can only be created, neither read nor changed."""
        for method in ("GET", "PUT", "DELETE", "PATCH"):
            self.refused(405, method, TOKENS)

    def test_bad_questions(self) -> None:
        """An invalid lifetime, name or bound object is refused with its cause."""
        for spec, told in (
            ({"expirationSeconds": 599}, "may not specify a duration less than 10 minutes"),
            ({"expirationSeconds": 2**33}, "may not specify a duration larger than 2^32 seconds"),
            ({"audiences": "exec"}, "spec.audiences in body must be of type array"),
        ):
            self.assertIn(told, self.refused(422, "POST", TOKENS, self.request(**spec)))
        other = {**self.request(), "metadata": {"name": "other"}}
        told = self.refused(422, "POST", TOKENS, other)
        self.assertIn("must match the service account name if specified", told)
        told = self.refused(404, "POST", f"{ACCOUNTS}/nobody/token", self.request())
        self.assertEqual(told, 'serviceaccounts "nobody" not found')
        pod = {"apiVersion": "v1", "kind": "Pod", "name": "p"}
        told = self.refused(400, "POST", TOKENS, self.request(boundObjectRef=pod))
        self.assertEqual(told, "cannot bind token to object of type v1, Kind=Pod")
        self.answer("POST", TOKENS, {}, code=201)  # which asks for nothing special

    def test_bound(self) -> None:
        """A token that is bound to a Secret ends with it."""
        reference = {"apiVersion": "v1", "kind": "Secret", "name": "pin"}
        told = self.refused(404, "POST", TOKENS, self.request(boundObjectRef=reference))
        self.assertEqual(told, 'secrets "pin" not found')
        self.answer("POST", SECRETS, {"metadata": {"name": "pin"}}, code=201)
        other = self.request(boundObjectRef={**reference, "uid": "x"})
        self.assertIn("does not match the UID in record", self.refused(409, "POST", TOKENS, other))
        token = self.token(boundObjectRef=reference)
        self.answer("POST", WHO, {}, code=201, user=token)
        self.answer("DELETE", f"{SECRETS}/pin")
        told = self.refused(401, "POST", WHO, {}, user=token)
        self.assertIn("its secret has been deleted", told)

    def test_bound_to_node(self) -> None:
        """A token bound to a Node ends with the Node, and names it."""
        nodes = "/api/v1/nodes"
        made = self.answer("POST", nodes, {"metadata": {"name": "n"}}, code=201)
        reference = {"apiVersion": "v1", "kind": "Node", "name": "n"}
        token = self.token(boundObjectRef=reference)
        info = self.answer("POST", WHO, {}, code=201, user=token)["status"]["userInfo"]
        extra, prefix = info["extra"], "authentication.kubernetes.io/node-"
        told = [extra[f"{prefix}{key}"] for key in ("name", "uid")]
        self.assertEqual(told, [["n"], [made["metadata"]["uid"]]])
        self.answer("DELETE", f"{nodes}/n")
        self.assertIn("its node has been deleted", self.refused(401, "POST", WHO, {}, user=token))

    def test_expired(self) -> None:
        """A token whose time is over is refused, never anonymous."""
        token = self.token(expirationSeconds=600)
        self.clock.advance(661)
        self.assertIn("it has expired", self.refused(401, "POST", WHO, {}, user=token))
        self.assertIn("it has expired", self.refused(401, "GET", "/version", user=token))

    def test_review(self) -> None:
        """TokenReview checks the audiences of a token."""
        token, vault = self.token(), self.token(audiences=["vault"])
        status = self.review(token)
        self.assertEqual((status["authenticated"], status["user"]["username"]), (True, ROBOT))
        self.assertEqual(status["audiences"], [ISSUER, "exec"])
        self.assertEqual(self.review(token, audiences=["exec", "x"])["audiences"], ["exec"])
        self.assertEqual(self.review(vault, audiences=["vault"])["audiences"], ["vault"])
        for refused in (self.review(vault), self.review(token, audiences=["vault"])):
            self.assertIs(refused["authenticated"], False)
            self.assertIn("it is for another audience", refused["error"])

    def test_review_of_others(self) -> None:
        """Tokens that do not say for whom they are, are for this server."""
        self.assertEqual(self.review("jane", audiences=["exec"])["audiences"], ["exec"])
        self.assertEqual(self.review("jane")["audiences"], [ISSUER, "exec"])
        self.assertIs(self.review("jane", audiences=["vault"])["authenticated"], False)

    def test_protobuf(self) -> None:
        """The very bytes of kubectl, which asks for a token that is bound to a Secret."""
        vectors = json.loads(VECTORS.read_text())["vectors"]
        (raw,) = (each["hex"] for each in vectors if each["path"].endswith("/token"))
        told = self.refused(
            404,
            "POST",
            TOKENS,
            bytes.fromhex(raw),
            content_type="application/vnd.kubernetes.protobuf",
        )
        self.assertEqual(told, 'secrets "pin" not found')

    def test_malformed(self) -> None:
        """Malformed tokens are refused, and nothing is logged."""
        header, payload, signature = self.token().split(".")
        deep = forge.b64(b'{"iss":"' + ISSUER.encode() + b'","a":' + b"[" * 9000).decode()
        twice = forge.b64(b'{"iss":"x","iss":"' + ISSUER.encode() + b'"}').decode()
        with capturedLogs() as events:
            for token in (
                f"{header}.{payload}.",
                f"{header}.{payload}",
                f".{payload}.{signature}",
                f"{header}..{signature}",
                f"{header}.{payload}.{signature}.{signature}",
                f"{header}.{payload}.{signature[:-2]}",
                f"{payload}.{header}.{signature}",
                f"{header}.{payload}={signature}",
                f"{header}.{deep}.{signature}",
                f"{header}.{twice}.{signature}",
                f"{header}.{forge.b64(b'[]').decode()}.{signature}",
                f"{forge.b64(b'{}').decode()}.{payload}.{signature}",
                "." * 30000,
                "a" * 30000,
                "abc123.0123456789abcdef",
            ):
                self.answer("POST", WHO, {}, code=401, user=token)
                self.assertIs(self.review(token)["authenticated"], False)
        self.assertEqual([formatEvent(event) for event in events], [])


class LimitedTests(AccountsCase):
    """A server whose tokens live two hours at most."""

    longest_seconds = 7200

    def test_shortened(self) -> None:
        """A longer lifetime is shortened, with a warning."""
        response = self.ask("POST", TOKENS, self.request(expirationSeconds=86400))
        self.assertEqual(response.json()["spec"]["expirationSeconds"], 7200)
        self.assertEqual(
            response.headers["warning"],
            '299 - "requested expiration of 86400 seconds shortened to 7200 seconds"',
        )


class NoTokensTests(APITestCase):
    """A server without a key for tokens."""

    def test_told(self) -> None:
        """It says what is missing; there is nothing to be known of an issuer."""
        self.answer("POST", ACCOUNTS, {"metadata": {"name": "robot"}}, code=201)
        told = self.refused(405, "POST", TOKENS, {"spec": {}})
        self.assertIn("without --service-account-signing-key-file", told)
        self.refused(404, "GET", "/openid/v1/jwks")


class DiscoveryTests(AccountsCase):
    """Discovery of ServiceAccounts and of the issuer."""

    def test_discovery(self) -> None:
        """The subresource has the group of its own kind, as in Kubernetes."""
        found = self.answer("GET", "/api/v1")["resources"]
        (told,) = (each for each in found if each["name"] == "serviceaccounts/token")
        self.assertEqual(
            told,
            {
                "name": "serviceaccounts/token",
                "singularName": "",
                "namespaced": True,
                "group": "authentication.k8s.io",
                "version": "v1",
                "kind": "TokenRequest",
                "verbs": ["create"],
            },
        )
        accept = ("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
        (core,) = self.answer("GET", "/api", headers=[accept])["items"]
        resources = {each["resource"]: each for each in core["versions"][0]["resources"]}
        self.assertEqual(
            resources["serviceaccounts"]["subresources"],
            [
                {
                    "subresource": "token",
                    "responseKind": {
                        "group": "authentication.k8s.io",
                        "version": "v1",
                        "kind": "TokenRequest",
                    },
                    "verbs": ["create"],
                }
            ],
        )

    def test_openapi(self) -> None:
        """The request is described where it is made."""
        document = self.answer("GET", "/openapi/v3/api/v1")
        path = "/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        name = schema["schema"]["$ref"].rpartition("/")[2]
        self.assertIn("spec", document["components"]["schemas"][name]["properties"])

    def test_columns(self) -> None:
        """``kubectl get serviceaccounts`` counts their secrets."""
        accept = ("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        told = self.answer("GET", ACCOUNTS, headers=[accept])
        names = [column["name"] for column in told["columnDefinitions"]]
        self.assertEqual(names, ["Name", "Secrets", "Age"])
        self.assertEqual(told["rows"][0]["cells"][:2], ["robot", "0"])


class IssuerTests(AccountsCase):
    """Tests for :class:`IssuerDocuments`."""

    def test_verified(self) -> None:
        """A third-party library verifies a token by the discovery documents."""
        token = self.token()
        configuration = self.answer("GET", "/.well-known/openid-configuration", user=token)
        self.assertEqual(
            configuration,
            {
                "issuer": ISSUER,
                "jwks_uri": f"{ISSUER}/openid/v1/jwks",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"],
            },
        )
        response = self.ask("GET", "/openid/v1/jwks", user=token)
        self.assertEqual(response.headers["content-type"], "application/jwk-set+json")
        keys = KeySet.import_key_set(response.json())
        self.assertEqual(jwt.decode(token, keys, algorithms=["ES256"]).claims["sub"], ROBOT)
        self.assertNotIn('"d"', json.dumps(response.json()))

    def test_who_may(self) -> None:
        """ServiceAccounts may read them; other users need a role."""
        for path in ("/.well-known/openid-configuration", "/openid/v1/jwks"):
            self.refused(403, "GET", path, user="jane")
            self.answer("GET", path, user=self.token())


class NamedIssuerTests(AccountsCase):
    """An issuer whose name is no URL."""

    issuer = "exec-lab"

    def test_not_told(self) -> None:
        """Tokens are accepted here, but no discovery document is served."""
        token = self.token()
        self.answer("POST", WHO, {}, code=201, user=token)
        for path in ("/.well-known/openid-configuration", "/openid/v1/jwks"):
            self.refused(404, "GET", path, user=token)


class BootstrapTokenTests(AccountsCase):
    """Bootstrap tokens in a server."""

    path = "/api/v1/namespaces/kube-system/secrets"
    token_text = "abc123.0123456789abcdef"

    def make(self, **changed: str | None) -> None:
        secret = token_secret(**changed)
        del secret["metadata"]["uid"]
        self.answer("POST", self.path, secret, code=201)

    def test_may_ask_for_certificates(self) -> None:
        """A bootstrapper may request certificates, and nothing else."""
        self.make(auth_extra_groups="system:bootstrappers:compute-ironcore-dev:machinepools")
        may = {
            "spec": {
                "resourceAttributes": {
                    "verb": "create",
                    "group": "certificates.k8s.io",
                    "resource": "certificatesigningrequests",
                    "subresource": "machinepoolclient",
                }
            }
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        told = self.answer("POST", path, may, code=201, user=self.token_text)
        self.assertIs(told["status"]["allowed"], True)
        self.refused(403, "GET", self.path, user=self.token_text)

    def test_deleted(self) -> None:
        """A deleted token is refused from then on."""
        self.make()
        self.answer("POST", WHO, {}, code=201, user=self.token_text)
        self.answer("DELETE", f"{self.path}/bootstrap-token-abc123")
        self.answer("POST", WHO, {}, code=401, user=self.token_text)

    def test_expiry(self) -> None:
        """An expired token is refused at once, and is deleted an hour later."""
        self.make(expiration="2023-11-14T22:13:30Z")
        self.make(token_id="keep12")
        self.clock.advance(11)
        self.answer("POST", WHO, {}, code=401, user=self.token_text)
        self.clock.pump([LOOK_SECONDS] * 59)
        self.assertEqual(len(self.answer("GET", self.path)["items"]), 2)
        self.clock.pump([LOOK_SECONDS] * 2)
        items = self.answer("GET", self.path)["items"]
        self.assertEqual([each["metadata"]["name"] for each in items], ["bootstrap-token-keep12"])

    def test_wrong_secrets(self) -> None:
        """A Secret that could be no token is refused, and nothing of it is quoted."""
        for changed, told in (
            ({"token_secret": "short"}, "data[token-secret]: Invalid value"),
            ({"token_secret": None}, "data[token-secret]: Required value"),
            ({"token_id": "abc12"}, "data[token-id]: Invalid value"),
            ({"expiration": "soon"}, "data[expiration]: Invalid value"),
            ({"auth_extra_groups": "system:masters"}, "data[auth-extra-groups]: Invalid value"),
        ):
            secret = token_secret(**changed)
            del secret["metadata"]["uid"]
            message = self.refused(422, "POST", self.path, secret)
            self.assertIn(told, message)
            self.assertNotIn("short", message)
        other = token_secret()
        other["metadata"] = {"name": "other", "namespace": "kube-system"}
        self.assertIn("metadata.name", self.refused(422, "POST", self.path, other))
