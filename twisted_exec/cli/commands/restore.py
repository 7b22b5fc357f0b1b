"""``twisted-exec restore``: replace the store of a stopped API server by a backup."""

from __future__ import annotations

import argparse
import os
from typing import Any

from twisted_exec.cli.commands.backup import DATABASE, report
from twisted_exec.cli.failures import failed
from twisted_exec.cli.runner import run_in_reactor
from twisted_exec.storage.interfaces import StorageError
from twisted_exec.storage.sqlite.backup import restore


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``restore``."""
    parser.description = "Replace the store of a stopped API server by a backup."
    parser.add_argument("file", metavar="FILE", help="the backup")
    parser.add_argument("database", metavar="DATABASE", nargs="?", help=DATABASE)
    parser.add_argument(
        "--storage",
        metavar="STORAGE",
        help="instead of DATABASE: etcd:https://HOST:PORT..., as the API server's --storage",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing store")
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="accept that acknowledged changes are missing from FILE",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if bool(options.database) == bool(options.storage):
        return failed("restore", "give either DATABASE or --storage")
    if options.storage:
        return _restore_into(options)
    return report(
        "restore",
        options.database,
        lambda: restore(
            options.file,
            os.path.abspath(options.database),
            force=options.force,
            accept_loss=options.accept_loss,
        ),
    )


def _restore_into(options: argparse.Namespace) -> int:
    async def asking(reactor: Any) -> int:
        # Only for etcd: its library is not on every host with a SQLite store.
        from twisted_exec.storage.etcd.restore import restore_into

        try:
            location, summary = await restore_into(
                options.storage,
                options.file,
                reactor,
                force=options.force,
                accept_loss=options.accept_loss,
            )
        except StorageError as error:
            return failed("restore", str(error))
        print(f"{location}: {summary.objects} objects, version {summary.version}")
        return 0

    return run_in_reactor("restore", asking, quiet=False)
