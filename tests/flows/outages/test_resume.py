"""
A user's session survives the loss of each connection and of each middle program, byte for byte in
both directions.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows.busy_machine import asking_line, harmless_line, is_exact, printed
from tests.flows.deployment import Deployment, pause
from tests.flows.resuming import ASKING, BUSY, CabledDeployment, Typist
from tests.flows.test_three_programs import binding
from tests.storage.etcds import Etcds
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError
from twisted_exec.kube.kubeconfig.connection import endpoint
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.kube.machine_requests import request_head
from twisted_exec.streaming.remotecommand.client import ConsoleClient, connect
from twisted_exec.wire.marks import At, Mark
from twisted_exec.wire.resize import TerminalSize
from twisted_exec.wire.resume import MARKS, Position, Resume
from twisted_exec.wire.stream_options import CONSOLE

reactor: Any = _reactor

MACHINES = kinds.MACHINES.resource
PATIENCE = ("--resume-seconds=600",)
"""A busy machine takes long to start a program again."""


class ResumeTestCase(TestCase):
    """A busy machine behind three programs, and a user who types all the time."""

    starts = PROGRAMS
    exact = True
    runtime_options: tuple[str, ...] = PATIENCE

    async def setUp(self) -> None:
        self.deployment = self.make_deployment()
        self.deployment.poollet_seconds = Deployment.poollet_seconds
        self.addCleanup(self.deployment.stop)
        await self.deployment.start()
        await self.deployment.create_machine("busy", BUSY)
        self.kubeconfig = self.deployment.through_cable("ada")

    def make_deployment(self) -> CabledDeployment:
        return CabledDeployment(self.mktemp(), runtime_options=self.runtime_options)

    async def typist(self) -> Typist:
        """Open the console and begin to type."""
        user = await Typist.at(self.kubeconfig, "busy")
        self.addCleanup(user.leave)
        # Its terminal is raw before it prints, and discards what was typed until then.
        await user.until(lambda: user.printed_bytes)
        user.type_on()
        await self.under_load(user)
        return user

    async def under_load(self, user: Typist) -> None:
        """Fires when more has passed in both directions."""
        shown, typed = user.printed_bytes, self.deployment.typed_bytes
        await user.until(
            lambda: user.printed_bytes > shown + 50_000 and self.deployment.typed_bytes > typed + 80
        )

    async def check(self, user: Typist) -> None:
        """Check that the user has got what was printed and the machine what was typed, exactly."""
        user.stop_typing()
        await user.until(lambda: self.deployment.typed_bytes >= user.sent_bytes)
        self.assertTrue(self.deployment.typed == user.sent, "the machine got other keys")
        self.deployment.stop_printing()
        await user.until_printed(rb"END\n")
        self.assertTrue(is_exact(user.printed.removesuffix(b"END\n")), "the user got other output")
        self.assertEqual((user.gaps, set(user.uncertain)), ([], {0}))


class QueryTests(TestCase):
    """The machine asks the terminal for something in each line."""

    starts = PROGRAMS
    exact = True

    async def test_positions(self) -> None:
        """
        No terminal misses a byte or gets one twice; an observer's gets no query, nor does the writer's
        at the beginning; and a client without a terminal gets every byte.
        """
        deployment = CabledDeployment(self.mktemp(), runtime_options=PATIENCE)
        self.addCleanup(deployment.stop)
        await deployment.start()
        await deployment.create_machine("asking", ASKING)
        pipe = replace(CONSOLE, tty=False, read_only=True)
        script = await Typist.at(deployment.through_cable("eve"), "asking", options=pipe)
        await script.until(lambda: script.printed_bytes > 1000)  # others begin with that
        writer, observer = [
            await Typist.at(deployment.through_cable(name), "asking") for name in ("ada", "bob")
        ]
        users = (script, writer, observer)
        for user in users:
            self.addCleanup(user.leave)
        for user in (writer, observer):
            user.stream.resize(TerminalSize(80, 24))
        await self.more(*users)
        self.assertIn(b"\x1b[6_\x00", writer.printed[:100])
        for cable in (deployment.near, deployment.middle, deployment.far, deployment.near):
            count, begun = len(observer.seconds), observer.printed_bytes
            cable.cut()
            for user in users:
                await user.until_resumed(count + 1)
            await self.more(*users)
            # The size is known now, also for the live output behind that of the outage.
            self.assertNotIn(b"\x1b[6n", observer.printed[begun:] if count else b"")
            await writer.until(partial(self._is_asked, writer, begun))
        deployment.stop_printing()
        for user in users:
            await user.until_printed(rb"END\n")
            self.assertEqual(user.gaps, [])
            output = user.printed.removesuffix(b"END\n")
            lines = (asking_line,) if user is script else (asking_line, harmless_line)
            self.assertTrue(is_exact(output, *lines), "other output")

    async def more(self, *users: Typist) -> None:
        """Fires when more has passed to each user."""
        for user, shown in [(each, each.printed_bytes) for each in users]:
            await user.until(partial(self._has_more, user, shown + 30_000))

    @staticmethod
    def _is_asked(user: Typist, begun: int) -> bool:
        """Return whether the user has live output behind an offset: that of an outage asks nothing."""
        return b"\x1b[6n\x05" in user.printed[begun:]

    @staticmethod
    def _has_more(user: Typist, size: int) -> bool:
        return user.printed_bytes > size


class LostConnectionTests(ResumeTestCase):
    """A connection is lost under load."""

    async def test_each(self) -> None:
        """Each of the three connections is cut, then all at once, and again while the client resumes."""
        user = await self.typist()
        for cable in self.deployment.cables.values():
            count = len(user.outages)
            cable.cut()
            await user.until_resumed(count + 1)
            await self.under_load(user)
        made = self.deployment.far.made
        for cable in self.deployment.cables.values():
            cable.cut()
        await user.until(lambda: self.deployment.far.made > made)
        self.deployment.far.cut()
        await self.under_load(user)
        await self.check(user)

    async def test_two_at_once(self) -> None:
        """
        The user comes back over another network before the server notices the loss: the newer
        connection wins.
        """
        user = await self.typist()
        for _ in range(3):
            count = len(user.seconds)
            self.deployment.near.forget()
            await user.until_resumed(count + 1)
        await self.under_load(user)
        await self.check(user)
        await user.until(lambda: self.deployment.far.connections == 1)

    async def test_long_outage(self) -> None:
        """Megabytes that the machine prints meanwhile, and keys, come behind the outage."""
        user = await self.typist()
        self.deployment.near.refuses = True
        self.deployment.near.cut()
        await user.until(lambda: user.outages)
        sent = user.sent_bytes
        await user.until(lambda: user.sent_bytes > sent + 800)
        self.deployment.near.refuses = False
        await user.until_resumed(1)
        await self.check(user)


class FrozenStoreTests(ResumeTestCase):
    """A connection is lost under load while the API server's store answers nothing."""

    skip = needs.etcd()

    def make_deployment(self) -> CabledDeployment:
        self.etcds = Etcds()
        self.addCleanup(self.etcds.end)
        self.etcds.start()
        deployment = super().make_deployment()
        deployment.storage = f"etcd:http://{self.etcds.target()}"
        return deployment

    async def test_each(self) -> None:
        """The session goes on over new connections before the store answers again."""
        user = await self.typist()
        (etcd,) = self.etcds.members
        etcd.freeze()
        self.addCleanup(etcd.thaw)
        for cable in self.deployment.cables.values():
            count = len(user.outages)
            cable.cut()
            await user.until_resumed(count + 1)
            await self.under_load(user)
        await self.check(user)


