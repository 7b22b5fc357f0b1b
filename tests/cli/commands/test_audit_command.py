"""
Tests for :mod:`twisted_exec.cli.commands.audit`.
"""

from __future__ import annotations

import glob
import gzip
import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.main import main
from twisted_exec.program.audit import AuditSession, Trail
from twisted_exec.program.audit_file import JSONLinesAudit, Rotation
from twisted_exec.streaming.subject import Subject

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
ADA = Subject(
    "s-1",
    user="ada",
    namespace="lab",
    machine="vm",
    uid="u-1",
    resource="machines.compute.ironcore.dev",
    pool="pool-a",
    agent="kubectl/v1.34",
    address="192.0.2.7",
    reason="INC-7",
)


class AuditCase(SynchronousTestCase):
    """Audit files as the programs write them."""

    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.mkdir(self.directory)
        self.clock = Clock()

    def path(self, name: str = "audit.jsonl") -> str:
        return os.path.join(self.directory, name)

    def trail(self, hop: str = "apiserver", name: str = "audit.jsonl", **rotation: int) -> Trail:
        """A hop's trail."""
        sink = JSONLinesAudit(self.path(name), Rotation(**rotation))
        return Trail(sink, hop, self.clock, lambda: NOW + timedelta(seconds=self.clock.seconds()))

    def start(self, *hops: str, **facts: Any) -> list[AuditSession]:
        """A session at these hops."""
        subject = Subject(**{**vars(ADA), **facts})
        behind = Subject(**{**vars(subject), "agent": "", "address": "127.0.0.1"})
        return [self.trail(hop).start(subject if hop == "apiserver" else behind) for hop in hops]

    def run_main(self, *arguments: str) -> tuple[str, str]:
        """Return standard output and standard error of a successful command."""
        stdout, stderr = io.StringIO(), io.StringIO()
        with redirect_stdout(stdout), redirect_stderr(stderr):
            code = main(["audit", *arguments])
        self.assertEqual(code, 0, stderr.getvalue())
        return stdout.getvalue(), stderr.getvalue()

    def who(self, *arguments: str) -> list[dict[str, Any]]:
        """The answer of ``audit who vm``."""
        out, err = self.run_main("who", "vm", "--file", self.path(), "-o", "json", *arguments)
        self.assertEqual(err, "")
        return list(json.loads(out))


