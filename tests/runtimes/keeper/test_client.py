"""
Tests for :mod:`twisted_exec.runtimes.keeper.client`, with real keepers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat

from twisted.internet.defer import Deferred, gatherResults

from tests.runtimes.support import pause
from tests.tiers import PROGRAMS
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.runtimes.keeper import client
from twisted_exec.runtimes.keeper.client import Held, KeptCommand
from twisted_exec.runtimes.processes import leader, read_process
from twisted_exec.streaming.interfaces import TerminalSize

from .support import KeeperCase, command


class HeldCase(KeeperCase):
    """Starts commands, and remembers how they ended."""

    def setUp(self) -> None:
        super().setUp()
        self.ended: list[int | None] = []

    async def spawn(self, script: str, name: str = "m", *, keep: bool = False) -> Held:
        held = await self.keeper.spawn(name, command(script), self.ended.append, keep=keep)
        self.addCleanup(os.close, held.descriptor)
        return held

    async def take(self, name: str = "m", *, keep: bool = False) -> Held:
        self.keeper = self.client()
        held = await self.keeper.take(name, self.ended.append, keep=keep)
        self.addCleanup(os.close, held.descriptor)
        return held

    def pid(self, held: Held) -> int:
        assert held.command is not None
        return held.command.pid


class CommandTests(HeldCase):
    """Commands of the keeper."""

    starts = PROGRAMS

    async def test_terminal(self) -> None:
        """The command leads a session of its own, with the terminal in the desired size."""
        held = await self.spawn(
            "stty size; ps -o pid=,sid=,tpgid= -p $$; echo up >/dev/tty; read x"
        )
        got = await self.read(held.descriptor, b"up")
        size, ids = got.split(b"\r\n")[:2]
        self.assertEqual(size, b"24 80")
        self.assertEqual({int(each) for each in ids.split()}, {self.pid(held)})
        self.assertEqual(leader(self.pid(held)), held.command)

    async def test_environment(self) -> None:
        """It has the terminal three times, no other descriptor, and only its own environment."""
        self.patch(os, "environ", {**os.environ, "SECRET": "canary"})
        held = await self.spawn(
            "env; ls /proc/self/fd | wc -l; ls -l /proc/self/fd; echo up; read x"
        )
        got = await self.read(held.descriptor, b"up")
        self.assertNotIn(b"canary", got)
        self.assertNotIn(b"socket:", got)
        self.assertEqual(got.count(b"/dev/pts/"), 3)

    async def test_status(self) -> None:
        """The end is reported with the exit code or the signal."""
        await self.spawn("exit 7")
        await self.until(lambda: self.ended)
        await self.spawn("kill -9 $$", "other")
        await self.until(lambda: len(self.ended) == 2)
        code, number = self.ended
        assert code is not None and number is not None
        self.assertEqual((os.waitstatus_to_exitcode(code), os.WTERMSIG(number)), (7, 9))

    async def test_no_such_command(self) -> None:
        """A command that cannot be executed is reported with the reason; nothing is held."""
        wrong = KeptCommand("/no/such", ["such"], {}, "/", TerminalSize(80, 24))
        with self.assertRaisesRegex(ServiceUnavailable, "cannot be started: No such file"):
            await self.keeper.spawn("m", wrong, self.ended.append, keep=True)
        self.assertEqual((await self.keeper.holdings(), self.ended), ({}, []))

    async def test_too_long(self) -> None:
        """A command that does not fit into a message is refused here; the connection goes on."""
        with self.assertRaisesRegex(ServiceUnavailable, "bytes; 131072 are possible"):
            await self.spawn("#" * (1 << 17))
        with self.assertRaisesRegex(ServiceUnavailable, "NUL"):
            await self.spawn("\0")
        await self.spawn("exit 0")

    async def test_many(self) -> None:
        """Commands that start at the same time have their own terminals."""
        names = [f"m{number}" for number in range(150)]
        starting = [
            Deferred.fromCoroutine(self.spawn(f"echo {name}.; read x", name)) for name in names
        ]
        for name, held in zip(names, await gatherResults(starting), strict=True):
            await self.read(held.descriptor, f"{name}.".encode())
        self.assertEqual(sorted(await self.keeper.holdings()), sorted(names))


class KeepingTests(HeldCase):
    """What is held while no runtime runs."""

    starts = PROGRAMS

    async def test_killed(self) -> None:
        """A kept command survives the runtime; output meanwhile waits in the terminal."""
        held = await self.spawn("read x; echo after; read y", keep=True)
        self.kill()
        os.write(held.descriptor, b"\n")  # the next runtime's input
        again = await self.take(keep=True)
        self.assertEqual(again.command, held.command)
        await self.read(again.descriptor, b"after")

    async def test_not_kept(self) -> None:
        """Without ``keep`` the end of the connection is a hangup, also for a command that was taken."""
        held = await self.spawn("read x", keep=True)
        os.close(os.dup(held.descriptor))
        self.kill()
        again = await self.take(keep=False)
        await self.keeper.close()
        os.dup2(os.open(os.devnull, os.O_RDWR), held.descriptor)
        os.dup2(held.descriptor, again.descriptor)
        await self.gone(self.pid(held))

    async def test_released(self) -> None:
        """A released command survives without ``keep``; the input that it had not read comes along."""
        held = await self.spawn("read x; read y")
        self.keeper.release("m", b"rest\0\0 of it")
        await self.keeper.close()
        again = await self.take()
        self.assertEqual((again.command, again.input), (held.command, b"rest\0\0 of it"))
        self.assertEqual((await self.client().take("m", self.ended.append, keep=True)).input, b"")

    async def test_ended_meanwhile(self) -> None:
        """The status and the last words of a command that ended meanwhile are there."""
        held = await self.spawn("read x; echo bye; exit 5", keep=True)
        os.write(held.descriptor, b"\n")
        self.kill()
        await self.gone(self.pid(held))
        again = await self.take()
        assert again.status is not None
        self.assertEqual(os.waitstatus_to_exitcode(again.status), 5)
        await self.read(again.descriptor, b"bye")
        self.assertEqual(again.command, held.command)

    async def test_ends_later(self) -> None:
        """The runtime that has taken a command is told about its end, and the one before is not."""
        first, told = self.keeper, []
        held = await first.spawn("m", command("read x; exit 6"), told.append, keep=True)
        self.addCleanup(os.close, held.descriptor)
        await self.take(keep=True)
        os.write(held.descriptor, b"\n")
        await self.until(lambda: self.ended)
        await first.settled()
        self.assertEqual(told, [])

    async def test_holdings(self) -> None:
        """A later runtime sees the names and the commands."""
        held = await self.spawn("read x", keep=True)
        self.kill()
        self.assertEqual(await self.client().holdings(), {"m": held.command})

    async def test_forgotten(self) -> None:
        """What is forgotten is closed, and the name is free."""
        held = await self.spawn("read x", keep=True)
        self.keeper.forget("m")
        self.keeper.forget("m")
        with self.assertRaisesRegex(ServiceUnavailable, "nothing is held"):
            await self.keeper.take("m", self.ended.append, keep=True)
        await self.spawn("exit 0")
        os.kill(self.pid(held), signal.SIGKILL)

    async def test_name_in_use(self) -> None:
        """Two holdings never have one name."""
        await self.spawn("read x")
        with self.assertRaisesRegex(ServiceUnavailable, "in use"):
            await self.spawn("read x")


class LifeTests(HeldCase):
    """The process itself."""

    starts = PROGRAMS

    async def pid_of_keeper(self) -> int:
        held = await self.spawn("read x", "probe")
        process = read_process(self.pid(held))
        assert process is not None
        self.keeper.forget("probe")
        return process.parent

    async def test_lazy(self) -> None:
        """A keeper is started when it is needed, not to ask what it holds."""
        self.assertEqual(await self.keeper.holdings(), {})
        await self.keeper.settled()
        self.keeper.forget("m")
        self.assertEqual(os.listdir(self.directory), [])

    async def test_private(self) -> None:
        """The socket is for this user alone, and the keeper leads a session with no environment."""
        pid = await self.pid_of_keeper()
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
        self.assertEqual(os.getsid(pid), pid)
        with open(f"/proc/{pid}/environ", "rb") as file:
            self.assertEqual(file.read(), b"")

    async def test_small(self) -> None:
        """It loads nothing but Python and its standard library, so it takes little memory."""
        pid = await self.pid_of_keeper()
        with open(f"/proc/{pid}/maps") as file:
            libraries = file.read()
        self.assertIn("libc.", libraries)
        self.assertNotIn("site-packages", libraries)
        self.assertNotIn("ssl", libraries)

    async def test_ends(self) -> None:
        """It ends when it holds nothing and nobody is connected; its socket goes first."""
        pid = await self.pid_of_keeper()
        await self.keeper.close()
        self.assertFalse(os.path.exists(self.path))
        await self.gone(pid)

    async def test_ends_without_leave(self) -> None:
        """So it does when the last runtime is killed."""
        pid = await self.pid_of_keeper()
        await self.keeper.settled()
        self.kill()
        await self.gone(pid)
        self.assertFalse(os.path.exists(self.path))

    async def test_killed_keeper(self) -> None:
        """If the keeper is killed, its commands count as ended, and the next request starts another."""
        await self.spawn("read x")
        pid = await self.pid_of_keeper()
        os.kill(pid, signal.SIGKILL)
        await self.until(lambda: self.ended)
        self.assertEqual(self.ended, [None])
        await self.spawn("exit 0")
        self.assertNotEqual(await self.pid_of_keeper(), pid)

    async def test_cannot_start(self) -> None:
        """A keeper that ends at once is reported with the cause and the path of its log, at each attempt."""
        self.patch(client, "_BOOTSTRAP", "raise SystemExit('no modules')")
        for _ in range(3):
            problem = await self.assertFailure(
                Deferred.fromCoroutine(self.spawn("exit 0")), ServiceUnavailable
            )
            self.assertEqual(
                problem.message,
                "the command cannot be started: the keeper of the machines' terminals has ended: "
                f"no modules; its log is {self.log}",
            )
        os.unlink(self.log)
        os.unlink(self.path)  # which a keeper removes at its own end

    async def test_deleted_state(self) -> None:
        """A keeper ends with what it holds if the state directory or the socket was deleted."""
        self.patch(
            client,
            "_BOOTSTRAP",
            "import sys; sys.path.append(sys.argv[1]); import keeper.process as process;"
            "process._IDLE_SECONDS = 0.05; process.main(sys.argv[2])",
        )
        for path in (self.log, self.path):
            held = None
            while held is None:
                # A keeper that is to be idle for so short a time may end before it has a client.
                with contextlib.suppress(ServiceUnavailable):
                    held = await self.spawn("read x", keep=True)
            pid = await self.pid_of_keeper()
            await self.keeper.settled()
            os.unlink(path)
            self.kill()
            os.dup2(os.open(os.devnull, os.O_RDWR), held.descriptor)
            await self.gone(pid)
            await self.gone(self.pid(held))

    async def test_restart_race(self) -> None:
        """A runtime that comes while the keeper ends gets another keeper."""
        for _ in range(20):
            await self.spawn("exit 0", keep=False)
            self.keeper.forget("m")
            await self.keeper.settled()
            self.kill()
            await pause()  # wait: a race, begun at various moments