class LostProgramTests(ResumeTestCase):
    """A program is killed or stopped under load, and started again.  The machine outlives the runtime."""

    runtime_options = (*PATIENCE, "--keep-machines")

    async def test_killed(self) -> None:
        """Poollet and API server are killed and started again."""
        user = await self.typist()
        for program in ("poollet", "api"):
            count = len(user.seconds)
            await self.deployment.restart(program)
            await user.until_resumed(count + 1)
            await self.under_load(user)
        await self.check(user)

    async def test_stopped(self) -> None:
        """Each program is restarted in turn: its user reads which one, and every byte arrives once in both directions."""
        user = await self.typist()
        for program, name in (
            ("poollet", "exec-poollet"),
            ("api", "exec-apiserver"),
            ("runtime", "exec-runtime"),
        ):
            count = len(user.seconds)
            await self.deployment.restart(program, kill=False)
            await user.until_resumed(count + 1)
            self.assertIn(f"{name} is restarting", user.outages[count])
            await self.under_load(user)
        await self.check(user)
        self.assertIsNone(user.ending)

    async def test_all_stopped(self) -> None:
        """All programs are stopped in the same moment."""
        user = await self.typist()
        await self.deployment.restart("api", "poollet", "runtime", kill=False)
        await user.until_resumed(1)
        self.assertRegex(user.outages[0], r"exec-\w+ is restarting")
        await self.under_load(user)
        await self.check(user)


