"""
Tests for :mod:`twisted_exec.standalone.state`.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.tiers import PROGRAMS
from twisted_exec.standalone.certificates import POOL
from twisted_exec.standalone.state import CREATED, OBJECTS, VERSION, StateDirectory, StateError


class StateDirectoryTests(SynchronousTestCase):
    """Tests for :class:`StateDirectory`."""

    starts = PROGRAMS

    def setUp(self) -> None:
        self.path = os.path.join(self.mktemp(), "nested", "state")

    def open(self) -> StateDirectory:
        state = StateDirectory(self.path)
        state.open()
        self.addCleanup(state.close)
        return state

    def refusal(self) -> str:
        with self.assertRaises(StateError) as caught:
            self.open()
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception)

    def test_private(self) -> None:
        """Nobody else can look into it."""
        self.open()
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o700)
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.path, "lock")).st_mode), 0o600)

    def test_reopened(self) -> None:
        """A restart finds it again."""
        self.open().close()
        self.open()

    def test_locked(self) -> None:
        """A second start is told who uses it."""
        self.open()
        self.assertIn(f"in use by process {os.getpid()}", self.refusal())

    def test_lock_dies_with_its_process(self) -> None:
        """After kill -9 the next start has it."""
        program = (
            "import sys, time; from twisted_exec.standalone.state import StateDirectory\n"
            "state = StateDirectory(sys.argv[1]); state.open(); print('up', flush=True)\n"
            "time.sleep(600)"
        )
        holder = subprocess.Popen(
            [sys.executable, "-c", program, self.path], stdout=subprocess.PIPE
        )
        self.addCleanup(holder.wait)
        self.addCleanup(holder.kill)
        assert holder.stdout is not None
        self.addCleanup(holder.stdout.close)
        self.assertEqual(holder.stdout.readline(), b"up\n")
        self.assertIn(str(holder.pid), self.refusal())
        holder.kill()
        holder.wait(600)
        self.open()

    def test_release_0_1(self) -> None:
        """A directory that only release 0.1.0 has used is left alone, and release 0.2.0 is the way."""
        os.makedirs(os.path.join(self.path, "pki"), mode=0o700)
        os.chmod(self.path, 0o700)
        names = ("version", "dialect", "lock", "pki/ca.crt", "pki/apiserver.crt")
        for evidence in (OBJECTS, CREATED):
            for name in (*names, evidence):
                with open(os.path.join(self.path, name), "w") as file:
                    file.write("1\n")
            before = self.contents()
            self.assertEqual(
                self.refusal(),
                f"only release 0.1.0 has used {os.path.abspath(self.path)}: start release 0.2.0 with it once, then this "
                "release; or choose another --state-dir",
            )
            self.assertEqual(self.contents(), before)
            os.unlink(os.path.join(self.path, evidence))

    def test_taken_over(self) -> None:
        """Release 0.2.0 leaves the place of the objects, and a recorder's certificate, there."""
        for mark in ("storage", f"pki/recorder-{POOL}.crt"):
            self.path = self.mktemp()
            os.makedirs(os.path.join(self.path, "pki"), mode=0o700)
            os.chmod(self.path, 0o700)
            for name in (OBJECTS, CREATED, mark):
                with open(os.path.join(self.path, name), "w"):
                    pass
            self.open()

    def contents(self) -> dict[str, bytes]:
        """Return the content of each file."""
        root = Path(self.path)
        files = filter(Path.is_file, root.rglob("*"))
        return {str(each.relative_to(root)): each.read_bytes() for each in files}

    def test_newer(self) -> None:
        """A layout that we do not know is not touched."""
        self.open().close()
        with open(os.path.join(self.path, "version"), "w") as file:
            file.write(f"{VERSION + 1}\n")
        self.assertIn("newer version", self.refusal())

    def test_not_ours(self) -> None:
        """Neither a damaged version file, nor a file in its place, nor an open directory will do."""
        self.open().close()
        with open(os.path.join(self.path, "version"), "w") as file:
            file.write("what?\n")
        self.assertIn("no version number", self.refusal())
        os.chmod(self.path, 0o755)
        self.assertIn("open to other users", self.refusal())
        self.path = os.path.join(self.path, "lock")
        self.assertIn("not a directory", self.refusal())

    def test_names(self) -> None:
        """What was made once is remembered."""
        state = self.open()
        self.assertEqual(state.names("created"), set())
        state.keep_names("created", {"b", "a"})
        self.assertEqual(state.names("created"), {"a", "b"})


class StorageTests(SynchronousTestCase):
    """Tests for :meth:`StateDirectory.check_storage` and :meth:`StateDirectory.keep_storage`."""

    def setUp(self) -> None:
        self.state = StateDirectory(self.mktemp())
        self.state.open()
        self.addCleanup(self.state.close)

    def use(self, location: str) -> None:
        """Start with a store."""
        self.state.check_storage(location)
        self.state.keep_storage(location)

    def refusal(self, location: str) -> str:
        return str(self.assertRaises(StateError, self.use, location))

    def test_changed(self) -> None:
        """Another location is refused with the former one and remedies, until the record is emptied."""
        etcd = "etcd:a:2379?prefix=/x"
        default = f"sqlite:{self.state.file(OBJECTS)}"
        self.use(default)
        self.use(default)
        for other in (etcd, "sqlite:/elsewhere/objects.db", "memory"):
            message = self.refusal(other)
            self.assertIn(f"are in sqlite:objects.db, and --storage is now {other}: ", message)
            self.assertIn(f"empty {self.state.file('storage')} after", message)
            self.assertNotIn("\n", message)
        # The database stays, for the way back.
        for name in ("storage", OBJECTS):
            with open(self.state.file(name), "wb"):
                pass
        self.use(etcd)
        self.assertIn("are in etcd:a:2379?prefix=/x, and", self.refusal(default))

    def test_members(self) -> None:
        """The members of an etcd may change one by one; another prefix is another store."""
        self.use("etcd:a:2379,b:2379?prefix=/x")
        self.use("etcd:b:2379,c:2379?prefix=/x")
        self.use("etcd:c:2379?prefix=/x")
        for other in ("etcd:a:2379,b:2379?prefix=/x", "etcd:c:2379?prefix=/y", "etcd:c:2379"):
            self.assertIn("are in etcd:c:2379?prefix=/x, and", self.refusal(other))

    def test_memory(self) -> None:
        """After a start in memory no objects are left, so any location is right."""
        self.use("memory")
        self.state.keep_names("created", {"a"})
        self.use("memory")
        self.assertEqual(self.state.names("created"), set())
        self.use("etcd:a:2379?prefix=/x")

    def test_unusable(self) -> None:
        """A store that never became usable is not recorded."""
        self.state.check_storage("etcd:typo:2379?prefix=/x")
        self.use("etcd:a:2379?prefix=/x")

    def test_unknown(self) -> None:
        """A store of another project may have no location."""
        self.use("")
        self.assertFalse(os.path.exists(self.state.file("storage")))


class DialectTests(SynchronousTestCase):
    """Tests for :meth:`StateDirectory.belong_to`."""

    def test_kept(self) -> None:
        """The first start says which; a later one must say the same."""
        state = StateDirectory(self.mktemp())
        state.open()
        self.addCleanup(state.close)
        state.belong_to("spheric")
        state.belong_to("spheric")
        with self.assertRaises(StateError) as caught:
            state.belong_to("ironcore")
        self.assertIn("has machines of spheric: set --dialect spheric", str(caught.exception))
