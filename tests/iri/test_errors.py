"""Tests for :mod:`twisted_exec.iri.errors`; messages are tested with the client and the server."""

from __future__ import annotations

import json

import grpc
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import status as api
from twisted_exec.iri.errors import from_grpc, to_grpc

CODES = {
    grpc.StatusCode.CANCELLED: 503,
    grpc.StatusCode.UNKNOWN: 500,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.FAILED_PRECONDITION: 409,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DATA_LOSS: 500,
    grpc.StatusCode.UNAUTHENTICATED: 401,
}

REFUSALS = [
    (api.BadRequest("no"), grpc.StatusCode.INVALID_ARGUMENT),
    (api.Unauthorized("no"), grpc.StatusCode.UNAUTHENTICATED),
    (api.Forbidden("no"), grpc.StatusCode.PERMISSION_DENIED),
    (api.NotFound("machines", "m"), grpc.StatusCode.NOT_FOUND),
    (api.MethodNotAllowed("no"), grpc.StatusCode.UNIMPLEMENTED),
    (api.NotAcceptable("no"), grpc.StatusCode.INVALID_ARGUMENT),
    (api.RequestTimeout("no"), grpc.StatusCode.DEADLINE_EXCEEDED),
    (api.AlreadyExists("machines", "m"), grpc.StatusCode.ALREADY_EXISTS),
    (api.Conflict("no"), grpc.StatusCode.ABORTED),
    (api.Expired("no"), grpc.StatusCode.OUT_OF_RANGE),
    (api.RequestEntityTooLarge("no"), grpc.StatusCode.OUT_OF_RANGE),
    (api.UnsupportedMediaType("no"), grpc.StatusCode.INVALID_ARGUMENT),
    (
        api.Invalid(
            "Machine", "m", [{"reason": "FieldValueInvalid", "message": "x", "field": "y"}]
        ),
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    (api.TooManyRequests("no", 7), grpc.StatusCode.RESOURCE_EXHAUSTED),
    (api.InternalError("no"), grpc.StatusCode.INTERNAL),
    (api.NotImplementedByBackend("no"), grpc.StatusCode.UNIMPLEMENTED),
    (api.BadGateway("no"), grpc.StatusCode.UNAVAILABLE),
    (api.ServiceUnavailable("no", retry_after_seconds=3), grpc.StatusCode.UNAVAILABLE),
    (api.GatewayTimeout("no"), grpc.StatusCode.DEADLINE_EXCEEDED),
]


class ToGRPCTests(SynchronousTestCase):
    """Tests for :func:`to_grpc`."""

    def test_codes(self) -> None:
        """Each API error maps to a standard gRPC code."""
        for error, expected in REFUSALS:
            self.assertEqual(to_grpc(error)[0], expected, error.reason)

    def test_nothing_lost(self) -> None:
        """Between our programs an error keeps its code, reason and details."""
        for error, _ in REFUSALS:
            self.assertEqual(from_grpc(*to_grpc(error)).to_status(), error.to_status())

    def test_types(self) -> None:
        """Decoded errors have the specific type, so that callers can catch it."""
        for error in (api.NotFound("machines", "m"), api.TooManyRequests("x"), api.Conflict("x")):
            self.assertIsInstance(from_grpc(*to_grpc(error)), type(error))

    def test_retry_after(self) -> None:
        """Retry-After also travels as plain metadata, for foreign clients."""
        _, _, trailing = to_grpc(api.TooManyRequests("full", 7))
        self.assertIn(("retry-after", "7"), trailing)

    def test_large_details(self) -> None:
        """Details too large for trailing metadata are omitted; code and reason arrive."""
        error = api.APIError("no", code=422, reason="Invalid", details={"causes": ["x" * 5000]})
        found = from_grpc(*to_grpc(error))
        self.assertEqual((found.code, found.reason, found.details), (422, "Invalid", {}))

    def test_large_message(self) -> None:
        """A message too large for trailing metadata is truncated."""
        _, message, _ = to_grpc(api.BadRequest("ü" * 10_000))
        self.assertTrue(0 < len(message.encode()) * 3 <= 4096, len(message))


class FromGRPCTests(SynchronousTestCase):
    """Tests for :func:`from_grpc`."""

    def test_codes(self) -> None:
        """Every gRPC code maps to an HTTP code."""
        for code in grpc.StatusCode:
            if code is not grpc.StatusCode.OK:
                self.assertEqual(from_grpc(code, "no").code, CODES[code], code)

    def test_text(self) -> None:
        """A runtime's message is reduced to one bounded line without control characters."""
        told = "no\n2026-01-01 forged\r\x1b[31m" + "x" * 10_000
        error = from_grpc(grpc.StatusCode.PERMISSION_DENIED, told)
        self.assertTrue(error.message.startswith("no 2026-01-01 forged [31mxxx"), error.message)
        self.assertLessEqual(len(error.message), 2048)

    def test_no_text(self) -> None:
        """Without a message, the error names the gRPC code."""
        error = from_grpc(grpc.StatusCode.ABORTED, "")
        self.assertEqual(error.message, "the machine runtime answered ABORTED")

    def test_retry_after(self) -> None:
        """Retry-After is read from metadata and bounded to 1 s to 1 h."""
        for told, seconds in (
            ("7", 7),
            ("0", 1),
            ("9" * 5000, 3600),
            ("soon", 1),
            ("-1", 1),
            (b"5", 5),
            (b"\xff", 1),
        ):
            error = from_grpc(grpc.StatusCode.RESOURCE_EXHAUSTED, "", [("Retry-After", told)])
            self.assertEqual(error.retry_after_seconds, seconds, told)

    def test_too_large(self) -> None:
        """A message that grpcio finds too large gets no Retry-After."""
        told = "Received message larger than max (9 vs. 8)"
        error = from_grpc(grpc.StatusCode.RESOURCE_EXHAUSTED, f"Stream removed (CLIENT: {told})")
        self.assertEqual((error.code, error.retry_after_seconds), (502, None))
        error = from_grpc(grpc.StatusCode.RESOURCE_EXHAUSTED, f"SERVER: {told}")
        self.assertEqual((error.code, error.retry_after_seconds), (413, None))

    def test_nonsense_status(self) -> None:
        """An invalid status in the metadata is ignored."""
        for value in (
            b"{",
            b"[]",
            b"\xff",
            b"[" * 2000,
            json.dumps({"code": 200}).encode(),
            json.dumps({"code": "404"}).encode(),
            json.dumps({"code": 404, "reason": "x" * 3000}).encode(),
        ):
            trailing = [("twisted-exec-status-bin", value)]
            self.assertEqual(from_grpc(grpc.StatusCode.ABORTED, "no", trailing).code, 409, value)
