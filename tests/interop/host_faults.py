"""
Effects of the host on a server behind it: the host rotates its CAs and retires them, is down for a
while, and garbage-collects dependents.  A real kube-apiserver and its controllers, with our server as the
manifests deploy it.

``KUBE_APISERVER=... KUBE_CONTROLLER_MANAGER=... python -m twisted.trial tests.interop.host_faults``
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows.consoles import Screen, watch
from tests.interop import chains
from tests.interop.aggregated_cluster import FRONT, AggregatedCluster
from tests.interop.hosts import kubectl
from tests.interop.programs import free_port
from twisted_exec.kube.kubeconfig.writer import write_kubeconfig
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.authority import Authority

POOL, MACHINE = "shells", "vm"
EXEC = {
    "apiGroups": ["compute.ironcore.dev"],
    "resources": ["machines", "machines/exec"],
    "verbs": ["get", "create"],
}


class HostFaultTests(TestCase):
    """A machine behind a host, and its consoles."""

    skip = needs.aggregated()
    timeout = 600

    async def setUp(self) -> None:
        self.cluster = AggregatedCluster("faults")
        self.addCleanup(self.cluster.stop)
        await deferToThread(self.start)

    def start(self) -> None:
        cluster = self.cluster
        cluster.start()
        chains.prepare(cluster)
        runtime = chains.our_runtime(cluster.programs, cluster.make.revision)
        chains.our_poollet(cluster, POOL, runtime)
        cluster.apply(
            {
                "apiVersion": "compute.ironcore.dev/v1alpha1",
                "kind": "Machine",
                "metadata": {"name": MACHINE, "namespace": "default"},
                "spec": {"machineClassRef": {"name": chains.CLASS}},
            }
        )
        cluster.programs.until("the machine runs", lambda: self.state(cluster.kubeconfig))

    def state(self, kubeconfig: str) -> bool:
        told = kubeconfig and kubectl(
            kubeconfig, "get", "machine", MACHINE, "-o", "json", check=False
        )
        return bool(told) and json.loads(told).get("status", {}).get("state") == "Running"

    def direct(self, user: str) -> str:
        """Return a user's kubeconfig for direct connections to our server."""
        pair = self.cluster.may(user, EXEC)
        path = self.cluster.programs.path(f"direct-{user}.kubeconfig")
        write_kubeconfig(
            path,
            server=self.cluster.own_url,
            ca_pem=read_file(self.cluster.pki.serving_ca),
            certificate_pem=read_file(pair.certificate),
            key_pem=read_file(pair.key),
            user=user,
        )
        return path

    async def is_alive(self, screen: Screen, word: str) -> None:
        await screen.ask(f"echo {word}-$((40+2))\n".encode(), f"{word}-42".encode())

    async def until(self, what: str, true: Any) -> None:
        await deferToThread(self.cluster.programs.until, what, true)

    async def test_rotation(self) -> None:
        """
        Another kube-apiserver of the same cluster has a proxy certificate of another CA and name:
        both are believed, and who came by the first stays.
        """
        cluster = self.cluster
        screen = await watch(cluster.kubeconfig, MACHINE)
        await self.is_alive(screen, "before")
        authority = Authority.create("newer front proxy CA")
        ca = cluster.programs.write("front-ca-2.crt", authority.certificate_pem.decode())
        front = cluster.pki.pair("front-proxy-2")
        authority.issue_client("front-proxy-2").write(front.certificate, front.key)
        cluster.port = free_port()
        second = cluster.user("other-admin", ["system:masters"])
        serving = cluster.pki.pair("apiserver")
        await deferToThread(cluster.start_kube, serving, front, ca, "front-proxy-2")
        await self.until("the second is believed", lambda: self.state(second))
        self.assertIn(
            "changed the trusted CAs and proxies", cluster.programs.log(cluster.own_program)
        )
        other = await watch(second, MACHINE)
        await self.is_alive(screen, "first")
        await other.until(b"first-42")  # who came second looks on
        await other.leave()
        await screen.leave()

    async def test_retired(self) -> None:
        """
        The host retires its proxy CA, as the documentation says: sessions that were forwarded with
        a certificate of that CA end, the other sessions stay, and new ones open.
        """
        cluster = self.cluster
        direct = await watch(await deferToThread(self.direct, "jane"), MACHINE)
        forwarded = await watch(cluster.kubeconfig, MACHINE)
        await self.is_alive(direct, "before")
        await forwarded.until(b"before-42")
        bundle, front = Path(cluster.front_ca), cluster.front
        former, authority = bundle.read_bytes(), Authority.create("newer front proxy CA")
        bundle.write_bytes(former + authority.certificate_pem)
        await self.until(
            "both CAs are trusted",
            lambda: "changed the trusted CAs" in cluster.programs.log(cluster.own_program),
        )
        authority.issue_client(FRONT).write(front.certificate, front.key, replace=True)
        bundle.write_bytes(authority.certificate_pem)
        await self.is_alive(direct, "renewed")
        await forwarded.until(b"renewed-42")
        await self.until("the former CA is retired", lambda: self.retires(former.decode().strip()))
        # Sessions are reviewed every 15 seconds.
        lost = await forwarded.ended.addTimeout(60, reactor)
        self.assertEqual(lost.ending.reason, "AuthorizationWithdrawn")
        self.assertIn("is not trusted any more", lost.ending.message)
        await self.until("requests are forwarded", lambda: self.state(cluster.kubeconfig))
        another = await watch(cluster.kubeconfig, MACHINE)
        await self.is_alive(direct, "after")
        await another.until(b"after-42")
        await another.leave()
        await direct.leave()

    def retires(self, ca: str) -> bool:
        """Delete the ConfigMap; return whether kube-apiserver wrote it again without the CA."""
        admin = self.cluster.kubeconfig
        where = ("configmap", "-n", "kube-system", "extension-apiserver-authentication")
        kubectl(admin, "delete", *where)
        self.cluster.programs.until(
            "the ConfigMap is written", lambda: kubectl(admin, "get", *where, check=False)
        )
        return ca not in json.loads(kubectl(admin, "get", *where, "-o", "json"))["data"].get(
            "requestheader-client-ca-file", ""
        )

    async def test_silence(self) -> None:
        """
        While the host does not answer, consoles that are open go on, and the server is ready; when
        it does, all is as before.
        """
        cluster = self.cluster
        direct = await deferToThread(self.direct, "jane")
        screen = await watch(direct, MACHINE)
        await self.is_alive(screen, "before")
        pid = cluster.programs.pid("kube-apiserver")
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        log = cluster.programs.log
        await self.until("it is noticed", lambda: "in time" in log(cluster.own_program))
        await self.is_alive(screen, "meanwhile")
        os.kill(pid, signal.SIGCONT)
        await self.until("it serves", lambda: self.state(cluster.kubeconfig))
        await self.is_alive(screen, "after")
        await screen.leave()
        self.assertNotIn("Traceback", log(cluster.own_program))

    async def test_collected(self) -> None:
        """
        The host's garbage collector sees to what belongs to a machine: it stays, without its owner,
        or goes before the machine or after it, as whoever deletes says.
        """
        self.cluster.programs.run(
            "collector",
            str(needs.kube_controller_manager_program()),
            f"--kubeconfig={self.cluster.kubeconfig}",
            "--controllers=garbage-collector-controller",
            "--leader-elect=false",
            "--secure-port=0",
        )
        for policy, stays in (("orphan", True), ("foreground", False), ("background", False)):
            await deferToThread(self.collect, policy, stays)

    def collect(self, policy: str, stays: bool) -> None:
        cluster, name = self.cluster, f"owner-{policy}"
        owner = {"apiVersion": "compute.ironcore.dev/v1alpha1", "kind": "Machine"}
        spec = {"machineClassRef": {"name": "none"}}
        cluster.apply({**owner, "metadata": {"name": name, "namespace": "default"}, "spec": spec})
        uid = cluster.get("machine", name, "default")["metadata"]["uid"]
        reference = {**owner, "name": name, "uid": uid, "blockOwnerDeletion": True}
        metadata = {"name": name, "namespace": "default", "ownerReferences": [reference]}
        cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        admin = cluster.kubeconfig
        kubectl(admin, "delete", "machine", name, f"--cascade={policy}", "--timeout=100s")
        get = ("get", "configmap", name, "-o", "json")
        if stays:
            left = json.loads(kubectl(admin, *get))
            self.assertNotIn("ownerReferences", left["metadata"])
        else:
            cluster.programs.until(
                f"{name} is collected", lambda: not kubectl(admin, *get, check=False)
            )
