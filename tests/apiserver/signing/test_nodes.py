"""
Tests for :mod:`twisted_exec.apiserver.signing.nodes`: rules for certificates of node servers.
"""

from __future__ import annotations

from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.signing.test_poollets import ADDRESS, request, spec
from tests.contracts.signer import SERVER as SERVER_USAGES
from tests.contracts.signer import Denying, Signed, SignerContract
from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.signing.interfaces import NODE_CLIENT, NODE_SERVING, ISigner
from twisted_exec.apiserver.signing.nodes import (
    NodeClient,
    NodeServing,
    node_of,
    node_serving_refusal,
    node_shape_problem,
    own_node_problem,
)
from twisted_exec.apiserver.signing.requests import RequestedSubject
from twisted_exec.storage.memory import MemoryStorage

NODE, GROUP = "system:node:a", "system:nodes"
SERVER = ("digital signature", "server auth")
CLIENT = ("digital signature", "client auth")


class NodeClientTests(SignerContract, SynchronousTestCase):
    """The contract, for client certificates of node servers."""

    signed = Signed(NODE_CLIENT, NODE, [GROUP])

    def make_signer(self) -> ISigner:
        """As :meth:`SignerContract.make_signer`."""
        return NodeClient(Denying())


class NodeServingTests(SignerContract, SynchronousTestCase):
    """The contract, for serving certificates of node servers."""

    signed = Signed(NODE_SERVING, NODE, [GROUP], [ADDRESS], SERVER_USAGES)

    def make_signer(self) -> ISigner:
        """As :meth:`SignerContract.make_signer`."""
        return NodeServing(MemoryStorage(), frozenset)


class ShapeTests(SynchronousTestCase):
    """Shapes that are signed once approved, as required by Kubernetes."""

    def serving(self, user: str = NODE, groups: Sequence[str] = (GROUP,), *usages: str) -> str:
        asked = request(user, groups, [ADDRESS])
        return node_shape_problem(spec(NODE_SERVING, *(usages or SERVER)), asked)

    def client(self, asked: x509.CertificateSigningRequest, *usages: str) -> str:
        return node_shape_problem(spec(NODE_CLIENT, *(usages or CLIENT)), asked)

    def test_good(self) -> None:
        """With key encipherment or without."""
        self.assertEqual(self.serving(), "")
        self.assertEqual(self.client(request(NODE, [GROUP])), "")
        for usages, signer, names in ((SERVER, NODE_SERVING, [ADDRESS]), (CLIENT, NODE_CLIENT, [])):
            asked = request(NODE, [GROUP], names)
            told = spec(signer, "key encipherment", *usages)
            self.assertEqual(node_shape_problem(told, asked), "")

    def test_whose(self) -> None:
        """They name one node, and the group of node servers and no other."""
        for user in (
            "jane",
            "system:node:",
            "system:node:A_b",
            "system:nodes:a",
            "a:system:node:b",
        ):
            self.assertIn("common name must be system:node:NODE", self.serving(user))
            self.assertIn("common name must be", self.client(request(user, [GROUP])))
        for groups in ([], ["system:masters"], [GROUP, "system:masters"], [GROUP, GROUP]):
            self.assertIn("organization must be system:nodes", self.serving(NODE, groups))
            self.assertIn("organization must be", self.client(request(NODE, groups)))

    def test_usages(self) -> None:
        """Server usages are refused for clients, and the other way round."""
        for usages in (("server auth",), CLIENT, (*SERVER, "client auth"), (*SERVER, "cert sign")):
            self.assertIn("usages must be", self.serving(NODE, (GROUP,), *usages))
        self.assertIn("usages must be", self.client(request(NODE, [GROUP]), *SERVER))

    def test_names(self) -> None:
        """A server has names of hosts and no others, a client none."""

        def asking(*names: x509.GeneralName) -> str:
            return node_shape_problem(spec(NODE_SERVING, *SERVER), request(NODE, [GROUP], names))

        self.assertIn("must have a subject alternative name", asking())
        for name in (x509.RFC822Name("a@b.example"), x509.UniformResourceIdentifier("spiffe://a")):
            self.assertIn("must be DNS names and IP addresses", asking(ADDRESS, name))
        self.assertIn("patterns", asking(x509.DNSName("*.example")))
        self.assertIn("must have no", self.client(request(NODE, [GROUP], [ADDRESS])))

    def test_key(self) -> None:
        """A key that is too short is none."""
        key = rsa.generate_private_key(65537, 1024)
        told = spec(NODE_SERVING, *SERVER)
        self.assertIn("RSA key", node_shape_problem(told, request(NODE, [GROUP], [ADDRESS], key)))

    def test_node_of(self) -> None:
        """A node server is recognized by its name."""
        self.assertEqual(node_of("system:node:a.example"), "a.example")
        for user in ("system:node:", "system:node:a b", "node:a", "system:node:../a"):
            self.assertEqual(node_of(user), "")


class OwnTests(SynchronousTestCase):
    """The requester."""

    def test_own(self) -> None:
        """The node server itself, by name and group."""
        subject = RequestedSubject(NODE, (GROUP,), ("192.0.2.1",))
        for username, groups, own in (
            (NODE, [GROUP], True),
            (NODE, ["dev"], False),
            ("system:node:b", [GROUP], False),
            ("", [], False),
        ):
            told = own_node_problem(spec(NODE_SERVING, username=username, groups=groups), subject)
            self.assertEqual(told == "", own, username)


def node(name: str, *addresses: str) -> Object:
    told = [{"type": "InternalIP", "address": each} for each in addresses]
    return {"metadata": {"name": name}, "status": {"addresses": told}}


class ServingTests(SynchronousTestCase):
    """Names that are approved automatically."""

    def refusal(self, *names: str, nodes: Sequence[Object], ours: Sequence[str] = ()) -> str:
        return node_serving_refusal(RequestedSubject(NODE, (GROUP,), names), nodes, ours)

    def test_reported(self) -> None:
        """Names that its Node reports, in any spelling."""
        nodes = [node("a", "192.0.2.1", "Host.example", "2001:DB8::1"), node("b", "192.0.2.2")]
        self.assertEqual(self.refusal("192.0.2.1", "host.example", "2001:db8::1", nodes=nodes), "")
        told = self.refusal("192.0.2.1", "192.0.2.2", nodes=nodes)
        self.assertIn("node a does not report the address 192.0.2.2", told)

    def test_nothing_reported(self) -> None:
        """None before it has reported any, and none when there is no Node."""
        for nodes in ([], [node("a")], [{"metadata": {"name": "a"}}]):
            self.assertIn("reports no address yet", self.refusal("192.0.2.1", nodes=nodes))

    def test_taken(self) -> None:
        """Names that another Node reports too are refused."""
        nodes = [node("a", "192.0.2.1"), node("b", "192.0.2.1")]
        self.assertIn("is reported by node b, too", self.refusal("192.0.2.1", nodes=nodes))

    def test_ours(self) -> None:
        """Never the API server's own, whatever is reported."""
        nodes = [node("a", "api.example")]
        told = self.refusal("api.example", nodes=nodes, ours=["api.example"])
        self.assertIn("is the API server's own", told)
