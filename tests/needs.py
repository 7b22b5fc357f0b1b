"""
Programs that some tests cannot do without, and what to install for them.

A test case says ``skip = needs.qemu()``.  Where the program is there, nothing is
skipped; ``.ci/run`` installs all of them and fails on any skip.
"""

from __future__ import annotations

import glob
import os
import shutil
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from unittest import TestCase

from twisted_exec.runtimes.qemu.driver import FIRMWARE, PROGRAM
from twisted_exec.web.vendoring import wheel_backend

CONTAINERD = "containerd"


def venv() -> str | None:
    """Why tests that make virtual environments cannot run here, or ``None``."""
    return None if find_spec("ensurepip") else "Python has no ensurepip (python3-venv)"


def kubectl() -> str | None:
    """Why tests with kubectl cannot run here, or ``None``."""
    return None if shutil.which("kubectl") else "kubectl is not on PATH (kubernetes-client)"


def zsh() -> str | None:
    """Why tests with zsh cannot run here, or ``None``."""
    return None if shutil.which("zsh") else "zsh is not on PATH (zsh)"


def fish() -> str | None:
    """Why tests with fish cannot run here, or ``None``."""
    return None if shutil.which("fish") else "fish is not on PATH (fish)"


def qemu() -> str | None:
    """Why tests with virtual machines cannot run here, or ``None``."""
    if not shutil.which(PROGRAM):
        return f"{PROGRAM} is not installed (qemu-system-x86)"
    return None if os.path.exists(FIRMWARE) else f"{FIRMWARE} is not there (u-boot-qemu)"


def node() -> str | None:
    """Why tests of the page's modules cannot run here, or ``None``."""
    return None if shutil.which("node") else "node is not on PATH (nodejs)"


def javascript() -> str | None:
    """Why the JavaScript client cannot be tried here, or ``None``."""
    if why := node():
        return why
    if not os.path.isdir(os.path.join(node_modules(), "@kubernetes/client-node")):
        return "client-node is not installed: python -m tests.clients.javascript DIRECTORY"
    return None


def axe() -> str | None:
    """Why accessibility cannot be checked here, or ``None``."""
    if os.path.isfile(axe_program()):
        return None
    return "axe-core is not installed: python -m tests.clients.javascript DIRECTORY"


def axe_program() -> str:
    """The script of axe-core, which checks the page that it runs in."""
    return os.path.join(node_modules(), "axe-core", "axe.min.js")


def node_modules() -> str:
    """Where ``python -m tests.clients.javascript`` has installed what it needs."""
    return os.environ.get("TWISTED_EXEC_NODE_MODULES", "/nonexistent")


def kube_rs() -> str | None:
    """Why the client of kube-rs cannot be tried here, or ``None``."""
    if kube_rs_program():
        return None
    return "kube-rs-client is not on PATH, nor where KUBE_RS_CLIENT says (see tests/interop)"


def kube_rs_program() -> str | None:
    """The program in ``tests/clients/rust``, built."""
    return shutil.which(os.environ.get("KUBE_RS_CLIENT", "kube-rs-client"))


def fabric8() -> str | None:
    """Why fabric8 cannot be tried here, or ``None``."""
    if not shutil.which("java"):
        return "java is not on PATH (default-jre-headless)"
    if not os.path.isfile(os.path.join(fabric8_directory(), "fabric8-client-0.jar")):
        return "FABRIC8_CLIENT is no directory with fabric8-client-0.jar (see tests/interop)"
    return None


def fabric8_directory() -> str:
    """Where Maven has built ``tests/clients/java``."""
    return os.environ.get("FABRIC8_CLIENT", "/nonexistent")


def openapi_generator() -> str | None:
    """Why clients cannot be generated here, or ``None``."""
    if not shutil.which("java"):
        return "java is not on PATH (default-jre-headless)"
    if not os.path.isfile(openapi_generator_jar()):
        return "OPENAPI_GENERATOR is no openapi-generator-cli.jar (see tests/interop)"
    return kubectl()


def openapi_generator_jar() -> str:
    """The generator of clients, of Maven Central."""
    return os.environ.get("OPENAPI_GENERATOR", "/nonexistent")


