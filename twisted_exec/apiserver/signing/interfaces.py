"""
The signers of CertificateSigningRequests: their names and their interface.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cryptography import x509
from zope.interface import Attribute, Interface

from twisted_exec.apiserver.signing.requests import RequestedSubject

SERVING = "twisted-exec.dev/poollet-serving"
"""Serving certificates of poollets."""
CLIENT = "kubernetes.io/kube-apiserver-client"
"""Client certificates of people and poollets."""
NODE_SERVING = "kubernetes.io/kubelet-serving"
"""Serving certificates of node servers."""
NODE_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
"""Client certificates of node servers."""
AGENT = "twisted-exec.dev/agent"
"""Client certificates of agents of people."""

FOR_SERVERS = (SERVING, NODE_SERVING)


class ISigner(Interface):
    """The rules of one signer."""

    def shape_problem(csr: Mapping[str, Any], request: x509.CertificateSigningRequest) -> str:
        """Why this signer never signs the request; empty when its shape is acceptable."""

    async def refusal(csr: Mapping[str, Any], subject: RequestedSubject) -> str:
        """Why the server does not approve a request of acceptable shape; empty when it does."""

    longest_seconds = Attribute("The longest life of a certificate, in seconds (float).")

    def organizations(subject: RequestedSubject) -> Sequence[str]:
        """The organizations in the certificate."""

    def uris(csr: Mapping[str, Any]) -> Sequence[str]:
        """The URIs among the subject alternative names in the certificate."""


class SignerDefaults:
    """What most signers have."""

    longest_seconds = math.inf

    def uris(self, csr: Mapping[str, Any]) -> Sequence[str]:
        return ()
