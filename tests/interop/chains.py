"""
The pieces of a chain, ours and theirs alike, each started as its users would.

An API server (:class:`OurCluster`, or :class:`~tests.interop.ironcore.ForeignCluster`), poollets
for it, and what poollets run machines with: our runtime, libvirt-provider, and brokers of both
makes, which have a cluster of ours behind them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tests.flows.programs import script
from tests.interop.hosts import kubectl
from tests.interop.ironcore import PROXY, Make
from tests.interop.programs import Programs, answers, free_port
from twisted_exec.api import dialects
from twisted_exec.kube.kubeconfig.writer import write_kubeconfig
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.directory import PKI, Pair, create_pki

LEASES = "ironcore-machinepool-lease"
CLASS = "small"
MEMORY = 256 << 20


class Cluster(Protocol):
    """An API server of any project."""

    make: Make
    programs: Programs
    pki: PKI
    kubeconfig: str
    ours: bool

    def apply(self, *objects: dict[str, object]) -> None: ...


def ours(name: str) -> list[str]:
    """Return the command line of a twistd plugin of this project."""
    return [script("twistd"), "-n", "--pidfile=", name]


def prepare(cluster: Cluster) -> None:
    """Create what all chains need: a class, and a namespace for leases of ironcore's poollets."""
    cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASES}},
        {
            "apiVersion": f"{cluster.make.group}/v1alpha1",
            "kind": "MachineClass",
            "metadata": {"name": CLASS},
            "capabilities": {"cpu": "1", "memory": str(MEMORY)},
        },
    )


class OurCluster:
    """
    Our API server.

    :param how: returns the command of a program of ours; by default :func:`ours`.
    :ivar kubeconfig: of an administrator.
    """

    ours = True
    own_program = "apiserver"

    def __init__(
        self, make: Make, name: str = "ours", how: Callable[[str], list[str]] | None = None
    ) -> None:
        # The class attribute of the same name hides the function from a default value.
        self.make, self.how = make, how or ours
        self.programs = Programs(f"{name}-", keep=bool(os.environ.get("KEEP_LOGS")))
        self.pki = create_pki(self.programs.path("pki"))
        self.port = free_port()
        pair = self.pki.issue_user("admin", ["system:masters"])
        self.kubeconfig = self._kubeconfig("admin", pair)

    @property
    def own_port(self) -> int:
        """As of a foreign one, where it is not the cluster's."""
        return self.port

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def _kubeconfig(self, user: str, pair: Pair) -> str:
        path = self.programs.path(f"{user}.kubeconfig")
        write_kubeconfig(
            path,
            server=self.url,
            ca_pem=read_file(self.pki.serving_ca),
            certificate_pem=read_file(pair.certificate),
            key_pem=read_file(pair.key),
            user=user,
        )
        return path

    def start(self) -> None:
        """Start the program, and return when it is ready."""
        serving, forwarding = self.pki.issue_apiserver(["localhost", "127.0.0.1"])
        self.programs.run(
            self.own_program,
            *self.how("exec-apiserver"),
            f"--dialect={self.make.dialect}",
            f"--listen=tcp:{self.port}:interface=127.0.0.1",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={self.pki.client_ca}",
            f"--machinepoollet-client-certificate={forwarding.certificate}",
            f"--machinepoollet-client-key={forwarding.key}",
            f"--machinepoollet-certificate-authority={self.pki.serving_ca}",
            "--storage=memory",
            "--audit-log=apiserver.audit",
        )
        self.programs.until(
            "our API server", lambda: answers(f"{self.url}/readyz", self.pki.serving_ca)
        )

    def stop(self) -> None:
        self.programs.stop()

    def apply(self, *objects: dict[str, object]) -> None:
        document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        kubectl(self.kubeconfig, "apply", "-f", "-", input=json.dumps(document))


@dataclass(frozen=True)
class Backend:
    """
    The machine runtime of a poollet.

    :param endpoint: a gRPC target.
    :param revision: of the interface, as our poollet's ``--iri-revision`` names it.
    :param uid: the user that it runs as, if not ours.
    """

    name: str
    endpoint: str
    revision: str
    uid: str = ""
    shell: bool = True
    """The machine's console is a shell; or a virtual machine's."""


# Poollets.


def _serving(cluster: Cluster, pool: str) -> Pair:
    names, dialect = ["localhost", "127.0.0.1"], dialects.by_name(cluster.make.dialect)
    return cluster.pki.issue_poollet(pool, names, dialect=dialect, replace=True)[0]