def newest_kubectl() -> str | None:
    """Why the newest kubectl cannot be tried here, or ``None``."""
    if newest_kubectl_program() is not None:
        return None
    return "kubectl.newest is not on PATH, and KUBECTL_NEWEST names none; see tests/interop"


def newest_kubectl_program() -> str | None:
    """A kubectl of the newest release, built from Go modules."""
    return shutil.which(os.environ.get("KUBECTL_NEWEST", "kubectl.newest"))


def kubelet_streams() -> str | None:
    """Why the streaming server of kubelets cannot be tried here, or ``None``."""
    if kubelet_streams_program():
        return kubectl()
    return "kubelet-streams is not on PATH, nor where KUBELET_STREAMS says (see tests/interop)"


def kubelet_streams_program() -> str:
    """Where it is, or nothing."""
    return os.environ.get("KUBELET_STREAMS") or shutil.which("kubelet-streams") or ""


def leaf_clusters() -> str | None:
    """Why real clusters, one a leaf of the other, cannot be tried here, or ``None``."""
    if not kubelet_node_program():
        return "kubelet-node is not on PATH, nor where KUBELET_NODE says (see tests/interop)"
    return kube_apiserver() or kubectl()


def kubelet_node_program() -> str:
    """Where a kubelet with processes of this host is, or nothing."""
    return os.environ.get("KUBELET_NODE") or shutil.which("kubelet-node") or ""


def containerd() -> str | None:
    """Why containers of a real kubelet cannot be run here, or ``None``."""
    if os.geteuid() != 0:
        return "a kubelet wants to be root"
    for program in (CONTAINERD, "ctr", "runc", "containerd-shim-runc-v2"):
        if not shutil.which(program):
            return f"{program} is not on PATH (containerd, runc)"
    if why := busybox():
        return why
    if not kubelet_program():
        return "kubelet is not on PATH, nor where KUBELET says (see tests/interop)"
    return None


def kubectls() -> str | None:
    """Why tests with kubectls of several versions cannot run here, or ``None``."""
    if why := kubectl():
        return why
    beside = os.path.dirname(os.path.realpath(shutil.which("kubectl") or ""))
    names = ("kubectl.1.27", "kubectl.1.29", "kubectl.1.33")
    missing = [name for name in names if not os.path.exists(os.path.join(beside, name))]
    return f"{', '.join(missing)} not beside kubectl" if missing else None


def openssl() -> str | None:
    """Why tests with OpenSSL's own client cannot run here, or ``None``."""
    return None if shutil.which("openssl") else "openssl is not on PATH (openssl)"


def dash() -> str | None:
    """Why tests with Debian's shell for scripts cannot run here, or ``None``."""
    return None if shutil.which("dash") else "dash is not on PATH (dash)"


def busybox() -> str | None:
    """Why tests with busybox's shell cannot run here, or ``None``."""
    return None if busybox_program() else "busybox is not on PATH (busybox-static)"


def busybox_program() -> str:
    """A busybox that needs no libraries, or nothing."""
    return shutil.which("busybox") or ""


def kubelet_program() -> str:
    """A whole kubelet, built from Go modules, or nothing."""
    return shutil.which(os.environ.get("KUBELET", "kubelet")) or ""


def metrics_server() -> str | None:
    """Why a metrics-server cannot be asked here, or ``None``."""
    if metrics_server_program():
        return None
    return "metrics-server is not on PATH, nor where METRICS_SERVER says (see tests/interop)"


def metrics_server_program() -> str:
    """A metrics-server, built from Go modules, or nothing."""
    return os.environ.get("METRICS_SERVER") or shutil.which("metrics-server") or ""


def s3_server() -> str | None:
    """Why a real server with the API of S3 cannot be asked here, or ``None``."""
    if s3_server_program():
        return None
    return "versitygw is not on PATH, nor where S3_SERVER says (see tests/interop)"


def s3_server_program() -> str:
    """A versitygw, built from Go modules, or nothing."""
    return shutil.which(os.environ.get("S3_SERVER", "versitygw")) or ""


