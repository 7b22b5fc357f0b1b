"""
The options that make Nodes' Pods of a server: how kubelets are reached, as kube-apiserver calls them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.python.usage import UsageError

from twisted_exec.api.kinds import ADDRESS_TYPES
from twisted_exec.apiserver.node_pods.kubelets import KubeletAccess
from twisted_exec.program.start import BrowserOptions, seconds

_FILES = {
    "kubelet-client-certificate": "the certificate that kubelets see",
    "kubelet-client-key": "its private key",
    "kubelet-certificate-authority": "the CA that signs kubelets' serving certificates",
}
PATHS = tuple(_FILES)
"""Those of them that name one file."""
_TYPES = "kubelet-preferred-address-types"
_DEFAULT_TYPES = ",".join(ADDRESS_TYPES)
_TIMEOUT = "kubelet-timeout"


class KubeletOptions(BrowserOptions):
    """Options of a server that may have Nodes' Pods."""

    optParameters = [
        [
            "kubelet-client-certificate",
            None,
            None,
            "Certificate shown to kubelets (PEM); with it, Pods are objects of their own, on Nodes, "
            "instead of the view of machines.",
        ],
        ["kubelet-client-key", None, None, "Its private key (PEM)."],
        ["kubelet-certificate-authority", None, None, "CA of kubelets' certificates (PEM)."],
        [
            _TYPES,
            None,
            _DEFAULT_TYPES,
            "Types of Nodes' addresses, joined by commas: the first that a Node has is dialled.",
        ],
        [
            _TIMEOUT,
            None,
            5.0,
            "Seconds to connect to a kubelet, and for it to answer.",
            seconds,
        ],
    ]


def check(options: Mapping[str, Any]) -> None:
    """
    :raises UsageError: some is missing, or cannot be.
    """
    if not any(options[name] for name in PATHS):
        if (options[_TYPES], options[_TIMEOUT]) != (_DEFAULT_TYPES, 5.0):
            given = _TYPES if options[_TYPES] != _DEFAULT_TYPES else _TIMEOUT
            raise UsageError(f"--{given} needs --kubelet-client-certificate: no kubelet is reached")
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
        told = ", ".join(ADDRESS_TYPES)
        raise UsageError(f"--{_TYPES}: {unknown[0]!r} is none of {told}")


def kubelet_access(options: Mapping[str, Any]) -> KubeletAccess | None:
    """What :class:`KubeletOptions` say; ``None``: there are no Pods of Nodes."""
    if not options[PATHS[0]]:
        return None
    certificate, key, ca = (options[name] for name in PATHS)
    return KubeletAccess(certificate, key, ca, _types(options), options[_TIMEOUT])


def _types(options: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(each.strip() for each in options[_TYPES].split(","))
