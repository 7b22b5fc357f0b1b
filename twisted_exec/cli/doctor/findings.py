"""Results of checks, as a report."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field, replace
from enum import Enum

from twisted_exec.cli.messages import Colour, Paint, one_line, plain, rows

_LEAST_COLUMNS = 20
"""Columns of messages in a terminal that is too narrow."""


class FindingLevel(Enum):
    """Result of one check; only an error makes the exit code 1."""

    OK = "ok"
    SKIPPED = "skipped"
    WARNING = "warning"
    ERROR = "error"


_COLOURS = {
    FindingLevel.OK: Colour.GREEN,
    FindingLevel.SKIPPED: Colour.NONE,
    FindingLevel.WARNING: Colour.YELLOW,
    FindingLevel.ERROR: Colour.RED,
}


@dataclass(frozen=True)
class Finding:
    """
    Result of one check.

    :param check: the checked part, such as ``clock``.
    """

    check: str
    level: FindingLevel
    message: str
    remedy: str = ""


class Unusable(Exception):
    """A check failed, and the checks after it cannot run."""


@dataclass
class Findings:
    """
    All findings, in the order of the checks.

    :param subject: name of the machine, or empty.
    """

    subject: str = ""
    findings: list[Finding] = field(default_factory=list)

    def ok(self, check: str, message: str) -> None:
        self._add(check, FindingLevel.OK, message)

    def skipped(self, check: str, message: str, remedy: str = "") -> None:
        self._add(check, FindingLevel.SKIPPED, message, remedy)

    def works(self, check: str) -> None:
        """Remove the skipped checks of a part that works, as a later check has shown."""
        self.findings = [
            each
            for each in self.findings
            if (each.check, each.level) != (check, FindingLevel.SKIPPED)
        ]

    def warning(self, check: str, message: str, remedy: str) -> None:
        """Add a problem that does not prevent a console."""
        self._add(check, FindingLevel.WARNING, message, remedy)

    def error(self, check: str, message: str, remedy: str) -> None:
        """
        Add a problem that prevents a console.

        Problems of one part with the same remedy have one cause, and are one error, also with a warning.
        """
        for index, each in enumerate(self.findings):
            is_problem = each.level in (FindingLevel.WARNING, FindingLevel.ERROR)
            if is_problem and (each.check, each.remedy) == (check, one_line(remedy)):
                message = f"{each.message}; {one_line(message)}"
                self.findings[index] = replace(each, level=FindingLevel.ERROR, message=message)
                return
        self._add(check, FindingLevel.ERROR, message, remedy)

    def fatal(self, check: str, message: str, remedy: str) -> Unusable:
        """Add an error, and return the exception that ends the examination."""
        self.error(check, message, remedy)
        return Unusable(message)

    def _add(self, check: str, level: FindingLevel, message: str, remedy: str = "") -> None:
        self.findings.append(Finding(check, level, one_line(message), one_line(remedy)))

    def count(self, level: FindingLevel) -> int:
        return sum(finding.level is level for finding in self.findings)

    @property
    def is_healthy(self) -> bool:
        return not self.count(FindingLevel.ERROR)

    def text(self, paint: Paint = plain, columns: int = 0) -> str:
        """
        Return the report.

        :param columns: of the terminal, for which messages are broken at blanks; 0 without a terminal.
        """
        width = max((len(finding.check) for finding in self.findings), default=0)
        blank = f"{'':<8} {'':<{width}}  "
        room = max(columns - len(blank), _LEAST_COLUMNS) if columns else sys.maxsize
        lines = []
        for finding in self.findings:
            word, check = f"{finding.level.value:<8}", f"{finding.check:<{width}}"
            first, *more = rows(finding.message, room) or [""]
            lines.append(f"{paint(word, _COLOURS[finding.level])} {check}  {first}")
            if finding.remedy:
                more += rows(f"-> {finding.remedy}", room)
            lines += [f"{blank}{each}" for each in more]
        lines.append(self._summary())
        return "".join(f"{line}\n" for line in lines)

    def _summary(self) -> str:
        counts = [
            f"{number} {level.value}{'' if number == 1 else 's'}"
            for level in (FindingLevel.ERROR, FindingLevel.WARNING)
            if (number := self.count(level))
        ]
        what = ", ".join(counts) or "no problem found"
        if skipped := self.count(FindingLevel.SKIPPED):
            what += f", {skipped} check{'' if skipped == 1 else 's'} skipped"
        return f"{self.subject}: {what}" if self.subject else what

    def json(self) -> str:
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