def xterm() -> str | None:
    """Why xterm.js cannot be asked here, or ``None``."""
    if not shutil.which("node"):
        return "node is not on PATH (nodejs)"
    if not os.path.isdir(xterm_module()):
        return "XTERM_HEADLESS is no directory with @xterm/headless (see tests/interop)"
    return None


def xterm_module() -> str:
    """Where npm has installed the headless package of xterm.js."""
    directory = os.path.abspath(os.environ.get("XTERM_HEADLESS", "xterm"))
    return os.path.join(directory, "node_modules", "@xterm", "headless")


def grub() -> str | None:
    """Why GRUB cannot be booted here, or ``None``."""
    if not shutil.which("grub-mkstandalone"):
        return "grub-mkstandalone is not on PATH (grub-common)"
    if not os.path.isfile(os.path.join(grub_modules(), "boot.img")):
        return f"{grub_modules()} has no boot.img (grub-pc-bin, or GRUB_MODULES)"
    return None


def grub_modules() -> str:
    """Where the modules of GRUB for PCs are."""
    return os.environ.get("GRUB_MODULES", "/usr/lib/grub/i386-pc")


def no_kernel() -> str | None:
    """Why Linux cannot be booted here, or ``None``."""
    return None if kernel() else "there is no /boot/vmlinuz-*, and LINUX_KERNEL names none"


def kernel() -> str:
    """The image of a kernel of Linux, or nothing."""
    found = sorted(glob.glob(os.environ.get("LINUX_KERNEL", "/boot/vmlinuz-*")))
    return found[-1] if found else ""


def chromium() -> str | None:
    """Why a page in a real browser cannot be tried here, or ``None``."""
    return None if chromium_program() else "chromium is not on PATH (chromium)"


def chromium_program() -> str | None:
    """A browser of the Chromium project, under one of the names that distributions use."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


def firefox() -> str | None:
    """Why the page cannot be tried in Firefox here, or ``None``."""
    return None if firefox_program() else "firefox is not on PATH (firefox-esr)"


def firefox_program() -> str | None:
    """A Firefox, under one of the names that distributions use."""
    return next((path for name in ("firefox-esr", "firefox") if (path := shutil.which(name))), None)


def webkit() -> str | None:
    """Why the page cannot be tried in WebKit here, or ``None``."""
    missing = [each for each in ("WebKitWebDriver", "Xvfb") if not shutil.which(each)]
    return f"{', '.join(missing)} not on PATH (webkit2gtk-driver, xvfb)" if missing else None


def webkit_program() -> str | None:
    """The WebDriver of WebKitGTK."""
    return shutil.which("WebKitWebDriver")


def certificate_store() -> str | None:
    """Why certificates cannot be imported into a browser here, or ``None``."""
    missing = [each for each in ("certutil", "pk12util", "openssl") if not shutil.which(each)]
    return f"{', '.join(missing)} not on PATH (libnss3-tools, openssl)" if missing else None


def page_vendor() -> str | None:
    """Why the page has no terminal here, or ``None``."""
    if (wheel_backend.TARGET / "xterm.js").exists():
        return None
    return "the page has no xterm.js: python -m twisted_exec.web.vendoring"


def dex() -> str | None:
    """Why a real OIDC provider cannot be asked here, or ``None``."""
    if dex_program():
        return None
    return "dex is not on PATH, nor where DEX says (see tests/interop)"


def dex_program() -> str:
    """Dex, built from Go modules, or nothing."""
    return shutil.which(os.environ.get("DEX", "dex")) or ""


def kube_apiserver() -> str | None:
    """Why a real kube-apiserver cannot be asked here, or ``None``."""
    if not kube_apiserver_program():
        return "kube-apiserver is not on PATH, nor where KUBE_APISERVER says (see tests/interop)"
    return etcd()


def kube_apiserver_program() -> str | None:
    """A kube-apiserver, built from Go modules."""
    return shutil.which(os.environ.get("KUBE_APISERVER", "kube-apiserver"))


def newest_kube_apiserver() -> str | None:
    """Why a kube-apiserver of a newer release cannot be asked here, or ``None``."""
    if newest_kube_apiserver_program():
        return etcd()
    return (
        "kube-apiserver.newest is not on PATH, nor where KUBE_APISERVER_NEWEST says"
        " (see tests/interop)"
    )


def newest_kube_apiserver_program() -> str | None:
    """A kube-apiserver that passes WebSockets on to Nodes that declare them."""
    return shutil.which(os.environ.get("KUBE_APISERVER_NEWEST", "kube-apiserver.newest"))


def oldest_kube_apiserver_program() -> str | None:
    """A kube-apiserver as old as Debian's kubectl."""
    return shutil.which(os.environ.get("KUBE_APISERVER_OLDEST", "kube-apiserver.1.20"))


