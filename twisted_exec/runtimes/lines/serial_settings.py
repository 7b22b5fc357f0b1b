"""
Settings of serial lines in the configuration of a machine class: ``baud``, ``parity``, ``flow`` and so on.
"""

from __future__ import annotations

from twisted_exec.program.config_file import Reader
from twisted_exec.wire.com_port import FLOWS, PARITIES, STOP_BITS, LineSettings

SERIAL_KEYS = ("baud", "data_bits", "parity", "stop_bits", "flow", "dtr", "rts")
"""The keys that :func:`line_settings` reads."""


def line_settings(reader: Reader) -> LineSettings:
    """
    Read the settings of a serial line: :data:`SERIAL_KEYS`.

    :raises ConfigError: a value is not possible.
    """
    stop_bits = reader.number("stop_bits", 1, 2, 1)
    if stop_bits not in STOP_BITS:
        raise reader.error(f"stop_bits must be 1, 1.5 or 2, not {stop_bits:g}", "stop_bits")
    lines: dict[str, bool | None] = {}
    for name in ("dtr", "rts"):
        state = reader.choice(name, ("on", "off", "keep"), "keep")
        lines[name] = None if state == "keep" else state == "on"
    return LineSettings(
        baud=int(reader.number("baud", 50, 4_000_000, 9600)),
        data_bits=int(reader.number("data_bits", 5, 8, 8)),
        parity=reader.choice("parity", tuple(PARITIES), "none"),
        stop_bits=stop_bits,
        flow=reader.choice("flow", tuple(FLOWS), "none"),
        dtr=lines["dtr"],
        rts=lines["rts"],
    )