class WhoTests(AuditCase):
    """``twisted-exec audit who``."""

    def test_session(self) -> None:
        """The records of all hops are one session, with the user's address and the typed bytes."""
        apiserver, poollet, runtime = self.start("apiserver", "poollet", "runtime")
        self.clock.advance(125)
        runtime.end("client closed", bytes_to_machine=3, bytes_to_user=70)
        poollet.end("backend closed", bytes_to_machine=40, bytes_to_user=110)
        apiserver.end("backend closed", bytes_to_machine=40, bytes_to_user=110)
        (session,) = self.who()
        expected = {
            "session": "s-1",
            "user": "ada",
            "caller": "",
            "namespace": "lab",
            "machine": "vm",
            "started": "2026-11-20T12:00:00.000Z",
            "ended": "2026-11-20T12:02:05.000Z",
            "seconds": 125.0,
            "drove": True,
            "bytes_to_machine": 3,
            "bytes_to_user": 70,
            "address": "192.0.2.7",
            "agent": "kubectl/v1.34",
            "declared_reason": "INC-7",
            "end": "client closed",
            "code": None,
            "hops": ["apiserver", "poollet", "runtime"],
        }
        self.assertEqual({key: session[key] for key in expected}, expected)
        out, _ = self.run_main("who", "vm", "--file", self.path())
        heading, line = out.splitlines()
        self.assertEqual(heading.split()[0], "USER")
        for word in ("ada", "lab/vm", "yes", "2m5s", "192.0.2.7", "INC-7"):
            self.assertIn(word, line.split())

    def test_ssh(self) -> None:
        """A session through an ssh server has the address of its user, whose login is in JSON."""
        extra = "ssh-address=198.51.100.9&ssh-certificate=ada%40laptop+%28serial+7%29&ssh-key=SHA256%3An0q"
        self.start("apiserver", "poollet", caller="exec-sshd", extra=extra)
        (session,) = self.who()
        self.assertEqual(
            session["extra"],
            {
                "ssh-address": ["198.51.100.9"],
                "ssh-certificate": ["ada@laptop (serial 7)"],
                "ssh-key": ["SHA256:n0q"],
            },
        )
        self.assertEqual(session["address"], "192.0.2.7")
        out, _ = self.run_main("who", "vm", "--file", self.path())
        self.assertIn("198.51.100.9 by 192.0.2.7 ", out)

    def test_strange_extra(self) -> None:
        """Any extra of a record is shown, and none does harm."""
        for extra in ("x", "=", "&" * 100_000, "a=b&" * 10_000, "ssh-address=%1b[2J&%ff=%ff"):
            self.start("apiserver", caller="sam", extra=extra)
            self.assertEqual(len(self.who()), 1)
            out, _ = self.run_main("who", "vm", "--file", self.path())
            self.assertNotIn("\x1b", out)

    def resume(self, session: str, resumes: str) -> AuditSession:
        """A connection that asks to resume a session."""
        return self.trail().start(Subject(**{**vars(ADA), "session": session}), resumes)

    def test_resumed(self) -> None:
        """All connections of a session are one line, from the first start to the last end."""
        (first,) = self.start("apiserver")
        self.clock.advance(10)
        first.end("client lost", bytes_to_machine=3, bytes_to_user=70)
        self.resume("s-2", "s-1").end("no such session", code=404)
        self.clock.advance(5)
        third = self.resume("s-3", "s-1")
        self.clock.advance(10)
        third.end("backend lost", bytes_to_machine=2, bytes_to_user=5, resumes="s-1")
        fourth = self.resume("s-4", "s-3")
        self.clock.advance(5)
        (session,) = self.who()
        self.assertEqual((session["ended"], session["seconds"]), (None, 25.0))
        fourth.end("backend closed", bytes_to_machine=1, bytes_to_user=1, resumes="s-3")
        (session,) = self.who()
        expected = {
            "session": "s-1",
            "started": "2026-11-20T12:00:00.000Z",
            "ended": "2026-11-20T12:00:30.000Z",
            "seconds": 30,
            "bytes_to_machine": 6,
            "bytes_to_user": 76,
            "end": "backend closed",
            "connections": ["s-1", "s-3", "s-4"],
        }
        self.assertEqual({key: session[key] for key in expected}, expected)
        out, _ = self.run_main("who", "vm", "--file", self.path())
        self.assertIn("30s", out.splitlines()[1].split())

    def test_resumed_without_the_first(self) -> None:
        """A connection is a line of its own if the one before is not in these files, or not confirmed."""
        self.resume("s-3", "s-1").end("client lost", resumes="s-1")
        self.resume("s-5", "s-3").end("client lost")
        self.assertEqual([each["connections"] for each in self.who()], [["s-3"], ["s-5"]])

    def test_causes(self) -> None:
        """The end of a session is that of the hop that knows it; the others know which side closed."""
        for session, near, far, cause in (
            ("s-1", "backend closed", "client closed", "client closed"),
            ("s-2", "client closed", "Completed", "Completed"),
            ("s-3", "Revoked", "client closed", "Revoked"),
        ):
            apiserver, runtime = self.start("apiserver", "runtime", session=session)
            runtime.end(far)
            apiserver.end(near)
            self.assertEqual(self.who()[-1]["end"], cause)

    def test_looked_on(self) -> None:
        """A user who typed nothing did not drive; the API server's count alone does not say so."""
        for session, hops, drove in (
            ("s-1", ("apiserver", "runtime"), False),
            ("s-2", ("apiserver",), None),
        ):
            for hop, each in zip(hops, self.start(*hops, session=session), strict=True):
                count = 0 if hop == "runtime" else 18
                each.end("client closed", bytes_to_machine=count)
            self.assertIs(self.who()[-1]["drove"], drove, hops)

    def test_open(self) -> None:
        """
        A session without an end record may be open, or its server was killed; so its duration does
        not grow. An end at one hop is enough.
        """
        self.start("apiserver")
        self.clock.advance(1)
        self.start("runtime")
        _, runtime = self.start("apiserver", "runtime", session="s-2")
        self.clock.advance(5)
        runtime.end("client lost")
        first, second = self.who()
        self.assertEqual((first["ended"], first["drove"], first["seconds"]), (None, None, 1.0))
        self.assertEqual(second["ended"], "2026-11-20T12:00:06.000Z")
        out, _ = self.run_main("who", "vm", "--file", self.path())
        line = out.splitlines()[1]
        self.assertIn(" no end recorded ", line)
        self.assertRegex(line, r"2026-11-20T12:00:00Z +\? ")

    def test_selection(self) -> None:
        """Other machines, other namespaces, logs, screens and refused sessions do not count unless wanted."""
        self.start("apiserver")
        self.start("apiserver", session="s-2", machine="other")
        self.start("apiserver", session="s-3", namespace="prod")
        self.start("apiserver", session="s-4", subresource="log")
        self.start("apiserver", session="s-5", subresource="screen")
        self.start("apiserver", session="s-7", subresource="content")
        self.start("runtime", session="s-8", subresource="recording")
        (refused,) = self.start("apiserver", session="s-6", user="eve")
        refused.end("forbidden", code=403)
        for words, sessions in (
            ((), ["s-1", "s-3"]),
            (("-n", "lab"), ["s-1"]),
            (("--logs",), ["s-1", "s-3", "s-4", "s-5", "s-7", "s-8"]),
            (("--refused",), ["s-1", "s-3", "s-6"]),
        ):
            self.assertEqual([each["session"] for each in self.who(*words)], sessions)

    def test_since(self) -> None:
        """Sessions that ended before do not count; open ones do."""
        self.start("apiserver", session="open")
        (old,) = self.start("apiserver", session="old")
        (late,) = self.start("apiserver", session="late")
        self.clock.advance(10)
        old.end("client closed")
        self.clock.advance(100)
        late.end("client closed")
        found = self.who("--since", "2026-11-20T12:01:00Z")
        self.assertEqual([each["session"] for each in found], ["open", "late"])
        self.assertEqual(self.who("--since", "1d")[0]["session"], "open")

    def test_impersonated(self) -> None:
        """The table names both users of an impersonation, not the proxies between hops."""
        self.start("apiserver", caller="sam")
        out, _ = self.run_main("who", "vm", "--file", self.path())
        self.assertIn("ada (by sam)", out)

    def test_replicas(self) -> None:
        """Files of several replicas and hops are merged by the session's id."""
        subject = ADA
        self.trail("apiserver", "a").start(subject).end("client closed", bytes_to_machine=9)
        self.trail("runtime", "r").start(subject).end("client closed", bytes_to_machine=1)
        files = ["--file", self.path("a"), "--file", self.path("r"), "--file", self.path("a")]
        out, _ = self.run_main("who", "vm", "-o", "json", *files)
        (session,) = json.loads(out)
        self.assertEqual((session["hops"], session["drove"]), (["apiserver", "runtime"], True))

    def test_terminal(self) -> None:
        """A user's name cannot move the cursor of the reader's terminal."""
        self.start("apiserver", user="a\x1b[2Jb\nc")
        out, _ = self.run_main("who", "vm", "--file", self.path())
        self.assertNotIn("\x1b", out)
        self.assertEqual(len(out.splitlines()), 2)

    def test_nobody(self) -> None:
        """Without sessions a line on standard error says so, and which machines the files have if this is none of them."""
        self.start("apiserver", machine="other")
        self.start("apiserver", session="s-3", machine="a-recording", subresource="content")
        self.assertEqual(
            self.run_main("who", "vm", "--file", self.path()),
            ("", 'These files know no machine "vm"; they have other.\n'),
        )
        self.assertIn(
            "know no machine", self.run_main("who", "vm", "--file", self.path(), "-o", "json")[1]
        )
        self.start("apiserver", session="s-2", subresource="log")
        self.assertEqual(
            self.run_main("who", "vm", "--file", self.path()),
            ("", 'No such session of machine "vm" in these files.\n'),
        )


