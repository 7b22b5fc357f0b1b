"""
Tests for :mod:`twisted_exec.cli.commands.recording`: from a journal to a verified recording.
"""

from __future__ import annotations

import io
import json
import os
import stat
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase

from tests.journal.support import ManualDisk, close_segments
from tests.recording.support import NOW, authority, info, record, signer
from twisted_exec.cli.main import main
from twisted_exec.cli.recording import animation
from twisted_exec.journal.interfaces import Event, EventKind
from twisted_exec.journal.journal import Journal
from twisted_exec.recording.writer import RecordingWriter

SECOND = 10**9
UID = "0b3f6c3a-52c1-4b43-9a39-3f4d2a6c8f10"


class RecordingCommandTests(SynchronousTestCase):
    """Tests for ``twisted-exec recording``."""

    def setUp(self) -> None:
        self.root = os.path.abspath(self.mktemp())
        os.makedirs(self.root)
        self.now = time.time_ns() - 3600 * SECOND
        self.journal = Journal(lambda: self.now, ManualDisk(self.path(UID)))
        self.addCleanup(close_segments)
        self.run_main("pki", "init", self.path("pki"))
        self.run_main("pki", "recorder", self.path("pki"), "--recorder", "metal-a")

    def path(self, *names: str) -> str:
        return os.path.join(self.root, *names)

    def run_main(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        written, err = io.BytesIO(), io.StringIO()
        out = io.TextIOWrapper(written, "utf-8", "surrogateescape", newline="", write_through=True)
        with redirect_stdout(out), redirect_stderr(err):
            try:
                code = main(arguments)
            except SystemExit as exit_:
                code = int(exit_.code or 0)
        return code, written.getvalue().decode("utf-8", "surrogateescape"), err.getvalue()

    def printed(self, *outputs: bytes) -> None:
        """Let the machine print, each time a minute later."""
        for data in outputs:
            self.journal.append(data)
            self.now += 60 * SECOND

    def export(self, *options: str, file: str = "vm-1.cast") -> tuple[int, str, str]:
        recorder = self.path("pki", "recorder-metal-a")
        keys = ["--certificate", f"{recorder}.crt", "--key", f"{recorder}.key"]
        return self.run_main(
            "recording", "export", self.path(UID), self.path(file), *keys, *options
        )

    def verify(self, *options: str, file: str = "vm-1.cast") -> tuple[int, str, str]:
        ca = self.path("pki", "ca.crt")
        return self.run_main("recording", "verify", self.path(file), "--ca", ca, *options)

    def play(self, *options: str, file: str = "vm-1.cast") -> str:
        code, out, err = self.run_main("recording", "play", self.path(file), *options)
        self.assertEqual((code, err), (0, ""))
        return out

    def read(self, name: str = "vm-1.cast") -> bytes:
        with open(self.path(name), "rb") as file:
            return file.read()

    def write(self, name: str, content: bytes) -> None:
        with open(self.path(name), "wb") as file:
            file.write(content)

    def test_export_verify_play(self) -> None:
        """A recording has what the machine printed, is private, and verified with the CA alone."""
        self.printed(b"U-Boot\r\n", b"\xff\xfe", "größer\r\n".encode())
        self.assertEqual(self.export("--machine", "default/vm-1"), (0, "", ""))
        mode = stat.S_IMODE(os.stat(self.path("vm-1.cast")).st_mode)
        self.assertEqual(mode, 0o600)
        code, out, err = self.verify()
        self.assertEqual((code, err), (0, ""))
        self.assertIn(f"machine    default/vm-1, UID {UID}\n", out)
        self.assertIn("output     offset 0 to 20 of the journal", out)
        self.assertIn("signed     by metal-a, last at", out)
        played = self.play().encode("utf-8", "surrogateescape")
        self.assertEqual(played, b"U-Boot\r\n\xff\xfe" + "größer\r\n".encode())

    def test_played_from_before_the_beginning(self) -> None:
        """A recording that begins after the time of --at is played from its beginning, and says so."""
        self.printed(b"one")
        self.export()
        for at, told in (
            ("2000-01-01", "begins after the time of --at, at 20"),
            ("2999-01-01", ""),
        ):
            code, out, err = self.run_main("recording", "play", self.path("vm-1.cast"), "--at", at)
            if told:
                self.assertEqual((code, out, told in err), (0, "one", True), err)
            else:
                self.assertEqual((code, out), (1, ""))
                self.assertIn("ends before the time of --at; there is output from", err)

    def test_version_2(self) -> None:
        """A journal or a recording is also written for players of version 2, without the proof."""
        self.printed(b"U-Boot\r\n", b"\xff\xfe", "größer\r\n".encode())
        self.export("--machine", "default/vm-1")
        options = ("--machine", "default/vm-1", "--asciicast", "2")
        self.assertEqual(self.export(*options, file="journal.cast"), (0, "", ""))
        convert = ("recording", "export", self.path("vm-1.cast"), self.path("file.cast"))
        self.assertEqual(self.run_main(*convert, "--asciicast", "2"), (0, "", ""))
        self.assertEqual(self.read("file.cast"), self.read("journal.cast"))
        header, *events = map(json.loads, self.read("file.cast").decode().splitlines())
        timestamp = json.loads(self.read().partition(b"\n")[0])["timestamp"]
        size = {"width": 80, "height": 24}
        expected = {"version": 2, "timestamp": timestamp, "title": "default/vm-1", **size}
        self.assertEqual(header, expected)
        self.assertEqual(
            events,
            [[0.0, "o", "U-Boot\r\n"], [60.0, "o", "\ufffd\ufffd"], [120.0, "o", "größer\r\n"]],
        )
        code, _, err = self.verify(file="file.cast")
        self.assertEqual(code, 1)
        self.assertIn("not a recording of twisted-exec", err)

    def test_version_2_of_others(self) -> None:
        """Only a recording is converted; a file that is none leaves nothing behind."""
        for content in (b"", b"[]\n", b'{"version":2}\n', b'{"version":3,"term":{}}\nx\n'):
            self.write("other.cast", content)
            convert = ("recording", "export", self.path("other.cast"), self.path("new.cast"))
            code, _, err = self.run_main(*convert, "--asciicast", "2")
            self.assertEqual(code, 1)
            self.assertIn("other.cast: not valid: ", err)
            code, _, err = self.run_main(*convert)
            self.assertIn("is a file: to convert a recording, give --asciicast 2", err)
            self.assertFalse(os.path.exists(self.path("new.cast")))

    def test_other_file(self) -> None:
        """Another file or a directory is not verified, played, drawn or cut; the message says why."""
        self.write("README.md", b"# Title\n\nText\n")
        told = "README.md: not a recording of twisted-exec, or its first lines are damaged: "
        verify = ("verify", "--ca", self.path("pki", "ca.crt"))
        start = "it does not begin with '{'"
        for words, more, why in (
            (("play",), (), start),
            (("export", "--svg"), (self.path("new.svg"),), start),
            (("cut", "--between", "1h", "1m"), (self.path("new.cast"),), start),
            (verify, (), "the second line does not begin with '# recording'"),
        ):
            code, _, err = self.run_main("recording", *words, self.path("README.md"), *more)
            self.assertEqual(code, 1)
            self.assertIn(told + why, err)
        for words in (("play",), verify):
            code, _, err = self.run_main("recording", *words, self.path("."))
            self.assertEqual(code, 1)
            self.assertIn(" is a directory; give the file of a recording\n", err)

    def svg(self, source: str, *options: str, file: str = "vm-1.svg") -> tuple[int, str, str]:
        convert = ("recording", "export", self.path(source), self.path(file), "--svg")
        return self.run_main(*convert, *options)

    def test_svg(self) -> None:
        """A recording or a journal becomes a private picture, always the same, with shortened pauses."""
        self.printed(b"U-Boot\r\n", b"gr\xc3", b"\xb6\xc3\x9fer <b>\r\n")
        self.export()
        self.assertEqual(self.svg("vm-1.cast"), (0, "", ""))
        self.assertEqual(stat.S_IMODE(os.stat(self.path("vm-1.svg")).st_mode), 0o600)
        picture = self.read("vm-1.svg")
        self.assertIn(b">U-Boot<", picture)
        self.assertIn(">größer &lt;b&gt;<".encode(), picture)
        self.assertIn(b"animation:s 6000ms", picture)
        self.assertEqual(self.svg("vm-1.cast", file="again.svg"), (0, "", ""))
        self.assertEqual(self.read("again.svg"), picture)
        self.assertEqual(self.export("--svg", file="journal.svg"), (0, "", ""))
        self.assertEqual(self.read("journal.svg"), picture)
        self.svg("vm-1.cast", "--idle", "5.5", file="slow.svg")
        self.assertIn(b"animation:s 13000ms", self.read("slow.svg"))

    def test_idle_without_svg(self) -> None:
        """Pauses of a recording itself are not shortened."""
        code, output, errors = self.export("--idle", "5", file="idle.cast")
        self.assertEqual((code, output), (1, ""))
        self.assertIn("--idle shortens the pauses of a picture: give --svg", errors)
        self.assertFalse(os.path.exists(self.path("idle.cast")))

    def test_svg_range(self) -> None:
        """A picture of some minutes begins with what a terminal showed then, in its size."""
        self.journal.resized(50, 132)
        self.printed(b"one ", b"two ", b"three ", b"four ")
        self.export()
        begin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.now // SECOND - 190))
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.now // SECOND - 70))
        self.assertEqual(self.svg("vm-1.cast", "--between", begin, end), (0, "", ""))
        picture = self.read("vm-1.svg")
        for text, count in (
            (b">one<", 0),
            (b">one two<", 1),
            (b">one two three<", 1),
            (b"four", 0),
        ):
            self.assertEqual(picture.count(text), count, text)
        self.assertIn(b'height="866"', picture)
        self.assertEqual(self.svg("vm-1.cast", "--since", "2h", file="all.svg"), (0, "", ""))
        self.assertIn(b">one<", self.read("all.svg"))

    def test_svg_without_input(self) -> None:
        """What a user typed is in a picture only if the machine printed it."""
        typed = {"session": "s", "data": "c2VjcmV0", "echoed": False}
        event = Event(10, NOW + SECOND, EventKind.INPUT, typed)
        self.write("vm-1.cast", record([(NOW, b"Password: "), event]))
        self.assertIn(b'"i", "secret"', self.read())
        self.assertEqual(self.svg("vm-1.cast"), (0, "", ""))
        self.assertNotIn(b"secret", self.read("vm-1.svg"))

    def test_svg_size(self) -> None:
        """The picture has room for the largest terminal."""
        size = Event(1, NOW + SECOND, EventKind.SIZE, {"columns": 132, "rows": 50})
        self.write("vm-1.cast", record([(NOW, b"a"), size, (NOW + 2 * SECOND, b"\x1b[50Hb")]))
        self.svg("vm-1.cast")
        self.assertIn(b'height="866"', self.read("vm-1.svg"))

    def test_svg_refused(self) -> None:
        """A picture of nothing, or of too much, is refused, and leaves nothing behind."""
        many = [(NOW + number * SECOND, b"\r%d" % number) for number in range(2001)]
        self.write("vm-1.cast", record(many))
        self.write("empty.cast", record([]))
        for source, options, problem in (
            ("vm-1.cast", (), "more than 2000 screens: choose a shorter time with --between"),
            ("vm-1.cast", ("--since", "1m"), "the console printed nothing in this time"),
            (
                "vm-1.cast",
                ("--key", "x"),
                "--key and --machine are for a journal: give --certificate",
            ),
            ("empty.cast", (), "the console printed nothing in this time"),
        ):
            code, _, err = self.svg(source, *options)
            self.assertEqual(code, 1)
            self.assertIn(problem, err)
            self.assertFalse(os.path.exists(self.path("vm-1.svg")))
        self.assertIn("not allowed with", self.svg("vm-1.cast", "--asciicast", "2")[2])
        self.patch(animation, "MAX_OUTPUT_BYTES", 1 << 20)
        self.write("long.cast", record([(NOW, b"a" * 600_000), (NOW + SECOND, b"b" * 600_000)]))
        self.assertIn("there are more than 1 MiB: choose a shorter time", self.svg("long.cast")[2])

    def test_range(self) -> None:
        """A part of the journal is exported by time; the size of the terminal is that of then."""
        self.journal.resized(50, 132)
        self.printed(b"one ", b"two ", b"three ", b"four ")
        begin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.now // SECOND - 190))
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.now // SECOND - 70))
        self.assertEqual(self.export("--between", begin, end)[0], 0)
        self.assertEqual(self.play(), "two three ")
        self.assertIn(b'"term":{"cols":132,"rows":50}', self.read())
        self.assertEqual(self.export("--since", "2h", file="b.cast"), (0, "", ""))
        code, _, err = self.export("--since", "1s", file="c.cast")
        self.assertEqual(code, 1)
        first, last = (
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))
            for second in (self.now // SECOND - 240, self.now // SECOND - 60)
        )
        there_is = f"; there is output from {first} to {last}\n"
        self.assertTrue(err.endswith(f"no output in this range{there_is}"), err)
        self.export(file="whole.cast")
        code, out, err = self.run_main(
            "recording", "play", self.path("whole.cast"), "--at", "2999-01-01"
        )
        self.assertEqual((code, out), (1, ""))
        self.assertTrue(err.endswith(f"the recording ends before the time of --at{there_is}"), err)
        self.assertFalse(os.path.exists(self.path("c.cast")))

    def test_not_closed(self) -> None:
        """The exit code of a recording without its signed end is 2."""
        self.write("open.cast", record([(NOW, b"one")], closed=False) + b"# at")
        self.write("ca", authority("a").certificate_pem)
        code, out, err = self.run_main(
            "recording", "verify", self.path("open.cast"), "--ca", self.path("ca")
        )
        self.assertEqual(code, 2)
        self.assertIn(", not closed\n", out)
        self.assertIn("after offset 3, and 4 bytes of the file after it", err)

    def test_strange_names(self) -> None:
        """Names in a recording, and times beyond the calendar, do nothing to the terminal."""
        self.write("ca", authority("a").certificate_pem)
        facts = replace(info(), machine={"uid": "\x1b[2J\nsigned by root"}, time=1 << 60)
        writer = RecordingWriter(facts, signer())
        self.write("strange.cast", writer.begin() + writer.output(NOW, 0, b"x") + writer.close(NOW))
        code, out, err = self.run_main(
            "recording", "verify", self.path("strange.cast"), "--ca", self.path("ca")
        )
        self.assertEqual((code, err, out.count("\n")), (0, "", 6))
        self.assertNotIn("\x1b", out)
        self.assertIn("an unknown time", out)

    def test_without_ca(self) -> None:
        """Without the CA of the recorder, the user reads which file that is."""
        code, _, err = self.run_main("recording", "verify", "x.cast")
        self.assertEqual(code, 1)
        self.assertIn(
            "are required: --ca (CA of the recorder, the ca.crt of its PKI, such as ", err
        )

    def test_stored_head(self) -> None:
        """A head that was stored elsewhere must be in the recording."""
        self.printed(b"one")
        self.export()
        whole = self.read()
        line = whole.splitlines()[-1]
        for end in (b"\n", b""):  # as in the file, and as kubectl prints it with -o jsonpath
            self.write("head", line + end)
            self.assertEqual(self.verify("--head", self.path("head"))[0], 0)
        self.write("cut.cast", whole[: whole.rindex(b"# block")])
        code, _, err = self.verify(file="cut.cast")
        self.assertEqual(code, 1)
        self.assertIn("no signed head", err)
        self.write("head", b"no head")
        code, _, err = self.verify("--head", self.path("head"))
        self.assertEqual(code, 1)
        self.assertIn('is not one line "# head ..."', err)

    def test_changed(self) -> None:
        """A changed recording is not valid, and the error says where."""
        self.printed(b"password: secret\r\n")
        self.export()
        self.write("vm-1.cast", self.read().replace(b"secret", b"public"))
        code, out, err = self.verify()
        self.assertEqual((code, out), (1, ""))
        self.assertIn("vm-1.cast: not valid: block 1, at byte", err)

    def test_cut(self) -> None:
        """An excerpt is verified, and says how much was left out."""
        self.printed(b"a" * 70_000, b"b" * 70_000, b"c" * 70_000)
        self.export()
        first, last = self.now // SECOND - 61, self.now // SECOND - 59
        times = [
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second)) for second in (first, last)
        ]
        source, target = self.path("vm-1.cast"), self.path("part.cast")
        code = self.run_main("recording", "cut", source, target, "--between", *times)[0]
        self.assertEqual(code, 0)
        code, out, _ = self.verify(file="part.cast")
        self.assertEqual(code, 0)
        self.assertIn("of them left out", out)
        self.assertNotIn("a", self.play(file="part.cast"))

    def test_cut_open(self) -> None:
        """A recording that was exported while it was open cannot be cut; it is not the file that is wrong."""
        writer = RecordingWriter(info(), signer())
        self.write(
            "open.cast", writer.begin() + writer.output(NOW, 0, b"x") + writer.sign_head(NOW)
        )
        source, target = self.path("open.cast"), self.path("part.cast")
        code, out, err = self.run_main("recording", "cut", source, target, "--between", "1h", "1m")
        self.assertEqual((code, out), (2, ""))
        why = "not closed: export it again when its STATE is Closed"
        self.assertEqual(err, f"twisted-exec recording cut: {source}: {why}\n")
        self.assertFalse(os.path.exists(target))

    def test_refused(self) -> None:
        """Arguments that cannot be used are refused on one line, and nothing is replaced."""
        self.printed(b"one")
        self.export()
        before = self.read()
        for words, problem in (
            (("--since", "1h"), "for a part of a recording, export it without them"),
            ((), "No such file or directory"),
        ):
            source, target = self.path("missing.cast"), self.path("b")
            code, _, err = self.run_main("recording", "export", source, target, *words)
            self.assertEqual((code, problem in err), (1, True), err)
        self.assertIn("exists already", self.export()[2])
        self.assertEqual(self.read(), before)
        self.assertIn("give NAMESPACE/NAME", self.export("--machine", "vm-1", file="b")[2])
        ca = self.path("pki", "ca")
        code, _, err = self.run_main(
            "recording",
            "export",
            self.path(UID),
            self.path("b"),
            "--certificate",
            f"{ca}.crt",
            "--key",
            f"{ca}.key",
        )
        self.assertEqual(code, 1)
        self.assertIn("twisted-exec pki recorder", err)
        self.assertIn("No such file", self.verify(file="missing.cast")[2])
        self.assertIn(
            "not a positive number", self.run_main("recording", "play", "x", "--speed", "0")[2]
        )
        self.assertFalse(os.path.exists(self.path("b")))