def our_poollet(
    cluster: Cluster,
    pool: str,
    backend: Backend,
    kubeconfig: str = "",
    *,
    options: Sequence[str] = (),
) -> str:
    """
    Start our poollet, and wait until it is registered.

    :param kubeconfig: path; empty for the administrator's.
    :param options: further options.
    :return: the program's name.
    """
    serving, name = _serving(cluster, pool), f"poollet-{pool}"
    # Of their API server only the certificate is known; ours forwards its users.
    trust = (
        [
            f"--requestheader-client-ca-file={cluster.pki.forwarding_ca}",
            "--requestheader-allowed-names=exec-apiserver",
        ]
        if cluster.ours
        else [f"--client-ca-file={cluster.pki.client_ca}", f"--pool-proxy-suffices={PROXY}"]
    )
    cluster.programs.run(
        name,
        *(cluster.how if isinstance(cluster, OurCluster) else ours)("exec-poollet"),
        f"--dialect={cluster.make.dialect}",
        f"--iri-revision={backend.revision}",
        f"--kubeconfig={kubeconfig or cluster.kubeconfig}",
        f"--machine-pool-name={pool}",
        f"--machine-runtime-endpoint={backend.endpoint}",
        "--listen=tcp:0:interface=127.0.0.1",
        "--addresses=InternalIP=127.0.0.1",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        *trust,
        *options,
        *([f"--runtime-uid={backend.uid}"] if backend.uid else []),
        f"--audit-log={name}.audit",
    )
    cluster.programs.until(name, lambda: "is registered" in cluster.programs.log(name))
    return name


def their_poollet(cluster: Cluster, pool: str, backend: Backend) -> str:
    """Started, and registered; :return: the program's name."""
    serving, name = _serving(cluster, pool), f"machinepoollet-{pool}"
    directory = cluster.programs.path(f"{name}-certs")
    os.mkdir(directory)
    shutil.copy(serving.certificate, os.path.join(directory, "tls.crt"))
    shutil.copy(serving.key, os.path.join(directory, "tls.key"))
    clients = cluster.pki.forwarding_ca if cluster.ours else cluster.pki.client_ca
    cluster.programs.run(
        name,
        cluster.make.program("machinepoollet"),
        f"--kubeconfig={cluster.kubeconfig}",
        f"--machine-pool-name={pool}",
        f"--provider-id=interop://{pool}",
        f"--machine-runtime-endpoint={backend.endpoint}",
        f"--address=127.0.0.1:{free_port()}",
        f"--cert-dir={directory}",
        f"--client-ca-file={clients}",
        "--addresses-ip-override=127.0.0.1",
        f"--health-probe-bind-address=127.0.0.1:{free_port()}",
        # It needs a kubeconfig, even without leader election.
        env={"KUBECONFIG": cluster.kubeconfig},
    )
    pools = f"machinepools.{cluster.make.group}"
    cluster.programs.until(
        name,
        lambda: CLASS in kubectl(cluster.kubeconfig, "get", pools, pool, "-o", "json", check=False),
    )
    return name


# Machine runtimes.


def our_runtime(
    programs: Programs, revision: str, name: str = "runtime", class_name: str = CLASS
) -> Backend:
    """Shells, under the user who runs this."""
    classes = [
        {
            "name": class_name,
            "driver": "pty",
            "command": ["/bin/sh", "-i"],
            "same_user": True,
            "capabilities": {"cpu": "1", "memory": str(MEMORY)},
        }
    ]
    config = programs.write(f"{name}.json", json.dumps({"classes": classes}))
    endpoint = f"unix://{programs.path(f'{name}-sockets/iri.sock')}"
    programs.run(
        name,
        *ours("exec-runtime"),
        f"--config={config}",
        f"--state-dir={programs.path(f'{name}-state')}",
        f"--iri-listen={endpoint}",
        f"--iri-revision={revision}",
        # Poollets of other makes know only http and https.
        f"--streaming-listen=tcp:{free_port()}:interface=127.0.0.1",
        f"--audit-log={name}.audit",
    )
    programs.until(name, lambda: "machine runtime at" in programs.log(name))
    return Backend("our runtime", endpoint, revision)


def shell(cluster: Cluster, pool: str, labels: dict[str, str] | None = None) -> None:
    """Create the machine ``default/vm`` of the class ``pty``, and the class."""
    group = f"{cluster.make.group}/v1alpha1"
    cluster.apply(
        {
            "apiVersion": group,
            "kind": "MachineClass",
            "metadata": {"name": "pty"},
            "capabilities": {"cpu": "1", "memory": str(MEMORY)},
        },
        {
            "apiVersion": group,
            "kind": "Machine",
            "metadata": {"name": "vm", "namespace": "default", "labels": labels or {}},
            "spec": {"machineClassRef": {"name": "pty"}, "machinePoolRef": {"name": pool}},
        },
    )