class SessionsTests(AuditCase):
    """``twisted-exec audit sessions``."""

    def test_user(self) -> None:
        """The sessions of a user, as themselves or for another user."""
        self.start("apiserver")
        self.start("apiserver", session="s-2", machine="other")
        self.start("apiserver", session="s-3", user="eve", caller="ada")
        self.start("apiserver", session="s-4", user="eve")
        for words in (["ada"], ["--user", "ada"]):
            out, _ = self.run_main("sessions", *words, "--file", self.path(), "-o", "json")
            self.assertEqual([each["session"] for each in json.loads(out)], ["s-1", "s-2", "s-3"])

    def test_caller(self) -> None:
        """A session that a user opened for another user is found with the records of all hops."""
        (apiserver,) = self.start("apiserver", user="eve", caller="ada")
        (runtime,) = self.start("runtime", user="eve", caller="exec-apiserver")
        runtime.end("client closed", bytes_to_machine=2)
        apiserver.end("backend closed", bytes_to_machine=20)
        out, _ = self.run_main("sessions", "--user", "ada", "--file", self.path(), "-o", "json")
        (session,) = json.loads(out)
        self.assertEqual((session["caller"], session["drove"]), ("ada", True))

    def test_direct(self) -> None:
        """The caller of a user who acts for themselves is empty, although hops call hops."""
        self.start("apiserver")
        self.trail("poollet").start(Subject(**{**vars(ADA), "caller": "exec-apiserver"}))
        out, _ = self.run_main("sessions", "--user", "ada", "--file", self.path(), "-o", "json")
        self.assertEqual(json.loads(out)[0]["caller"], "")


