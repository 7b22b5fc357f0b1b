"""
``twistd exec-runtime``: machines of this host as a program.
"""

from __future__ import annotations

from typing import Any

from twisted.application.service import IService

from twisted_exec.iri.target import TargetError
from twisted_exec.observe.audit import JSONLinesAudit
from twisted_exec.observe.metrics import ExpiryMetrics
from twisted_exec.program.start import make_service
from twisted_exec.runtimes.serving.options import FILES, ServingOptions
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Expiry

from .config import ConfigError, load
from .host import RuntimeHost, Settings

PROGRAM = "exec-runtime"


class Options(ServingOptions):
    """Command line of the runtime."""

    program = PROGRAM
    paths = ("config", *FILES)
    required = ("config", "iri-listen")
    synopsis = "--config=FILE --iri-listen=TARGET [options]"
    longdesc = "Runs shells and virtual machines on this host, and serves their consoles."

    optParameters = [
        ["config", None, None, "YAML: the machine classes that this host offers (required)."],
        ["state-dir", None, "exec-runtime-state", "What a later start must know; private."],
    ]
    optFlags = [
        ["keep-machines", None, "Machines that can outlive this program do, and are found again."]
    ]


def makeService(options: Options) -> IService:
    """The runtime that the command line describes; nothing is opened yet."""
    wrong = (ConfigError, TargetError, TLSConfigError)
    return make_service(PROGRAM, lambda reactor: _host(options, reactor), wrong)


def _host(options: Options, reactor: Any) -> RuntimeHost:
    audit = JSONLinesAudit(options["audit-log"])
    host = RuntimeHost(settings(options), audit, reactor, checks=[audit.check])
    ExpiryMetrics(host.streams.registry, Expiry(options.certificates()).ends)
    return host


def settings(options: Options) -> Settings:
    """
    The command line as the service wants it.

    :raises ConfigError: the file cannot be used.
    :raises TargetError: an address cannot be used.
    """
    return Settings(
        streaming=options.listening(),
        classes=load(options["config"]),
        state_directory=options["state-dir"],
        iri_target=options["iri-listen"],
        iri_revision=options["iri-revision"],
        iri_tls=options.iri_tls(),
        allowed_uids=options["allow-uid"],
        drain_seconds=options["drain-seconds"],
        keep_machines=bool(options["keep-machines"]),
    )
