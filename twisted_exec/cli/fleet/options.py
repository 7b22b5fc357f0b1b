"""
The options of ``kubectl console`` for many machines.

As all modules that a command line needs, this one imports little.
"""

from __future__ import annotations

import argparse

DEFAULT_TAIL = 10

_SINGLE = {
    "request": "--request",
    "steps": "--expect or --send",
    "linger": "--linger",
    "no_resume": "--no-resume",
}
"""Options that go with one machine only."""


def add_fleet_options(parser: argparse.ArgumentParser) -> None:
    """Add the options; :func:`fleet_problem` checks them together."""
    group = parser.add_argument_group("many machines")
    group.add_argument(
        "-l",
        "--selector",
        metavar="SELECTOR",
        default="",
        help="instead of NAME: all machines with these labels, such as app=web,tier!=test; at most 500",
    )
    group.add_argument(
        "--all", dest="all_machines", action="store_true", help="instead of NAME: all machines"
    )
    group.add_argument(
        "-A", "--all-namespaces", action="store_true", help="select in all namespaces"
    )
    group.add_argument(
        "--tail",
        metavar="LINES",
        type=_count,
        help=f"begin with this many lines of each machine (default: {DEFAULT_TAIL})",
    )
    group.add_argument(
        "--state",
        metavar="FILE",
        help="continue where the last run with this file ended, and write the progress into it",
    )
    group.add_argument(
        "--colours",
        action="store_true",
        help="keep the colours of the machines; all other escape sequences are always removed",
    )
    group.add_argument(
        "--tiled",
        action="store_true",
        help="show the screens of the machines side by side, instead of their lines; ? lists the keys",
    )


def is_fleet(options: argparse.Namespace) -> bool:
    """Return whether the command line selects many machines."""
    return bool(options.selector or options.all_machines)


def fleet_problem(options: argparse.Namespace) -> str:
    """Return why the options do not go together; empty if they do."""
    if not is_fleet(options):
        fleet_only = {
            "-A": options.all_namespaces,
            "--tail": options.tail is not None,
            "--state": options.state,
            "--colours": options.colours,
            "--tiled": options.tiled,
        }
        wrong = next((name for name, value in fleet_only.items() if value), "")
        if wrong:
            return f"{wrong} goes with -l or --all"
        if options.machine is None:
            return "give the NAME of a machine, or select machines with -l or --all"
        return ""
    if options.machine is not None:
        return "give either NAME, or -l or --all"
    if options.selector and options.all_machines:
        return "give either -l or --all"
    if options.all_namespaces and options.namespace:
        return "give either -n or -A"
    for key, name in _SINGLE.items():
        if getattr(options, key):
            return f"{name} goes with one machine only"
    runs = options.script_command is not None
    if options.tiled and runs:
        return "give either --tiled or --run"
    for name, value in (
        ("--state", options.state),
        ("--tail", options.tail is not None),
        ("--colours", options.colours),
    ):
        if value and (options.tiled or runs):
            return f"{name} goes without --tiled and --run"
    if options.force and not (options.tiled or runs):
        return "--force goes with --tiled or --run: otherwise nothing is typed"
    if (options.record or options.record_input) and not (options.tiled or runs):
        return "--record goes with --tiled or --run: logs are read without a session"
    return ""


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of lines")
    return int(text)
