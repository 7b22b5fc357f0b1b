"""Tests for :mod:`twisted_exec.wire.endings`."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire.channel import UNNAMED, V1, V1_BASE64, V4, V4_BASE64, V5
from twisted_exec.wire.endings import (
    COMPLETED,
    CONSOLE_IN_USE,
    INTERNAL,
    LINE_LOST,
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    REVOKED,
    SESSION_DELETED,
    SHUTTING_DOWN,
    STATUS_LIMIT_BYTES,
    Ending,
    decode_ending,
    decode_status,
    encode_ending,
    encode_status,
)
from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError

FAILURES = (
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    LINE_LOST,
    SHUTTING_DOWN,
    REVOKED,
    SESSION_DELETED,
    CONSOLE_IN_USE,
    INTERNAL,
)


class EndingTests(SynchronousTestCase):
    """Tests for :class:`Ending`."""

    def test_ok(self) -> None:
        """``ok`` needs the reason Completed, and exit code 0 or none."""
        self.assertTrue(Ending(COMPLETED).is_success)
        self.assertTrue(Ending(COMPLETED, exit_code=0).is_success)
        self.assertFalse(Ending(COMPLETED, exit_code=1).is_success)
        self.assertFalse(Ending(LINE_LOST).is_success)

    def test_no_such_code(self) -> None:
        """Exit codes are 0 to 255."""
        for code in (-1, 256):
            with self.assertRaises(LocalProtocolError):
                Ending(COMPLETED, exit_code=code)


class StatusTests(SynchronousTestCase):
    """Tests for :func:`encode_status` and :func:`decode_status`."""

    def test_success(self) -> None:
        """Success is encoded as Kubernetes does, without optional fields."""
        expected = b'{"metadata":{},"status":"Success"}'
        self.assertEqual(encode_status(Ending(COMPLETED)), expected)
        self.assertEqual(encode_status(Ending(COMPLETED, exit_code=0)), expected)
        self.assertEqual(decode_status(expected), Ending(COMPLETED))

    def test_empty(self) -> None:
        """An empty status is success, as client-go reads it."""
        self.assertEqual(decode_status(b""), Ending(COMPLETED))

    def test_exit_codes(self) -> None:
        """Every non-zero exit code survives encoding and decoding."""
        for code in range(1, 256):
            ending = decode_status(encode_status(Ending(COMPLETED, exit_code=code)))
            self.assertEqual((ending.reason, ending.exit_code), (COMPLETED, code))
        status = json.loads(encode_status(Ending(COMPLETED, exit_code=7)))
        self.assertEqual(
            status,
            {
                "metadata": {},
                "status": "Failure",
                "reason": "NonZeroExitCode",
                "message": "command terminated with non-zero exit code: "
                "command terminated with exit code 7",
                "details": {"causes": [{"reason": "ExitCode", "message": "7"}]},
            },
        )

    @given(st.sampled_from(FAILURES), st.text(min_size=1, max_size=50))
    def test_failures(self, reason: str, message: str) -> None:
        """Every reason and message survives encoding and decoding."""
        ending = Ending(reason, message)
        self.assertEqual(decode_status(encode_status(ending)), ending)

    def test_causes(self) -> None:
        """A failure carries further reasons for programs; only the first eight are read."""
        ending = Ending(INTERNAL, "no route", causes=("PoolletFailed", "NoRoute"))
        self.assertEqual(decode_status(encode_status(ending)), ending)
        many = Ending(INTERNAL, "no route", causes=tuple(f"Cause{number}" for number in range(20)))
        self.assertEqual(decode_status(encode_status(many)).causes, many.causes[:8])

    def test_user(self) -> None:
        """The Status of a session that a user has ended names the user."""
        ending = Ending(SESSION_DELETED, "ada deleted it", causes=("NoRoute",), user="ada")
        self.assertEqual(decode_status(encode_status(ending)), ending)

    def test_failure_without_message(self) -> None:
        """Every failure has a message, because kubectl shows only that."""
        for reason in FAILURES:
            status = json.loads(encode_status(Ending(reason)))
            self.assertEqual(status["status"], "Failure")
            self.assertTrue(status["message"])

    def test_foreign_failure(self) -> None:
        """A failure of Kubernetes itself becomes an internal error with its message."""
        document = {
            "metadata": {},
            "status": "Failure",
            "message": "Internal error occurred: error executing command in container: x",
            "reason": "InternalError",
            "details": {"causes": [{"message": "x"}]},
            "code": 500,
        }
        ending = decode_status(json.dumps(document).encode())
        self.assertEqual((ending.reason, ending.message), (INTERNAL, document["message"]))

    def test_odd_failures(self) -> None:
        """A failure decodes whatever its details look like."""
        for more in (
            {},
            {"message": None, "details": None},
            {"details": {"causes": None}},
            {"details": {"causes": [None, 3, {"reason": "Unknown"}]}},
            {"details": []},
        ):
            document = json.dumps({"status": "Failure", **more}).encode()
            self.assertEqual(decode_status(document).reason, INTERNAL)

    def refused(self, document: bytes) -> str:
        with self.assertRaises(RemoteProtocolError) as caught:
            decode_status(document)
        return str(caught.exception)

    def test_no_status(self) -> None:
        """Anything but a Status raises RemoteProtocolError."""
        self.assertEqual(self.refused(b"command failed"), "status is not JSON")
        self.assertEqual(self.refused(b"[" * 50000), "status is not JSON")
        self.assertEqual(self.refused(b"\xff"), "status is not JSON")
        self.assertEqual(self.refused(b"[]"), "status is not an object")
        self.assertEqual(self.refused(b"{}"), "status is neither Success nor Failure")
        self.assertIn("larger", self.refused(b" " * (STATUS_LIMIT_BYTES + 1)))

    def test_exit_code_among_others(self) -> None:
        """The exit code may follow other causes."""
        causes = [{"reason": "Other", "message": "1"}, {"reason": "ExitCode", "message": "2"}]
        status = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
        self.assertEqual(decode_status(json.dumps(status).encode()).exit_code, 2)

    def test_bad_exit_codes(self) -> None:
        """An exit code must be a plain decimal from 0 to 255."""
        for code in ("256", "-1", "x", "", "7 ", "\u0667", "0x7", "00000000000000007"):
            document = {
                "status": "Failure",
                "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": code}]},
            }
            self.assertIn("0 to 255", self.refused(json.dumps(document).encode()))
        self.assertIn(
            "without a code", self.refused(b'{"status":"Failure","reason":"NonZeroExitCode"}')
        )

    @given(st.binary(max_size=200))
    def test_anything(self, document: bytes) -> None:
        """Any bytes decode or raise RemoteProtocolError."""
        try:
            decode_status(document)
        except RemoteProtocolError:
            pass


class EndingTextTests(SynchronousTestCase):
    """Tests for :func:`encode_ending` and :func:`decode_ending`."""

    def test_with_status(self) -> None:
        """Since version 4 the ending is a Status."""
        ending = Ending(LINE_LOST, "gone")
        for protocol in (V5, V4, V4_BASE64):
            document = encode_ending(ending, protocol)
            self.assertEqual(document, encode_status(ending))
            self.assertEqual(decode_ending(document, protocol), ending)

    def test_text(self) -> None:
        """Before version 4 the ending is the failure's message, or empty for success."""
        for protocol in (V1, V1_BASE64, UNNAMED):
            self.assertEqual(encode_ending(Ending(COMPLETED), protocol), b"")
            self.assertEqual(decode_ending(b"", protocol), Ending(COMPLETED))
            text = encode_ending(Ending(LINE_LOST, "g\u00f6ne"), protocol)
            self.assertEqual(text, "g\u00f6ne".encode())
            self.assertEqual(decode_ending(text + b"\n", protocol), Ending(INTERNAL, "g\u00f6ne"))
            code = encode_ending(Ending(COMPLETED, exit_code=7), protocol)
            self.assertTrue(code.endswith(b"command terminated with exit code 7"))

    def test_bad_text(self) -> None:
        """Any bytes decode as text; too many are refused."""
        self.assertEqual(decode_ending(b"\xff", V1).message, "\ufffd")
        with self.assertRaises(RemoteProtocolError):
            decode_ending(b" " * (STATUS_LIMIT_BYTES + 1), V1)
