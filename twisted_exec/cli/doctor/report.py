"""
Results of checks, and their output for people and programs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum

from twisted_exec.cli.colours import Colour, Paint, plain
from twisted_exec.cli.console.messages import one_line


class Level(Enum):
    """Result of one check; only an error makes the exit code 1."""

    OK = "ok"
    SKIPPED = "skipped"
    WARNING = "warning"
    ERROR = "error"


_COLOURS = {
    Level.OK: Colour.GREEN,
    Level.SKIPPED: Colour.NONE,
    Level.WARNING: Colour.YELLOW,
    Level.ERROR: Colour.RED,
}


@dataclass(frozen=True)
class Finding:
    """
    Result of one check.

    :param check: name of the part that was checked, such as ``clock``.
    :param remedy: what the user can do; empty if there is nothing to do.
    """

    check: str
    level: Level
    message: str
    remedy: str = ""


class Unusable(Exception):
    """A check failed, and the checks after it cannot run; the error is in the report."""


@dataclass
class Report:
    """
    All findings, in the order of the checks.

    :param subject: name of the machine, or empty.
    """

    subject: str = ""
    findings: list[Finding] = field(default_factory=list)

    def ok(self, check: str, message: str) -> None:
        """Add a check without problem."""
        self._add(check, Level.OK, message)

    def skipped(self, check: str, message: str) -> None:
        """Add a check that could not run."""
        self._add(check, Level.SKIPPED, message)

    def warning(self, check: str, message: str, remedy: str) -> None:
        """Add a problem that does not prevent a console."""
        self._add(check, Level.WARNING, message, remedy)

    def error(self, check: str, message: str, remedy: str) -> None:
        """Add a problem that prevents a console."""
        self._add(check, Level.ERROR, message, remedy)

    def fatal(self, check: str, message: str, remedy: str) -> Unusable:
        """Add an error, and return the exception that ends the examination."""
        self.error(check, message, remedy)
        return Unusable(message)

    def _add(self, check: str, level: Level, message: str, remedy: str = "") -> None:
        self.findings.append(Finding(check, level, one_line(message), one_line(remedy)))

    def count(self, level: Level) -> int:
        """Return the number of findings of a level."""
        return sum(finding.level is level for finding in self.findings)

    @property
    def is_healthy(self) -> bool:
        """True if there is no error."""
        return not self.count(Level.ERROR)

    def text(self, paint: Paint = plain) -> str:
        """
        Return one line per check, remedies below, and a summary.

        :param paint: colours a word, such as :func:`~twisted_exec.cli.colours.painter` returns.
        """
        width = max((len(finding.check) for finding in self.findings), default=0)
        lines = []
        for finding in self.findings:
            word, check = f"{finding.level.value:<8}", f"{finding.check:<{width}}"
            lines.append(f"{paint(word, _COLOURS[finding.level])} {check}  {finding.message}")
            if finding.remedy:
                lines.append(f"{'':<8} {'':<{width}}  -> {finding.remedy}")
        lines.append(self._summary())
        return "".join(f"{line}\n" for line in lines)

    def _summary(self) -> str:
        counts = [
            f"{number} {level.value}{'' if number == 1 else 's'}"
            for level in (Level.ERROR, Level.WARNING)
            if (number := self.count(level))
        ]
        what = ", ".join(counts) or "no problem found"
        return f"{self.subject}: {what}" if self.subject else what

    def json(self) -> str:
        """Return the report as one JSON object."""
        document = {
            "machine": self.subject,
            "ok": self.is_healthy,
            "checks": [
                {
                    "check": finding.check,
                    "status": finding.level.value,
                    "message": finding.message,
                    "remedy": finding.remedy,
                }
                for finding in self.findings
            ],
        }
        return json.dumps(document, indent=2) + "\n"
