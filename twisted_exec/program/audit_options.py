"""
Options of the audit log, named as kube-apiserver's.
"""

from __future__ import annotations

from twisted_exec.observe.audit import JSONLinesAudit, Rotation
from twisted_exec.observe.disk_thread import Files
from twisted_exec.program.options import ProgramOptions

_MEGABYTE = 1 << 20


def _number(text: str, least: int, most: int) -> int:
    """:raises ValueError: the text is not a whole number from ``least`` to ``most``."""
    if not (text.isascii() and text.isdigit() and len(text) < 8 and least <= int(text) <= most):
        raise ValueError(f"{text!r} is not a number from {least} to {most}")
    return int(text)


def _megabytes(text: str) -> int:
    return _number(text, 0, 1_000_000)


def _files(text: str) -> int:
    return _number(text, 1, 1000)


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
            _megabytes,
        ],
        ["audit-log-maxbackup", None, 10, "Number of old files, from 1 to 1000.", _files],
    ]

    def audit(self, thread: Files | None = None) -> JSONLinesAudit:
        """
        Return the sink for session records; nothing is opened yet.

        :param thread: where the file is written.
        """
        rotation = Rotation(self["audit-log-maxsize"] * _MEGABYTE, self["audit-log-maxbackup"])
        return JSONLinesAudit(self["audit-log"], rotation, thread)
