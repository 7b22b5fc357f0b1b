"""
A host cluster, before any program of ours runs in it: etcd and kube-apiserver, with our
certificates.

One authority signs servers, one clients, and one kube-apiserver as a front proxy.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.interop.programs import Programs, answers, free_port
from twisted_exec.kube.kubeconfig.writer import write_kubeconfig
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.directory import CLIENT, PKI, Pair, create_pki


def kubectl(kubeconfig: str, *arguments: str, check: bool = True, input: str = "") -> str:
    """Run kubectl and return its output; empty if it fails and ``check`` is false."""
    done = subprocess.run(
        ["kubectl", f"--kubeconfig={kubeconfig}", *arguments],
        input=input,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode and check:
        raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}")
    return done.stdout if done.returncode == 0 else ""


class HostCluster:
    """
    etcd and kube-apiserver.

    :param store: URL of an etcd that runs already, with another's objects in it.
    :ivar kubeconfig: of an administrator.
    :ivar store: etcd's URL.
    """

    def __init__(self, kube_apiserver: str, name: str, store: str = "") -> None:
        self.programs = Programs(f"{name}-", keep=bool(os.environ.get("KEEP_LOGS")))
        self.pki: PKI = create_pki(self.programs.path("pki"))
        self.port, self._peers = free_port(), free_port()
        self.store = store or f"http://127.0.0.1:{free_port()}"
        self._kube_apiserver = kube_apiserver
        self.kubeconfig = self.user("admin", ["system:masters"])

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def client(self, user: str, groups: list[str]) -> Pair:
        """A client certificate."""
        pair = self.pki.pair(f"user-{user.replace(':', '_')}")
        if not pair.exists:
            self.pki.authority(CLIENT).issue_client(user, groups).write(pair.certificate, pair.key)
        return pair

    def user(self, user: str, groups: list[str]) -> str:
        """A user's kubeconfig; :return: its path."""
        pair = self.client(user, groups)
        path = self.programs.path(f"{user.replace(':', '_')}.kubeconfig")
        write_kubeconfig(
            path,
            server=self.url,
            ca_pem=read_file(self.pki.serving_ca),
            certificate_pem=read_file(pair.certificate),
            key_pem=read_file(pair.key),
            user=user,
            replace=True,
        )
        return path

    def stop(self) -> None:
        """End all, and forget everything."""
        self.programs.stop()

    def start_store(self, program: str = "etcd") -> None:
        """Returns when etcd answers."""
        store, peers = self.store, f"http://127.0.0.1:{self._peers}"
        self.programs.run(
            "etcd",
            program,
            "--data-dir=etcd",
            f"--listen-client-urls={store}",
            f"--advertise-client-urls={store}",
            f"--listen-peer-urls={peers}",
            "--unsafe-no-fsync",
        )
        self.programs.until("etcd", lambda: answers(f"{store}/health"))

    def start_kube(
        self, serving: Pair, front: Pair, front_ca: str, front_name: str, *flags: str
    ) -> None:
        """
        Returns when kube-apiserver is ready.

        :param front: what it shows to API servers behind it.
        :param front_ca: by whom that is signed.
        :param front_name: the common name in it.
        """
        self._make_account_key()
        self.programs.run(
            "kube-apiserver",
            self._kube_apiserver,
            f"--etcd-servers={self.store}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={self.pki.client_ca}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://nobody.example",
            "--service-account-key-file=accounts.key",
            "--service-account-signing-key-file=accounts.key",
            "--disable-admission-plugins=ServiceAccount",
            f"--requestheader-client-ca-file={front_ca}",
            f"--requestheader-allowed-names={front_name}",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={front.certificate}",
            f"--proxy-client-key-file={front.key}",
            "--enable-aggregator-routing=false",
            *flags,
        )
        admin = self.client("admin", ["system:masters"])
        self.programs.until(
            "kube-apiserver",
            lambda: answers(
                f"{self.url}/readyz", self.pki.serving_ca, (admin.certificate, admin.key)
            ),
        )

    def start_controllers(self, program: str) -> None:
        """
        Start the controllers that handle all kinds (namespaces, garbage collection, aggregated
        roles), and the signer of client certificates.

        Install custom kinds before: controllers look for new kinds only every 30 s.
        """
        clients = self.pki.pair(CLIENT)
        self.programs.run(
            "kube-controller-manager",
            program,
            f"--kubeconfig={self.kubeconfig}",
            "--controllers=namespace-controller,clusterrole-aggregation-controller,"
            "root-ca-certificate-publisher-controller,serviceaccount-controller,"
            "certificatesigningrequest-signing-controller,garbage-collector-controller",
            f"--cluster-signing-cert-file={clients.certificate}",
            f"--cluster-signing-key-file={clients.key}",
            "--leader-elect=false",
            "--secure-port=0",
            f"--root-ca-file={self.pki.serving_ca}",
            "--service-account-private-key-file=accounts.key",
        )

    def _make_account_key(self) -> None:
        key = rsa.generate_private_key(65537, 2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        self.programs.write("accounts.key", pem.decode())

    def apply(self, *objects: dict[str, Any]) -> None:
        """Make objects, whatever validation this kubectl would do."""
        document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        kubectl(self.kubeconfig, "apply", "--validate=false", "-f", "-", input=json.dumps(document))
