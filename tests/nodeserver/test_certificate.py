"""Tests for :mod:`twisted_exec.nodeserver.certificate`: a cluster in memory, files that are real."""

from __future__ import annotations

import base64
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS
from twisted_exec.api.kinds.certificates import request_of
from twisted_exec.nodeserver.certificate import NodeCertificate
from twisted_exec.testing.cluster import MemoryCluster
from twisted_exec.tls.pki.authority import Authority

CSRS = CERTIFICATESIGNINGREQUESTS.resource
CA = Authority.create("kubelets")


class NodeCertificateTests(SynchronousTestCase):
    """Tests for :class:`NodeCertificate`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(1_800_000_000)
        self.cluster = MemoryCluster()
        self.node = ""
        self.serving = NodeCertificate(
            self.cluster.client(),
            self.clock,
            directory=os.path.join(self.mktemp(), "certificates"),
            node=lambda: self.node,
            now=self.clock.seconds,
        )
        self.serving.prepare()
        self.serving.start(["10.0.0.7", "nodes.example"])
        self.addCleanup(self.serving.stop)

    def requests(self) -> list[Any]:
        return [csr for (resource, *_), csr in self.cluster.objects.items() if resource == CSRS]

    def turn(self, seconds: float) -> None:
        for _ in range(int(seconds / 5)):
            self.clock.advance(5)

    def installed(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(Path(self.serving.certificate).read_bytes())

    def test_as_a_kubelet(self) -> None:
        """
        It asks the signer of kubelets as a Node of ours, for where we are reached, and shows the
        answer.
        """
        self.node = "leaf-one"
        self.turn(120)
        (asked,) = self.requests()
        spec = asked["spec"]
        self.assertEqual(spec["signerName"], "kubernetes.io/kubelet-serving")
        self.assertEqual(spec["usages"], ["digital signature", "server auth"])
        request = request_of(asked)
        self.assertEqual(request.subject.rfc4514_string(), "CN=system:node:leaf-one,O=system:nodes")
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        self.assertEqual(names.get_values_for_type(x509.DNSName), ["nodes.example"])
        self.assertEqual([str(a) for a in names.get_values_for_type(x509.IPAddress)], ["10.0.0.7"])
        self.assertIn("kubectl certificate approve", self.serving.problem)
        signed = CA.certify(
            request.public_key(),
            "system:node:leaf-one",
            ["system:nodes"],
            ["10.0.0.7", "nodes.example"],
            now=datetime.fromtimestamp(self.clock.seconds(), UTC),
            life=timedelta(days=100),
        )
        status = {"status": {"certificate": base64.b64encode(signed).decode()}}
        name = asked["metadata"]["name"]
        self.cluster.client().patch(CSRS, name, status, subresource="status")
        self.turn(60)
        self.assertEqual(self.serving.problem, "")
        self.assertIn("CN=system:node:leaf-one", self.installed().subject.rfc4514_string())

    def test_no_node(self) -> None:
        """As long as there is no leaf there is no name to ask for; it says so, and asks later."""
        self.turn(30)
        self.assertEqual(self.requests(), [])
        self.assertIn("no leaf cluster is known yet", self.serving.problem)
        self.node = "leaf-two"
        self.turn(120)
        self.assertEqual(len(self.requests()), 1)
