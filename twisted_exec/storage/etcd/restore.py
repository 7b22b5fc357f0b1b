"""
Restore a backup of a SQLite store into etcd.

A restore first marks the store as incomplete, so that no server starts on a part of it.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import CancelledError

from twisted_exec.storage.etcd.claim import check_free
from twisted_exec.storage.etcd.client import RANGE, TXN, EtcdClient
from twisted_exec.storage.etcd.errors import EtcdError, hint, refused
from twisted_exec.storage.etcd.keys import Keys, shown, value_of
from twisted_exec.storage.etcd.listing import list_all
from twisted_exec.storage.etcd.marker import (
    MarkerValue,
    read_marker,
    restoring_floor,
    restoring_marker,
)
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb
from twisted_exec.storage.etcd.target import EtcdTarget, parse_target
from twisted_exec.storage.history import Key, key_of
from twisted_exec.storage.interfaces import StorageError
from twisted_exec.storage.sqlite.backup import SKIPPED_VERSIONS, Summary, open_backup
from twisted_exec.storage.sqlite.database import last_version
from twisted_exec.storage.sqlite.reading import read_objects

_MOST_OPERATIONS = 100
"""Below etcd's ``--max-txn-ops``, 128 by default."""
_MOST_BYTES = 512 << 10
"""Below etcd's ``--max-request-bytes``, 1.5 MiB by default."""
_PAGE_KEYS = 1000

_Objects = Mapping[tuple[str, Key], tuple[str, bytes]]
"""UID and value of each object, by table and key."""


@dataclass(frozen=True)
class _Backup:
    objects: _Objects
    version: int


async def restore_into(
    storage: str, backup: str, reactor: Any, *, force: bool = False, accept_loss: bool = False
) -> tuple[str, Summary]:
    """
    Restore a backup into the store that ``--storage`` names.

    :param backup: path of a backup, or of the database of a stopped server.
    :return: the store's location, and what it contains now.
    :raises StorageError: ``storage`` names no etcd, or for a reason of :func:`restore_to_etcd`.
    """
    kind, _, address = storage.partition(":")
    if kind != "etcd":
        raise StorageError("--storage is for etcd:...; give the file of SQLite as DATABASE")
    try:
        target = parse_target(address)
    except ValueError as problem:
        raise StorageError(f"--storage: {problem}") from None
    summary = await restore_to_etcd(backup, target, reactor, force=force, accept_loss=accept_loss)
    return target.location, summary


async def restore_to_etcd(
    backup: str,
    target: EtcdTarget,
    reactor: Any,
    *,
    force: bool = False,
    accept_loss: bool = False,
) -> Summary:
    """
    Copy all objects of a backup into an etcd, with their UIDs.

    :param backup: path of a backup, or of the database of a stopped server.
    :param force: replace a store that exists.
    :param accept_loss: accept a backup from which acknowledged changes are missing.
    :raises StorageError: the backup or etcd cannot be used, or this was cancelled.
    """
    content = _read_backup(backup, accept_loss)
    client = EtcdClient(target, reactor)
    restore = _Restore(client, Keys(target.prefix))
    try:
        client.load()
        return await restore.run(content, force)
    except EtcdError as error:
        why = f"etcd at {target}: {error}{hint(str(error), target)}"
        if error.is_refusal:
            why = refused(error, target)
    except CancelledError:
        why = "interrupted"
    finally:
        client.close()
    if restore.has_begun:
        why += "; the store is not complete, and no server starts on it: repeat this with --force"
    raise StorageError(why)


def _read_backup(backup: str, accept_loss: bool) -> _Backup:
    with closing(open_backup(backup, accept_loss=accept_loss)) as database:
        try:
            objects = {
                (table, key_of(obj)): (obj["metadata"]["uid"], value_of(obj).encode("ascii"))
                for table, obj in read_objects(database)
            }
            return _Backup(objects, last_version(database))
        except (sqlite3.Error, ValueError, KeyError, TypeError) as problem:
            raise StorageError(f"{backup} is damaged: {problem}") from None


