"""
Tests for :mod:`twisted_exec.screens.pool`.  The last case starts real processes.
"""

from __future__ import annotations

from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase, TestCase
from zope.interface.verify import verifyObject

from tests.program.memory_processes import MemoryProcess, MemoryReactor
from twisted_exec.api.status import APIError, NotImplementedByBackend, ServiceUnavailable
from twisted_exec.program.job_messages import SIZES
from twisted_exec.program.job_processes import IDLE_SECONDS, PROCESSES, WAITING
from twisted_exec.screens.interfaces import IRenderer, Job, Rendered, encode_rendered, job_of
from twisted_exec.screens.pool import SECONDS, ScreenProcesses, command


def job(output: bytes = b"") -> Job:
    return Job(80, 24, "", output, (), "text")


def result(body: bytes) -> Rendered:
    return Rendered(body, "", 0, 80, 24)


def outputs(process: MemoryProcess) -> list[bytes]:
    """The outputs of the jobs of a process."""
    return [job_of(dict(head), output).output for head, output in process.messages]


def answers(process: MemoryProcess, body: bytes = b"") -> None:
    message = encode_rendered(result(body or outputs(process)[-1]))
    process.protocol.outReceived(message)


class QueueTests(SynchronousTestCase):
    """The queue before the processes."""

    def setUp(self) -> None:
        self.reactor = MemoryReactor()
        self.pool = ScreenProcesses(self.reactor, lambda: ["emulator"], lambda: True)

    @property
    def processes(self) -> list[MemoryProcess]:
        return self.reactor.processes

    def render(self, output: bytes, key: str = "vm") -> Deferred[Rendered]:
        return self.pool.render(job(output), key)

    def failure(self, rendering: Deferred[Rendered], kind: type[APIError]) -> str:
        return str(self.failureResultOf(rendering, kind).value.message)

    def test_interface(self) -> None:
        """It provides the interface."""
        verifyObject(IRenderer, self.pool)

    def test_job(self) -> None:
        """A process gets the job, and none of the variables of this program."""
        rendering = self.render(b"a")
        (process,) = self.processes
        self.assertEqual((outputs(process), process.environment), ([b"a"], {}))
        answers(process, b"A")
        self.assertEqual(self.successResultOf(rendering).body, b"A")

    def test_reused(self) -> None:
        """A process that has finished gets the next job; it ends when there is none for a while."""
        self.render(b"a")
        answers(self.processes[0])
        self.reactor.advance(IDLE_SECONDS - 1)
        self.render(b"b")
        answers(self.processes[0])
        self.reactor.advance(IDLE_SECONDS - 1)
        self.assertEqual((len(self.processes), self.processes[0].signals), (1, []))
        self.reactor.advance(1)
        self.assertEqual(self.processes[0].signals, ["KILL"])
        self.render(b"c")
        self.assertEqual(len(self.processes), 2)

    def test_fair(self) -> None:
        """Machines take turns, however many jobs one of them has."""
        for number in range(PROCESSES + 3):
            self.render(b"busy %d" % number, "busy")
        self.render(b"quiet", "quiet")
        self.assertEqual(len(self.processes), PROCESSES)
        for _ in range(4):
            answers(self.processes[0])
        self.assertEqual(
            outputs(self.processes[0]),
            [b"busy 0", b"busy 2", b"quiet", b"busy 3", b"busy 4"],
        )

    def test_full(self) -> None:
        """Beyond the limit jobs are refused."""
        for _ in range(PROCESSES + WAITING):
            self.render(b"")
        self.assertIn("try again", self.failure(self.render(b""), ServiceUnavailable))

    def test_cancelled(self) -> None:
        """A job that nobody waits for any more gives its place to another, and disturbs no process."""
        renderings = [self.render(b"%d" % number) for number in range(PROCESSES + 2)]
        renderings[0].cancel()
        renderings[PROCESSES].cancel()
        for rendering in (renderings[0], renderings[PROCESSES]):
            self.failureResultOf(rendering, CancelledError)
        answers(self.processes[0])
        self.assertEqual(outputs(self.processes[0])[-1], b"%d" % (PROCESSES + 1))
        answers(self.processes[0])
        self.assertEqual(self.successResultOf(renderings[-1]).body, b"%d" % (PROCESSES + 1))

    def test_hangs(self) -> None:
        """A process that takes too long is killed; only its job fails, and another goes on."""
        first, second = self.render(b"a"), self.render(b"b", "other")
        answers(self.processes[1])
        self.reactor.advance(SECONDS)
        message = self.failure(first, ServiceUnavailable)
        self.assertEqual(
            message,
            "the terminal emulator has not finished within 5 s; the log of the machine is still available",
        )
        self.assertEqual(self.processes[0].signals, ["KILL"])
        self.successResultOf(second)
        self.render(b"c")
        self.assertEqual(outputs(self.processes[1])[-1], b"c")

    def test_crashes(self) -> None:
        """The job of a process that ends fails with its last line; the next has a new process."""
        first, _, third = self.render(b"a"), self.render(b"b"), self.render(b"c")
        self.processes[0].protocol.errReceived(b"Traceback\nMemoryError\n")
        self.processes[0].ends()
        self.assertIn("failed: MemoryError;", self.failure(first, ServiceUnavailable))
        self.assertEqual(outputs(self.processes[2])[0], b"c")
        self.processes[2].ends()
        self.assertIn("signal 24", self.failure(third, ServiceUnavailable))

    def test_nonsense(self) -> None:
        """A process whose answer is not a result is killed."""
        answers = (SIZES.pack(2, 0) + b"{}", SIZES.pack(2, 0) + b"xx", SIZES.pack(1 << 31, 1 << 31))
        for number, answer in enumerate(answers):
            rendering = self.render(b"a")
            self.processes[number].protocol.outReceived(answer)
            self.assertIn("cannot be read", self.failure(rendering, ServiceUnavailable))
            self.assertEqual(self.processes[number].signals, ["KILL"])

    def test_not_started(self) -> None:
        """A job whose process cannot be started fails."""
        self.reactor.problem = OSError(12, "Cannot allocate memory")
        self.assertIn("Cannot allocate", self.failure(self.render(b"a"), ServiceUnavailable))

    def test_closed(self) -> None:
        """Jobs fail when the program stops, and no process remains."""
        renderings = [self.render(b"") for _ in range(PROCESSES + 1)]
        closing = self.pool.close()
        for rendering in renderings:
            self.assertIn("shutting down", self.failure(rendering, ServiceUnavailable))
        self.assertEqual([each.signals for each in self.processes], [["KILL"]] * PROCESSES)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.processes[0].ends()
        self.assertNoResult(closing)
        self.processes[1].ends()
        self.successResultOf(closing)

    def test_without_emulator(self) -> None:
        """Without an emulator the message has the remedy."""
        pool = ScreenProcesses(self.reactor, lambda: ["emulator"], lambda: False)
        message = self.failure(pool.render(job(), "vm"), NotImplementedByBackend)
        self.assertIn("pip install pyavt", message)


class ProcessTests(TestCase):
    """Real processes."""

    async def test_limits(self) -> None:
        """A job that takes too much memory costs its process and nothing else."""
        options, code, paths = command()[:4], command()[4], command()[5:]
        less = "from twisted_exec.screens import process; process.MEMORY_BYTES = 80 << 20; "
        code = code.replace("from ", less + "from ")
        pool = ScreenProcesses(reactor, lambda: [*options, code, *paths], seconds=600)
        self.addCleanup(pool.close)
        self.assertEqual((await pool.render(job(b"one\r\ntwo"), "vm")).body, b"one\ntwo\n")
        with self.assertRaises(ServiceUnavailable) as caught:
            await pool.render(job(b"x" * (31 << 20)), "vm")
        self.assertIn("MemoryError", caught.exception.message)
        self.assertEqual((await pool.render(job(b"three"), "vm")).body, b"three\n")
