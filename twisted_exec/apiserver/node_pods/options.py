"""
Options of the connections to kubelets, named as those of kube-apiserver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from twisted.internet.interfaces import IReactorTime
from twisted.python.usage import UsageError

from twisted_exec.api.kinds import ADDRESS_TYPES
from twisted_exec.apiserver.node_pods.kubelets import Kubelets
from twisted_exec.program.options.declaration import OPTION, ProgramOption, settings_of
from twisted_exec.program.options.sessions import BrowserOptions
from twisted_exec.program.options.values import seconds as read_seconds
from twisted_exec.tls.client import ClientCredentials

_KUBELET_FILES = {
    "kubelet-client-certificate": "the client certificate for kubelets",
    "kubelet-client-key": "the private key of the client certificate",
    "kubelet-certificate-authority": "the CA of kubelets' serving certificates",
}
_ADDRESS_TYPES = "kubelet-preferred-address-types"
_DEFAULT_ADDRESS_TYPES = ",".join(ADDRESS_TYPES)
_KUBELET_TIMEOUT = "kubelet-timeout"


@dataclass(frozen=True)
class KubeletAccess:
    """Files and settings for connections to kubelets; paths of PEM files."""

    certificate: str = field(
        metadata={
            OPTION: ProgramOption(
                "kubelet-client-certificate",
                "Client certificate for kubelets (PEM); with it, Pods are stored objects on Nodes "
                "instead of the view of machines.",
                default="",
                is_path=True,
            )
        }
    )
    key: str = field(
        metadata={
            OPTION: ProgramOption(
                "kubelet-client-key",
                "Private key of that certificate (PEM).",
                default="",
                is_path=True,
            )
        }
    )
    ca: str = field(
        metadata={
            OPTION: ProgramOption(
                "kubelet-certificate-authority",
                "CA of kubelets' certificates (PEM).",
                default="",
                is_path=True,
            )
        }
    )
    address_types: Sequence[str] = field(
        default=ADDRESS_TYPES,
        metadata={
            OPTION: ProgramOption(
                "kubelet-preferred-address-types",
                "Types of Nodes' addresses, separated by commas: only the first match is dialled.",
                default=",".join(ADDRESS_TYPES),
                convert=lambda types: tuple(each.strip() for each in types.split(",")),
            )
        },
    )
    seconds: float = field(
        default=5.0,
        metadata={
            OPTION: ProgramOption(
                "kubelet-timeout",
                "Time limit to connect to a kubelet, and for its response.",
                read_seconds,
            )
        },
    )

    def kubelets(self, clock: IReactorTime) -> Kubelets:
        """Return access to the kubelets, without reading files."""
        credentials = ClientCredentials(
            ca=self.ca, certificate=self.certificate, key=self.key, clock=clock
        )
        return Kubelets(credentials, self.address_types, self.seconds)


class KubeletOptions(BrowserOptions):
    """Options of a server that may have Pods on Nodes."""

    group = "Pods on Nodes"
    settings_class: ClassVar[type | None] = KubeletAccess


def check_kubelets(options: Mapping[str, Any]) -> None:
    """
    Check the options of :class:`KubeletOptions`.

    :raises UsageError: an option is missing or invalid.
    """
    if not any(options[name] for name in _KUBELET_FILES):
        if (options[_ADDRESS_TYPES], options[_KUBELET_TIMEOUT]) != (_DEFAULT_ADDRESS_TYPES, 5.0):
            option = (
                _ADDRESS_TYPES
                if options[_ADDRESS_TYPES] != _DEFAULT_ADDRESS_TYPES
                else _KUBELET_TIMEOUT
            )
            raise UsageError(
                f"--{option} needs --kubelet-client-certificate: no kubelet is reached"
            )
        return
    for name, what in _KUBELET_FILES.items():
        if not options[name]:
            raise UsageError(f"--{name} is missing: {what}")
    if options["pods-view"]:
        raise UsageError(
            "--pods-view cannot go with --kubelet-client-certificate: Pods are those of Nodes then"
        )
    types = settings_of(KubeletAccess, options).address_types
    unknown = [each for each in types if each not in ADDRESS_TYPES]
    if unknown:
        choices = ", ".join(ADDRESS_TYPES)
        raise UsageError(f"--{_ADDRESS_TYPES}: {unknown[0]!r} is none of {choices}")


def kubelet_access(options: Mapping[str, Any]) -> KubeletAccess | None:
    """Settings by :class:`KubeletOptions`; ``None`` without Pods on Nodes."""
    access = settings_of(KubeletAccess, options)
    return access if access.certificate else None
