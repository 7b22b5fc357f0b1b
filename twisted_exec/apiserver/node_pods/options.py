"""
Options for Pods on Nodes: connections to kubelets, named as kube-apiserver's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.python.usage import UsageError

from twisted_exec.api.kinds import ADDRESS_TYPES
from twisted_exec.apiserver.node_pods.kubelets import KubeletAccess
from twisted_exec.program.options import BrowserOptions, seconds

_FILES = {
    "kubelet-client-certificate": "the client certificate for kubelets",
    "kubelet-client-key": "the private key of the client certificate",
    "kubelet-certificate-authority": "the CA of kubelets' serving certificates",
}
PATHS = tuple(_FILES)
"""The options that name one file each."""
_TYPES = "kubelet-preferred-address-types"
_DEFAULT_TYPES = ",".join(ADDRESS_TYPES)
_TIMEOUT = "kubelet-timeout"


class KubeletOptions(BrowserOptions):
    """Options of a server that may have Pods on Nodes."""

    group = "Pods on Nodes"

    optParameters = [
        [
            "kubelet-client-certificate",
            None,
            None,
            "Client certificate for kubelets (PEM); with it, Pods are stored objects on Nodes "
            "instead of the view of machines.",
        ],
        ["kubelet-client-key", None, None, "Private key of that certificate (PEM)."],
        ["kubelet-certificate-authority", None, None, "CA of kubelets' certificates (PEM)."],
        [
            _TYPES,
            None,
            _DEFAULT_TYPES,
            "Types of Nodes' addresses, separated by commas: only the first match is dialled.",
        ],
        [
            _TIMEOUT,
            None,
            5.0,
            "Time limit to connect to a kubelet, and for its response.",
            seconds,
        ],
    ]


def check(options: Mapping[str, Any]) -> None:
    """
    :raises UsageError: an option is missing or invalid.
    """
    if not any(options[name] for name in PATHS):
        if (options[_TYPES], options[_TIMEOUT]) != (_DEFAULT_TYPES, 5.0):
            option = _TYPES if options[_TYPES] != _DEFAULT_TYPES else _TIMEOUT
            raise UsageError(
                f"--{option} needs --kubelet-client-certificate: no kubelet is reached"
            )
        return
    for name, what in _FILES.items():
        if not options[name]:
            raise UsageError(f"--{name} is missing: {what}")
    if options["pods-view"]:
        raise UsageError(
            "--pods-view cannot go with --kubelet-client-certificate: Pods are those of Nodes then"
        )
    unknown = [each for each in _types(options) if each not in ADDRESS_TYPES]
    if unknown:
        choices = ", ".join(ADDRESS_TYPES)
        raise UsageError(f"--{_TYPES}: {unknown[0]!r} is none of {choices}")


def kubelet_access(options: Mapping[str, Any]) -> KubeletAccess | None:
    """Settings by :class:`KubeletOptions`; ``None`` without Pods on Nodes."""
    if not options[PATHS[0]]:
        return None
    certificate, key, ca = (options[name] for name in PATHS)
    return KubeletAccess(certificate, key, ca, _types(options), options[_TIMEOUT])


def _types(options: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(each.strip() for each in options[_TYPES].split(","))