class _Restore:
    """One restore: it claims the prefix, empties it, writes the objects, and marks the store as complete."""

    def __init__(self, client: EtcdClient, keys: Keys) -> None:
        self._client, self._keys = client, keys
        self._is_our_marker = pb.Compare()
        self.has_begun = False

    async def run(self, backup: _Backup, force: bool) -> Summary:
        floor = await self._mark_incomplete(force)
        await self._delete_all()
        for batch in _batches(self._keys, backup.objects):
            await self._write(batch)
        await self._check_written(backup.objects)
        # etcd chooses the revisions: with this number added to them, resourceVersions continue
        # above all earlier ones, as after every restore.
        self._keys.skipped = max(backup.version, floor) + SKIPPED_VERSIONS
        value = MarkerValue(f"restored-{secrets.token_hex(8)}", self._keys.skipped).encode()
        answer = await self._write([_put(self._keys.marker, value)])
        return Summary(len(backup.objects), self._keys.version(answer.header.revision))

    async def _mark_incomplete(self, force: bool) -> int:
        """Write the marker of an incomplete store, and return the latest version of the store before."""
        answer = await self._client.read(RANGE, pb.RangeRequest(key=self._keys.marker))
        floor = 0
        if answer.kvs:
            (marker,) = answer.kvs
            floor = self._last_version(marker, force)
            self.has_begun = True
            # Deleted first, so that servers that use the store notice the new one.
            delete = pb.DeleteRangeRequest(key=self._keys.marker)
            is_unchanged = _is_at(self._keys.marker, marker.mod_revision)
            await self._send(is_unchanged, [pb.RequestOp(request_delete_range=delete)])
        else:
            await check_free(self._client, self._keys)
        is_absent = pb.Compare(target=pb.Compare.CREATE, key=self._keys.marker, create_revision=0)
        value = restoring_marker(f"restore-{secrets.token_hex(8)}", floor)
        self.has_begun = True
        answer = await self._send(is_absent, [_put(self._keys.marker, value)])
        # Every later transaction requires this very marker, so that two restores cannot mix.
        self._is_our_marker = _is_at(self._keys.marker, answer.header.revision)
        return floor

    def _last_version(self, marker: pb.KeyValue, force: bool) -> int:
        """
        Return the last version of the store with this marker.

        :raises StorageError: the store must not be replaced without ``force``.
        """
        below, interrupted = shown(self._keys.prefix.encode()), restoring_floor(marker.value)
        if interrupted is None:
            skipped = read_marker(marker.key, marker.value).skipped
        if not force:
            what = "a store" if interrupted is None else "a store that is not restored completely"
            raise StorageError(
                f"etcd has {what} below {below} already: choose another prefix=, or give --force to replace it"
            )
        return marker.mod_revision + skipped if interrupted is None else interrupted

    async def _delete_all(self) -> None:
        # The key of compaction stays: it says nothing about objects.
        while True:
            request = pb.RangeRequest(
                key=self._keys.first, range_end=self._keys.end, limit=_PAGE_KEYS, keys_only=True
            )
            page = await self._client.read(RANGE, request)
            keys = [pair.key for pair in page.kvs if not self._keys.is_own(pair.key)]
            if not keys:
                return
            for start in range(0, len(keys), _MOST_OPERATIONS):
                await self._write(
                    [
                        pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key))
                        for key in keys[start : start + _MOST_OPERATIONS]
                    ]
                )

    async def _check_written(self, objects: _Objects) -> None:
        listed, _ = await list_all(self._client, self._keys, 0, None)
        stored = {(table, key_of(obj)): obj["metadata"]["uid"] for table, obj in listed}
        if stored != {place: uid for place, (uid, _) in objects.items()}:
            raise StorageError(
                f"another program has changed etcd's keys below {shown(self._keys.prefix.encode())} "
                "meanwhile; the store is not complete: stop it, and repeat this with --force"
            )

    async def _write(self, operations: Sequence[pb.RequestOp]) -> Any:
        return await self._send(self._is_our_marker, operations)

    async def _send(self, compare: pb.Compare, operations: Sequence[pb.RequestOp]) -> Any:
        request = pb.TxnRequest(compare=[compare], success=operations)
        try:
            answer = await self._client.write(TXN, request)
        except EtcdError as error:
            is_too_large = error.is_too_large or "too large" in error.message
            if is_too_large and len(operations) == 1:
                key = shown(operations[0].request_put.key)
                raise StorageError(
                    f"etcd does not accept the object of the key {key}: raise etcd's "
                    "--max-request-bytes, and repeat this with --force"
                ) from None
            raise
        if not answer.succeeded:
            raise StorageError(
                f"another program uses etcd's keys below {shown(self._keys.prefix.encode())}: stop all "
                "API servers and restores there, and repeat this with --force"
            )
        return answer


def _batches(keys: Keys, objects: _Objects) -> Iterator[list[pb.RequestOp]]:
    batch: list[pb.RequestOp] = []
    size = 0
    for (table, key), (_, value) in objects.items():
        if batch and (len(batch) == _MOST_OPERATIONS or size + len(value) > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(_put(keys.key_at(table, key), value))
        size += len(value)
    if batch:
        yield batch


def _put(key: bytes, value: bytes) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value))


def _is_at(key: bytes, revision: int) -> pb.Compare:
    return pb.Compare(target=pb.Compare.MOD, key=key, mod_revision=revision)
