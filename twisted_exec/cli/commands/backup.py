"""``twisted-exec backup``: copy the SQLite store of an API server."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from twisted_exec.cli.failures import failed
from twisted_exec.storage.interfaces import StorageError
from twisted_exec.storage.sqlite.backup import Summary, back_up

DATABASE = "the API server's file of --storage=sqlite:..., or objects.db in --state-dir"


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``backup``."""
    parser.description = "Copy the SQLite store of an API server, which may run meanwhile."
    parser.add_argument("database", metavar="DATABASE", help=DATABASE)
    parser.add_argument("file", metavar="FILE", help="the backup, which is created with mode 0600")
    parser.add_argument("--force", action="store_true", help="replace an existing FILE")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    return report(
        "backup",
        options.file,
        lambda: back_up(options.database, options.file, force=options.force),
    )


def report(command: str, target: str, copy: Callable[[], Summary]) -> int:
    """Make a copy, and print what it has or why it failed; return the exit code."""
    try:
        summary = copy()
    except StorageError as error:
        return failed(command, str(error))
    print(f"{target}: {summary.objects} objects, version {summary.version}")
    return 0
