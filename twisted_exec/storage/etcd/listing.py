"""
Lists of etcd's objects.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted_exec.storage.etcd.client import RANGE, EtcdClient
from twisted_exec.storage.etcd.errors import EtcdError
from twisted_exec.storage.etcd.keys import ForeignKey, Keys
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb
from twisted_exec.storage.interfaces import Object

_PAGE_KEYS = 500
_PAGE_SECONDS = 10.0


async def list_all(
    client: EtcdClient,
    keys: Keys,
    revision: int,
    complain: Callable[[ForeignKey], None] | None,
) -> tuple[list[tuple[str, Object]], int]:
    """
    Return all objects at a revision, and the latest of their revisions.

    :param revision: 0 for the present one: changes meanwhile may then be seen in part.
    :param complain: called for each foreign key, which is left out.
    :raises ForeignKey: there is a foreign key and no ``complain``.
    :raises EtcdError: etcd does not answer, or refuses.
    """
    objects: list[tuple[str, Object]] = []
    start, limit, latest = keys.first, _PAGE_KEYS, 0
    while True:
        request = pb.RangeRequest(key=start, range_end=keys.end, limit=limit, revision=revision)
        try:
            page = await client.read(RANGE, request, _PAGE_SECONDS)
        except EtcdError as error:
            if not error.is_too_large or limit == 1:
                raise
            limit = max(1, limit // 4)
            continue
        for pair in page.kvs:
            if keys.is_own(pair.key):
                continue
            try:
                place, obj = keys.read(pair.key, pair.value, pair.mod_revision)
            except ForeignKey as problem:
                if complain is None:
                    raise
                complain(problem)
                continue
            objects.append((place.table, obj))
            latest = max(latest, pair.mod_revision)
        if not page.more or not page.kvs:
            return objects, latest
        # The least key behind the last one.
        start = page.kvs[-1].key + b"\0"
