"""Tests for :mod:`twisted_exec.spacemanager.providers.kind.records`."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.tiers import PROGRAMS
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.spacemanager.providers.kind.records import (
    CODE,
    CREATING,
    LOG,
    LOG_BYTES,
    MADE,
    ClusterCreation,
    ClusterRecord,
    Records,
)

RECORD = ClusterRecord("space-1", CREATING, 100.0)


class RecordsTests(SynchronousTestCase):
    """Tests for :class:`Records`."""

    starts = PROGRAMS

    def setUp(self) -> None:
        self.directory = os.path.abspath(self.mktemp())
        self.records = Records(self.directory)

    def locked(self, name: str = "red") -> int:
        descriptor = self.records.lock(name)
        assert descriptor is not None
        return descriptor

    def begun(self) -> None:
        """Write a record and release its lock."""
        descriptor = self.locked()
        self.records.write("red", RECORD)
        os.close(descriptor)

    def test_nothing(self) -> None:
        """Without a directory there are no records; reading does not create it."""
        self.assertEqual(self.records.names(), [])
        self.assertIsNone(self.records.read("red"))
        self.assertEqual(self.records.attempt("red"), ClusterCreation(False))
        self.assertFalse(os.path.exists(self.directory))

    def test_kept(self) -> None:
        """Records survive the process; their files are private to the user."""
        self.begun()
        other = Records(self.directory)
        self.assertEqual((other.names(), other.read("red")), (["red"], RECORD))
        self.records.write("red", replace(RECORD, state=MADE, uid="u"))
        self.assertEqual(other.read("red"), ClusterRecord("space-1", MADE, 100.0, uid="u"))
        for path, mode in (("red", 0o700), ("red/record", 0o600), ("red/lock", 0o600)):
            found = os.stat(os.path.join(self.directory, path)).st_mode
            self.assertEqual(stat.S_IMODE(found), mode, path)

    def test_newer(self) -> None:
        """What a newer release has added to a record is ignored."""
        self.begun()
        path = Path(self.records.path("red", "record"))
        path.write_text(json.dumps(json.loads(path.read_text()) | {"newer": 1}))
        self.assertEqual(self.records.read("red"), RECORD)

    def test_nonsense(self) -> None:
        """An invalid record reads as None."""
        self.begun()
        for text in (
            "",
            "{",
            "[]",
            "7",
            '{"owner": 1}',
            '{"owner":"a","state":"x","began":1}',
            '{"owner":1,"state":"made","began":1}',
            '{"owner":"a","state":"made","began":"x"}',
        ):
            with open(self.records.path("red", "record"), "w") as file:
                file.write(text)
            self.assertIsNone(self.records.read("red"), text)

    def test_lock(self) -> None:
        """A second lock of the same record is refused; other records are independent."""
        descriptor = self.locked()
        self.assertIsNone(self.records.lock("red"))
        self.assertTrue(self.records.attempt("red").busy)
        os.close(self.locked("green"))
        os.close(descriptor)
        self.assertFalse(self.records.attempt("red").busy)
        os.close(self.locked())

    def test_lock_of_a_process(self) -> None:
        """A process that inherited the lock holds it until it ends, even when killed."""
        descriptor = self.locked()
        process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[descriptor])
        os.close(descriptor)
        self.assertTrue(self.records.attempt("red").busy)
        process.kill()
        process.communicate(timeout=600)
        self.assertFalse(self.records.attempt("red").busy)

    def test_forgotten(self) -> None:
        """Forgetting removes the directory; an old lock does not block a new one."""
        self.begun()
        old = self.locked()
        self.records.forget("red")
        self.assertEqual(os.listdir(self.directory), [])
        new = self.locked()
        self.assertNotEqual(os.fstat(old).st_ino, os.fstat(new).st_ino)
        self.records.forget("red")
        self.records.forget("red")
        os.close(old)
        os.close(new)

    def test_attempt(self) -> None:
        """An attempt has the exit code and the end of the log; an invalid code is None."""
        self.begun()
        with open(self.records.path("red", LOG), "wb") as log:
            log.write(b"x" * LOG_BYTES + b"the end")
        self.assertIsNone(self.records.attempt("red").code)
        for text, code in (("1\n", 1), ("0\n", 0), ("", None), ("x", None)):
            with open(self.records.path("red", CODE), "w") as file:
                file.write(text)
            found = self.records.attempt("red")
            self.assertEqual(found.code, code)
            self.assertTrue(found.log.endswith(b"the end"))
            self.assertEqual(len(found.log), LOG_BYTES)

    def test_clear(self) -> None:
        """Clearing removes the files of the previous run, such as kind's own lock."""
        self.begun()
        for file in (CODE, LOG, "kubeconfig", "kubeconfig.lock", "kubeconfig-1.lock"):
            self.records.put("red", file, b"x")
        descriptor = self.locked()
        self.records.clear("red")
        os.close(descriptor)
        self.assertEqual(sorted(os.listdir(f"{self.directory}/red")), ["lock", "record"])

    def test_no_place(self) -> None:
        """If files cannot be written, the error has the path and the reason."""
        with open(self.directory, "w"):
            pass
        with self.assertRaises(ServiceUnavailable) as caught:
            self.records.lock("red")
        self.assertIn(f"{self.directory}/red/lock cannot be locked: ", caught.exception.message)
        with self.assertRaises(ServiceUnavailable) as caught:
            self.records.write("red", RECORD)
        self.assertIn(f'cannot write "{self.directory}/red/record"', caught.exception.message)
