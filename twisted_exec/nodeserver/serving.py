"""
The certificate that a node server shows, when the root signs it: as a kubelet's.

All Nodes of ours have one address, so one certificate does for all of them.  It bears the name of one,
for the signer ``kubernetes.io/kubelet-serving`` signs for ``system:node:NAME`` of the group
``system:nodes`` only.  Nothing approves such a request by itself, since whoever asks is no such
Node's kubelet: an operator does, or a program of theirs.

Source: ``ValidateKubeletServingCSR`` in ``pkg/apis/certificates`` of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.serving_certificate import ServingCertificate
from twisted_exec.nodeserver import PROGRAM
from twisted_exec.tls.authority import Issued, request_server

SIGNER = "kubernetes.io/kubelet-serving"
GROUP = "system:nodes"


class NodeCertificate(ServingCertificate):
    """
    What a node server shows, as ``tls.crt`` and ``tls.key``.

    :param node: tells the name of a Node of ours; empty as long as there is none.
    """

    def __init__(
        self,
        client: IKubeClient,
        clock: Any,
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

    def request(self) -> Issued:
        """
        As :meth:`SignedCertificate.request`.

        :raises ServiceUnavailable: there is no Node yet that it could name.
        """
        node = self._node()
        if not node:
            raise ServiceUnavailable("no leaf cluster is known yet whose Node it could name")
        return request_server(f"system:node:{node}", [GROUP], self._names)
