"""
Settings of ``exec-racks``, each with the option of the command line that sets it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from twisted_exec.program.options.declaration import OPTION, ProgramOption, Required
from twisted_exec.program.options.shared import health_listen
from twisted_exec.racks.plan import OBSERVED, ON, Target

CONFIRM_SECONDS = 60.0
"""How long a Server must be missing before a request decides whether it is gone."""


def _power(text: str) -> str:
    if text not in (OBSERVED, ON):
        raise ValueError(f"{text!r} is neither {OBSERVED} nor {ON}")
    return text


POWER = ProgramOption(
    "machine-power",
    f"Power of new Machines: {OBSERVED}, as the Server reports it, or {ON}.",
    _power,
    default=OBSERVED,
    group="Machines",
)


@dataclass(frozen=True)
class Settings:
    """
    Settings of the program.

    :param selector: of Servers, by labels; empty for all.
    :param health_listen: a Twisted endpoint string for probes and metrics; empty for none.
    """

    target: Target
    list_path: str = field(
        metadata={
            OPTION: ProgramOption(
                "list",
                "CSV file to write: lines_from of a class of the runtime.",
                is_path=True,
                required=Required("the CSV file for lines_from of the runtime's class"),
            )
        }
    )
    selector: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "server-selector",
                "Label selector of the Servers; default: all Servers.",
                default="",
                group="Servers",
            )
        },
    )
    health_listen: str = field(default="", metadata={OPTION: health_listen(10259)})
    confirm_seconds: float = CONFIRM_SECONDS
