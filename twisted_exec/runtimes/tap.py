"""
``twistd exec-runtime``: the machine runtime of this host.
"""

from __future__ import annotations

from typing import Any

from twisted.application.service import IService
from twisted.python.usage import UsageError

from twisted_exec.iri.target import TargetError
from twisted_exec.journal.retention import DEFAULT_RETENTION, Retention, StoreLimits
from twisted_exec.program.disk_thread import DiskThread
from twisted_exec.program.metrics import ExpiryMetrics
from twisted_exec.program.options import Required, days, size, whole_seconds
from twisted_exec.program.start import make_service
from twisted_exec.recording.stores.option import RECORDING_STORE
from twisted_exec.runtimes.config import ConfigError, load
from twisted_exec.runtimes.host import RuntimeHost, Settings
from twisted_exec.runtimes.recordings.service import RecordingSettings
from twisted_exec.runtimes.serving.options import FILES, ServingOptions
from twisted_exec.runtimes.serving.server import REJOIN_SECONDS, RESUME_SECONDS
from twisted_exec.runtimes.supervised import LAST_LINE_SECONDS
from twisted_exec.shipping import config as shipping
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Expiry

PROGRAM = "exec-runtime"


class Options(ServingOptions):
    """Command line of the runtime."""

    program = PROGRAM
    paths = ("classes", "shipping", "recorder-certificate", "recorder-key", *FILES)
    required = {"classes": Required()}
    group = "Machines"
    synopsis = "--classes=FILE --iri-listen=TARGET [options]"
    longdesc = "Runs shells and virtual machines on this host, and serves their consoles."

    optParameters = [
        ["classes", None, None, "YAML file with the machine classes of this host."],
        ["shipping", None, None, "YAML file: where to send the lines of all consoles."],
        [
            "resume-seconds",
            None,
            RESUME_SECONDS,
            "Seconds for which a session waits for its user after the loss of a connection, or for its machine to start again; 0 for none.",
            whole_seconds,
        ],
        [
            "rejoin-seconds",
            None,
            REJOIN_SECONDS,
            "Seconds for which a stream waits when a hop before this one is lost; 0 for none.",
            whole_seconds,
        ],
        LAST_LINE_SECONDS,
        ["state-dir", None, "exec-runtime-state", "Private directory for state across restarts."],
        ["journal-days", None, 30, "Days for which console output is retained; 0 for ever.", days],
        [
            "journal-machine-size",
            None,
            None,
            "Limit of the retained output of a machine; 0 for none.  [default: 64Mi]",
            size,
        ],
        [
            "journal-size",
            None,
            None,
            "Limit of all retained output.  [default: a tenth of the file system]",
            size,
        ],
        [
            "journal-keep-free",
            None,
            None,
            "Space that retained output leaves free.  [default: 1Gi, at most a twentieth of the disk]",
            size,
        ],
        [
            "journal-deleted-days",
            None,
            7,
            "Days for which the output of deleted machines is retained.",
            days,
        ],
        [
            "recorder-certificate",
            None,
            "",
            "Certificate that signs recordings, of 'twisted-exec pki recorder'.",
        ],
        ["recorder-key", None, "", "Private key of that certificate."],
        RECORDING_STORE,
        [
            "recording-bytes",
            None,
            None,
            "Limit of the output that only recordings retain.  [default: a twentieth of the file system]",
            size,
        ],
    ]
    groups = {
        "Sessions": ["resume-seconds", "rejoin-seconds"],
        "Journals": [
            "journal-days",
            "journal-machine-size",
            "journal-size",
            "journal-keep-free",
            "journal-deleted-days",
        ],
        "Recordings": [
            "recorder-certificate",
            "recorder-key",
            "recording-bytes",
            "recording-store",
        ],
    }
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
        if bool(self["recorder-certificate"]) != bool(self["recorder-key"]):
            raise UsageError("--recorder-certificate and --recorder-key go together")
        super().postOptions()


def makeService(options: Options) -> IService:
    """Create the service for a command line, without opening anything."""
    errors = (ConfigError, TargetError, TLSConfigError)
    return make_service(
        PROGRAM,
        lambda reactor: _host(options, reactor),
        errors,
        options=options,
        limits=options.session_limits,
    )


def _host(options: Options, reactor: Any) -> RuntimeHost:
    audit = options.audit(DiskThread(reactor))
    host = RuntimeHost(settings(options), audit, reactor, checks=[audit.check])
    ExpiryMetrics(host.streams.registry, Expiry(options.certificates()).ends)
    return host


def _retention(options: Options) -> Retention:
    size = options["journal-machine-size"]
    limit = DEFAULT_RETENTION.machine_bytes if size is None else size
    return Retention(options["journal-days"], limit)


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
        resume_seconds=options["resume-seconds"],
        rejoin_seconds=options["rejoin-seconds"],
        last_line_seconds=options["last-line-seconds"],
        shipping=shipping.load(options["shipping"]) if options["shipping"] else None,
        retention=_retention(options),
        journal_limits=StoreLimits(
            options["journal-size"] or 0,
            options["journal-keep-free"],
            options["journal-deleted-days"],
        ),
        recording=RecordingSettings(
            options["recorder-certificate"],
            options["recorder-key"],
            options["recording-bytes"] or 0,
            options["recording-store"],
        ),
    )
