"""Tests for :mod:`twisted_exec.nodeserver.kubelet_api.run`: through the routes, to a leaf on loopback."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from tests.nodeserver.stream_chain import ChainTestCase
from tests.streaming.foreign import OLD, Foreign
from twisted_exec.nodeserver.kubelet_api import run
from twisted_exec.nodeserver.kubelet_api.run import run_routes
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import SHUTTING_DOWN, Ending, IAttachment
from twisted_exec.streaming.sessions.registry import SessionLife
from twisted_exec.testing.console import RecordingAttachment
from twisted_exec.wire.channel import V5
from twisted_exec.wire.endings import COMPLETED, INTERNAL

RUN = "/run/default/web/main?cmd=echo+hi"
LENGTH = (b"Content-Length: 0",)
WELL = Ending(COMPLETED)


@implementer(IAttachment)
class Printing(RecordingAttachment):
    """A command that prints and ends; without an ending it goes on."""

    errors = b""
    ending: Ending | None = WELL

    def attached(self, transport: Any) -> None:
        super().attached(transport)
        if self.errors:
            transport.write_error(self.errors)
        if self.ending is not None:
            transport.end(self.ending)


class RunTestCase(ChainTestCase):
    """A leaf that runs every command."""

    speaks: Any = (V5, *OLD)

    def routes(self) -> Any:
        return run_routes(self.collaborators)

    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.foreign = Foreign(self.collaborators.clock, query=None, speaks=self.speaks)
        self.prints()
        self.leaf_server.answer = self.serve

    def serve(self, request: Request) -> None:
        self.foreign.tokens.add(request.path)
        served = Deferred.fromCoroutine(self.foreign.dispatch(request))
        served.addErrback(lambda failure: self.fail(failure.getTraceback()))

    def prints(
        self, output: bytes = b"hi\n", errors: bytes = b"", ending: Ending | None = WELL
    ) -> None:
        def make() -> Printing:
            command = Printing(output)
            command.errors, command.ending = errors, ending
            return command

        self.foreign.make = make

    async def run_it(self, target: str = RUN, method: str = "POST") -> tuple[int, str]:
        return await self.refused(target, *LENGTH, method=method)


class AnswerTests(RunTestCase):
    """Answers."""

    async def test_output(self) -> None:
        """The answer is the output as text, stderr last; the leaf got an exec request."""
        self.prints(errors=b"oops\n")
        self.assertEqual(await self.run_it(), (200, "hi\noops\n"))
        ((_, uri, _),) = self.leaf_server.asked[-1:]
        self.assertTrue(
            uri.endswith(b"/exec?command=echo&command=hi&container=main&stdout=true&stderr=true")
        )
        self.records.check_pairs()
        self.assertEqual(self.records[-1]["subresource"], "run")

    async def test_nothing(self) -> None:
        """A command may print nothing."""
        self.prints(b"")
        self.assertEqual(await self.run_it(), (200, ""))

    async def test_exit_code(self) -> None:
        """A kubelet's answer to a command that fails."""
        self.prints(errors=b"oops", ending=Ending(COMPLETED, "", 7))
        code, body = await self.run_it()
        self.assertEqual(code, 500)
        self.assertIn("command 'echo hi' exited with 7: oops", body)

    async def test_not_run(self) -> None:
        """The leaf's refusal of a command is passed on."""
        self.prints(ending=Ending(INTERNAL, "no such file"))
        code, body = await self.run_it()
        self.assertEqual(code, 500)
        self.assertIn("no such file", body)

    async def test_with_uid(self) -> None:
        """The path may name the Pod's UID, which must be its."""
        uid = self.root_pod["metadata"]["uid"]
        self.assertEqual((await self.run_it(f"/run/default/web/{uid}/main?cmd=ls"))[0], 200)
        self.assertEqual((await self.run_it("/run/default/web/other/main?cmd=ls"))[0], 404)

    async def test_too_much(self) -> None:
        """A command with too much output is abandoned; the message recommends exec."""
        self.patch(run, "MAX_OUTPUT_BYTES", 1 << 20)
        self.prints(b"x" * (2 << 20), ending=None)
        code, body = await self.run_it()
        self.assertEqual(code, 500)
        self.assertIn("printed more than 1 MiB; use exec", body)
        await self.until(lambda: self.foreign.attachments[0].detached_with)


class DeclaredReasonTests(RunTestCase):
    """A node server that requires reasons."""

    requires_reason = True

    async def test_required(self) -> None:
        """A command without a reason is refused: it does what exec does."""
        code, message = await self.run_it()
        self.assertEqual(code, 403)
        self.assertIn("X-Twisted-Exec-Reason", str(message))
        self.assertEqual(self.leaf_server.asked, [])


class RefusedTests(RunTestCase):
    """Refusals."""

    async def test_only_post(self) -> None:
        """A user with read permission only runs no command."""
        self.assertEqual((await self.run_it(method="GET"))[0], 405)
        self.assertEqual(self.leaf_server.asked, [])

    async def test_bad_request(self) -> None:
        """No command, no such Pod, no such container."""
        for target, code in (
            ("/run/default/web/main", 400),
            ("/run/default/web/main?command=ls", 400),
            ("/run/default/nope/main?cmd=ls", 404),
            ("/run/default/web/nope?cmd=ls", 404),
        ):
            self.assertEqual((await self.run_it(target))[0], code)
        self.assertEqual((await self.refused(RUN))[0], 400)  # an upgrade
        self.assertEqual(self.leaf_server.asked, [])

    async def test_leaf_refuses(self) -> None:
        """Its codes pass; that it does not know us is a 502."""
        for theirs, ours in ((404, 404), (500, 500), (401, 502), (429, 429)):
            self.leaf_server.refuses(theirs, b"because")
            self.assertEqual((await self.run_it())[0], ours)

    async def test_lost(self) -> None:
        """A leaf that breaks off has not run it to its end, as far as anyone knows."""
        self.prints(b"almost", ending=None)
        client = await self.ask(RUN, *LENGTH)
        await self.until(lambda: self.foreign.attachments)
        self.foreign.attachments[0].transport.cut()
        await self.answered(client)
        self.assertEqual(client.code, 502)
        self.assertIn(b"before the command's status", client.body)

    async def test_client_dies(self) -> None:
        """If the client leaves, the request to the leaf ends."""
        self.prints(ending=None)
        client = await self.ask(RUN, *LENGTH)
        await self.until(lambda: self.foreign.attachments)
        client.transport.abortConnection()
        await self.until(lambda: self.foreign.attachments[0].detached_with)
        await self.until(lambda: not len(self.sessions))
        self.records.check_pairs()

    async def test_ended_by_the_hop(self) -> None:
        """A server that stops says so."""
        self.prints(ending=None)
        client = await self.ask(RUN, *LENGTH)
        await self.until(
            lambda: [
                session for session in self.sessions.live() if session.life is SessionLife.CARRIED
            ]
        )
        self.sessions.end(lambda _: True, Ending(SHUTTING_DOWN, "going down"))
        await self.answered(client)
        self.assertEqual(client.code, 500)
        self.assertIn(b"going down", client.body)


class OverSPDYTests(AnswerTests):
    """A leaf that speaks nothing else."""

    speaks = ()


class OlderTests(AnswerTests):
    """A leaf whose kubelet speaks version 4."""

    speaks = OLD
