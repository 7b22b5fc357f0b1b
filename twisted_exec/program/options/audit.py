"""Options of programs that record sessions in an audit log."""

from __future__ import annotations

from twisted_exec.program.audit_file import JSONLinesAudit, Rotation
from twisted_exec.program.disk_thread import Files
from twisted_exec.program.options.command_line import ProgramOptions
from twisted_exec.program.options.values import megabytes, number_of_files

_MEGABYTE = 1 << 20


class AuditOptions(ProgramOptions):
    """Options of a program that records sessions."""

    group = "Audit log"

    optParameters = [
        [
            "audit-log",
            None,
            "-",
            "File for audit records, - for standard output, or /dev/null to keep none.",
        ],
        [
            "audit-log-maxsize",
            None,
            0,
            "Size in MB after which the file is renamed to FILE.1; 0 for no limit.",
            megabytes,
        ],
        ["audit-log-maxbackup", None, 10, "Number of old files, from 1 to 1000.", number_of_files],
    ]

    def audit(self, thread: Files | None = None) -> JSONLinesAudit:
        """Return the sink for session records; nothing is opened yet."""
        rotation = Rotation(self["audit-log-maxsize"] * _MEGABYTE, self["audit-log-maxbackup"])
        return JSONLinesAudit(self["audit-log"], rotation, thread)
