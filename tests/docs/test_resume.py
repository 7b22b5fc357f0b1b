"""
Tests for ``docs/reference/resume.rst``.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire.channel import Channel
from twisted_exec.wire.marks import LONGEST_MARK_BYTES, Ack, At, MarkDecoder
from twisted_exec.wire.resume import RESUME_HEADER, Resumable, Resume, parse_request
from twisted_exec.wire.upgrade import accept_key

from . import pages


@dataclass
class Side:
    """What one side says over one connection of the example."""

    headers: dict[str, str] = field(default_factory=dict)
    messages: list[bytes] = field(default_factory=list)

    def payload(self, channel: Channel) -> bytes:
        return b"".join(each[1:] for each in self.messages if each[0] == channel)


@dataclass
class Connection:
    """One connection of the example."""

    client: Side = field(default_factory=Side)
    server: Side = field(default_factory=Side)
    lost: list[bytes] = field(default_factory=list)


def connections() -> list[Connection]:
    """Parse the example."""
    section = pages.section(pages.page("reference/resume"), "An example")
    result: list[Connection] = []
    arrives = True
    for line in section.splitlines():
        match = re.match(r"   ([CS]) (.+)", line)
        if match is None:
            arrives = arrives and "never arrive" not in line
            continue
        who, text = match.groups()
        if text.startswith("GET "):
            result.append(Connection())
            arrives = True
        side = result[-1].client if who == "C" else result[-1].server
        if text.startswith("b'"):
            (side.messages if arrives else result[-1].lost).append(ast.literal_eval(text))
        elif ": " in text:
            name, value = text.split(": ", 1)
            side.headers[name] = value
    return result


class ResumePageTests(SynchronousTestCase):
    """The example on the page follows the protocol."""

    def setUp(self) -> None:
        self.first, self.second = connections()

    def test_headers(self) -> None:
        """The second request has the key and the id of the first answer."""
        self.assertIsNone(parse_request(self.first.client.headers[RESUME_HEADER]))
        answer = Resumable.parse(self.first.server.headers[RESUME_HEADER])
        request = parse_request(self.second.client.headers[RESUME_HEADER])
        assert isinstance(request, Resume)
        self.assertEqual(request.key, answer.key)
        self.assertEqual(request.session, self.first.server.headers["Audit-Id"])
        again = Resumable.parse(self.second.server.headers[RESUME_HEADER])
        self.assertEqual(again, Resumable(again.key, answer.seconds))
        self.assertNotEqual(again.key, answer.key)
        self.assertNotEqual(self.second.server.headers["Audit-Id"], request.session)

    def test_handshakes(self) -> None:
        """The answers accept the clients' WebSocket keys."""
        for each in (self.first, self.second):
            key = each.client.headers["Sec-WebSocket-Key"].encode()
            accept = each.server.headers["Sec-WebSocket-Accept"].encode()
            self.assertEqual(accept, accept_key(key))

    def test_output(self) -> None:
        """Output goes on behind what the client has got."""
        marks = [
            MarkDecoder().feed(each.server.payload(Channel.RESIZE))
            for each in (self.first, self.second)
        ]
        start, following = (next(each for each in some if isinstance(each, At)) for some in marks)
        got = self.first.server.payload(Channel.STDOUT)
        self.assertEqual(following.position.epoch, start.position.epoch)
        self.assertEqual(following.position.offset, start.position.offset + len(got))
        request = parse_request(self.second.client.headers[RESUME_HEADER])
        assert isinstance(request, Resume)
        self.assertEqual(request.position, following.position)
        lost = b"".join(each[1:] for each in self.first.lost if each[0] == Channel.STDOUT)
        self.assertTrue(self.second.server.payload(Channel.STDOUT).startswith(lost))

    def test_input(self) -> None:
        """The machine gets every key once."""
        acks = [
            each.count
            for each in MarkDecoder().feed(self.second.server.payload(Channel.RESIZE))
            if isinstance(each, Ack)
        ]
        typed = self.first.client.payload(Channel.STDIN)
        line = typed[: acks[0]] + self.second.client.payload(Channel.STDIN)
        self.assertEqual(line, b"ls\rpwd\r")
        self.assertEqual(acks[-1], len(line))

    def test_limits(self) -> None:
        """The page names the limit of a mark."""
        self.assertIn(f"at most {LONGEST_MARK_BYTES >> 10} KiB", pages.page("reference/resume"))
