"""Tests for :mod:`twisted_exec.wire.upgrade`."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase
from wsproto.utilities import generate_accept_token

from twisted_exec.streaming.interfaces import IDENTITY_HEADERS
from twisted_exec.wire.channel import PROTOCOLS, V1_BASE64, V4, V5
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.upgrade import (
    BEARER_SUBPROTOCOL,
    RESUME_SUBPROTOCOL,
    HeaderSet,
    accept_key,
    check_websocket,
    forwarded_request_headers,
    forwarded_response_headers,
    is_answer,
    last_value,
    negotiate,
    new_key,
    offers_resume,
    replaced_headers,
    requested_upgrade,
    subprotocol_resume,
    subprotocol_token,
    switching_protocols,
    tokens,
    values,
    without_resume,
)

CAPTURES = Path(__file__).parent.parent / "captures"
KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
HANDSHAKE = [
    (b"Connection", b"Upgrade"),
    (b"Upgrade", b"websocket"),
    (b"Sec-WebSocket-Version", b"13"),
    (b"Sec-WebSocket-Key", KEY),
]


class HeaderTests(SynchronousTestCase):
    """Tests for reading headers."""

    def test_values(self) -> None:
        """``values`` returns all lines of a header in order; names ignore case."""
        headers = [(b"A", b"1"), (b"b", b"2"), (b"a", b"3")]
        self.assertEqual(values(headers, b"a"), [b"1", b"3"])
        self.assertEqual(last_value(headers, b"a"), b"3")
        self.assertEqual(last_value(headers, b"c"), b"")

    def test_tokens(self) -> None:
        """``tokens`` joins repeated lines and comma-separated lists."""
        self.assertEqual(tokens([b" a,b ,", b"", b"c"]), [b"a", b"b", b"c"])

    def test_credentials(self) -> None:
        """IDENTITY_HEADERS contains every header that carries an identity."""
        for name in (
            b"Authorization",
            b"PROXY-AUTHORIZATION",
            b"cookie",
            b"X-Remote-User",
            b"x-remote-extra-scopes",
            b"Impersonate-Group",
            b"X-Twisted-Exec-Machine-Uid",
            b"X_Remote_User",
            b"x-remote_group",
            b"PROXY_AUTHORIZATION",
        ):
            self.assertIn(name, IDENTITY_HEADERS)
        for name in (b"User-Agent", b"X-Remote", b"Sec-WebSocket-Key", b"X-Forwarded-For"):
            self.assertNotIn(name, IDENTITY_HEADERS)


class HeaderSetTests(SynchronousTestCase):
    """Tests for :class:`HeaderSet`."""

    headers = HeaderSet.of("X-Lab-Key", prefixes=["X-Remote-Extra-"])

    def test_spelling(self) -> None:
        """Case does not matter, and an underscore counts as a hyphen."""
        for name in (b"x-lab-key", b"X_Lab_KEY", b"X-Remote-Extra-Team", b"x_remote_extra_"):
            self.assertIn(name, self.headers)

    def test_others(self) -> None:
        """Other headers are not in the set, and neither is text."""
        for name in (b"X-Lab", b"X-Lab-Key-2", b"X-Remote-User", "X-Lab-Key"):
            self.assertNotIn(name, self.headers)

    def test_union(self) -> None:
        """The union has the names and the prefixes of both."""
        union = self.headers | HeaderSet.of("Cookie", prefixes=["Impersonate-"])
        for name in (b"X-Lab-Key", b"X-Remote-Extra-Team", b"Cookie", b"Impersonate-User"):
            self.assertIn(name, union)
        self.assertNotIn(b"Host", union)


class SubprotocolTokenTests(SynchronousTestCase):
    """Tests for :func:`subprotocol_token`."""

    def token(self, *lines: bytes, upgrade: bytes = b"websocket") -> bytes | None:
        headers = [(b"Connection", b"Upgrade"), (b"Upgrade", upgrade)]
        return subprotocol_token([*headers, *((b"Sec-WebSocket-Protocol", one) for one in lines)])

    def test_forms(self) -> None:
        """The token may be anywhere among the subprotocols, in one line or several."""
        bearer = BEARER_SUBPROTOCOL + b"dG9rZW4tMT8_"
        for lines in (
            (bearer + b", v5.channel.k8s.io",),
            (b"v5.channel.k8s.io,v4.channel.k8s.io," + bearer,),
            (b"v5.channel.k8s.io", bearer),
        ):
            self.assertEqual(self.token(*lines), b"token-1??")
        for encoded, token in ((b"", b""), (b"eA", b"x"), (b"eHg", b"xx"), (b"w6k", "é".encode())):
            self.assertEqual(self.token(BEARER_SUBPROTOCOL + encoded, b"v5.x"), token)

    def test_none(self) -> None:
        """Without a bearer subprotocol, or without a WebSocket upgrade, there is no token."""
        self.assertIsNone(self.token(b"v5.channel.k8s.io, x-" + BEARER_SUBPROTOCOL + b"eA"))
        self.assertIsNone(self.token())
        self.assertIsNone(self.token(b"v5.channel.k8s.io"))
        self.assertIsNone(self.token(BEARER_SUBPROTOCOL + b"eA, v5.x", upgrade=b"SPDY/3.1"))

    def test_wrong(self) -> None:
        """Malformed tokens raise RemoteProtocolError, without being quoted."""
        form = "the bearer token among the subprotocols is not base64url of text"
        bearer = BEARER_SUBPROTOCOL
        for lines, told in (
            ((bearer + b"eA",), "no other subprotocol beside the bearer token"),
            ((bearer + b"eA", bearer + b"eQ"), "more than one bearer token among the subprotocols"),
            ((bearer + b"eA==", b"v5.x"), form),
            ((bearer + b"e", b"v5.x"), form),
            ((bearer + b"e+/A", b"v5.x"), form),
            ((bearer + b"_w", b"v5.x"), form),
        ):
            with self.assertRaises(RemoteProtocolError) as caught:
                self.token(*lines)
            self.assertEqual(str(caught.exception), told)


class SubprotocolResumeTests(SynchronousTestCase):
    """Tests for :func:`subprotocol_resume`, and for what hops do with such a subprotocol."""

    carrier = RESUME_SUBPROTOCOL + b"bWFya3M7IGNyZWRpdD02NTUzNg"

    def headers(self, *lines: bytes) -> list[tuple[bytes, bytes]]:
        return [*HANDSHAKE, *((b"Sec-WebSocket-Protocol", line) for line in lines)]

    def test_value(self) -> None:
        """The value of the header stands beside the protocol and a token."""
        bearer = BEARER_SUBPROTOCOL + b"eA"
        headers = self.headers(b"v5.channel.k8s.io, %s" % bearer, self.carrier)
        self.assertEqual(subprotocol_resume(headers), b"marks; credit=65536")
        self.assertEqual(subprotocol_token(headers), b"x")
        self.assertTrue(offers_resume(headers))
        self.assertIsNone(subprotocol_resume(self.headers(b"v5.channel.k8s.io")))
        self.assertFalse(offers_resume(self.headers(b"v5.channel.k8s.io")))

    def test_wrong(self) -> None:
        """Values that are malformed, or there twice, are not quoted in the error."""
        for line, message in (
            (self.carrier, "no other subprotocol beside the request to resume"),
            (b"%s, %s, v5" % (self.carrier, self.carrier), "more than one request to resume"),
            (RESUME_SUBPROTOCOL + b"=, v5", "the request to resume .* is not base64url"),
            (RESUME_SUBPROTOCOL + b"bWFya3MNCng6IHk, v5", "is no header's value"),  # a line break
            (RESUME_SUBPROTOCOL + b"bWFya3M7IMOp, v5", "is no header's value"),  # not ASCII
        ):
            with self.assertRaisesRegex(RemoteProtocolError, message):
                subprotocol_resume(self.headers(line))

    def test_removed(self) -> None:
        """Nothing of it is left beside the other subprotocols."""
        lines = [b"v5.channel.k8s.io, " + self.carrier, b"v4.channel.k8s.io"]
        self.assertEqual(without_resume(lines), [b"v5.channel.k8s.io", b"v4.channel.k8s.io"])


class RequestedUpgradeTests(SynchronousTestCase):
    """Tests for :func:`requested_upgrade`."""

    def test_forms(self) -> None:
        """An upgrade needs both headers; names ignore case and Connection may be a list."""
        for connection, upgrade, asked in (
            (b"Upgrade", b"WebSocket", b"websocket"),
            (b"keep-alive, upgrade", b"spdy/3.1", b"SPDY/3.1"),
            (b"upgrade", b"h2c", b"h2c"),
            (b"upgrade", b"websocket, h2c", b"websocket, h2c"),
            (b"upgrade", b"", b""),
            (b"keep-alive", b"websocket", b""),
            (b"upgraded", b"websocket", b""),
            (b"", b"websocket", b""),
        ):
            headers = [(b"connection", connection), (b"UPGRADE", upgrade)]
            self.assertEqual(requested_upgrade(headers), asked, (connection, upgrade))
        self.assertEqual(requested_upgrade([(b"Connection", b"upgrade")]), b"")
        self.assertEqual(requested_upgrade([]), b"")

    def test_kubectl(self) -> None:
        """Captured kubectl requests are complete handshakes that offer v5."""
        for path in sorted(CAPTURES.glob("ws-v5-*.json")):
            raw = bytes.fromhex(json.loads(path.read_text())["items"][0]["hex"])
            method = raw.split(b" ", 1)[0]
            lines = [line.split(b": ", 1) for line in raw.split(b"\r\n")[1:-2]]
            headers = [(name, value) for name, value in lines]
            check_websocket(method, headers)
            offered = values(headers, b"sec-websocket-protocol")
            self.assertEqual(negotiate(offered, PROTOCOLS), V5)
            self.assertEqual(requested_upgrade(headers), b"websocket")


class PassTests(SynchronousTestCase):
    """Headers that a proxy forwards."""

    def test_on(self) -> None:
        """Hop-by-hop, Connection-named, identity and forwarding headers are dropped."""
        kept = [(b"User-Agent", b"x"), (b"Sec-WebSocket-Key", KEY), (b"Odd", b"1")]
        dropped = [
            (b"Connection", b"Upgrade, X-Named"),
            (b"Upgrade", b"websocket"),
            (b"x-named", b"1"),
            (b"TE", b"trailers"),
            (b"Host", b"x"),
            (b"Content-Length", b"0"),
            (b"Expect", b"100-continue"),
            (b"Audit-Id", b"x"),
            (b"Authorization", b"Bearer x"),
            (b"X-REMOTE-USER", b"root"),
            (b"Forwarded", b"for=192.0.2.1"),
            (b"x-forwarded-for", b"192.0.2.1"),
            (b"X-Forwarded-User", b"root"),
            (b"X-Real-Ip", b"192.0.2.1"),
        ]
        self.assertEqual(
            forwarded_request_headers(dropped[:5] + kept + dropped[5:], IDENTITY_HEADERS), kept
        )

    def test_underscores(self) -> None:
        """Underscores count as hyphens, as in programs that turn headers into variables."""
        token = BEARER_SUBPROTOCOL + b"dG9rZW4"
        for name, value in (
            (b"X_Forwarded_User", b"root"),
            (b"x_forwarded-for", b"192.0.2.1"),
            (b"Transfer_Encoding", b"chunked"),
            (b"Content_Length", b"5"),
            (b"Audit_Id", b"x"),
            (b"X_Named", b"x"),
            (b"Sec_WebSocket_Protocol", token),
        ):
            headers = [(b"Connection", b"upgrade, x-named"), (name, value)]
            self.assertEqual(forwarded_request_headers(headers, IDENTITY_HEADERS), [], name)

    def test_origin(self) -> None:
        """Origin is dropped: it was checked here, against a name that the next hop lacks."""
        self.assertEqual(
            forwarded_request_headers(
                [(b"Origin", b"https://api.example"), (b"A", b"b")], HeaderSet()
            ),
            [(b"A", b"b")],
        )

    def test_bearer(self) -> None:
        """Bearer tokens among the subprotocols are dropped; an empty line is dropped, too."""
        name = b"Sec-WebSocket-Protocol"
        token = b"base64url.bearer.authorization.k8s.io.dG9rZW4"
        self.assertEqual(
            forwarded_request_headers(
                [(name, b"v5.channel.k8s.io, " + token + b",v4.channel.k8s.io")], HeaderSet()
            ),
            [(name, b"v5.channel.k8s.io, v4.channel.k8s.io")],
        )
        self.assertEqual(forwarded_request_headers([(name, token)], HeaderSet()), [])

    def test_replaced(self) -> None:
        """A hop's own headers replace those of the same names, however these are spelt."""
        theirs = [(b"A", b"1"), (b"AUDIT_ID", b"theirs"), (b"connection", b"x"), (b"A", b"2")]
        ours = [(b"Audit-Id", b"ours"), (b"Connection", b"Upgrade")]
        self.assertEqual(replaced_headers(theirs, ours), [(b"A", b"1"), (b"A", b"2"), *ours])

    def test_back(self) -> None:
        """Of a 101 response only the handshake headers are forwarded."""
        kept = [
            (b"Sec-WebSocket-Accept", b"x"),
            (b"sec-websocket-protocol", b"y"),
            (b"X-Stream-Protocol-Version", b"z"),
        ]
        dropped = [(b"Set-Cookie", b"a=b"), (b"Upgrade", b"websocket"), (b"Server", b"x")]
        self.assertEqual(forwarded_response_headers(dropped + kept), kept)

    def test_101(self) -> None:
        """``switching_protocols`` returns the head of a 101 response."""
        self.assertEqual(
            switching_protocols(b"websocket", [(b"A", b"b")]),
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"A: b\r\n\r\n",
        )


