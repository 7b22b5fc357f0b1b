"""Tests of :mod:`twisted_exec.wire.resume`."""

from __future__ import annotations

from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.resume import (
    Position,
    Resumable,
    Resume,
    parse_credit,
    parse_request,
)

KEY = "k" * 43
EPOCH = "0123456789abcdef"
RESUME = Resume(KEY, "3f6b-1", Position(EPOCH, 4096))


class HeaderTests(SynchronousTestCase):
    """The header of the request and of its answer."""

    def test_first_request(self) -> None:
        self.assertIsNone(parse_request("marks"))

    def test_resume(self) -> None:
        text = f"key={KEY}; session=3f6b-1; epoch={EPOCH}; from=4096"
        self.assertEqual(RESUME.text(), text)
        self.assertEqual(parse_request(text), RESUME)

    def test_machine(self) -> None:
        """Both may name the machine by its UID; a text that is none is left out."""
        uid = "1f3a5c7e-0000-4000-8000-000000000001"
        resume = replace(RESUME, machine=uid)
        self.assertEqual(resume.text(), f"{RESUME.text()}; machine={uid}")
        self.assertEqual(parse_request(resume.text()), resume)
        answer = Resumable(KEY, 60).passed_on("apiserver", 0.1, uid)
        self.assertTrue(answer.text().endswith(f"; machine={uid}"))
        self.assertEqual(Resumable.parse(answer.text()), answer)
        self.assertEqual(answer.passed_on("apiserver", None), replace(answer, machine=""))
        for text in ("a b", "x" * 65, "\x1b[m"):
            self.assertEqual(parse_request(f"{RESUME.text()}; machine={text}"), RESUME)
            self.assertEqual(Resumable(KEY, 60).passed_on("x", None, text), Resumable(KEY, 60))

    def test_answer(self) -> None:
        answer = Resumable(KEY, 60)
        self.assertEqual(Resumable.parse(answer.text()), answer)

    def test_round_trips(self) -> None:
        """Hops on the way add their round trips; the answer stays short, however many there are."""
        answer = Resumable(KEY, 60).passed_on("poollet", 0.0000964).passed_on("apiserver", 0.000412)
        self.assertEqual(answer.text(), f"key={KEY}; seconds=60; hops=apiserver/412,poollet/96")
        self.assertEqual(Resumable.parse(answer.text()), answer)
        self.assertEqual(Resumable.parse(answer.text() + "; later=1"), answer)
        self.assertEqual(answer.passed_on("broker", None), answer)
        for _ in range(100):
            answer = answer.passed_on("apiserver", 1e9)
        self.assertEqual(len(answer.round_trips), 8)
        self.assertEqual(Resumable.parse(answer.text()), answer)

    def test_invalid_round_trips(self) -> None:
        """Round trips that are not valid are left out: nothing depends on them."""
        for hops in ("", "poollet", "poollet/-1", "poollet/1,", "\x1b[/1", "a/1" + ",a/1" * 8):
            answer = Resumable.parse(f"key={KEY}; seconds=60; hops={hops}")
            self.assertEqual(answer, Resumable(KEY, 60), hops)

    def test_unknown_fields_are_ignored(self) -> None:
        self.assertEqual(parse_request(RESUME.text() + "; later=1"), RESUME)

    def test_long_waits_are_cut(self) -> None:
        self.assertEqual(Resumable.parse(f"key={KEY}; seconds=999999999").seconds, 86400)

    def test_keys_are_not_printed(self) -> None:
        self.assertNotIn(KEY, repr([RESUME, Resumable(KEY, 60)]))

    def test_invalid(self) -> None:
        good = RESUME.text()
        for text in (
            "",
            "mark",
            good.replace(KEY, "short"),
            good.replace(KEY, KEY[:-1] + "?"),
            good.replace(EPOCH, EPOCH.upper()),
            good.replace("4096", "-1"),
            good.replace("4096", "\N{ARABIC-INDIC DIGIT ONE}"),
            good.replace("4096", "1" * 20),
            good.replace("3f6b-1", "3f6b/1"),
            good.replace("session=3f6b-1; ", ""),
            good + f"; key={KEY}",
            good + "; x=" + "y" * 512,
        ):
            with self.assertRaises(RemoteProtocolError, msg=text):
                parse_request(text)


class CreditTests(SynchronousTestCase):
    """The field that only pages in browsers send."""

    def test_credit(self) -> None:
        """Requests of both forms may have a credit; other clients name none."""
        for value in (
            "marks; credit=65536",
            "credit=65536 ; marks",
            RESUME.text() + "; credit=65536",
        ):
            self.assertEqual(parse_credit(value), 65536)
        self.assertIsNone(parse_request("marks; credit=65536; later=1"))
        self.assertEqual(parse_request(RESUME.text() + "; marks; credit=65536"), RESUME)
        self.assertEqual([parse_credit("marks"), parse_credit(RESUME.text())], [0, 0])

    def test_invalid_credit(self) -> None:
        """A credit has bounds."""
        for text in ("", "x", "-1", "65535", "16777217", "9" * 20, "1e5"):
            with self.assertRaisesRegex(RemoteProtocolError, "credit .*65536 to 16777216"):
                parse_credit(f"marks; credit={text}")
        with self.assertRaises(RemoteProtocolError):
            parse_credit("marks; credit=65536; credit=65536")