class FileTests(AuditCase):
    """Audit files that were rotated, are rotated, or are damaged."""

    def test_rotated(self) -> None:
        """Old files are read in order, also those that logrotate has compressed."""
        trail = self.trail(max_bytes=900, old_files=9)
        for number in range(8):
            trail.start(Subject(**{**vars(ADA), "session": f"s-{number}"})).end("client closed")
            self.clock.advance(1)
        with open(self.path("audit.jsonl.3"), "rb") as plain:
            data = gzip.compress(plain.read())
        with open(self.path("audit.jsonl.3.gz"), "wb") as packed:
            packed.write(data)
        os.remove(self.path("audit.jsonl.3"))
        self.assertTrue(os.path.exists(self.path("audit.jsonl.5")))
        found = self.who()
        self.assertEqual([each["session"] for each in found], [f"s-{n}" for n in range(8)])
        self.assertTrue(all(each["ended"] for each in found))

    def test_damaged_archive(self) -> None:
        """A compressed file that is damaged is named in one line."""
        self.start("apiserver")
        with open(self.path("audit.jsonl.1.gz"), "wb") as packed:
            packed.write(gzip.compress(os.urandom(4096))[:100] + b"x" * 4000)
        with redirect_stderr(io.StringIO()) as stderr:
            self.assertEqual(main(["audit", "who", "vm", "--file", self.path()]), 1)
        self.assertIn("audit.jsonl.1.gz: it is damaged", stderr.getvalue())

    def test_rotation_meanwhile(self) -> None:
        """A rotation between the opening of two files loses no record and counts none twice."""
        trail = self.trail(max_bytes=900, old_files=9)
        for number in range(6):
            trail.start(Subject(**{**vars(ADA), "session": f"s-{number}"})).end("client closed")
        old_files = glob.glob

        calls: list[str] = []

        def rotating(path: str) -> list[str]:
            names = old_files(path)
            if len(calls) < 2:
                calls.append(path)
                trail.start(Subject(**{**vars(ADA), "session": "new"})).end("client closed")
            return names

        self.patch(glob, "glob", rotating)
        sessions = [each["session"] for each in self.who()]
        self.assertEqual([each for each in sessions if each != "new"], [f"s-{n}" for n in range(6)])

    def test_damaged(self) -> None:
        """Damaged lines are counted and named; the others answer."""
        self.start("apiserver")
        long = b'{"time":"' + b"x" * (1 << 20) + b'"}\n'
        lines = [b"\xff\n", b"{}\n", b"[]\n", b'{"time":"now","hop":"a","event":"start"}\n', long]
        with open(self.path(), "ab") as file:
            file.write(b"".join(lines) + b"[" * 100_000 + b"\n\n")
        self.start("apiserver", session="s-2")
        out, err = self.run_main("who", "vm", "--file", self.path(), "-o", "json")
        self.assertEqual(len(json.loads(out)), 2)
        self.assertIn("6 lines are no records", err)
        for problem in (
            ":2: not JSON",
            ":3: without time",
            ":4: not an object",
            ":5: without a time such as",
            ":6: longer than 1 MiB",
            "and 1 more",
        ):
            self.assertIn(problem, err)

    def test_wrong_types(self) -> None:
        """Values of other types than a program writes do no harm."""
        record = {"time": "2026-11-20T12:00:00Z", "hop": "x", "event": "end", "machine": "vm"}
        record |= {"seconds": "long", "bytes_to_machine": None, "code": [], "user": {}}
        with open(self.path(), "w") as file:
            file.write(json.dumps(record) + "\n")
            for number in ("1e400", "-1e400", "NaN", "9" * 400, "1" + "0" * 30):
                numbers = f'"seconds":{number},"bytes_to_machine":{number},"code":{number}'
                line = json.dumps({**record, "session": number})[:-1]
                file.write(f"{line},{numbers}}}\n")
        self.assertEqual(len(self.who("--refused")), 6)
        self.run_main("who", "vm", "--file", self.path(), "--refused")

    def test_times(self) -> None:
        """Times of other zones become UTC; impossible times are damage."""
        record = {"hop": "apiserver", "event": "start", "machine": "vm"}
        times = ("2026-11-20T13:00:00+01:00", "0001-01-01T00:00:00+23:00", "2026-11-20T12:00:00")
        with open(self.path(), "w") as file:
            for number, time in enumerate(times):
                file.write(json.dumps({**record, "time": time, "session": str(number)}) + "\n")
        out, err = self.run_main("who", "vm", "--file", self.path(), "-o", "json")
        self.assertEqual(
            [each["started"] for each in json.loads(out)], ["2026-11-20T12:00:00.000Z"]
        )
        self.assertIn("2 lines are no records", err)

    def test_standard_input(self) -> None:
        """Records can come from standard input, such as the log of a container."""
        self.start("apiserver")
        with open(self.path(), "rb") as file:
            self.patch(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a line\n" + file.read())))
        out, err = self.run_main("who", "vm", "--file", "-", "-o", "json")
        self.assertEqual(len(json.loads(out)), 1)
        self.assertIn("standard input:1: not JSON", err)

    def test_only_old_files(self) -> None:
        """Old files count also when the newest was just renamed."""
        self.start("apiserver")
        os.rename(self.path(), self.path("audit.jsonl.1"))
        self.assertEqual(len(self.who()), 1)

    def test_other_file(self) -> None:
        """A file without any record is an error: that nobody was there would be a wrong answer."""
        with open(self.path("notes.txt"), "w") as file:
            file.write("not an audit file\n")
        err = io.StringIO()
        with redirect_stderr(err):
            code = main(["audit", "who", "vm", "--file", self.path("notes.txt")])
        self.assertEqual(code, 1)
        self.assertEqual(
            err.getvalue(),
            f"twisted-exec audit: {self.path('notes.txt')} has no audit records: name a file of "
            "--audit-log\n",
        )

    def test_missing(self) -> None:
        """A missing file is one line with the remedy."""
        err = io.StringIO()
        with redirect_stderr(err):
            self.assertEqual(main(["audit", "who", "vm"]), 1)
        self.assertIn(
            "audit.jsonl: No such file or directory; it is in the state directory of the server: give it with --file",
            err.getvalue(),
        )