class IsAnswerTests(SynchronousTestCase):
    """Tests for :func:`is_answer`."""

    def test_subprotocols(self) -> None:
        """A 101 must select one of the offered subprotocols, if any."""
        for offered, answered, expected in (
            ([b"v5", b"v4"], [b"v4"], True),
            ([b"v5, v4"], [b"v5"], True),
            ([b"v5, v4"], [], False),
            ([b"v5, v4"], [b"v1"], False),
            ([b"v5, v4"], [b"v5, v4"], False),
            ([], [], True),
        ):
            request = [(b"Sec-WebSocket-Protocol", each) for each in offered]
            response = [(b"sec-websocket-protocol", each) for each in answered]
            self.assertIs(is_answer(response, request), expected, (offered, answered))


class WebSocketTests(SynchronousTestCase):
    """Tests for the handshake."""

    def test_new_key(self) -> None:
        """A key is 16 bytes, and another one each time."""
        self.assertEqual(len(base64.b64decode(new_key())), 16)
        self.assertNotEqual(new_key(), new_key())

    def test_accept(self) -> None:
        """``accept_key`` returns the value in RFC 6455's example."""
        self.assertEqual(accept_key(KEY), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")

    @given(st.binary(min_size=24, max_size=24))
    def test_accept_as_others(self, key: bytes) -> None:
        """``accept_key`` agrees with wsproto."""
        self.assertEqual(accept_key(key), generate_accept_token(key))

    def test_complete(self) -> None:
        """A complete handshake passes."""
        check_websocket(b"GET", HANDSHAKE)

    def refused(self, method: bytes, headers: list[tuple[bytes, bytes]]) -> str:
        with self.assertRaises(RemoteProtocolError) as caught:
            check_websocket(method, headers)
        return str(caught.exception)

    def test_incomplete(self) -> None:
        """The error for an incomplete handshake names the missing part."""
        self.assertIn("GET", self.refused(b"POST", HANDSHAKE))
        for index, word in enumerate(("upgrade", "upgrade", "Version", "Key")):
            headers = HANDSHAKE[:index] + HANDSHAKE[index + 1 :]
            self.assertIn(word, self.refused(b"GET", headers))

    def test_keys(self) -> None:
        """The key must be 16 bytes in base64, exactly once."""
        for keys in ([b"x"], [b"c2hvcnQ="], [KEY + b"\n"], [KEY, KEY], [b"\xff" * 24]):
            headers = HANDSHAKE[:3] + [(b"sec-websocket-key", key) for key in keys]
            self.assertIn("Key", self.refused(b"GET", headers))

    def test_negotiate(self) -> None:
        """``negotiate`` returns the peer's first supported protocol, from any form of list."""
        for offered, chosen in (
            ([b"v5.channel.k8s.io"], V5),
            ([b"v9.x, v4.channel.k8s.io", b"v5.channel.k8s.io"], V4),
            ([b"v2.channel.k8s.io", b"base64.channel.k8s.io"], V1_BASE64),
            ([b"v3.channel.k8s.io"], None),
            ([b"V5.CHANNEL.K8S.IO"], None),
            ([], None),
        ):
            self.assertEqual(negotiate(offered, PROTOCOLS), chosen)
