"""
Tests for :mod:`twisted_exec.cli.commands.recording`, against a real API server; the poollet is a stand-in.
"""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

from tests.apiserver.chain import MachineTestCase
from tests.cli.typed import typed
from tests.recording.support import NOW, authority, record
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object
from twisted_exec.cli.recording import content

RECORDINGS = kinds.CONSOLERECORDINGS.resource
OUTPUT = [(NOW, b"one "), (NOW, b"two ")]


class ClusterTests(MachineTestCase):
    """A recording of the machine ``vm`` in the cluster, as a user sees it."""

    async def setUp(self) -> None:
        await super().setUp()
        self.pool.content = record(OUTPUT)
        body = {"metadata": {"name": "r"}, "spec": {"machine": "vm", "input": "none"}}
        await self.admin.create(RECORDINGS, body, "default")
        self.ca = Path(self.mktemp())
        self.ca.write_bytes(authority("a").certificate_pem)
        last = self.pool.content.splitlines()[-1].decode()
        await self.report(
            "r",
            phase="Closed",
            epoch="0011223344556677",
            firstOffset=0,
            endOffset=8,
            startTime="2026-11-22T12:00:00Z",
            endTime="2026-11-22T12:01:30Z",
            head=last,
        )

    async def report(self, name: str, **status: Any) -> None:
        patch: Object = {"status": status}
        await self.admin.patch(RECORDINGS, name, patch, "default", subresource="status")

    async def typed(self, *words: str, user: str = "admin") -> tuple[int, str, str]:
        """Exit code, output and errors of ``twisted-exec recording``."""
        return await typed(
            self, "recording", *words, "--kubeconfig", self.kubeconfig(f"user-{user}")
        )

    async def test_list(self) -> None:
        """The list has the machine, the state, the length and the users."""
        code, out, err = await self.typed("list", "--machine", "vm")
        self.assertEqual((code, err), (0, ""))
        head, row = out.splitlines()
        self.assertEqual(
            head.split(),
            ["NAME", "MACHINE", "INPUT", "STATE", "BEGIN", "LENGTH", "BYTES", "USERS"],
        )
        self.assertEqual(
            row.split(), ["r", "vm", "none", "Closed", "2026-11-22T12:00Z", "90s", "8", "admin"]
        )
        await self.make_machine("other")
        none = "No recordings found in default namespace."
        for words, hint in (
            (("--machine", "other"), ""),
            (("--machine", "v"), 'There is no machine "v" there; did you mean vm?'),
        ):
            self.assertEqual(
                await self.typed("list", *words), (0, "", f"{f'{none} {hint}'.strip()}\n")
            )
        self.assertIn("default", (await self.typed("list", "-A"))[1])
        problem = {
            "status": {"reason": "Interrupted", "message": "not on disk: No space left on device"}
        }
        await self.admin.patch(RECORDINGS, "r", problem, "default", subresource="status")
        head, row = (await self.typed("list"))[1].splitlines()
        self.assertTrue(head.endswith("   PROBLEM"), head)
        self.assertTrue(row.endswith("   not on disk: No space left on device"), row)

    async def test_play(self) -> None:
        """The output is printed, byte for byte."""
        self.assertEqual(await self.typed("play", "r"), (0, "one two ", ""))

    async def test_forbidden(self) -> None:
        """The remedy is the role for the content, and not the smaller role for the object."""
        code, out, err = await self.typed("play", "r", user="eve")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("; ask an administrator for the role console-recording-reader: kubectl ", err)

    async def test_verify(self) -> None:
        """The recording is verified with the CA."""
        code, out, err = await self.typed("verify", "r", "--ca", str(self.ca))
        self.assertEqual((code, err), (0, ""))
        self.assertIn("output     offset 0 to 8", out)

    async def test_not_closed(self) -> None:
        """The message says when a recording that goes on is to be verified again."""
        self.pool.content = record(OUTPUT, closed=False)
        body = {"metadata": {"name": "open"}, "spec": {"machine": "vm", "input": "none"}}
        await self.admin.create(RECORDINGS, body, "default")
        await self.report("open", phase="Recording", epoch="0011223344556677", firstOffset=0)
        code, _, err = await self.typed("verify", "open", "--ca", str(self.ca))
        self.assertEqual(code, 2)
        self.assertIn("verify it again when its STATE is Closed", err)

    async def test_truncated(self) -> None:
        """A recording whose end is missing is found by the head in the object."""
        self.pool.content = record(OUTPUT[:1], closed=False)
        code, _, err = await self.typed("verify", "r", "--ca", str(self.ca))
        self.assertEqual(code, 1)
        self.assertIn("r: not valid", err)

    async def test_export(self) -> None:
        """The recording is written to a new file of its own user; there is no second one."""
        path = os.path.abspath(self.mktemp())
        self.assertEqual(await self.typed("export", "r", path), (0, "", ""))
        self.assertEqual(Path(path).read_bytes(), self.pool.content)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)

    async def test_svg(self) -> None:
        """A picture of the recording is written to a new file."""
        path = os.path.abspath(self.mktemp())
        self.assertEqual(await self.typed("export", "r", path, "--svg"), (0, "", ""))
        self.assertIn(b"</svg>", Path(path).read_bytes())

    async def test_full(self) -> None:
        """A full disk is reported as such."""

        class Full(io.BytesIO):
            def write(self, data: Any) -> int:
                raise OSError(errno.ENOSPC, "No space left on device")

        self.patch(content, "TemporaryFile", Full)
        for name, *words in (("play", "r"), ("export", "r", os.path.abspath(self.mktemp()))):
            code, out, err = await self.typed(name, *words)
            self.assertEqual((code, out), (1, ""))
            self.assertRegex(
                err, f"^twisted-exec recording {name}: cannot write to .*: No space left on device$"
            )

    async def test_no_temporary_directory(self) -> None:
        """A host without a directory for temporary files gets the remedy."""

        def unusable() -> None:
            raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

        self.patch(content, "TemporaryFile", unusable)
        code, out, err = await self.typed("export", "r", os.path.abspath(self.mktemp()))
        self.assertEqual((code, out), (1, ""))
        self.assertEqual(
            err,
            "twisted-exec recording export: cannot make a temporary file: No usable temporary directory found "
            "in ['/tmp']: set TMPDIR to a directory that you may write to\n",
        )

    async def test_missing(self) -> None:
        """The message names the file and the recording, neither of which exists, and the list of recordings."""
        code, _, err = await self.typed("play", "x.cast")
        self.assertEqual(code, 1)
        self.assertIn('"x.cast" not found', err)
        self.assertIn(
            "there is no file x.cast either; twisted-exec recording list -n default lists the recordings there",
            err,
        )

    async def test_refused(self) -> None:
        """A user without the right to the content reads why."""
        code, _, err = await self.typed("play", "r", user="jane")
        self.assertEqual(code, 1)
        self.assertIn("consolerecordings", err)
