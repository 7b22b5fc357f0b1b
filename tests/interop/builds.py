"""
Foreign programs that suites need: how each is built, and the variable that names it to the tests.

``python -m tests.interop --build [NAME ...]`` builds them outside the repository, in INTEROP_WORK or
``~/.cache/twisted-exec/interop``; what is there is not built again. Building all takes about 90 minutes on two
cores. ``python -m tests.interop --environment`` prints the variables for a shell.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
COMMANDS = {
    "default-jre-headless": "java",
    "etcd-server": "etcd",
    "kubernetes-client": "kubectl",
    "maven": "mvn",
    "nodejs": "node",
    "putty-tools": "plink",
}
"""Commands with other names than their packages, which may also come from elsewhere."""
DEBIAN_PACKAGES = [
    "qemu-system-x86",
    "qemu-utils",
    "ovmf",
    "etcd-server",
    "kubernetes-client",
    "libvirt-daemon-system",
    "libvirt-clients",
    "nginx-light",
    "libnginx-mod-stream",
    "tmux",
    "zsh",
    "fish",
    "ser2net",
    "conserver-server",
    "conserver-client",
    "openssh-server",
    "putty-tools",
    "ipmitool",
    "openipmi",
    "busybox-static",
    "u-boot-qemu",
    "libnss3-tools",
    "libnss-wrapper",
    "xvfb",
    "htop",
    "vim",
    "less",
    "grub-common",
    "grub-pc-bin",
    "runc",
    "containerd",
    "chromium",
    "firefox-esr",
    "webkit2gtk-driver",
    "prometheus",
    "nodejs",
    "npm",
    "default-jre-headless",
    "maven",
    "cargo",
    "curl",
    "iproute2",
    "procps",
]
_COMMIT_0_2_0 = "9995763b"
_IRONCORE = "github.com/ironcore-dev/*,github.com/onmetal/*"
"""Go modules without a checksum in the public data base."""


@dataclass(frozen=True)
class Build:
    """
    A program, or several that are built together.

    :ivar name: what ``--build`` takes.
    :ivar made: path below the work directory, with ``*`` for any text; built if it exists.
    :ivar script: commands for bash: ``$WORK`` is the work directory, ``$BIN`` its ``bin``, ``$CHECKOUT`` and
        ``$INTEROP`` are directories of this repository, ``$PYTHON`` is this interpreter.
    :ivar variables: variables that name the program to the tests, with paths below the work directory.
    """

    name: str
    made: str
    script: str
    variables: dict[str, str] = field(default_factory=dict)

    def path(self, work: Path) -> Path | None:
        """Return the path of the built program, if it is there."""
        return next(work.glob(self.made), None)


def _go(name: str, variable: str, directory: str, package: str = ".") -> Build:
    script = f"cd $INTEROP/{directory} && go build -o $BIN/{name} {package}"
    return Build(name, f"bin/{name}", script, {variable: f"bin/{name}"})


def _kubernetes(name: str, variable: str, directory: str, version: str) -> Build:
    major, minor, _ = version.split(".")
    names = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    values = [f"-X k8s.io/component-base/version.{name}={value}" for name, value in names.items()]
    flags = shlex.quote(" ".join(["-s", "-w", *values]))
    script = f"cd $INTEROP/{directory} && go build -ldflags {flags} -o $BIN/{name} ."
    return Build(name, f"bin/{name}", script, {variable: f"bin/{name}"})


def _go_install(name: str, variable: str, package: str) -> Build:
    script = f"cd $WORK && GOBIN=$BIN go install {package}"
    return Build(name, f"bin/{name}", script, {variable: f"bin/{name}"})


def _older(name: str, commit: str) -> Build:
    script = (
        f"rm -rf $WORK/{name}-source && git clone -q $CHECKOUT $WORK/{name}-source && "
        f"cd $WORK/{name}-source && git checkout -q {commit} && TWISTED_EXEC_WITHOUT_TERMINAL=1 "
        f"$PYTHON -m pip install -q --no-deps --target $WORK/{name} ."
    )
    return Build(name, f"{name}/twisted_exec", script, {"OLDER_RELEASE": name})


def _go_tools(name: str, variables: dict[str, str] | None = None) -> Build:
    # Into another directory first: a build that was interrupted must not count as one.
    script = (
        f"cd $INTEROP/{name} && CGO_ENABLED=0 GONOSUMDB='{_IRONCORE}' GOBIN=$BIN/{name}.new "
        f"go install tool && mv $BIN/{name}.new $BIN/{name}"
    )
    return Build(name, f"bin/{name}", script, {"INTEROP_PROGRAMS": "bin", **(variables or {})})


BUILDS = (
    Build(
        "kernel",
        "kernel/boot/vmlinuz-*",
        "mkdir -p $WORK/kernel && cd $WORK/kernel && "
        "apt-get download $(apt-cache depends linux-image-cloud-amd64 | awk '/Depends/ {print $2}') && "
        "dpkg-deb --fsys-tarfile linux-image*.deb | tar x ./boot",
        {"LINUX_KERNEL": "kernel/boot/vmlinuz-*"},
    ),
    Build(
        # Without installing the package, whose kubectl would replace a newer one.
        "kubectl.1.20",
        "bin/kubectl.1.20",
        "mkdir -p $WORK/deb && cd $WORK/deb && apt-get download kubernetes-client && "
        "dpkg-deb -x kubernetes-client_*.deb . && cp usr/bin/kubectl $BIN/kubectl.1.20",
        {"KUBECTL_OLDEST": "bin/kubectl.1.20"},
    ),
    _older("release-0.2.0", _COMMIT_0_2_0),
    Build(
        "xterm",
        "xterm/node_modules",
        "npm install --prefix $WORK/xterm @xterm/headless@6.0.0",
        {"XTERM_HEADLESS": "xterm"},
    ),
    Build(
        "javascript",
        "javascript/installed",
        "cd $CHECKOUT && $PYTHON -m tests.clients.javascript $WORK/javascript",
        {"TWISTED_EXEC_NODE_MODULES": "javascript/node_modules"},
    ),
    Build(
        "fabric8",
        "fabric8/fabric8-client-0.jar",
        # Maven writes beside the sources.
        "rm -rf $WORK/fabric8-source && cp -r $CHECKOUT/tests/clients/java $WORK/fabric8-source && "
        "cd $WORK/fabric8-source && mvn -q package dependency:copy-dependencies -Dout=$WORK/fabric8",
        {"FABRIC8_CLIENT": "fabric8"},
    ),
    Build(
        "openapi-generator",
        "bin/openapi-generator-cli-*.jar",
        # A copy that was interrupted must not count as one.
        "cd $WORK && mvn -q dependency:copy -DoutputDirectory=$WORK/openapi-generator "
        "-Dartifact=org.openapitools:openapi-generator-cli:7.14.0 && "
        "mv $WORK/openapi-generator/*.jar $BIN",
        {"OPENAPI_GENERATOR": "bin/openapi-generator-cli-*.jar"},
    ),
    _go_tools("ironcore", {"MACHINEPOOLLET": "bin/ironcore/machinepoollet"}),
    _kubernetes("kube-apiserver", "KUBE_APISERVER", "apiserver", "1.33.1"),
    _kubernetes(
        "kube-controller-manager", "KUBE_CONTROLLER_MANAGER", "controller_manager", "1.33.1"
    ),
    _kubernetes("kubectl.newest", "KUBECTL_NEWEST", "kubectl", "1.37.2"),
    _go("etcd-3.5", "ETCD_NEWER", "etcd"),
    Build(
        "kube-rs-client",
        "kube-rs/debug/kube-rs-client",
        "cd $CHECKOUT/tests/clients/rust && cargo build --locked --target-dir $WORK/kube-rs",
        {"KUBE_RS_CLIENT": "kube-rs/debug/kube-rs-client"},
    ),
    _go("dex", "DEX", "dex", "github.com/dexidp/dex/cmd/dex"),
    Build(
        # The suite itself installs the wheel and builds the archive.
        "archive-environment",
        "archive-environment/bin/pyinstaller",
        "$PYTHON -m venv $WORK/archive-environment && "
        "$WORK/archive-environment/bin/pip install -q $CHECKOUT pyinstaller==6.22.3",
        {"ARCHIVE_PYTHON": "archive-environment/bin/python"},
    ),
    Build(
        # A module of its own, as for kubeflex-manager.
        "krew",
        "bin/krew",
        "mkdir -p $WORK/krew && cd $WORK/krew && export GOFLAGS='-mod=mod -buildvcs=false' && "
        "printf 'module krew\\n\\ngo 1.24\\n\\nrequire sigs.k8s.io/krew v0.5.0\\n' > go.mod && "
        "go build -o $BIN/krew sigs.k8s.io/krew/cmd/krew",
        {"KREW": "bin/krew"},
    ),
    Build(
        "bmc-peers",
        "bmc-peers/bin/websockify",
        "$PYTHON -m venv $WORK/bmc-peers && "
        "$WORK/bmc-peers/bin/pip install -q sushy-tools==2.2.0 websockify==0.13.0",
        {"BMC_PEERS": "bmc-peers"},
    ),
    Build(
        "ssh-clients",
        "ssh-clients/bin/ansible",
        "$PYTHON -m venv $WORK/ssh-clients && "
        "$WORK/ssh-clients/bin/pip install -q paramiko==5.1.0 ansible-core==2.19.14",
        {"SSH_CLIENTS": "ssh-clients"},
    ),
    Build(
        "ssh-audit",
        "ssh-audit/bin/ssh-audit",
        "$PYTHON -m venv $WORK/ssh-audit && $WORK/ssh-audit/bin/pip install -q ssh-audit==3.9.0",
        {"SSH_AUDIT": "ssh-audit/bin/ssh-audit"},
    ),
    Build(
        "openssh-newest",
        "bin/openssh-newest/ssh",
        "bash $INTEROP/openssh_newest.sh",
        {"SSH_NEWEST": "bin/openssh-newest/ssh"},
    ),
    Build(
        "mcp-sdk",
        "mcp-sdk/bin/mcp",
        "$PYTHON -m venv $WORK/mcp-sdk && $WORK/mcp-sdk/bin/pip install -q 'mcp[cli]==2.3.0'",
        {"MCP_SDK": "mcp-sdk"},
    ),
    Build(
        "mcp-modules",
        "mcp-modules/node_modules/.bin/mcp-inspector",
        "npm install --prefix $WORK/mcp-modules @modelcontextprotocol/sdk@1.32.2 "
        "@modelcontextprotocol/inspector@0.22.0",
        {"MCP_MODULES": "mcp-modules/node_modules"},
    ),
    Build(
        # A module of its own, as for kubeflex-manager.
        "metal-operator-mock",
        "bin/metal-operator-mock",
        "mkdir -p $WORK/metal-operator && cd $WORK/metal-operator && "
        f"export GONOSUMDB='{_IRONCORE}' GOFLAGS='-mod=mod -buildvcs=false' && "
        "printf 'module mock\\n\\ngo 1.26\\n\\nrequire github.com/ironcore-dev/metal-operator v0.7.0\\n' > go.mod && "
        "go build -o $BIN/metal-operator-mock github.com/ironcore-dev/metal-operator/bmc/mock",
        {"METAL_OPERATOR_MOCK": "bin/metal-operator-mock"},
    ),
    _go_install("versitygw", "S3_SERVER", "github.com/versity/versitygw/cmd/versitygw@v1.8.0"),
    _go("kubelet-streams", "KUBELET_STREAMS", "kubelet"),
    _go("kubelet-node", "KUBELET_NODE", "kubelet", "./node"),
    _go_install(
        "metrics-server",
        "METRICS_SERVER",
        "sigs.k8s.io/metrics-server/cmd/metrics-server@v0.7.2",
    ),
    _go_tools("onmetal"),
    _go_tools("libvirt"),
    _kubernetes("kube-apiserver.newest", "KUBE_APISERVER_NEWEST", "apiserver_newest", "1.36.3"),
    _kubernetes("kubelet", "KUBELET", "kubelet_whole", "1.33.1"),
    _go_install("kind", "KIND", "sigs.k8s.io/kind@v0.32.0"),
    _go_install("helm", "HELM", "helm.sh/helm/v3/cmd/helm@v3.22.0"),
    Build(
        # A module of its own: `go install` of a module without a checksum asks for the list of all its
        # versions, which not every proxy serves.
        "kubeflex-manager",
        "bin/kubeflex-manager",
        "mkdir -p $WORK/kubeflex && cd $WORK/kubeflex && "
        "export GONOSUMDB='github.com/kubestellar/*' GOFLAGS='-mod=mod -buildvcs=false' && "
        "printf 'module kubeflex\\n\\ngo 1.24.5\\n\\nrequire github.com/kubestellar/kubeflex v0.9.3\\n' > go.mod && "
        "go build -o $BIN/kubeflex-manager github.com/kubestellar/kubeflex/cmd/manager",
        {"KUBEFLEX_MANAGER": "bin/kubeflex-manager"},
    ),
)
"""In an order in which the suites that are run most often can begin first."""


def work_directory() -> Path:
    """Return where programs are built and results are kept."""
    default = Path.home() / ".cache/twisted-exec/interop"
    return Path(os.environ.get("INTEROP_WORK") or default).absolute()


def variables(work: Path) -> dict[str, str]:
    """
    Return the variables of all programs that are built, without those that are set already.

    Several paths of one variable are joined as in ``PATH``.
    """
    found: dict[str, list[str]] = {}
    for build in BUILDS:
        if build.path(work) is not None:
            for name, path in build.variables.items():
                value = str(next(work.glob(path)))
                if name not in os.environ and value not in found.setdefault(name, []):
                    found[name].append(value)
    return {name: os.pathsep.join(values) for name, values in found.items()}


def select(names: Sequence[str]) -> Iterator[Build]:
    """:raises LookupError: a name is no program's."""
    known = {build.name: build for build in BUILDS}
    for name in names or known:
        if name not in known:
            raise LookupError(f"no program {name!r}; there are {', '.join(known)}")
        yield known[name]


