"""
A cluster of ironcore's own making: etcd, kube-apiserver, and ironcore-apiserver behind it.

As ironcore's ``utils/envtest`` starts them, with certificates of ours: one authority for servers,
one for clients, one for kube-apiserver as a front proxy.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.interop.hosts import HostCluster, kubectl
from tests.interop.programs import free_port
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.directory import Pair

PROXY = "ironcore-apiserver"
"""The name that the foreign API server shows to poollets."""


@dataclass(frozen=True)
class Make:
    """
    The differences between ironcore's programs and onmetal's.

    :param directory: where the programs are.
    :param revision: of the machine runtime interface that they speak.
    """

    dialect: str
    directory: str
    domain: str
    apiserver: str
    revision: str
    tool: str
    flags: tuple[str, ...] = ()

    @property
    def groups(self) -> list[str]:
        return [
            f"{name}.{self.domain}" for name in ("compute", "core", "storage", "networking", "ipam")
        ]

    @property
    def group(self) -> str:
        return f"compute.{self.domain}"

    def program(self, name: str) -> str:
        """Return the path of a program."""
        return os.path.join(self.directory, name)


def ironcore(directory: str) -> Make:
    return Make(
        "ironcore",
        directory,
        "ironcore.dev",
        "ironcore-apiserver",
        "ironcore",
        "irictl-machine",
        ("--enable-priority-and-fairness=false",),
    )


def onmetal(directory: str) -> Make:
    return Make(
        "onmetal", directory, "api.onmetal.de", "onmetal-apiserver", "onmetal-0.1", "orictl-machine"
    )


class ForeignCluster(HostCluster):
    """
    etcd, kube-apiserver and an aggregated API server of ironcore or onmetal.

    :param proxy_groups: groups of the user as which the aggregated API server calls poollets.
    :cvar own_program: what the aggregated API server is called in ``programs``.
    """

    ours = False
    own_program = "aggregated"

    def __init__(
        self,
        make: Make,
        kube_apiserver: str,
        name: str = "cluster",
        proxy_groups: Sequence[str] = ("system:masters",),
    ) -> None:
        super().__init__(kube_apiserver, name)
        self.make, self._proxy_groups = make, proxy_groups
        self._own = free_port()

    @property
    def own_port(self) -> int:
        """The port of the aggregated API server, for direct requests."""
        return self._own

    def start(self) -> None:
        """Returns when all its API groups are served."""
        serving, front = self.pki.issue_apiserver(
            ["localhost", "127.0.0.1", "aggregated.kube-system.svc"], replace=True
        )
        self.start_store()
        self.start_kube(serving, front, self.pki.forwarding_ca, "exec-apiserver")
        self._aggregate()
        self._start_own(serving)
        for group in self.make.groups:
            self.programs.until(
                f"{group} is served",
                lambda group=group: kubectl(
                    self.kubeconfig, "get", "--raw", f"/apis/{group}/v1alpha1", check=False
                ),
            )

    def _aggregate(self) -> None:
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "aggregated", "namespace": "kube-system"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
        self.apply(service, *(self._api_service(group) for group in self.make.groups))

    def _api_service(self, group: str) -> dict[str, Any]:
        return {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"v1alpha1.{group}"},
            "spec": {
                "group": group,
                "version": "v1alpha1",
                "service": {"namespace": "kube-system", "name": "aggregated", "port": self._own},
                "caBundle": base64.b64encode(read_file(self.pki.serving_ca)).decode(),
                "groupPriorityMinimum": 2000,
                "versionPriority": 100,
            },
        }

    def _start_own(self, serving: Pair) -> None:
        proxy = self.client(PROXY, list(self._proxy_groups))
        self.programs.run(
            self.own_program,
            self.make.program(self.make.apiserver),
            f"--etcd-servers={self.store}",
            f"--kubeconfig={self.kubeconfig}",
            f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._own}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            *self.make.flags,
            f"--machinepoollet-client-certificate={proxy.certificate}",
            f"--machinepoollet-client-key={proxy.key}",
            f"--machinepoollet-certificate-authority={self.pki.serving_ca}",
            "--machinepoollet-preferred-address-types=InternalIP",
        )
