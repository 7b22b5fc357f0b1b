"""
The command line of ``exec-poollet``: options beside those of :mod:`.settings`, and checks of all of them.
"""

from __future__ import annotations

from twisted.python.usage import UsageError

from twisted_exec.api import names
from twisted_exec.api.names import dns_subdomain
from twisted_exec.iri.revisions import REVISIONS, revision
from twisted_exec.iri.target import MutualTLS, TargetError
from twisted_exec.poollet import PROGRAM
from twisted_exec.poollet.machines import downward
from twisted_exec.poollet.machines.downward import Downward
from twisted_exec.poollet.machines.references import ReferencedKinds
from twisted_exec.poollet.settings import SIGNER, Settings
from twisted_exec.program.options.audit import AuditOptions
from twisted_exec.program.options.declaration import ProgramOption, settings_of
from twisted_exec.program.options.sessions import BrowserOptions

_RUNTIME = "Machine runtime"
DOWNWARD = ("machine", "volume", "nic", "network")
"""Kinds of objects with downward API options."""


_RUNTIME_FILES = {
    "machine-runtime-ca-file": "CA of the runtime, for a TCP target.",
    "machine-runtime-cert-file": "Client certificate for a TCP target.",
    "machine-runtime-private-key-file": "Private key of that certificate.",
}


class Options(BrowserOptions, AuditOptions):
    """Command line of the poollet."""

    program = PROGRAM
    settings_class = Settings
    group = "Sessions"
    groups = {
        **dict.fromkeys(("API server", "Pool", _RUNTIME, "Serving"), ()),
        "Downward API": [
            *(f"{kind}-downward-api-label" for kind in DOWNWARD),
            "machine-downward-api-annotation",
        ],
    }
    synopsis = "--machine-pool-name=NAME --machine-runtime-endpoint=TARGET [options]"
    longdesc = "Runs the machines of one pool on a machine runtime, and serves their consoles."

    more = (
        ProgramOption(
            "kubeconfig",
            "Kubeconfig for the API server; default: $KUBECONFIG, ~/.kube/config or the Pod's service account.",
            group="API server",
        ),
        ProgramOption(
            "context",
            "Context of the kubeconfig; default: the current context.",
            group="API server",
        ),
        ProgramOption(
            "bootstrap-kubeconfig",
            "Kubeconfig for requesting a client certificate, which is stored in --cert-dir.",
            group="API server",
            is_path=True,
        ),
        ProgramOption(
            "iri-revision",
            f"gRPC API of the runtime: {', '.join(REVISIONS)}; default: that of the dialect.",
            default="",
            group=_RUNTIME,
        ),
        *(
            ProgramOption(name, description, group=_RUNTIME, is_path=True)
            for name, description in _RUNTIME_FILES.items()
        ),
    )

    def __init__(self) -> None:
        super().__init__()
        for kind in DOWNWARD:
            self[f"{kind}-downward-api-label"] = {}
        self["machine-downward-api-annotation"] = {}

    def opt_machine_downward_api_label(self, text: str) -> None:
        """
        NAME=FIELDPATH, such as team=metadata.labels['team']: label of the runtime's machine; may be
        repeated.
        """
        self._downward("machine-downward-api-label", text)

    def opt_machine_downward_api_annotation(self, text: str) -> None:
        """NAME=FIELDPATH: annotation of the runtime's machine; may be repeated."""
        self._downward("machine-downward-api-annotation", text)

    def opt_volume_downward_api_label(self, text: str) -> None:
        """NAME=FIELDPATH of a Volume, passed to the runtime as a label; may be repeated."""
        self._downward("volume-downward-api-label", text)

    def opt_nic_downward_api_label(self, text: str) -> None:
        """NAME=FIELDPATH of a NetworkInterface, passed to the runtime as a label; may be repeated."""
        self._downward("nic-downward-api-label", text)

    def opt_network_downward_api_label(self, text: str) -> None:
        """NAME=FIELDPATH of a Network, passed to the runtime as a label; may be repeated."""
        self._downward("network-downward-api-label", text)

    def _downward(self, option: str, text: str) -> None:
        name, equals, path = text.partition("=")
        if not equals or names.qualified_name(f"x/{name}"):
            raise UsageError(f"--{option} {text!r} is not NAME=FIELDPATH")
        try:
            self[option][name] = downward.check(path)
        except ValueError as problem:
            raise UsageError(f"--{option}: {problem}") from None

    def postOptions(self) -> None:
        """
        :raises UsageError: an option is missing or not valid, or options contradict each other.
        """
        files = ("tls-cert-file", "tls-private-key-file")
        if self["cert-dir"] and any(self[name] for name in files):
            raise UsageError("--cert-dir and --tls-cert-file exclude each other")
        if self["bootstrap-kubeconfig"] and self["kubeconfig"]:
            raise UsageError("--bootstrap-kubeconfig and --kubeconfig exclude each other")
        if self["bootstrap-kubeconfig"] and not self["cert-dir"]:
            raise UsageError(
                "--bootstrap-kubeconfig needs --cert-dir, the directory for the client certificate"
            )
        if self["serving-cert-signer"] != SIGNER and not self["cert-dir"]:
            raise UsageError("--serving-cert-signer needs --cert-dir: no certificate is requested")
        self.check_required()
        try:
            revision(self["iri-revision"] or self["dialect"].iri_revision)
        except ValueError as problem:
            raise UsageError(f"--iri-revision: {problem}") from None
        if dns_subdomain(self["machine-pool-name"]):
            rule = "lower case letters, digits, - and . only"
            raise UsageError(f"--machine-pool-name {self['machine-pool-name']!r}: {rule}")
        if bool(self["requestheader-client-ca-file"]) != bool(self["requestheader-allowed-names"]):
            raise UsageError(
                "--requestheader-client-ca-file and --requestheader-allowed-names go together"
            )


def runtime_tls(options: Options) -> MutualTLS | None:
    """
    Return the certificates for the runtime at a TCP target, or ``None``.

    :raises TargetError: a file is missing, or the target is a UNIX socket.
    """
    files = [options[name] for name in _RUNTIME_FILES]
    if not any(files):
        return None
    if not all(files):
        raise TargetError(
            "--machine-runtime-ca-file, --machine-runtime-cert-file and "
            "--machine-runtime-private-key-file go together"
        )
    if options["machine-runtime-endpoint"].startswith("unix:"):
        raise TargetError("--machine-runtime-ca-file is for a TCP --machine-runtime-endpoint")
    return MutualTLS(*files)


def settings(options: Options) -> Settings:
    """Return the service's configuration from the command line."""
    return settings_of(
        Settings,
        options,
        provider_id=options["provider-id"] or f"twisted-exec://{options['machine-pool-name']}",
        sessions=options.session_limits(),
        downward=Downward(
            options["machine-downward-api-label"], options["machine-downward-api-annotation"]
        ),
        about=ReferencedKinds(
            options["dialect"],
            *(Downward(options[f"{kind}-downward-api-label"]) for kind in DOWNWARD[1:]),
        ),
    )
