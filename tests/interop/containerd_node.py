"""
A whole node for a leaf: a real kubelet, and a real containerd with containers of one image, made
here.

Everything lies in the directory of the leaf's programs, and no network is made: Pods have the
host's (``hostNetwork``).  It takes root.
"""

from __future__ import annotations

import hashlib
import io
import json
import socket
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tests import needs
from tests.interop.hosts import HostCluster, kubectl
from tests.interop.leaf_clusters import LEAF_NODE
from tests.interop.programs import free_port
from twisted_exec.tls.pki.directory import SERVING

IMAGE, PAUSE = "none.example/tools:1", "none.example/pause:1"
TOOLS = ["sh", "sleep", "cat", "tar", "echo", "stty", "id", "test", "ls", "touch", "true"]

_CONTAINERD = """\
version = 2
root = "{directory}/root"
state = "{directory}/state"
[plugins."io.containerd.internal.v1.opt"]
  path = "{directory}/opt"
[grpc]
  address = "{directory}/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{directory}/none"
    conf_dir = "{directory}/none"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"""


class ContainerdNode:
    """
    The node of a leaf, which registers itself.

    :ivar address: of this host, by which it is reached: kubelets refuse loopback.
    """

    def __init__(self, leaf: HostCluster) -> None:
        self.leaf, self.programs = leaf, leaf.programs
        self.directory = leaf.programs.directory / "node"
        self.directory.mkdir()
        self.address, self.port = _own_address(), free_port()

    def start(self) -> None:
        """Returns when the leaf has its Node, and that is ready for Pods."""
        told = _CONTAINERD.format(directory=self.directory, pause=PAUSE)
        config = self.programs.write("containerd.toml", told)
        self.programs.run("containerd", needs.CONTAINERD, f"--config={config}")
        self.programs.until("containerd", lambda: self._ctr("version", check=False))
        for name, command in ((IMAGE, ["/bin/sh"]), (PAUSE, ["/bin/sleep", "100000"])):
            self._ctr("images", "import", self._image(name, command))
        self._start_kubelet()
        ready = "jsonpath={.metadata.name} {.status.daemonEndpoints.kubeletEndpoint.Port}"
        query = ["get", "node", LEAF_NODE, "-o", ready]
        wanted = f"{LEAF_NODE} {self.port}"
        self.programs.until(
            "node", lambda: kubectl(self.leaf.kubeconfig, *query, check=False) == wanted
        )

    def stop(self) -> None:
        """End what still runs: containers outlive both programs."""
        query = ["delete", "pods", "--all", "--grace-period=1", "--timeout=60s"]
        kubectl(self.leaf.kubeconfig, *query, check=False)
        self.programs.until("tasks", lambda: not self._ctr("tasks", "list", "-q", check=False), 60)
        self.programs.end("kubelet")
        self.programs.end("containerd")
        # A kubelet mounts its directory on itself, and leaves it so.
        subprocess.run(["umount", f"{self.directory}/kubelet"], capture_output=True)

    def _ctr(self, *argv: str, check: bool = True) -> str:
        done = subprocess.run(
            ["ctr", f"--address={self.directory}/c.sock", "--namespace=k8s.io", *argv],
            capture_output=True,
            text=True,
        )
        if check and done.returncode:
            raise AssertionError(f"ctr {argv}: {done.stderr}")
        return done.stdout

    def _start_kubelet(self) -> None:
        issued = self.leaf.pki.authority(SERVING).issue_server([self.address])
        pair = self.leaf.pki.pair("kubelet")
        issued.write(pair.certificate, pair.key)
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "port": self.port,
            "readOnlyPort": 0,
            "healthzPort": 0,
            "tlsCertFile": pair.certificate,
            "tlsPrivateKeyFile": pair.key,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": self.leaf.pki.client_ca},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{self.directory}/c.sock",
            "podLogsDir": f"{self.directory}/logs",
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "failCgroupV1": False,
            "makeIPTablesUtilChains": False,
            "localStorageCapacityIsolation": False,
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%"},
        }
        groups = ["system:nodes", "system:masters"]
        self.programs.run(
            "kubelet",
            needs.kubelet_program(),
            f"--config={self.programs.write('kubelet.json', json.dumps(config))}",
            f"--kubeconfig={self.leaf.user(f'system:node:{LEAF_NODE}', groups)}",
            f"--root-dir={self.directory}/kubelet",
            f"--hostname-override={LEAF_NODE}",
            f"--node-ip={self.address}",
        )

    def _image(self, name: str, command: list[str]) -> str:
        """An image of busybox alone, as ``docker save`` writes it; :return: the file."""
        layer = _layer()
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/bin"], "Entrypoint": command},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_sum(layer)}"]},
        }
        told = json.dumps(config).encode()
        manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
        path = self.directory / "image.tar"
        files = {"layer.tar": layer, "config.json": told}
        path.write_bytes(_tar({**files, "manifest.json": json.dumps(manifest).encode()}))
        return str(path)


def _own_address() -> str:
    """No datagram is sent: the kernel says from where one would be."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(("192.0.2.1", 9))
        address: str = asked.getsockname()[0]
        return address


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _layer() -> bytes:
    busybox = Path(needs.busybox_program()).read_bytes()
    links = {f"bin/{tool}": "busybox" for tool in TOOLS}
    directories = ["bin", "tmp", "etc", "proc", "sys", "dev"]
    passwd = b"root:x:0:0:root:/:/bin/sh\n"
    return _tar({"bin/busybox": busybox, "etc/passwd": passwd}, links, directories)


def _tar(
    files: Mapping[str, bytes],
    links: Mapping[str, str] = MappingProxyType({}),
    directories: Sequence[str] = (),
) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in directories:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
        for name, to in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, to
            archive.addfile(entry)
    return made.getvalue()
