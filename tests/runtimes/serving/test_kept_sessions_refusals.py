"""
Tests for :mod:`twisted_exec.runtimes.serving.kept_sessions`: requests that resume nothing, and limits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.runtimes.serving.kept_case import EPOCH, NO_SESSION, Client, KeptCase
from tests.streaming.frames import Peer, handshake
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.runtimes.serving.absences import Absences
from twisted_exec.testing.console import RecordingAttachment
from twisted_exec.wire.resume import Position, Resume


def texts(roots: list[Any]) -> str:
    """Return all texts in objects of this project that can be reached, without those of doubles."""
    seen, found = set[int](), list[str]()
    while roots:
        each = roots.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, bytes):
            found.append(each.decode("latin-1"))
        elif isinstance(each, dict):
            roots.extend([*each.keys(), *each.values()])
        elif isinstance(each, list | tuple | set):
            roots.extend(each)
        elif type(each).__module__.startswith("twisted_exec."):
            roots.append(getattr(each, "__dict__", {}))
    return "\n".join(found)


class RefusalTests(KeptCase):
    """Requests that resume nothing."""

    def test_bad(self) -> None:
        """The bad inputs, with the status of the answer."""
        client = self.open()
        self.attachment.output = b"x" * 100
        client.lose()
        good = client.resume()
        other = self.open(user="bob")
        beyond = "the position is beyond the end of the output"
        invalid = "header X-Twisted-Exec-Resume has no valid field "
        for header, more, code, message in (
            (good, {"user": "bob"}, 404, NO_SESSION),
            (good, {"uid": "uid-y"}, 404, NO_SESSION),
            (replace(good, session="s9"), {}, 404, NO_SESSION),
            (replace(good, session=other.session), {}, 404, NO_SESSION),
            (replace(good, key="k" * 43), {}, 404, NO_SESSION),
            (other.resume(), {}, 404, NO_SESSION),
            (client.resume(101), {}, 400, beyond),
            ("something", {}, 400, f"{invalid}key"),
            (f"key={'k' * 43}; session=s1; epoch={EPOCH}", {}, 400, f"{invalid}from"),
            (f"key={'k' * 43}; session=s1; epoch={EPOCH}; from=-1", {}, 400, f"{invalid}from"),
            (f"key=short; session=s1; epoch={EPOCH}; from=1", {}, 400, f"{invalid}key"),
            (
                "marks" + " " * 600 + "; x",
                {},
                400,
                "header X-Twisted-Exec-Resume is longer than 512 characters",
            ),
            (
                "marks",
                {"lines": (b"X-Twisted-Exec-Resume: marks",)},
                400,
                "a request has at most one header X-Twisted-Exec-Resume",
            ),
        ):
            text = header.text() if isinstance(header, Resume) else header
            with self.subTest(text=text, more=more):
                self.assertEqual(self.refused(text, **more), (code, message))
        self.assertEqual(self.results(), {"refused": 6})
        # None of these has harmed the session.
        again = self.open(client.resume(90).text())
        self.assertEqual(again.hears()[2:], [b"x" * 10])

    def test_token_is_not_burnt(self) -> None:
        """A refused request can be repeated with its token."""
        _, request = self.request(f"key={'k' * 43}; session=s; epoch={EPOCH}; from=0")
        for _ in range(2):
            client = self.memory.connect()
            client.send(handshake(*request["lines"], path=request["path"]))
            self.assertEqual(client.responses()[0].code, 404)
        lines = tuple(each for each in request["lines"] if b"Resume" not in each)
        peer = Peer(self.memory, path=request["path"], lines=lines)
        self.assertIn(b" 101 ", peer.head)

    def test_protocols(self) -> None:
        """Other protocols than v5 and v4 over a WebSocket have no answer, and resume nothing."""
        client = self.open()
        client.lose()
        spdy = (
            b"POST %b HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n%b\r\n\r\n"
        )
        message = (
            "a session is resumed over a WebSocket with v5.channel.k8s.io or v4.channel.k8s.io"
        )
        for header in ("marks", client.resume().text()):
            for protocol in (b"v4.base64.channel.k8s.io", b"channel.k8s.io", b"", b"SPDY"):
                _, request = self.request(header)
                peer = self.memory.connect()
                if protocol == b"SPDY":
                    peer.send(spdy % (request["path"], b"\r\n".join(request["lines"])))
                else:
                    peer.send(
                        handshake(*request["lines"], path=request["path"], protocols=protocol)
                    )
                answer = peer.received()
                with self.subTest(header=header[:5], protocol=protocol):
                    if header == "marks":
                        self.assertIn(b" 101 ", answer)
                        self.assertNotIn(b"resume", answer.lower())
                    else:
                        self.assertIn(b" 400 ", answer)
                        self.assertIn(message.encode(), answer)
                peer.lose()
        again = Client("s", self.memory, protocols=b"v4.channel.k8s.io", **self.request()[1])
        self.assertIsNotNone(again.answer)

    def test_not_resumable(self) -> None:
        """Sessions without a user, and consoles that cannot, have no answer."""
        client = self.open(user="")
        self.assertIsNone(client.answer)
        client.lose()
        self.assertEqual(len(self.attachment.detached_with), 1)
        self.make = RecordingAttachment
        client = self.open()
        self.assertIsNone(client.answer)
        client.lose()
        self.assertEqual(len(self.attachment.detached_with), 1)
        header = Resume("k" * 43, "s", Position(EPOCH, 0)).text()
        self.assertEqual(self.refused(header, user=""), (404, NO_SESSION))

    def test_ordinary_client(self) -> None:
        """A client that does not ask has no answer and no marks."""
        client = self.open("")
        self.attachment.prints(b"x")
        self.assertEqual((client.answer, client.hears()), (None, [b"x"]))
        client.lose()
        self.assertEqual(len(self.attachment.detached_with), 1)

    def test_flood(self) -> None:
        """More than ten refusals of a user within a minute get 429, but no other user and no good key."""
        client = self.open()
        client.lose()
        bad = client.resume(key="k" * 43).text()
        codes = [self.refused(bad)[0] for _ in range(13)]
        self.assertEqual(codes, [404] * 10 + [429] * 3)
        self.assertEqual(self.results(), {"refused": 10, "limited": 3})
        self.assertEqual(self.refused(bad, user="bob")[0], 404)
        self.open(client.resume().text())
        self.clock.advance(61)
        self.assertEqual(self.refused(bad)[0], 404)

    def test_retry_after(self) -> None:
        """The answer says when to come again."""
        bad = Resume("k" * 43, "s", Position(EPOCH, 0)).text()
        for _ in range(10):
            self.refused(bad)
        self.clock.advance(20)
        _, request = self.request(bad)
        client = self.memory.connect()
        client.send(handshake(*request.pop("lines"), **request))
        self.assertEqual(client.responses()[0].headers["retry-after"], "40")

    def test_no_secrets(self) -> None:
        """No key gets into an audit record, a message or a representation, or stays in memory."""
        client = self.open()
        assert client.answer is not None
        key = client.answer.key
        for shown in (
            repr(client.answer),
            repr(client.resume()),
            repr(vars(self.server.kept_sessions)),
        ):
            self.assertNotIn(key, shown)
        self.assertNotIn(key, texts([self.server, self.attachment]))
        client.lose()
        wrong = client.resume(session="s9").text()
        self.assertNotIn(key, self.refused(wrong)[1])
        again = self.open(client.resume().text())
        assert again.answer is not None
        for each in (key, again.answer.key):
            self.assertNotIn(each, texts([self.server, self.attachment]))
        self.assertNotIn(key, self.records.getvalue())


class DisabledTests(KeptCase):
    """A runtime with ``--resume-seconds 0``."""

    seconds = 0

    def test_disabled(self) -> None:
        """There is no answer, and nothing to resume."""
        client = self.open()
        self.assertIsNone(client.answer)
        client.lose()
        self.assertEqual(len(self.attachment.detached_with), 1)
        self.clock.advance(0)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        header = Resume("k" * 43, "s", Position(EPOCH, 0)).text()
        self.assertEqual(self.refused(header), (404, NO_SESSION))


class LimitTests(KeptCase):
    """Limits of sessions."""

    def test_limit_of_sessions(self) -> None:
        """The connection that a resumed session replaces does not count; a lost one neither."""
        self.server.sessions.limits = SessionLimits(10, 1)
        client = self.open()
        again = self.open(client.resume().text())
        client.leave()
        again.lose()
        self.open()
        self.assertEqual(self.refused(again.resume().text())[0], 429)

    def test_absent(self) -> None:
        """Of too many absent sessions of a user, the one that is absent longest ends."""
        self.server.kept_sessions.absences = Absences(self.clock, 60, most_of_user=16)
        clients = [self.open() for _ in range(17)]
        for client in clients:
            client.lose()
        ended = [each.detached_with for each in self.attachments if each.detached_with]
        self.assertEqual(ended, [["too many lost sessions wait for their users"]])
        self.assertEqual(self.refused(clients[0].resume().text()), (404, NO_SESSION))
        self.open(clients[1].resume().text())
