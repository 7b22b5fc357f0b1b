"""Results of checks, as a report."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum

from twisted_exec.cli.messages import Colour, Paint, one_line, plain


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

    def warning(self, check: str, message: str, remedy: str) -> None:
        """Add a problem that does not prevent a console."""
        self._add(check, FindingLevel.WARNING, message, remedy)

    def error(self, check: str, message: str, remedy: str) -> None:
        """Add a problem that prevents a console."""
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

    def text(self, paint: Paint = plain) -> str:
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
