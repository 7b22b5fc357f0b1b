"""
The file with options (``--config``): TOML with the names of options as keys.

The other configuration files of programs are YAML: :mod:`twisted_exec.program.config_file`.
"""

from __future__ import annotations

import difflib
import getopt
import tomllib
from collections.abc import Sequence
from typing import Any

from twisted.python.usage import Options, UsageError

from twisted_exec.api.display import reason_of
from twisted_exec.tls.files import regular

CONFIG = "config"

_LEVEL_OPTIONS = {"log-level", "quiet"}
"""Options for the level of the log: one on the command line replaces both of a file."""

_MOST_CONFIG_BYTES = 1 << 20


def path_in(options: Options, arguments: Sequence[str]) -> str:
    """Return the value of ``--config`` on a command line; empty if it has none."""
    paths = [text for name, text in _option_pairs(options, arguments) if name == CONFIG]
    return paths[-1] if paths else ""


def arguments_from(path: str, options: Options, arguments: Sequence[str]) -> list[str]:
    """
    Return the options of a file as arguments.

    Options that the command line has are left out: those that may be repeated would otherwise have
    the values of both.

    :raises UsageError: the file cannot be used.
    """
    replaced = {name for name, _ in _option_pairs(options, arguments)}
    replaced |= {_opposite_flag(name) for name in replaced}
    if not replaced.isdisjoint(_LEVEL_OPTIONS):
        replaced |= _LEVEL_OPTIONS
    result: list[str] = []
    for key, value in _read_config(path).items():
        words = _arguments(options, f"--{CONFIG} {path}", key, value)
        if key not in replaced:
            result += words
    return result


def _option_pairs(options: Options, arguments: Sequence[str]) -> list[tuple[str, str]]:
    try:
        pairs, _ = getopt.getopt(list(arguments), options.shortOpt, [*options.longOpt])
    except getopt.error:
        return []  # the program parses the same arguments, and reports it
    names = [(name.lstrip("-"), text) for name, text in pairs]
    return [(options.synonyms.get(name, name), text) for name, text in names]


def _arguments(options: Options, where: str, key: str, value: object) -> list[str]:
    parameters = {name.removesuffix("=") for name in options.longOpt if name.endswith("=")}
    flags = {name for name in options.longOpt if not name.endswith("=")} - {"help", "version"}
    keys = (parameters | flags) - {CONFIG}
    if key not in keys:
        near = difflib.get_close_matches(key, sorted(keys), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"{where}: unknown key {key!r}{hint}")
    if key in flags:
        if not isinstance(value, bool):
            raise UsageError(f"{where}: {key} must be true or false, not {value!r}")
        return [f"--{key}"] if value else []
    is_repeatable = hasattr(options, f"opt_{key.replace('-', '_')}")
    values = value if is_repeatable and isinstance(value, list) else [value]
    for each in values:
        if isinstance(each, bool) or not isinstance(each, (str, int, float)):
            kind = "a list of strings" if is_repeatable else "a string or a number"
            raise UsageError(f"{where}: {key} must be {kind}, not {each!r}")
    return [f"--{key}={each}" for each in values]


def _opposite_flag(flag: str) -> str:
    """Return the flag that reverses another: ``no-scheduler`` of ``scheduler``."""
    return flag[3:] if flag.startswith("no-") else f"no-{flag}"


def _read_config(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb", opener=regular) as file:
            content = file.read(_MOST_CONFIG_BYTES + 1)
    except (OSError, ValueError) as error:
        why = reason_of(error)
        raise UsageError(f"--{CONFIG}: cannot read {path}: {why}") from None
    if len(content) > _MOST_CONFIG_BYTES:
        raise UsageError(f"--{CONFIG}: {path} is larger than {_MOST_CONFIG_BYTES >> 20} MiB")
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--{CONFIG}: {path} is not TOML: {error}") from None
