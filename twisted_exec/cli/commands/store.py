"""``twisted-exec backup`` and ``twisted-exec restore``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted_exec.cli.runner import failed, run_in_reactor

if TYPE_CHECKING:
    from twisted_exec.storage.sqlite.backup import Summary

_DATABASE = "file of --storage=sqlite:..., or objects.db in --state-dir"


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``backup`` and ``restore`` to a program's commands."""
    backup = subparsers.add_parser(
        "backup",
        help="copy the SQLite store of an API server, which may run meanwhile",
        description="Copy the SQLite store of an API server, which may run meanwhile.",
    )
    backup.add_argument("database", metavar="DATABASE", help=_DATABASE)
    backup.add_argument("file", metavar="FILE", help="the backup, which is created with mode 0600")
    backup.add_argument("--force", action="store_true", help="replace an existing FILE")
    backup.set_defaults(run=_backup)
    restore = subparsers.add_parser(
        "restore",
        help="replace the store of a stopped API server by a backup",
        description="Replace the store of a stopped API server by a backup.",
    )
    restore.add_argument("file", metavar="FILE", help="the backup")
    restore.add_argument("database", metavar="DATABASE", nargs="?", help=_DATABASE)
    restore.add_argument(
        "--storage",
        metavar="STORAGE",
        help="instead of DATABASE: etcd:https://HOST:PORT..., as the API server's --storage",
    )
    restore.add_argument("--force", action="store_true", help="replace an existing store")
    restore.add_argument(
        "--accept-loss",
        action="store_true",
        help="accept that acknowledged changes are missing from FILE",
    )
    restore.set_defaults(run=_restore)


def _backup(options: argparse.Namespace) -> int:
    from twisted_exec.storage.sqlite.backup import back_up

    return _report(
        "backup",
        options.file,
        lambda: back_up(options.database, options.file, force=options.force),
    )


def _restore(options: argparse.Namespace) -> int:
    if bool(options.database) == bool(options.storage):
        return failed("restore", "give either DATABASE or --storage")
    if options.storage:
        return _restore_into(options)
    from twisted_exec.storage.sqlite.backup import restore

    return _report(
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
        from twisted_exec.storage.etcd.restore import restore_into
        from twisted_exec.storage.interfaces import StorageError

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


def _report(command: str, target: str, copy: Callable[[], Summary]) -> int:
    from twisted_exec.storage.interfaces import StorageError

    try:
        summary = copy()
    except StorageError as error:
        return failed(command, str(error))
    print(f"{target}: {summary.objects} objects, version {summary.version}")
    return 0