def build(programs: Iterable[Build], work: Path) -> list[str]:
    """
    Build what is not there yet, and print a line for each.

    :return: names of programs that could not be built.
    """
    directory, logs = work / "bin", work / "log"
    for each in (directory, logs):
        each.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "WORK": str(work),
        "BIN": str(directory),
        "CHECKOUT": str(CHECKOUT),
        "INTEROP": str(CHECKOUT / "tests/interop"),
        "PYTHON": sys.executable,
    }
    environment.setdefault("GOFLAGS", "-buildvcs=false")
    failed = []
    for program in programs:
        if program.path(work) is not None:
            continue
        began, log = time.monotonic(), logs / f"{program.name}.log"
        with open(log, "wb") as output:
            script = ["bash", "-euo", "pipefail", "-c", program.script]
            code = subprocess.call(
                script, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
            )
        seconds = time.monotonic() - began
        if code == 0 and program.path(work) is not None:
            print(f"{program.name}: built in {seconds:.0f} s", flush=True)
        else:
            lines = log.read_text(errors="replace").split("\n")[-4:]
            why = " ".join(line.strip() for line in lines if line.strip())
            print(f"{program.name}: could not be built ({why}); see {log}", flush=True)
            failed.append(program.name)
    return failed


def missing_packages() -> list[str]:
    """Return the Debian packages of suites that this host lacks; none on another system."""
    if shutil.which("dpkg-query") is None:
        return []
    query = ("dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n", *DEBIAN_PACKAGES)
    listed = subprocess.run(query, capture_output=True, text=True).stdout.splitlines()
    installed = {line.split()[0] for line in listed if line.split()[1:2] == ["ii"]}
    return [
        name
        for name in DEBIAN_PACKAGES
        if name not in installed and shutil.which(COMMANDS.get(name, name)) is None
    ]
