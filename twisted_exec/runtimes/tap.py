"""
``twistd exec-runtime``: the machine runtime of this host.
"""

from __future__ import annotations

from typing import Any

from twisted.application.service import IService

from twisted_exec.iri.target import TargetError
from twisted_exec.observe.metrics import ExpiryMetrics
from twisted_exec.program.options import Required
from twisted_exec.program.start import make_service
from twisted_exec.runtimes.serving.options import FILES, ServingOptions
from twisted_exec.shipping import config as shipping
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Expiry

from .config import ConfigError, load
from .host import RuntimeHost, Settings

PROGRAM = "exec-runtime"


class Options(ServingOptions):
    """Command line of the runtime."""

    program = PROGRAM
    paths = ("classes", "shipping", *FILES)
    required = {"classes": Required()}
    group = "Machines"
    synopsis = "--classes=FILE --iri-listen=TARGET [options]"
    longdesc = "Runs shells and virtual machines on this host, and serves their consoles."

    optParameters = [
        ["classes", None, None, "YAML file with the machine classes of this host."],
        ["shipping", None, None, "YAML file: where to send the lines of all consoles."],
        ["state-dir", None, "exec-runtime-state", "Private directory for state across restarts."],
    ]
    optFlags = [
        ["keep-machines", None, "Let machines outlive this program, if their driver supports it."]
    ]

    def is_options_file(self, path: str) -> bool:
        """Return whether the file has options: earlier releases had ``--config`` for the classes."""
        return path.endswith(".toml")

    def postOptions(self) -> None:
        """See :meth:`ServingOptions.postOptions`."""
        if self["config"] and not self.is_options_file(self["config"]):
            self["classes"] = self["classes"] or self["config"]
        super().postOptions()


def makeService(options: Options) -> IService:
    """Create the service for a command line, without opening anything."""
    errors = (ConfigError, TargetError, TLSConfigError)
    return make_service(
        PROGRAM, lambda reactor: _host(options, reactor), errors, limits=options.session_limits
    )


def _host(options: Options, reactor: Any) -> RuntimeHost:
    audit = options.audit()
    host = RuntimeHost(settings(options), audit, reactor, checks=[audit.check])
    ExpiryMetrics(host.streams.registry, Expiry(options.certificates()).ends)
    return host


def settings(options: Options) -> Settings:
    """
    Translate the command line.

    :raises ConfigError: the configuration file is wrong.
    :raises TargetError: an address is wrong.
    """
    return Settings(
        streaming=options.listening(),
        classes=load(options["classes"]),
        state_directory=options["state-dir"],
        iri_target=options["iri-listen"],
        iri_revision=options["iri-revision"],
        iri_tls=options.iri_tls(),
        allowed_uids=options["allow-uid"],
        drain_seconds=options["drain-seconds"],
        sessions=options.session_limits(),
        keep_machines=bool(options["keep-machines"]),
        shipping=shipping.load(options["shipping"]) if options["shipping"] else None,
    )
