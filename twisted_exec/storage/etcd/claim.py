"""
The claim of our prefix, by its marker (:mod:`twisted_exec.storage.etcd.marker`).
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted_exec.storage.etcd.client import RANGE, TXN, EtcdClient
from twisted_exec.storage.etcd.errors import EtcdError
from twisted_exec.storage.etcd.keys import ForeignKey, Keys, shown
from twisted_exec.storage.etcd.marker import MarkerValue, read_marker
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb
from twisted_exec.storage.interfaces import StorageError


@dataclass(frozen=True)
class Marker:
    """
    The marker, as read.

    :param seen: revision of the latest write of a server below the prefix.
    """

    revision: int
    seen: int
    created: int
    value: MarkerValue


async def claim(client: EtcdClient, keys: Keys, value: bytes) -> Marker:
    """
    Make sure that the prefix is ours; claim it if nobody uses it.

    :raises StorageError: the prefix is another program's, or the store there cannot be used.
    :raises EtcdError: etcd does not answer, or refuses.
    """
    for _ in range(2):
        marker = await _marker(client, keys)
        if marker is None:
            try:
                await check_free(client, keys)
            except ForeignKey:
                marker = await _marker(client, keys)  # another server may just have claimed it
                if marker is None:
                    raise
        if marker is not None:
            return marker
        compare = pb.Compare(target=pb.Compare.CREATE, key=keys.marker, create_revision=0)
        put = pb.RequestOp(request_put=pb.PutRequest(key=keys.marker, value=value))
        await client.write(TXN, pb.TxnRequest(compare=[compare], success=[put]))
    raise StorageError(f"etcd's key {shown(keys.marker)} is gone as soon as it is made")


async def check_free(client: EtcdClient, keys: Keys) -> None:
    """
    Check that a prefix without a marker is not used.

    A store writes the marker first, so keys without a marker are foreign.

    :raises ForeignKey: another program uses it, or it is within another store.
    :raises EtcdError: etcd does not answer, or refuses.
    """
    foreign = await _any_key(client, keys)
    if foreign is not None:
        raise ForeignKey(
            f"etcd's keys below {shown(keys.prefix.encode())} are another program's (such as "
            f"{shown(foreign)}): choose another prefix="
        )
    await _check_outside(client, keys)


async def _marker(client: EtcdClient, keys: Keys) -> Marker | None:
    answer = await client.read(RANGE, pb.RangeRequest(key=keys.marker))
    if not answer.kvs:
        return None
    (pair,) = answer.kvs
    value = read_marker(keys.marker, pair.value)
    return Marker(answer.header.revision, pair.mod_revision, pair.create_revision, value)


async def _any_key(client: EtcdClient, keys: Keys) -> bytes | None:
    # The store's own two keys do not count: the one for compaction may outlive all objects.
    request = pb.RangeRequest(key=keys.first, range_end=keys.end, limit=3, keys_only=True)
    answer = await client.read(RANGE, request)
    return next((bytes(pair.key) for pair in answer.kvs if not keys.is_own(pair.key)), None)


async def _check_outside(client: EtcdClient, keys: Keys) -> None:
    """Check that our prefix is not within another store, which would see our keys."""
    outer = keys.prefix.rpartition("/")[0]
    while outer:
        marker = Keys(outer).marker
        try:
            answer = await client.read(RANGE, pb.RangeRequest(key=marker, keys_only=True))
        except EtcdError as error:
            if not error.is_refusal:
                raise
            return  # our etcd user must not read there, so the check is not possible
        if answer.kvs:
            raise ForeignKey(
                f"prefix={keys.prefix} is within {outer}, which is a store already: choose "
                "another prefix="
            )
        outer = outer.rpartition("/")[0]