def oldest_kubectl() -> str | None:
    """Why Debian's kubectl cannot be tried here, or ``None``."""
    if oldest_kubectl_program():
        return None
    return "kubectl.1.20 is not on PATH, nor where KUBECTL_OLDEST says (see tests/interop)"


def oldest_kubectl_program() -> str | None:
    """kubectl 1.20, as Debian has it."""
    return shutil.which(os.environ.get("KUBECTL_OLDEST", "kubectl.1.20"))


def etcd() -> str | None:
    """Why a real etcd cannot be asked here, or ``None``."""
    return None if shutil.which("etcd") else "etcd is not on PATH (etcd-server)"


def newer_etcd() -> str | None:
    """Why a newer etcd than Debian's cannot be asked here, or ``None``."""
    if newer_etcd_program() is not None:
        return None
    return "etcd-3.5 is not on PATH, and ETCD_NEWER names none; see tests/interop"


def newer_etcd_program() -> str | None:
    """An etcd of a later release, built from Go modules."""
    return shutil.which(os.environ.get("ETCD_NEWER", "etcd-3.5"))


def aggregated() -> str | None:
    """Why a server of ours cannot be tried behind a real kube-apiserver here, or ``None``."""
    if not kube_controller_manager_program():
        return (
            "kube-controller-manager is not on PATH, nor where KUBE_CONTROLLER_MANAGER says "
            "(see tests/interop)"
        )
    return kube_apiserver() or kubectl()


def helm() -> str | None:
    """Why the Helm chart cannot be tried here, or ``None``."""
    if helm_program():
        return kubectl()
    return "helm is not on PATH, nor where HELM says (see tests/interop)"


def helm_program() -> str:
    """Helm, built from Go modules, or nothing."""
    return shutil.which(os.environ.get("HELM", "helm")) or ""


def kube_controller_manager_program() -> str | None:
    """A kube-controller-manager, built from Go modules."""
    return shutil.which(os.environ.get("KUBE_CONTROLLER_MANAGER", "kube-controller-manager"))


def kubeflex_manager() -> str | None:
    """Why KubeFlex's own manager cannot be tried here, or ``None``."""
    if not kubeflex_manager_program():
        return (
            "kubeflex-manager is not on PATH, nor where KUBEFLEX_MANAGER says (see tests/interop)"
        )
    return aggregated()


def kubeflex_manager_program() -> str:
    """KubeFlex's manager, built from Go modules, or nothing."""
    return shutil.which(os.environ.get("KUBEFLEX_MANAGER", "kubeflex-manager")) or ""


def ser2net() -> str | None:
    """Why a real ser2net cannot be asked here, or ``None``."""
    return None if shutil.which("ser2net") else "ser2net is not on PATH (ser2net)"


def conserver() -> str | None:
    """Why a real conserver cannot be asked here, or ``None``."""
    missing = [one for one in ("conserver", "console") if not shutil.which(one)]
    if missing:
        return f"{' and '.join(missing)} not on PATH (conserver-server, conserver-client)"
    return None


def conch() -> str | None:
    """Why Twisted's SSH cannot be used here, or ``None``."""
    # Not find_spec: a double may have put an empty module in its place.
    return None if PathFinder.find_spec("bcrypt") else "bcrypt is not installed (the extra ssh)"


def ssh() -> str | None:
    """Why a real ssh cannot open a console here, or ``None``."""
    return conch() or (None if shutil.which("ssh") else "ssh is not on PATH (openssh-client)")


def sshd() -> str | None:
    """Why a real OpenSSH server cannot be asked here, or ``None``."""
    missing = [one for one in ("ssh", "sshd", "ssh-keygen") if not shutil.which(one)]
    return f"{', '.join(missing)} not on PATH (openssh-server)" if missing else None


