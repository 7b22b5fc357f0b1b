"""
What comes in says nothing to the runtime of who asks, however it is spelt; and who may forward.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from tests.chain import reactor
from tests.poollet.chain import API_SERVER, EXEC, FORWARDING, USERS, PoolletCase
from tests.streaming import smuggled
from tests.streaming.smuggled import CANARY, FORMS, IMPERSONATING, NAMES

POOLLET = USERS.issue_client(
    "compute.ironcore.dev:system:machinepool:pool-b", ["compute.ironcore.dev:system:machinepools"]
)
"""Another pool's poollet, as API servers know it."""

BEHIND = (*NAMES[:3], *NAMES[5:], *IMPERSONATING)
"""What an API server does not say itself."""


def _noting(
    users: list[Any], begin: Callable[..., Awaitable[None]], hop: str, user: Any, *more: Any
) -> Awaitable[None]:
    users.append(user)
    return begin(hop, user, *more)


class ForwardedTests(PoolletCase):
    """An API server that lets through what it should not, and a runtime that writes all down."""

    async def send(self, lines: bytes, path: str = EXEC.format("lab", "vm")) -> int:
        """
        Send a request as the API server does for jane; return the code of the answer.

        In every case the runtime must not see the canary.
        """
        request = (
            b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"X-Remote-User: jane\r\nContent-Length: 0\r\n%s\r\n" % (path.encode(), lines)
        )
        before = len(self.lines.heads)
        code = await smuggled.said(reactor, self.endpoint(API_SERVER), request)
        for head in self.lines.heads[before:]:
            # In the text of another header it says nothing.
            self.assertNotIn(CANARY, re.sub(rb"\r\nodd:[^\r]*", b"", head.lower()))
            self.assertNotRegex(head.lower(), re.compile(rb"(?m)^(x.remote|imperson|authoriz)"))
            self.assertEqual(head.lower().count(b"\r\nx-twisted-exec-user: jane\r\n"), 1, head)
        self.assertLess(len(self.lines.heads) - before, 2)
        return code

    async def test_turns(self) -> None:
        """Openings take turns by the users that an API server names, and not by its address."""
        await self.start()
        sessions, users = self.poollet.consoles.sessions, []
        for turns in (sessions.locating, sessions.openings):
            self.patch(turns, "begin", partial(_noting, users, turns.begin))
        self.assertEqual(await self.send(b""), 101)
        self.assertEqual(users, [("jane", False), ("jane", False)])

    async def test_every_spelling(self) -> None:
        """The header is dropped, or the request is refused."""
        await self.start()
        passed = set()
        for form, line in FORMS.items():
            # Some alone: a poollet refuses what it would otherwise have to judge.
            for names in (BEHIND[:3], BEHIND[3:4], BEHIND[4:7], IMPERSONATING):
                code = await self.send(b"".join(smuggled.spelt(names, line)))
                self.assertIn(code, (101, 400, 401, 403), (form, names))
                passed |= {(form, names)} if code == 101 else set()
        for form in ("plain", "no space", "tab", "named by Connection"):
            self.assertIn((form, BEHIND[:3]), passed)
            self.assertIn((form, BEHIND[3:4]), passed)

    async def test_logs(self) -> None:
        """Of a request for a log only the user is passed on."""
        self.allowed.add(("jane", "machines/log", "vm"))
        await self.start()
        path = EXEC.format("lab", "vm").replace("exec", "log").encode()
        for form, line in FORMS.items():
            lines = b"".join(smuggled.spelt(BEHIND[:-1], line))
            request = b"GET %s HTTP/1.1\r\nHost: x\r\nX-Remote-User: jane\r\n%s\r\n" % (path, lines)
            code = await smuggled.said(reactor, self.endpoint(API_SERVER), request)
            # Whom a poollet is asked to act as it refuses rather than passes over.
            self.assertIn(code, (200, 400, 401, 403), form)
        request = b"GET %s HTTP/1.1\r\nHost: x\r\nX-Remote-User: jane\r\n" % path
        odd = b"X_Remote_User: canary\r\nAuthorization: canary\r\nOdd: canary\r\n\r\n"
        self.assertEqual(
            await smuggled.said(reactor, self.endpoint(API_SERVER), request + odd), 200
        )
        self.assertTrue(self.lines.heads)
        for head in self.lines.heads:
            self.assertNotIn(CANARY, head.lower())

    async def test_trailers(self) -> None:
        """Trailers after a body are not headers."""
        await self.start()
        request = (
            b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"X-Remote-User: jane\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n%s\r\n"
            % (EXEC.format("lab", "vm").encode(), b"".join(b"%s: canary\r\n" % n for n in BEHIND))
        )
        code = await smuggled.said(reactor, self.endpoint(API_SERVER), request)
        self.assertIn(code, (101, 400))
        self.assertNotIn(CANARY, b"".join(self.lines.heads).lower())

    async def test_second_name(self) -> None:
        """A request with two user headers is refused: one of them slipped past the API server."""
        await self.start()
        for second in (b"X-Remote-User: canary", b"X-REMOTE-USER: canary"):
            self.assertEqual(await self.send(second + b"\r\n"), 401)
        # Of an underscore the poollet makes nothing, and the runtime hears nothing.
        self.assertEqual(await self.send(b"X_Remote_User: canary\r\n"), 101)

    async def test_component(self) -> None:
        """
        Another pool's poollet is an ordinary user: it cannot forward users, and has no permission
        itself, though its certificate is valid everywhere else (CVE-2025-64434).
        """
        await self.start()
        answer = await self.refused_by(POOLLET, b"jane")
        self.assertEqual(answer, 403)

    async def test_name_of_the_api_server(self) -> None:
        """
        A user certificate with the API server's name cannot forward users, nor can another name of
        the forwarding CA (GHSA-38jw-g2qx-4286).
        """
        await self.start()
        self.allowed.discard(("exec-apiserver", "machinepools/proxy", "pool-a"))
        self.assertEqual(await self.refused_by(USERS.issue_client("exec-apiserver"), b"jane"), 403)
        self.assertEqual(await self.refused_by(FORWARDING.issue_client("other"), b"jane"), 401)
        self.assertEqual(
            await self.refused_by(FORWARDING.issue_client("Exec-Apiserver"), b"jane"), 401
        )

    async def refused_by(self, identity: object, user: bytes) -> int:
        request = (
            b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"X-Remote-User: %s\r\nX-Remote-Group: system:masters\r\nContent-Length: 0\r\n\r\n"
            % (EXEC.format("lab", "vm").encode(), user)
        )
        code = await smuggled.said(reactor, self.endpoint(identity), request)  # type: ignore[arg-type]
        self.assertEqual(self.lines.heads, [])
        return code
