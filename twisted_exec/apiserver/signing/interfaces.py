"""
The signers of CertificateSigningRequests: their names and their interface.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cryptography import x509
from zope.interface import Interface

from twisted_exec.apiserver.signing.requests import RequestedSubject

SERVING = "twisted-exec.dev/poollet-serving"
"""Serving certificates of poollets."""
CLIENT = "kubernetes.io/kube-apiserver-client"
"""Client certificates of people and poollets."""
NODE_SERVING = "kubernetes.io/kubelet-serving"
"""Serving certificates of node servers."""
NODE_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
"""Client certificates of node servers."""

FOR_SERVERS = (SERVING, NODE_SERVING)


class ISigner(Interface):
    """The rules of one signer."""

    def shape_problem(csr: Mapping[str, Any], request: x509.CertificateSigningRequest) -> str:
        """Why this signer never signs the request; empty when its shape is acceptable."""

    async def refusal(csr: Mapping[str, Any], subject: RequestedSubject) -> str:
        """Why the server does not approve a request of acceptable shape; empty when it does."""

    def organizations(subject: RequestedSubject) -> Sequence[str]:
        """The organizations in the certificate."""
