"""
Tests for :mod:`twisted_exec.apiserver.controllers.signer`, and for CertificateSigningRequests over
HTTP.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from tests.apiserver.signing.test_poollets import ADDRESS, request
from tests.apiserver.support import EPOCH, MERGE, POOL_GROUP, RBAC, APITestCase
from twisted_exec.api import times
from twisted_exec.api.kinds import Object
from twisted_exec.api.kinds.certificates import request_of
from twisted_exec.apiserver.controllers import signer
from twisted_exec.apiserver.restriction.agents import LIMIT_REQUESTS
from twisted_exec.apiserver.signing.authority import CAPair
from twisted_exec.apiserver.signing.interfaces import (
    AGENT,
    CLIENT,
    NODE_CLIENT,
    NODE_SERVING,
    SERVING,
)
from twisted_exec.auth.agent_certificates import agent_of
from twisted_exec.control.queue import LONGEST_RETRY_SECONDS
from twisted_exec.tls.pki.authority import Authority
from twisted_exec.tls.server import PeerCertificate

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
FOREIGN = "example.com/other"
APPROVE = {"type": "Approved", "status": "True", "reason": "Because"}
DENY = {"type": "Denied", "status": "True", "reason": "Because"}
ALL_SIGNERS = (SERVING, CLIENT, NODE_SERVING, NODE_CLIENT, AGENT)
NODES = "/api/v1/nodes"
SERVER_USAGES = ("digital signature", "server auth")
CLIENT_USAGES = ("digital signature", "client auth")


def pem(request: bytes) -> str:
    """The base64 of the PEM of a request's DER."""
    text = b"-----BEGIN CERTIFICATE REQUEST-----\n%b\n-----END CERTIFICATE REQUEST-----\n"
    return base64.b64encode(text % base64.b64encode(request)).decode()


class SigningTestCase(APITestCase):
    """An API server with a CA."""

    def signing(self) -> dict[str, Any]:
        self.authority = Authority.create("CA", now=datetime.fromtimestamp(EPOCH, UTC))
        directory = self.mktemp()
        self.ca = CAPair(f"{directory}.crt", f"{directory}.key")
        for path, content in (
            (self.ca.certificate, self.authority.certificate_pem),
            (self.ca.key, self.authority.key_pem),
        ):
            with open(path, "wb") as stream:
                stream.write(content)
        signers = {name: self.ca.reloading(self.clock) for name in ALL_SIGNERS}
        return {"authorities": signers}

    def make(
        self,
        signer: str = SERVING,
        usages: Sequence[str] = SERVER_USAGES,
        asked: x509.CertificateSigningRequest | None = None,
        *,
        user: str = "pool-a",
        code: int = 201,
        **spec: Any,
    ) -> Object:
        """A request, made by ``user``; as it is after the server has seen it."""
        asked = asked or request(names=[ADDRESS] if signer == SERVING else [])
        told = base64.b64encode(asked.public_bytes(Encoding.PEM)).decode()
        body = {
            "metadata": {"name": "one"},
            "spec": {"request": told, "signerName": signer, "usages": list(usages), **spec},
        }
        made = self.answer("POST", REQUESTS, body, user=user, code=code)
        return self.get() if code == 201 else dict(made)

    def get(self) -> Object:
        found: Object = self.answer("GET", f"{REQUESTS}/one")
        return found

    def decide(self, condition: Object, user: str = "admin", code: int = 200) -> Any:
        """As ``kubectl certificate approve`` or ``deny``."""
        body = self.get()
        body["status"] = {"conditions": [*body.get("status", {}).get("conditions", []), condition]}
        return self.answer("PUT", f"{REQUESTS}/one/approval", body, user=user, code=code)

    def condition(self) -> list[str]:
        return [each["type"] for each in self.get().get("status", {}).get("conditions", [])]

    def certificate(self) -> x509.Certificate:
        raw = base64.b64decode(self.get()["status"]["certificate"])
        found = x509.load_pem_x509_certificate(raw)
        (ca,) = x509.load_pem_x509_certificates(self.authority.certificate_pem)
        found.verify_directly_issued_by(ca)
        return found

    def events(self) -> list[tuple[str, str]]:
        found = self.answer("GET", "/api/v1/namespaces/default/events")["items"]
        return [(each["reason"], each["message"]) for each in found]


