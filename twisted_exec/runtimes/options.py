"""
The command line of ``exec-runtime``: options beside those of :mod:`.settings`, and checks of all of them.
"""

from __future__ import annotations

from twisted.python.usage import UsageError

from twisted_exec.journal.retention import DEFAULT_RETENTION, Retention, StoreLimits
from twisted_exec.program.options.declaration import ProgramOption, settings_of
from twisted_exec.program.options.values import days, size
from twisted_exec.runtimes.serving.options import ServingOptions
from twisted_exec.runtimes.settings import Settings

PROGRAM = "exec-runtime"
_JOURNALS = "Journals"


class Options(ServingOptions):
    """Command line of the runtime."""

    program = PROGRAM
    settings_class = Settings
    group = "Machines"
    synopsis = "--classes=FILE --iri-listen=TARGET [options]"
    longdesc = "Runs shells and virtual machines on this host, and serves their consoles."

    groups = dict.fromkeys(("Sessions", _JOURNALS, "Recordings"), ())
    more = (
        ProgramOption(
            "journal-days",
            "Days for which console output is retained; 0 for ever.",
            days,
            default=30,
            group=_JOURNALS,
        ),
        ProgramOption(
            "journal-machine-size",
            "Limit of the retained output of a machine; 0 for none.  [default: 64Mi]",
            size,
            group=_JOURNALS,
        ),
        ProgramOption(
            "journal-size",
            "Limit of all retained output.  [default: a tenth of the file system]",
            size,
            group=_JOURNALS,
        ),
        ProgramOption(
            "journal-keep-free",
            "Space that retained output leaves free.  [default: 1Gi, at most a twentieth of the disk]",
            size,
            group=_JOURNALS,
        ),
        ProgramOption(
            "journal-deleted-days",
            "Days for which the output of deleted machines is retained.",
            days,
            default=7,
            group=_JOURNALS,
        ),
    )

    def is_options_file(self, path: str) -> bool:
        """Return whether the file has options: earlier releases had ``--config`` for the classes."""
        return path.endswith(".toml")

    def postOptions(self) -> None:
        if self["config"] and not self.is_options_file(self["config"]):
            self["classes"] = self["classes"] or self["config"]
        if bool(self["recorder-certificate"]) != bool(self["recorder-key"]):
            raise UsageError("--recorder-certificate and --recorder-key go together")
        super().postOptions()


def _retention(options: Options) -> Retention:
    size = options["journal-machine-size"]
    limit = DEFAULT_RETENTION.machine_bytes if size is None else size
    return Retention(options["journal-days"], limit)


def settings(options: Options) -> Settings:
    """
    Translate the command line.

    :raises ConfigError: the configuration file is wrong.
    :raises TargetError: an address is wrong.
    :raises TLSConfigError: the path of a socket is too long.
    """
    return settings_of(
        Settings,
        options,
        streaming=options.listening(),
        iri_tls=options.iri_tls(),
        sessions=options.session_limits(),
        retention=_retention(options),
        journal_limits=StoreLimits(
            options["journal-size"] or 0,
            options["journal-keep-free"],
            options["journal-deleted-days"],
        ),
    )