def their_broker(programs: Programs, target: OurCluster, make: Make, pool: str) -> Backend:
    """Their broker, with a pool of our cluster behind it."""
    directory = programs.path("broker-sockets")
    os.makedirs(directory, mode=0o700, exist_ok=True)
    socket = os.path.join(directory, f"{make.dialect}.sock")
    stream = free_port()
    name = f"machinebroker-{make.dialect}"
    programs.run(
        name,
        make.program("machinebroker"),
        f"--kubeconfig={target.kubeconfig}",
        "--namespace=default",
        f"--machine-pool-name={pool}",
        f"--address={socket}",
        f"--streaming-address=127.0.0.1:{stream}",
        env={"KUBECONFIG": target.kubeconfig},
    )
    programs.until(name, lambda: os.path.exists(socket))
    return Backend("their broker", f"unix://{socket}", make.revision)


def our_broker(programs: Programs, target: OurCluster, make: Make, pool: str) -> Backend:
    """Our broker, with a pool of our cluster behind it."""
    name = f"broker-{make.dialect}"
    endpoint = f"unix://{programs.path(f'{name}-sockets/iri.sock')}"
    port = free_port()
    programs.run(
        name,
        *ours("exec-broker"),
        f"--dialect={make.dialect}",
        f"--iri-revision={make.revision}",
        f"--kubeconfig={target.kubeconfig}",
        "--namespace=default",
        f"--machine-pool-name={pool}",
        f"--iri-listen={endpoint}",
        f"--streaming-listen=tcp:{port}:interface=127.0.0.1",
        f"--base-url=http://127.0.0.1:{port}",
        # A foreign poollet says nothing of its users.
        "--own-identity",
        "--source-cluster-name=interop",
        f"--state-dir={programs.path(f'{name}-state')}",
        f"--audit-log={name}.audit",
    )
    programs.until(name, lambda: "machine broker at" in programs.log(name))
    return Backend("our broker", endpoint, make.revision)


class LibvirtProvider:
    """libvirt-provider and a libvirt of its own, as a user that may do nothing else."""

    USER = "nobody"

    def __init__(self, programs: Programs, program: str) -> None:
        self.programs = programs
        self._program = program

    def start(self) -> Backend:
        home = self.programs.path("libvirt")
        run = os.path.join(home, "run")
        os.makedirs(run)
        os.chmod(self.programs.directory, 0o711)
        as_user = [
            "setpriv",
            f"--reuid={self.USER}",
            f"--regid={_group()}",
            "--clear-groups",
            "env",
            f"HOME={home}",
            f"XDG_RUNTIME_DIR={run}",
            # Instead of ``.config``: libvirt's sockets are deep in it, and paths of sockets are short.
            f"XDG_CONFIG_HOME={home}",
        ]
        for path in (home, run):
            shutil.chown(path, self.USER, _group())
        self.programs.run("libvirtd", *as_user, "libvirtd")
        daemon = os.path.join(run, "libvirt", "libvirt-sock")
        self.programs.until("libvirtd", lambda: os.path.exists(daemon))
        capabilities = {"cpu": "1", "memory": str(MEMORY)}
        classes = self.programs.write(
            "classes.json",
            json.dumps([{"metadata": {"name": CLASS}, "capabilities": capabilities}]),
            0o644,
        )
        socket, port = os.path.join(home, "iri.sock"), free_port()
        self.programs.run(
            "libvirt-provider",
            *as_user,
            shutil.copy(self._program, home),  # where it was built may be closed to the user
            f"--address={socket}",
            f"--streaming-address=127.0.0.1:{port}",
            f"--base-url=http://127.0.0.1:{port}",
            f"--supported-machine-classes={classes}",
            f"--libvirt-provider-dir={home}/provider",
            f"--libvirt-socket={daemon}",
            "--libvirt-uri=qemu:///session",
            "--network-interface-plugin-name=isolated",
            f"--servers-health-check-address=127.0.0.1:{free_port()}",
            "--preferred-domain-types=qemu",
            # The machines have no operating system that could shut down.
            "--gc-vm-graceful-shutdown-timeout=1s",
            "--gc-resync-interval=2s",
        )
        self.programs.until("libvirt-provider", lambda: os.path.exists(socket))
        return Backend("libvirt-provider", f"unix://{socket}", "ironcore", self.USER, shell=False)


def _group() -> str:
    import grp
    import pwd

    return grp.getgrgid(pwd.getpwnam(LibvirtProvider.USER).pw_gid).gr_name


Start = Callable[[], Backend]