def ipmi() -> str | None:
    """Why a simulated BMC cannot be asked here, or ``None``."""
    missing = [one for one in ("ipmitool", "ipmi_sim") if not shutil.which(one)]
    return f"{' and '.join(missing)} not on PATH (ipmitool, openipmi)" if missing else None


def libvirt() -> str | None:
    """Why a real libvirt cannot be asked here, or ``None``."""
    missing = [one for one in ("libvirtd", "virsh") if not shutil.which(one)]
    if missing:
        return f"{' and '.join(missing)} not on PATH (libvirt-daemon-system, libvirt-clients)"
    return qemu()


def systemd_analyze() -> str | None:
    """Why systemd cannot be asked about its units here, or ``None``."""
    found = shutil.which("systemd-analyze")
    return None if found else "systemd-analyze is not on PATH (systemd)"


def machinepoollet() -> str | None:
    """Why ironcore's own poollet cannot be tried here, or ``None``."""
    if not machinepoollet_program():
        return "machinepoollet is not on PATH, nor where MACHINEPOOLLET says (see tests/interop)"
    return kubectl()


def machinepoollet_program() -> str | None:
    """ironcore's machinepoollet, built from Go modules."""
    return shutil.which(os.environ.get("MACHINEPOOLLET", "machinepoollet"))


def older_release() -> str | None:
    """Why release 0.2.0 cannot be tried here, or ``None``."""
    if not os.path.isdir(os.path.join(older_release_directory(), "twisted_exec")):
        return "OLDER_RELEASE names no directory with release 0.2.0 installed (see tests/interop)"
    return None


def older_release_directory() -> str:
    """The directory of release 0.2.0, from ``pip install --no-deps --target``."""
    return os.path.abspath(os.environ.get("OLDER_RELEASE", "older-release"))


def kind() -> str | None:
    """Why clusters of kind cannot be tried here, or ``None``."""
    return (
        None if kind_program() else "kind is not on PATH, nor where KIND says (see tests/interop)"
    )


def kind_program() -> str | None:
    """kind, built from Go modules."""
    return shutil.which(os.environ.get("KIND", "kind"))


def kcp() -> str | None:
    """Why workspaces of kcp cannot be tried here, or ``None``."""
    # There is no recipe for it, so the reason must be more than that it is missing.
    return (
        None
        if kcp_program()
        else "kcp is not on PATH, nor where KCP says; it needs a fork of client-go that Go's module proxy "
        "did not serve, so tests.interop builds no kcp: see its docstring"
    )


def kcp_program() -> str | None:
    """kcp, of release 0.28 or later."""
    return shutil.which(os.environ.get("KCP", "kcp"))


def peers() -> str | None:
    """Why programs of ironcore's and onmetal's cannot be tried here, or ``None``."""
    for make in ("ironcore", "onmetal", "libvirt"):
        if not os.path.isdir(interop_programs(make)):
            return "INTEROP_PROGRAMS names no directory of theirs; see tests/interop"
    if not shutil.which("libvirtd"):
        return "libvirtd is not on PATH (libvirt-daemon-system)"
    return kube_apiserver()


def ironcore() -> str | None:
    """Why ironcore's API server cannot be tried here, or ``None``."""
    if not os.path.isdir(interop_programs("ironcore")):
        return "INTEROP_PROGRAMS names no directory of theirs; see tests/interop"
    return kube_apiserver()


def interop_programs(make: str) -> str:
    """The directory of the foreign programs of ``ironcore``, ``onmetal`` or ``libvirt``."""
    return os.path.join(os.environ.get("INTEROP_PROGRAMS", "/nonexistent"), make)


def without(test: TestCase, name: str) -> None:
    """Until a test ends, a package or module cannot be imported, as if it were not installed."""
    found = {each for each in sys.modules if each == name or each.startswith(f"{name}.")} | {name}
    for each in found:
        if each in sys.modules:
            test.addCleanup(sys.modules.__setitem__, each, sys.modules[each])
        else:
            test.addCleanup(sys.modules.pop, each)
        sys.modules[each] = None  # type: ignore[assignment]  # so import fails
