"""The serving certificate of a node server, which the root signs."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.signed_certificates import ServingCertificate
from twisted_exec.nodeserver import PROGRAM
from twisted_exec.tls.pki.requests import CertificateRequest, request_server

SIGNER = "kubernetes.io/kubelet-serving"
GROUP = "system:nodes"


class NodeCertificate(ServingCertificate):
    """
    The node server's serving certificate, requested from the root's signer.

    It names one of the Nodes, because the signer ``kubernetes.io/kubelet-serving`` accepts only
    such subjects.

    Source: ``ValidateKubeletServingCSR`` in ``pkg/apis/certificates`` of Kubernetes.

    :param node: returns the name of one of our Nodes; empty while there is none.
    """

    def __init__(
        self,
        client: IKubeClient,
        clock: IReactorTime,
        *,
        directory: str,
        node: Callable[[], str],
        now: Callable[[], float],
    ) -> None:
        super().__init__(
            client,
            clock,
            directory=directory,
            name=PROGRAM,
            group=GROUP,
            label=PROGRAM,
            now=now,
            signer=SIGNER,
        )
        self._node = node

    def request(self) -> CertificateRequest:
        """
        See :meth:`SignedCertificate.request`.

        :raises ServiceUnavailable: there is no Node yet to name.
        """
        node = self._node()
        if not node:
            raise ServiceUnavailable("no leaf cluster is known yet, so there is no Node to name")
        return request_server(f"system:node:{node}", [GROUP], self._names)
