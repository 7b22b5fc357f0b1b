"""
The command line of ``exec-apiserver``: options beside those of :mod:`.settings`, and checks of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from twisted.python.usage import UsageError

from twisted_exec.api.dialects import one_per_group
from twisted_exec.apiserver.aggregated.options import (
    AggregatedOptions,
    aggregated,
    check_aggregated,
)
from twisted_exec.apiserver.controllers.signer import DEFAULT_LIFE_SECONDS
from twisted_exec.apiserver.identity.oidc_options import web_client
from twisted_exec.apiserver.identity.options import identities
from twisted_exec.apiserver.node_pods.options import KubeletOptions, check_kubelets, kubelet_access
from twisted_exec.apiserver.settings import Settings
from twisted_exec.apiserver.signing.authority import CAPair
from twisted_exec.program.options.audit import AuditOptions
from twisted_exec.program.options.declaration import (
    ProgramOption,
    Required,
    options_of,
    settings_of,
)
from twisted_exec.storage.option import FORMS, storage_option
from twisted_exec.storage.quota import QuotaLimits

_SIGNING = "cluster-signing-"
_CLIENT_SIGNING = "cluster-signing-kube-apiserver-client-"
_SIGNED = "Certificates that the server signs"


def _pair(options: Mapping[str, Any], prefix: str) -> CAPair | None:
    certificate, key = f"{prefix}cert-file", f"{prefix}key-file"
    if bool(options[certificate]) != bool(options[key]):
        missing, present = (key, certificate) if options[certificate] else (certificate, key)
        raise UsageError(f"--{missing} is missing: it belongs to --{present}")
    return CAPair(options[certificate], options[key]) if options[key] else None


class Options(KubeletOptions, AggregatedOptions, AuditOptions):
    """Options of ``exec-apiserver``."""

    program = "exec-apiserver"
    settings_class = Settings
    more = (
        ProgramOption(
            "storage",
            f"Store of the objects: {FORMS}.",
            storage_option,
            group="Storage",
            required=Required("the store of the objects, such as sqlite:PATH"),
        ),
        *options_of(QuotaLimits),
        ProgramOption(
            f"{_SIGNING}cert-file",
            "CA that signs serving certificates of poollets and node servers (PEM).",
            group=_SIGNED,
            is_path=True,
        ),
        ProgramOption(
            f"{_SIGNING}key-file", "Private key of that CA (PEM).", group=_SIGNED, is_path=True
        ),
        ProgramOption(
            f"{_CLIENT_SIGNING}cert-file",
            "CA that signs client certificates (PEM); one of --client-ca-file.",
            group=_SIGNED,
            is_path=True,
        ),
        ProgramOption(
            f"{_CLIENT_SIGNING}key-file",
            "Private key of that CA (PEM).",
            group=_SIGNED,
            is_path=True,
        ),
    )
    group = "API server"
    groups = dict.fromkeys((group, "Poollets", "Storage", _SIGNED, "Audit log"), ())
    synopsis = "[options]"
    longdesc = "A Kubernetes-style API server for machines and their consoles."

    def postOptions(self) -> None:
        """
        Check the options.

        :raises UsageError: an option is missing or not valid, or contradicts another.
        """
        check_aggregated(self)
        super().postOptions()
        self.check_pairs()
        check_kubelets(self)
        try:
            self["dialect"] = one_per_group(self["dialect"])
        except ValueError as error:
            raise UsageError(f"--dialect: {error}") from None
        signs = [_pair(self, prefix) for prefix in (_SIGNING, _CLIENT_SIGNING)]
        if self["cluster-signing-duration"] != DEFAULT_LIFE_SECONDS and not any(signs):
            raise UsageError(
                "--cluster-signing-duration needs --cluster-signing-cert-file: nothing is signed"
            )
        self.check_required()


def settings(options: Options) -> Settings:
    """Convert the command line to the service's settings."""
    result = settings_of(
        Settings,
        options,
        identities=identities(options),
        sessions=options.session_limits(),
        signing=_pair(options, _SIGNING),
        client_signing=_pair(options, _CLIENT_SIGNING),
        kubelets=kubelet_access(options),
        web_client=web_client(options),
        aggregated=aggregated(options),
    )
    # Behind a host, the core group is the host's.
    return replace(result, pods_view=result.pods_view and result.aggregated is None)
