"""
Tests for :mod:`twisted_exec.kube.console`: real sockets, the real server's end.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint

from tests.kube.console_cases import ConsolesCase
from tests.kube.plugins import PluginScript
from tests.tiers import PROGRAMS
from twisted_exec.api.dialects import IRONCORE, SPHERIC, SPHERIC_MACHINES
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    Conflict,
    Forbidden,
    MethodNotAllowed,
    NotFound,
)
from twisted_exec.kube.console import ConsoleOptions, open_console
from twisted_exec.kube.kubeconfig.client_config import ImpersonatedUser, KubeConfigError
from twisted_exec.streaming.remotecommand.carriers import OVER_SPDY
from twisted_exec.streaming.remotecommand.client import ATTEMPTS
from twisted_exec.testing.console import EchoAttachment, RecordingAttachment, RecordingUser
from twisted_exec.testing.proxies import ConnectProxy, Socks5Proxy
from twisted_exec.wire.stream_options import CONSOLE


class OpenConsoleTests(ConsolesCase):
    """Tests for :func:`open_console`."""

    starts = PROGRAMS

    async def test_refused(self) -> None:
        """The user gets the API server's refusal: 403 or 404."""
        self.consoles.machines["default/vm"] = Forbidden("user test may not")
        for name, code in (("vm", 403), ("none", 404)):
            opening = open_console(self.config, "default", name, RecordingUser(), reactor)
            error = await self.assertFailure(opening, APIError)
            self.assertEqual(error.code, code)

    async def test_observers_path(self) -> None:
        """An observer who may not open a console as others do observes; others are refused."""
        self.consoles.machines["default/vm"] = Forbidden("user test may not")
        self.consoles.observers["default/vm"] = RecordingAttachment
        read_only = replace(CONSOLE, read_only=True)
        stream = await open_console(
            self.config, "default", "vm", RecordingUser(), reactor, ConsoleOptions(stream=read_only)
        )
        stream.abort()
        for options, observers in (
            (CONSOLE, RecordingAttachment),
            (read_only, NotFound("m", "vm")),
            (read_only, MethodNotAllowed("POST is not allowed here")),  # of SPDY
        ):
            self.consoles.observers["default/vm"] = observers
            opening = open_console(
                self.config,
                "default",
                "vm",
                RecordingUser(),
                reactor,
                ConsoleOptions(stream=options),
            )
            error = await self.assertFailure(opening, APIError)
            self.assertEqual((error.code, error.message), (403, "user test may not"))

    async def test_must_record(self) -> None:
        """A server that ignores the wish for a recording opens no console."""
        attachment = RecordingAttachment()
        self.consoles.machines["default/vm"] = lambda: attachment
        user = RecordingUser()
        opening = open_console(
            self.config, "default", "vm", user, reactor, ConsoleOptions(record="all")
        )
        error = await self.assertFailure(opening, APIError)
        self.assertEqual(error.code, 501)
        self.assertIn("has opened the console without a recording", error.message)
        self.assertIn(b"&record=all", self.consoles.queries[-1])
        self.assertIsNone(user.stream)

    async def test_smaller_request(self) -> None:
        """If a host refuses a user who may only observe, the error names the request that works."""
        refusal = 'vm is forbidden: User "eve" cannot get resource "machines/exec"'
        hint = ": you may observe it: open it with --read-only"
        for allowed, message, shown in (
            ({"observe", "get"}, refusal, refusal + hint),
            ({"get"}, refusal, refusal),
            ({"observe"}, refusal, refusal),
            ({"observe", "get"}, "a policy refuses it", "a policy refuses it"),
        ):
            self.consoles.allowed = allowed
            for options in (CONSOLE, replace(CONSOLE, force=True)):
                self.consoles.machines["default/vm"] = Forbidden(message)
                opening = open_console(
                    self.config,
                    "default",
                    "vm",
                    RecordingUser(),
                    reactor,
                    ConsoleOptions(stream=options),
                )
                error = await self.assertFailure(opening, APIError)
                self.assertEqual((error.code, error.message), (403, shown))
                reasons = [cause["reason"] for cause in error.causes]
                self.assertEqual("MayObserve" in reasons, shown.endswith(hint))
        self.consoles.machines["default/vm"] = Forbidden(refusal)
        opening = open_console(
            self.config,
            "default",
            "vm",
            RecordingUser(),
            reactor,
            ConsoleOptions(protocols=[OVER_SPDY]),
        )
        error = await self.assertFailure(opening, APIError)
        self.assertEqual(error.message, refusal)

    async def test_names_are_escaped(self) -> None:
        """Machine names are escaped in the request path."""
        opening = open_console(self.config, "default", "a/../b", RecordingUser(), reactor)
        error = await self.assertFailure(opening, APIError)
        self.assertIn(error.code, (400, 404))

    async def test_unreachable(self) -> None:
        """The error for an unreachable server names its address."""
        config = replace(self.config, server="http://127.0.0.1:1")
        opening = open_console(config, "default", "vm", RecordingUser(), reactor)
        error = await self.assertFailure(opening, BadGateway)
        self.assertEqual(error.message, "cannot reach http://127.0.0.1:1: connection refused")

    async def test_token(self) -> None:
        """The upgrade carries the credentials and a user agent that names kubectl-console."""
        self.consoles.machines["default/vm"] = EchoAttachment
        config = replace(self.config, token="secret")
        stream = await open_console(config, "default", "vm", RecordingUser(), reactor)
        stream.abort()
        head = self.consoles.heads[0]
        self.assertEqual(head.getRawHeaders("authorization"), ["Bearer secret"])
        self.assertIn("kubectl-console", head.getRawHeaders("user-agent")[0])

    async def test_identity(self) -> None:
        """Every kind of upgrade carries basic credentials and the impersonation headers."""
        self.consoles.machines["default/vm"] = EchoAttachment
        asked = ImpersonatedUser("jane", "7", ("dev", "ops"), (("scopes", ("a",)),))
        config = replace(self.config, username="u", password="p", impersonate=asked)
        for protocol in ATTEMPTS:
            stream = await open_console(
                config,
                "default",
                "vm",
                RecordingUser(),
                reactor,
                ConsoleOptions(protocols=[protocol]),
            )
            stream.abort()
            head = self.consoles.heads.pop()
            for name, told in (
                ("authorization", ["Basic dTpw"]),
                ("impersonate-user", ["jane"]),
                ("impersonate-group", ["dev", "ops"]),
                ("impersonate-uid", ["7"]),
                ("impersonate-extra-scopes", ["a"]),
            ):
                self.assertEqual(head.getRawHeaders(name), told, protocol)

    async def test_plugin(self) -> None:
        """The upgrade carries a plugin's token; after a 401 the plugin runs once more."""
        self.consoles.machines["default/vm"] = EchoAttachment
        self.consoles.tokens = {"Bearer t2"}
        script = PluginScript(Path(self.mktemp()), "answer(token=f't{count}')")
        config = replace(self.config, plugin=script.plugin())
        for protocol in ATTEMPTS:
            stream = await open_console(
                config,
                "default",
                "vm",
                RecordingUser(),
                reactor,
                ConsoleOptions(protocols=[protocol]),
            )
            stream.abort()
        self.assertEqual(len(script.runs()), 2)
        self.consoles.tokens = set()
        opening = open_console(config, "default", "vm", RecordingUser(), reactor)
        error = await self.assertFailure(opening, APIError)
        self.assertEqual((error.code, len(script.runs())), (401, 3))

    async def test_plugin_fails(self) -> None:
        """A failing plugin raises KubeConfigError before any request."""
        script = PluginScript(Path(self.mktemp()), "sys.exit(2)")
        config = replace(self.config, plugin=script.plugin())
        opening = open_console(config, "default", "vm", RecordingUser(), reactor)
        await self.assertFailure(opening, KubeConfigError)
        self.assertEqual(self.consoles.heads, [])

    async def test_proxies(self) -> None:
        """
        Every kind of upgrade, and the console after it, works through HTTP and SOCKS5 proxies.
        """
        self.consoles.machines["default/vm"] = EchoAttachment
        for kind, scheme in ((ConnectProxy, "http"), (Socks5Proxy, "socks5")):
            proxy = kind(reactor, "ann:secret")
            listening = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(proxy)
            port = await listening
            self.addCleanup(port.stopListening)
            self.addCleanup(proxy.abort)
            where = f"{scheme}://ann:secret@127.0.0.1:{port.getHost().port}"
            config = replace(self.config, proxy_url=where)
            for protocol in ATTEMPTS:
                user = RecordingUser()
                stream = await open_console(
                    config, "default", "vm", user, reactor, ConsoleOptions(protocols=[protocol])
                )
                stream.write(b"by proxy")
                while user.received != b"by proxy":
                    await self._settle()
                stream.abort()
            self.assertEqual(proxy.asked, [self.config.url.netloc] * len(ATTEMPTS))

    async def test_lost(self) -> None:
        """A connection lost before the status is no success, in any protocol."""
        for protocol in ATTEMPTS:
            attachment = RecordingAttachment()
            self.consoles.machines["default/vm"] = lambda attachment=attachment: attachment
            user = RecordingUser()
            await open_console(
                self.config, "default", "vm", user, reactor, ConsoleOptions(protocols=[protocol])
            )
            attachment.transport.cut()
            while not user.detached_with:
                await self._settle()
            self.assertEqual(user.detached_with, ["connection lost before the session's status"])
            self.assertEqual(user.endings, [])

    async def test_token_file_missing(self) -> None:
        """An unreadable token file raises KubeConfigError."""
        config = replace(self.config, token_file="/nonexistent/token")
        opening = open_console(config, "default", "vm", RecordingUser(), reactor)
        await self.assertFailure(opening, KubeConfigError)

    async def test_cancelled(self) -> None:
        """Cancelling the Deferred aborts the upgrade and leaves nothing behind."""
        self.consoles.machines["default/vm"] = EchoAttachment
        opening = open_console(self.config, "default", "vm", RecordingUser(), reactor)
        opening.cancel()
        await self.assertFailure(opening, CancelledError)