class RequestTests(SigningTestCase):
    """Requests for unserved signers."""

    def test_requester(self) -> None:
        """The server records the requester, whatever the client sends."""
        made = self.make(
            FOREIGN,
            user="admin",
            username="mallory",
            groups=["system:masters"],
            uid="9",
            extra={"scopes": ["all"]},
        )
        spec = made["spec"]
        self.assertEqual((spec["username"], spec["uid"]), ("admin", "1"))
        self.assertIn("system:masters", spec["groups"])
        self.assertNotIn("extra", spec)
        patch = {"spec": {"username": "mallory", "usages": ["any"]}}
        self.answer("PATCH", f"{REQUESTS}/one", patch, content_type=MERGE)
        self.assertEqual(self.get()["spec"], spec)

    def test_bad(self) -> None:
        """Invalid fields are reported with their paths."""
        good = base64.b64encode(request().public_bytes(Encoding.PEM)).decode()
        other = base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode()
        broken = base64.b64encode(b"-----BEGIN CERTIFICATE REQUEST-----\nAA==\n").decode()
        large = base64.b64encode(b"x" * 40_000).decode()
        for spec, path in (
            ({"usages": []}, "spec.usages"),
            ({"usages": ["any", "any"]}, "spec.usages[1]"),
            ({"usages": ["flying"]}, "spec.usages[0]"),
            ({"signerName": "a/b"}, "spec.signerName"),
            ({"signerName": "example.com/"}, "spec.signerName"),
            ({"signerName": "kubernetes.io/legacy-unknown"}, "spec.signerName"),
            ({"expirationSeconds": 10}, "spec.expirationSeconds"),
            *(({"request": each}, "spec.request") for each in ("%", other, broken, large)),
        ):
            body = {"request": good, "signerName": FOREIGN, "usages": ["any"], **spec}
            told = self.answer(
                "POST", REQUESTS, {"metadata": {"name": "one"}, "spec": body}, code=422
            )
            self.assertEqual([each["field"] for each in told["details"]["causes"]], [path], spec)

    def test_wrong_signature(self) -> None:
        """The request must be signed with its key."""
        raw = bytearray(request().public_bytes(Encoding.DER))
        raw[-1] ^= 1
        with self.assertRaises(AssertionError) as caught:
            self.make(FOREIGN, ["any"], x509.load_der_x509_csr(bytes(raw)), user="admin")
        self.assertIn("the signature does not match the key", str(caught.exception))

    def test_unknown_version(self) -> None:
        """A request of an unknown version is refused."""
        raw = request().public_bytes(Encoding.DER).replace(b"\x02\x01\x00", b"\x02\x01\x05", 1)
        body = {"request": pem(raw), "signerName": FOREIGN, "usages": ["any"]}
        told = self.answer("POST", REQUESTS, {"metadata": {"name": "one"}, "spec": body}, code=422)
        self.assertIn("must be a valid PKCS#10 request", told["message"])

    def test_malformed_subject(self) -> None:
        """A request with a subject that cannot be parsed fails after its approval."""
        key = ec.generate_private_key(ec.SECP256R1())
        asked = request("admin", (), key=key)
        # A BIT STRING instead of a UTF8String.
        signed = asked.tbs_certrequest_bytes.replace(b"\x0c\x05admin", b"\x03\x05\x00dmin")
        signature = b"\x00" + key.sign(signed, ec.ECDSA(hashes.SHA256()))
        end = asked.public_bytes(Encoding.DER).partition(asked.tbs_certrequest_bytes)[2]
        algorithm = end[: 2 + end[1]]
        content = signed + algorithm + bytes([3, len(signature)]) + signature
        raw = b"\x30\x81" + bytes([len(content)]) + content
        self.make(CLIENT, CLIENT_USAGES, x509.load_der_x509_csr(raw), user="admin")
        self.decide(APPROVE)
        self.assertEqual(self.condition(), ["Approved", "Failed"])

    def test_decided_once(self) -> None:
        """Approved or denied, once; and it is never taken back."""
        self.make(FOREIGN, user="admin")
        self.decide(APPROVE)
        told = self.decide(DENY, code=422)
        self.assertIn("mutually exclusive", told["message"])
        body = {**self.get(), "status": {}}
        told = self.answer("PUT", f"{REQUESTS}/one/approval", body, code=422)
        self.assertIn("may not remove a condition of type 'Approved'", told["message"])
        self.assertEqual(self.condition(), ["Approved"])

    def test_parts(self) -> None:
        """``status`` cannot approve, and ``approval`` cannot set a certificate."""
        self.make(FOREIGN, user="admin")
        certificate = base64.b64encode(self.authority.certificate_pem).decode()
        both = {"status": {"conditions": [APPROVE], "certificate": certificate}}
        self.answer("PATCH", f"{REQUESTS}/one/status", both, content_type=MERGE)
        self.assertEqual(self.get()["status"], {"certificate": certificate})
        self.answer(
            "PATCH",
            f"{REQUESTS}/one/approval",
            {"status": {"conditions": [APPROVE], "certificate": None}},
            content_type=MERGE,
        )
        self.assertEqual(self.get()["status"]["certificate"], certificate)
        self.assertEqual(self.condition(), ["Approved"])
        told = self.answer(
            "PATCH",
            f"{REQUESTS}/one/status",
            {"status": {"certificate": base64.b64encode(b"x").decode()}},
            content_type=MERGE,
            code=422,
        )
        self.assertIn("updates may not modify or remove it", told["message"])

    def test_rights(self) -> None:
        """Deciding and signing need rights on the signer, besides those on the request."""
        self.make(FOREIGN, user="admin")
        group = "certificates.k8s.io"
        rbac = "/apis/rbac.authorization.k8s.io/v1"

        def allow(name: str, **rule: Any) -> None:
            role = {"metadata": {"name": name}, "rules": [{"apiGroups": [group], **rule}]}
            self.answer("POST", f"{rbac}/clusterroles", role, code=201)
            binding = {
                "metadata": {"name": name},
                "roleRef": {"kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "User", "name": "jane"}],
            }
            self.answer("POST", f"{rbac}/clusterrolebindings", binding, code=201)

        parts = ["certificatesigningrequests/approval", "certificatesigningrequests/status"]
        allow("parts", resources=parts, verbs=["update"])
        told = self.decide(APPROVE, user="jane", code=403)
        self.assertIn(
            'not permitted to approve requests with signerName "example.com/other"', told["message"]
        )
        allow("approve", resources=["signers"], resourceNames=["example.com/*"], verbs=["approve"])
        self.decide(APPROVE, user="jane")
        body = self.get()
        self.refused(403, "PUT", f"{REQUESTS}/one/status", body, user="jane")

    def test_columns(self) -> None:
        """As kubectl get csr shows it."""
        self.make(FOREIGN, user="admin", expirationSeconds=86400)
        self.decide(DENY)
        accept = ("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        told = self.answer("GET", REQUESTS, headers=[accept])
        self.assertEqual(
            [column["name"] for column in told["columnDefinitions"]],
            ["Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition"],
        )
        (row,) = told["rows"]
        self.assertEqual(row["cells"], ["one", "0s", FOREIGN, "admin", "24h", "Denied"])


class ManyTests(SigningTestCase):
    """Many pending requests."""

    def test_read_once(self) -> None:
        """A new request causes no read of the others."""
        read = []

        def counting(csr: Object) -> x509.CertificateSigningRequest:
            read.append(csr["metadata"]["name"])
            return request_of(csr)

        self.patch(signer, "request_of", counting)
        asked = request(names=[ADDRESS])
        told = base64.b64encode(asked.public_bytes(Encoding.PEM)).decode()
        spec = {"request": told, "signerName": SERVING, "usages": list(SERVER_USAGES)}
        for number in range(20):
            body = {"metadata": {"name": f"n{number}"}, "spec": spec}
            self.answer("POST", REQUESTS, body, code=201)
        self.clock.advance(signer.LOOK_SECONDS)
        self.assertEqual(len(read), 20)
        self.assertEqual(len(self.events()), 20)


class BrokenPlanTests(SigningTestCase):
    """A request whose decision raises."""

    def test_reported(self) -> None:
        """It has an Event and is tried again; it holds up no other."""
        plan, broken = signer.plan, [True]

        def breaking(csr: Object, *rest: Any) -> signer.Step:
            if broken and csr["metadata"]["name"] == "one":
                raise ZeroDivisionError
            return plan(csr, *rest)

        self.patch(signer, "plan", breaking)
        self.make()
        told = base64.b64encode(request(names=[ADDRESS]).public_bytes(Encoding.PEM)).decode()
        spec = {"request": told, "signerName": SERVING, "usages": list(SERVER_USAGES)}
        body = {"metadata": {"name": "two"}, "spec": spec}
        self.answer("POST", REQUESTS, body, user="pool-a", code=201)
        other = self.answer("GET", f"{REQUESTS}/two")
        self.assertIn("certificate", other["status"])
        self.clock.pump([1.0] * 60)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(
            [each for each in self.events() if each[0] != "Issued"],
            [("NotProcessed", "the signer failed; the log of the API server says more")],
        )
        broken.clear()
        self.clock.advance(LONGEST_RETRY_SECONDS)
        self.certificate()


class SignerTests(SigningTestCase):
    """Certificates of poollets."""

    def setUp(self) -> None:
        super().setUp()
        self.user = f"compute.ironcore.dev:system:machinepool:{'pool-a'}"

    def test_serving(self) -> None:
        """A poollet has a certificate for the address that its pool reports."""
        self.make_pool("pool-a", addresses=[{"type": "InternalIP", "address": "192.0.2.1"}])
        self.make()
        self.assertEqual(self.condition(), ["Approved"])
        found = self.certificate()
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        self.assertEqual(list(names), [ADDRESS])
        self.assertIn(self.user, found.subject.rfc4514_string())
        self.assertEqual(
            found.not_valid_after_utc,
            datetime.fromtimestamp(EPOCH, UTC) + timedelta(days=365),
        )
        self.assertEqual([reason for reason, _ in self.events()], ["Issued"])

    def test_shorter(self) -> None:
        """For no longer than it asks."""
        self.make(expirationSeconds=600)
        self.assertEqual(
            self.certificate().not_valid_after_utc,
            datetime.fromtimestamp(EPOCH + 600, UTC),
        )

    def test_other_address(self) -> None:
        """An address that the pool does not report waits for approval, with one Event."""
        self.make_pool("pool-a", addresses=[{"type": "InternalIP", "address": "192.0.2.9"}])
        self.make()
        self.clock.advance(120)
        self.assertEqual(self.condition(), [])
        ((reason, message),) = self.events()
        self.assertEqual(reason, "NotApproved")
        self.assertIn("does not report the address 192.0.2.1", message)
        self.assertIn("kubectl certificate approve one", message)
        self.decide(APPROVE)
        self.certificate()

    def test_other_shape(self) -> None:
        """A request that could not be signed is not reported as waiting for approval."""
        self.make(usages=["digital signature", "client auth"])
        self.clock.advance(120)
        ((reason, message),) = self.events()
        self.assertEqual(reason, "NotApproved")
        self.assertIn("its usages must be digital signature", message)
        self.assertIn("cannot be signed so, even when it is approved", message)
        self.assertNotIn("kubectl certificate approve", message)

    def test_later(self) -> None:
        """It is approved as soon as the pool reports the address."""
        self.make_pool("pool-a", addresses=[{"type": "InternalIP", "address": "192.0.2.9"}])
        self.make()
        pools = "/apis/compute.ironcore.dev/v1alpha1/machinepools/pool-a/status"
        patch = {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}
        self.answer("PATCH", pools, patch, user="pool-a", content_type=MERGE)
        self.certificate()

    def test_later_than_a_day(self) -> None:
        """A pool that reports an address has old requests deleted, and others are signed as before."""
        self.make_pool("pool-a", addresses=[{"type": "InternalIP", "address": "192.0.2.9"}])
        self.make()
        self.clock.advance(24 * 3600)
        self.clock.advance(1)
        pools = "/apis/compute.ironcore.dev/v1alpha1/machinepools/pool-a/status"
        patch = {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}
        self.answer("PATCH", pools, patch, user="pool-a", content_type=MERGE)
        self.refused(404, "GET", f"{REQUESTS}/one")
        self.make()
        self.certificate()

    def test_not_its_own(self) -> None:
        """Only the poollet's own request is approved automatically."""
        self.make(user="admin")
        self.assertEqual(self.condition(), [])

    def test_wrong_shape(self) -> None:
        """A request of a wrong shape fails even if approved."""
        self.make(asked=request(names=[ADDRESS], groups=["system:masters"]), user="admin")
        self.assertEqual(self.condition(), [])
        self.decide(APPROVE)
        self.assertEqual(self.condition(), ["Approved", "Failed"])
        self.assertNotIn("certificate", self.get()["status"])

    def test_client_renewal(self) -> None:
        """A poollet renews what it is known by, for itself only."""
        self.make(CLIENT, CLIENT_USAGES)
        usage = self.certificate().extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        self.assertEqual(list(usage.value), [x509.ExtendedKeyUsageOID.CLIENT_AUTH])

    def test_client_of_another(self) -> None:
        """... and not for another pool."""
        other = self.user.replace("pool-a", "pool-b")
        self.make(CLIENT, CLIENT_USAGES, request(other), code=403)
        self.make(CLIENT, CLIENT_USAGES, request(other), user="admin")
        self.certificate()  # the right for any poollet includes this poollet

    def test_without_end(self) -> None:
        """A poollet that asks for what it does not get is stopped before long."""
        self.make_pool("pool-a", addresses=[{"type": "InternalIP", "address": "192.0.2.9"}])
        told = base64.b64encode(request(names=[ADDRESS]).public_bytes(Encoding.PEM)).decode()
        spec = {"request": told, "signerName": SERVING, "usages": list(SERVER_USAGES)}
        for number in range(LIMIT_REQUESTS + 1):
            body = {"metadata": {"name": f"n{number}"}, "spec": spec}
            code = 201 if number < LIMIT_REQUESTS else 429
            self.answer("POST", REQUESTS, body, user="pool-a", code=code)
        body = {"metadata": {"name": "other"}, "spec": spec}
        self.answer("POST", REQUESTS, body, user="admin", code=201)

    def test_who_sees_it(self) -> None:
        """A poollet sees what it has asked for, and not what others have."""
        self.make()
        self.answer("GET", f"{REQUESTS}/one", user="pool-a")
        for path, count in ((REQUESTS, 1), (f"{REQUESTS}?fieldSelector=metadata.name%3Dtwo", 0)):
            self.assertEqual(len(self.answer("GET", path, user="pool-a")["items"]), count)
        self.refused(404, "GET", f"{REQUESTS}/one", user="pool-b")
        self.assertEqual(self.answer("GET", REQUESTS, user="pool-b")["items"], [])
        self.refused(
            403, "PATCH", f"{REQUESTS}/one/approval", {}, user="pool-a", content_type=MERGE
        )

    def test_bootstrap(self) -> None:
        """A bootstrapper gets a poollet's first certificate."""
        self.make(CLIENT, CLIENT_USAGES, user="bootstrap")
        self.assertIn(POOL_GROUP, self.certificate().subject.rfc4514_string())

    def test_ended_authority(self) -> None:
        """A CA that is over signs nothing; with a new one it goes on by itself."""
        self.clock.advance(3651 * 86400)
        self.make()
        self.assertEqual(self.condition(), ["Approved"])
        (error,) = self.flushLoggedErrors() or [None]
        self.assertIsNone(error)  # one line of the log, and no traceback
        now = datetime.fromtimestamp(self.clock.seconds(), UTC)
        self.authority = Authority.create("CA", now=now)
        for path, content in (
            (self.ca.certificate, self.authority.certificate_pem),
            (self.ca.key, self.authority.key_pem),
        ):
            with open(path, "wb") as stream:
                stream.write(content)
        self.clock.advance(60)
        self.certificate()

    def test_approved_late(self) -> None:
        """A request that is approved after hours is signed, and stays for an hour for its client."""
        self.make_pool("pool-a", addresses=[{"type": "InternalIP", "address": "192.0.2.9"}])
        self.make()
        self.clock.advance(2 * 3600)
        self.decide({**APPROVE, "lastUpdateTime": times.timestamp(self.clock.seconds())})
        self.certificate()
        self.clock.advance(3500)
        self.certificate()
        self.clock.advance(161)
        self.refused(404, "GET", f"{REQUESTS}/one")

    def test_times(self) -> None:
        """A condition without times gets them from the server."""
        self.make(FOREIGN, user="admin")
        self.decide(DENY)
        (condition,) = self.get()["status"]["conditions"]
        self.assertTrue(times.seconds(condition["lastUpdateTime"]))
        self.assertTrue(times.seconds(condition["lastTransitionTime"]))

    def test_removed(self) -> None:
        """Decided requests go after an hour, all others after a day."""
        self.make()
        self.clock.advance(3601)
        self.clock.advance(60)
        self.refused(404, "GET", f"{REQUESTS}/one")
        self.make(FOREIGN, user="admin")
        for _ in range(2):
            self.clock.advance(12 * 3600)
        self.get()
        self.clock.advance(60)
        self.refused(404, "GET", f"{REQUESTS}/one")


class NodeSignerTests(SigningTestCase):
    """Certificates of node servers."""

    user, group = "system:node:node-a", "system:nodes"

    def make_node(self, name: str, *addresses: str) -> None:
        self.answer("POST", NODES, {"metadata": {"name": name}}, user=name, code=201)
        self.report(name, *addresses)

    def report(self, name: str, *addresses: str) -> None:
        told = [{"type": "InternalIP", "address": each} for each in addresses]
        patch = {"status": {"addresses": told}}
        self.answer("PATCH", f"{NODES}/{name}/status", patch, user=name, content_type=MERGE)

    def serving(self, *names: x509.GeneralName, user: str = "node-a", **more: Any) -> Object:
        asked = request(self.user, [self.group], names or [ADDRESS])
        return self.make(NODE_SERVING, SERVER_USAGES, asked, user=user, **more)

    def ask_client(self, user: str, node: str = "node-a", **more: Any) -> Object:
        asked = request(f"system:node:{node}", [self.group])
        return self.make(NODE_CLIENT, CLIENT_USAGES, asked, user=user, **more)

    def told(self) -> str:
        ((reason, message),) = self.events()
        self.assertEqual(reason, "NotApproved")
        return message

    def test_serving(self) -> None:
        """A node server has a certificate for the address that its Node reports."""
        self.make_node("node-a", "192.0.2.1")
        self.serving()
        self.assertEqual(self.condition(), ["Approved"])
        found = self.certificate()
        self.assertEqual(found.subject.rfc4514_string(), f"CN={self.user},O={self.group}")
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        self.assertEqual(list(names), [ADDRESS])

    def test_serving_later(self) -> None:
        """
        Before the Node reports addresses the request waits; then it is approved automatically.
        """
        self.serving()
        self.assertIn("node node-a reports no address yet", self.told())
        self.make_node("node-a", "192.0.2.1")
        self.certificate()

    def test_serving_elsewhere(self) -> None:
        """An address that its Node does not report, or another Node as well, is for people."""
        self.make_node("node-b", "192.0.2.1")
        self.make_node("node-a", "192.0.2.9")
        self.serving()
        self.assertIn("node node-a does not report the address 192.0.2.1", self.told())
        self.report("node-a", "192.0.2.1")
        self.assertEqual(self.condition(), [])
        told = [message for _, message in self.events()]
        self.assertEqual(len([each for each in told if "reported by node node-b, too" in each]), 1)
        self.decide(APPROVE)
        self.certificate()

    def test_serving_for_another(self) -> None:
        """Requests for another Node's certificate wait; those by node servers are refused."""
        self.make_node("node-a", "192.0.2.1")
        self.serving(user="node-b", code=403)
        self.serving(user="admin")
        self.assertIn("only the node server that it names, system:node:node-a", self.told())

    def test_serving_after_approval(self) -> None:
        """A request of another shape fails even if approved."""
        self.make_node("node-a", "192.0.2.1")
        asked = request(self.user, [self.group, "system:masters"], [ADDRESS])
        self.make(NODE_SERVING, SERVER_USAGES, asked, user="node-a")
        self.decide(APPROVE)
        self.assertEqual(self.condition(), ["Approved", "Failed"])

    def test_client(self) -> None:
        """A node server renews what it is known by, for itself only."""
        self.ask_client("node-a", expirationSeconds=3600)
        found = self.certificate()
        self.assertEqual(found.subject.rfc4514_string(), f"CN={self.user},O={self.group}")
        usage = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        self.assertEqual(list(usage), [x509.ExtendedKeyUsageOID.CLIENT_AUTH])
        self.assertEqual(found.not_valid_after_utc, datetime.fromtimestamp(EPOCH + 3600, UTC))

    def test_client_of_another(self) -> None:
        """... and not for another node."""
        self.ask_client("node-a", node="node-b", code=403)

    def test_bootstrap(self) -> None:
        """A bootstrapper gets a node server's first certificate."""
        self.ask_client("bootstrap-node")
        self.certificate()

    def test_nobody(self) -> None:
        """Without the permission the request waits, with the missing permission."""
        self.answer(
            "POST",
            f"{RBAC}/clusterrolebindings",
            {
                "metadata": {"name": "jane"},
                "roleRef": {"kind": "ClusterRole", "name": "system:node-bootstrapper"},
                "subjects": [{"kind": "User", "name": "jane"}],
            },
            code=201,
        )
        self.ask_client("jane")
        self.assertIn("jane may not create certificatesigningrequests/nodeclient", self.told())

    def test_without_end(self) -> None:
        """A node server that asks for what it does not get is stopped before long."""
        told = base64.b64encode(
            request(self.user, [self.group], [ADDRESS]).public_bytes(Encoding.PEM)
        ).decode()
        spec = {"request": told, "signerName": NODE_SERVING, "usages": list(SERVER_USAGES)}
        for number in range(LIMIT_REQUESTS + 1):
            body = {"metadata": {"name": f"n{number}"}, "spec": spec}
            code = 201 if number < LIMIT_REQUESTS else 429
            self.answer("POST", REQUESTS, body, user="node-a", code=code)

    def test_who_sees_it(self) -> None:
        """A node server sees what it has asked for, and not what others have."""
        self.ask_client("node-a")
        self.answer("GET", f"{REQUESTS}/one", user="node-a")
        self.assertEqual(len(self.answer("GET", REQUESTS, user="node-a")["items"]), 1)
        self.refused(403, "GET", f"{REQUESTS}/one", user="node-b")
        self.assertEqual(self.answer("GET", REQUESTS, user="node-b")["items"], [])


class PersonSignerTests(SigningTestCase):
    """Client certificates of people."""

    def test_by_people(self) -> None:
        """The server approves none by itself, and reports the user that it would make."""
        asked = request("jane", ["dev", "ops"])
        self.make(CLIENT, CLIENT_USAGES, asked, user="admin")
        ((reason, message),) = self.events()
        self.assertEqual(reason, "NotApproved")
        self.assertIn("it makes a user jane of dev, ops, which people have to approve", message)
        self.decide(APPROVE)
        self.assertEqual(self.certificate().subject.rfc4514_string(), "CN=jane,O=ops,O=dev")

    def test_no_masters(self) -> None:
        """Membership in system:masters is never granted, even if approved."""
        self.make(CLIENT, CLIENT_USAGES, request("jane", ["system:masters"]), user="admin")
        self.decide(APPROVE)
        self.assertEqual(self.condition(), ["Approved", "Failed"])


class AgentSignerTests(SigningTestCase):
    """Client certificates of agents of people."""

    def may_have_agents(self, user: str) -> None:
        """Let the server approve a user's requests for agents."""
        rule = {
            "verbs": ["create"],
            "apiGroups": ["certificates.k8s.io"],
            "resources": ["certificatesigningrequests", "certificatesigningrequests/agentclient"],
        }
        role = {"metadata": {"name": "owner"}, "rules": [rule]}
        self.answer("POST", f"{RBAC}/clusterroles", role, code=201)
        body = {
            "metadata": {"name": "owner"},
            "roleRef": {"kind": "ClusterRole", "name": "owner"},
            "subjects": [{"kind": "User", "name": user}],
        }
        self.answer("POST", f"{RBAC}/clusterrolebindings", body, code=201)

    def test_issued(self) -> None:
        """The certificate names the requester's agent and its person, has no organization, and lasts eight hours."""
        self.may_have_agents("jane")
        asked = request("agent:jane:bot", ["agents"])
        self.make(AGENT, CLIENT_USAGES, asked, user="jane", expirationSeconds=86400)
        found = self.certificate()
        self.assertEqual(found.subject.rfc4514_string(), "CN=agent:jane:bot")
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        (uri,) = names.get_values_for_type(x509.UniformResourceIdentifier)
        self.assertTrue(uri.startswith("twisted-exec://agent?person=jane&label=bot"), uri)
        self.assertEqual(found.not_valid_after_utc, datetime.fromtimestamp(EPOCH + 28800, UTC))
        agent = agent_of(PeerCertificate(found))
        assert agent is not None
        self.assertEqual(agent.groups, ("agents", "system:authenticated"))

    def test_shorter(self) -> None:
        """A shorter life is granted."""
        self.may_have_agents("jane")
        asked = request("agent:jane:bot", [])
        self.make(AGENT, CLIENT_USAGES, asked, user="jane", expirationSeconds=900)
        end = self.certificate().not_valid_after_utc
        self.assertEqual(end, datetime.fromtimestamp(EPOCH + 900, UTC))

    def test_for_another(self) -> None:
        """Nobody gets an agent of another user, even if people approve it."""
        self.may_have_agents("jane")
        self.make(AGENT, CLIENT_USAGES, request("agent:bob:bot", []), user="jane")
        ((reason, message),) = self.events()
        self.assertEqual(reason, "NotApproved")
        self.assertIn("its common name must be agent:jane:NAME", message)
        self.decide(APPROVE)
        self.assertEqual(self.condition(), ["Approved", "Failed"])

    def test_without_the_right(self) -> None:
        """Without the right to agents the request waits for people."""
        rule = {
            "verbs": ["create"],
            "apiGroups": ["certificates.k8s.io"],
            "resources": ["certificatesigningrequests"],
        }
        role = {"metadata": {"name": "asks"}, "rules": [rule]}
        self.answer("POST", f"{RBAC}/clusterroles", role, code=201)
        body = {
            "metadata": {"name": "asks"},
            "roleRef": {"kind": "ClusterRole", "name": "asks"},
            "subjects": [{"kind": "User", "name": "jane"}],
        }
        self.answer("POST", f"{RBAC}/clusterrolebindings", body, code=201)
        self.make(AGENT, CLIENT_USAGES, request("agent:jane:bot", []), user="jane")
        self.assertEqual(self.condition(), [])
        ((_, message),) = self.events()
        self.assertIn("jane may not create certificatesigningrequests/agentclient", message)

    def test_requesters(self) -> None:
        """A request by an agent, or by impersonation, is refused at once."""
        told = base64.b64encode(request("agent:jane:bot", []).public_bytes(Encoding.PEM)).decode()
        spec = {"request": told, "signerName": AGENT, "usages": list(CLIENT_USAGES)}
        body = {"metadata": {"name": "one"}, "spec": spec}
        jane = [("Impersonate-User", "jane"), ("Impersonate-Group", "system:masters")]
        message = self.refused(403, "POST", REQUESTS, body, headers=jane)
        self.assertIn("an impersonated user has no agents", message)
        agent = [("Impersonate-User", "agent:jane:bot"), ("Impersonate-Group", "system:masters")]
        self.assertIn("an agent may not", self.refused(403, "POST", REQUESTS, body, headers=agent))