class Marked(Typist):
    """The user of one connection; keeps the position."""

    position: Position | None = None

    def mark_received(self, mark: Mark) -> None:
        if isinstance(mark, At):
            self.position = mark.position

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        assert self.position is not None
        self.position = Position(self.position.epoch, self.position.offset + len(data))


class KeptSessionTests(ResumeTestCase):
    """A session whose user is absent."""

    runtime_options = ("--resume-seconds=700",)

    def connected(self, kubeconfig: str, user: Marked, resume: str) -> Deferred[ConsoleClient]:
        """Open one connection."""
        config = load(kubeconfig)
        where = MACHINES.path("default", "busy", "exec")
        head = request_head(config, where, CONSOLE.query(), "test")
        way = endpoint(config, reactor, timeout_seconds=600)
        return connect(way, head, user, clock=reactor, timeout_seconds=600, resume=resume)

    async def refused(self, kubeconfig: str, resume: Resume) -> APIError:
        """Fires with the error of a request to resume a session."""
        with self.assertRaises(APIError) as caught:
            await self.connected(kubeconfig, Marked(), resume.text())
        return caught.exception

    async def lost(self) -> Resume:
        """Open a console and lose the connection; fires with what is needed to resume it."""
        user = Marked()
        client = await self.connected(self.kubeconfig, user, MARKS)
        assert client.resumable is not None
        self.assertEqual(client.resumable.seconds, 700)
        await user.until(lambda: user.printed_bytes > 10_000)
        client.abort()
        assert user.position is not None
        return Resume(client.resumable.key, client.session, user.position)

    async def test_somebody_else(self) -> None:
        """Another user with the key, a guessed key and a key that was used get one and the same 404."""
        resume = await self.lost()
        bob = self.deployment.through_cable("bob")
        refusals = [await self.refused(bob, resume)]
        guess = Resume("A" * 43, resume.session, resume.position)
        refusals.append(await self.refused(self.kubeconfig, guess))
        user = Marked()
        again = await self.connected(self.kubeconfig, user, resume.text())
        await user.until(lambda: user.printed_bytes > 10_000)
        start = resume.position.offset
        self.assertEqual(user.printed, printed(user.printed_bytes, start))
        again.abort()
        refusals.append(await self.refused(self.kubeconfig, resume))
        self.assertEqual({each.code for each in refusals}, {404})
        self.assertEqual(len({each.message for each in refusals}), 1)

    async def test_beyond_the_end(self) -> None:
        """A position that does not exist yet is refused with 400, and the session is kept."""
        resume = await self.lost()
        beyond = Position(resume.position.epoch, resume.position.offset + (1 << 40))
        refusal = await self.refused(self.kubeconfig, Resume(resume.key, resume.session, beyond))
        self.assertEqual(refusal.code, 400)
        (await self.connected(self.kubeconfig, Marked(), resume.text())).abort()

    async def test_withdrawn(self) -> None:
        """A user who loses the right while absent cannot come back."""
        bindings = kinds.ROLEBINDINGS.resource
        await self.deployment.client.create(bindings, binding("eve", "edit"), "default")
        self.kubeconfig = self.deployment.through_cable("eve", ())
        user = await self.typist()
        self.deployment.near.refuses = True
        self.deployment.near.cut()
        await user.until(lambda: user.outages)
        await self.deployment.client.delete(bindings, "eve", "default")
        self.deployment.near.refuses = False
        while user.detached_with is None:
            await pause()
        self.assertIn("forbidden", user.detached_with)
        self.assertEqual(user.seconds, [])


class ExpiredSessionTests(ResumeTestCase):
    """A session whose user is absent for too long."""

    runtime_options = ("--resume-seconds=3",)

    async def test_time_is_over(self) -> None:
        """
        Others at the console learn of the loss.  A user who does not come back in time is refused, and
        leaves no session behind.
        """
        user = await self.typist()
        direct = self.deployment.kubeconfig("bob", ["system:masters"])
        other = await Typist.at(direct, "busy")
        self.addCleanup(other.leave)
        self.deployment.near.refuses = True
        self.deployment.near.cut()
        for message in ("ada's connection is lost", "ada has left"):
            await other.until(lambda text=message: any(text in each for each in other.notices))
        self.deployment.near.refuses = False
        while user.detached_with is None:
            await pause()
        self.assertIsNone(user.ending)
        self.assertEqual((len(user.outages), user.seconds), (1, []))
        await other.leave()
        sessions = kinds.CONSOLESESSIONS.resource
        while (await self.deployment.client.list(sessions, namespace="default"))["items"]:
            await pause()