class DialectTests(ConsolesCase):
    """Choice of the dialect when the caller names none."""

    INSTANCE = "instances.core.spheric.cloud/default/vm"

    def opening(self, **more: Any) -> Deferred[Any]:
        return open_console(
            self.config, "default", "vm", RecordingUser(), reactor, ConsoleOptions(**more)
        )

    async def assert_opened(self, **more: Any) -> None:
        stream = await self.opening(**more)
        stream.abort()

    async def test_found(self) -> None:
        """The client discovers the server's dialects and opens the machine in the right one."""
        self.consoles.dialects = (SPHERIC,)
        self.consoles.machines[self.INSTANCE] = EchoAttachment
        await self.assert_opened()

    async def test_the_first(self) -> None:
        """With several dialects, a machine of the default dialect wins if it exists."""
        self.consoles.dialects = (SPHERIC, IRONCORE)
        self.consoles.machines["default/vm"] = EchoAttachment
        self.consoles.machines[self.INSTANCE] = Forbidden("not this one")
        await self.assert_opened()
        self.assertEqual(len(self.consoles.heads), 1)

    async def test_told(self) -> None:
        """The caller may limit the dialects; then the client asks for no other machine."""
        self.consoles.dialects = (IRONCORE, SPHERIC)
        self.consoles.machines["default/vm"] = Forbidden("not this one")
        self.consoles.machines[self.INSTANCE] = EchoAttachment
        await self.assert_opened(among=[SPHERIC])
        self.assertEqual(len(self.consoles.heads), 1)

    async def test_same_group(self) -> None:
        """Resources tell two dialects of one group apart."""
        self.consoles.dialects = (SPHERIC_MACHINES,)
        self.consoles.machines["machines.core.spheric.cloud/default/vm"] = EchoAttachment
        await self.assert_opened()

    async def test_nowhere(self) -> None:
        """A missing machine fails with the not-found message of the server's own resource."""
        self.consoles.dialects = (SPHERIC,)
        error = await self.assertFailure(self.opening(), APIError)
        self.assertEqual(error.message, 'instances.core.spheric.cloud "vm" not found')

    async def test_no_such_kind(self) -> None:
        """The error for a missing resource lists the machine resources that the server has."""
        self.consoles.dialects = (SPHERIC,)
        error = await self.assertFailure(self.opening(among=[IRONCORE]), APIError)
        self.assertEqual(
            (error.code, error.message),
            (
                404,
                f"{self.config.server} has no machines.compute.ironcore.dev; "
                "it has instances.core.spheric.cloud",
            ),
        )

    async def test_other_not_found(self) -> None:
        """If the server has the resource, its own not-found message reaches the user."""
        self.consoles.machines["default/vm"] = APIError("gone there", code=404, reason="NotFound")
        error = await self.assertFailure(self.opening(), APIError)
        self.assertEqual(error.message, "gone there")

    async def test_no_machines(self) -> None:
        """
        A server without any machine resource is probably the wrong cluster, and the error says so.
        """
        self.consoles.dialects = ()
        error = await self.assertFailure(self.opening(), APIError)
        self.assertEqual(
            error.message,
            f"{self.config.server} has no machines.compute.ironcore.dev; is it the right cluster?",
        )

    async def test_refused(self) -> None:
        """A 403 from one dialect takes precedence over a 404 from another."""
        self.consoles.dialects = (IRONCORE, SPHERIC)
        self.consoles.machines["default/vm"] = Forbidden("user test may not")
        error = await self.assertFailure(self.opening(), APIError)
        self.assertEqual((error.code, error.message), (403, "user test may not"))

    async def test_other_refusals(self) -> None:
        """After a conflict the client does not try another dialect."""
        self.consoles.dialects = (IRONCORE, SPHERIC)
        self.consoles.machines["default/vm"] = Conflict("it is powered off")
        self.consoles.machines[self.INSTANCE] = EchoAttachment
        error = await self.assertFailure(self.opening(), APIError)
        self.assertEqual(error.code, 409)
        self.assertEqual(len(self.consoles.heads), 1)
