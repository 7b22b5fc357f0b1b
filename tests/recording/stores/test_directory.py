"""
A directory as a store of recordings: :mod:`twisted_exec.recording.stores.directory`.
"""

from __future__ import annotations

import errno
import os
import resource
import stat
import threading
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import CancelledError, gatherResults
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests.contracts.recording_store import RecordingStoreContract, stored, text_of
from twisted_exec.recording.stores.directory import DirectoryStore

reactor: Any = _reactor


class DirectoryTests(RecordingStoreContract, TestCase):
    """A directory that does not exist yet."""

    def setUp(self) -> None:
        self.path = os.path.join(os.path.abspath(self.mktemp()), "recordings of a")

    def make_store(self) -> DirectoryStore:
        """See :meth:`RecordingStoreContract.make_store`."""
        return DirectoryStore(self.path, reactor)

    def leftovers(self) -> int:
        """See :meth:`RecordingStoreContract.leftovers`."""
        return sum(each.startswith(".") for each in os.listdir(self.path))

    async def test_modes(self) -> None:
        """Directory and files are for their owner only, whatever the umask."""
        self.addCleanup(os.umask, os.umask(0))
        store = self.make_store()
        await store.put("a", text_of(b"x"))
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o700)
        file = os.path.join(self.path, "a.cast")
        self.assertEqual(stat.S_IMODE(os.stat(file).st_mode), 0o600)
        self.assertEqual(store.location("a"), f"file://{self.path}/a.cast".replace(" ", "%20"))

    async def test_hanging_disk(self) -> None:
        """A file system that hangs leaves threads for the work of others, also if readers leave."""
        store, hangs = self.make_store(), threading.Event()
        await store.put("a", text_of(b"x"))
        self.addCleanup(hangs.set)
        read, given_up = os.pread, list[bool]()

        def hanging(*arguments: Any) -> bytes:
            if not hangs.wait(600):
                given_up.append(True)
            return read(*arguments)

        self.patch(os, "pread", hanging)
        for _ in range(20):
            left = store.read("a", 0, 1)
            left.cancel()
            self.failureResultOf(left, CancelledError)
        reads = gatherResults([store.read("a", 0, 1) for _ in range(20)])
        await deferToThread(hangs.set)
        self.assertEqual(await reads, [b"x"] * 20)
        self.assertEqual(given_up, [])

    async def test_links(self) -> None:
        """A link in place of a file is not followed."""
        os.makedirs(self.path)
        victim = os.path.join(os.path.dirname(self.path), "victim")
        with open(victim, "w") as file:
            file.write("precious")
        store = self.make_store()
        os.symlink(victim, os.path.join(self.path, ".a.part"))
        os.symlink(victim, os.path.join(self.path, "b.cast"))
        error = await self.refusal(store.put("a", text_of(b"x")))
        self.assertEqual(error.kind, "disk")
        await self.refusal(store.read("b", 0, 1))
        with open(victim) as file:
            self.assertEqual(file.read(), "precious")

    async def test_full(self) -> None:
        """A full disk is a clear error; another attempt succeeds when there is space."""
        store = self.make_store()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        try:
            error = await self.refusal(store.put("a", text_of(self.content)))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        self.assertEqual(error.kind, "full")
        self.assertIn(os.strerror(errno.EFBIG), str(error))
        self.assertIn("free space", str(error))
        self.assertEqual(await self.names(store), [])
        self.assertEqual(await store.put("a", text_of(self.content)), stored(self.content))
        self.assertEqual(await self.whole(store), self.content)

    async def test_other_files(self) -> None:
        """Files of others in the directory are no recordings."""
        store = self.make_store()
        await store.put("a", text_of(b"x"))
        for name in ("notes.txt", "B.cast", ".x.cast", "old.part"):
            with open(os.path.join(self.path, name), "w"):
                pass
        self.assertEqual(await self.names(store), ["a"])
