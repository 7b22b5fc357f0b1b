"""Tests for local spaces, with the provider contract."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from dataclasses import replace
from typing import Any

from twisted.trial.unittest import TestCase

from tests.contracts.space_provider import SpaceProviderContract
from tests.contracts.space_world import SpaceWorld, pause, secrets_of
from tests.spacemanager.providers.local.world import SMALL, LocalWorld, busy_port, command
from tests.tiers import PROGRAMS
from twisted_exec.api.status import AlreadyExists, ServiceUnavailable
from twisted_exec.spacemanager.interfaces import (
    BROKEN,
    BUILDING,
    GOING,
    USABLE,
    Physical,
    SpaceInfo,
    SpaceRequest,
)
from twisted_exec.spacemanager.providers.local import processes, records
from twisted_exec.spacemanager.providers.local import provider as local
from twisted_exec.spacemanager.providers.local.processes import environment
from twisted_exec.spacemanager.providers.local.space import ACCESS

NEWLINE = "\n"
SESSIONS = (
    "2026-11-21T17:00:00+0000 [twisted_exec.program.start#info] "
    "exec-standalone: at most 3300 sessions, 660 of one user"
)


class LocalContractTests(SpaceProviderContract, TestCase):
    """Tests for :class:`LocalProvider`."""

    starts = PROGRAMS

    def make_world(self) -> SpaceWorld:
        return LocalWorld(os.path.abspath(self.mktemp()))


class KeptTests(TestCase):
    """Behaviour of local spaces as child processes of the manager."""

    starts = PROGRAMS

    def setUp(self) -> None:
        self.world = LocalWorld(os.path.abspath(self.mktemp()))
        self.provider: Any = self.world.make()
        self.red, self.green = Physical("red"), Physical("green")

    async def tearDown(self) -> None:
        for provider in self.world.providers:
            await provider.close()
        await self.world.stop()

    async def test_full(self) -> None:
        """
        The number of local spaces is limited; a refused create leaves nothing.
        """
        self.patch(local, "MAX_SPACES", 0)
        with self.assertRaises(ServiceUnavailable) as caught:
            await self.provider.create(self.red, SpaceRequest("uid"))
        self.assertIn("there are 0 already", caught.exception.message)
        self.assertEqual(await self.provider.list_names(), [])

    async def usable(self, physical: Physical) -> SpaceInfo:
        """Create a space if it does not exist, and wait until it is usable."""
        await pause(0)
        await self.provider.create(physical, SpaceRequest("owner"))
        return await self.until_state(physical, USABLE)

    async def until_state(self, physical: Physical, state: str) -> SpaceInfo:
        while True:
            info: SpaceInfo = await self.provider.get(physical)
            if info.state == state:
                return info
            await pause(0.01)

    def pid(self, physical: Physical) -> int:
        (found,) = [
            space.pid for space in self.provider.spaces() if space.record.physical == physical
        ]
        assert found is not None
        return found

    def port(self, physical: Physical) -> str:
        return command(self.pid(physical)).split()[-1]

    async def test_killed_alone(self) -> None:
        """A killed space restarts at its port; other spaces are not affected."""
        before = await self.usable(self.red)
        await self.usable(self.green)
        red, green, port = self.pid(self.red), self.pid(self.green), self.port(self.red)
        hints: list[Physical | None] = []
        self.provider.watch(hints.append)
        os.kill(red, signal.SIGKILL)
        info = await self.until_state(self.red, BUILDING)
        self.assertEqual(info.reason, "Restarting")
        self.assertEqual(
            info.message, "its process ended: killed by signal 9 (SIGKILL); it is started again"
        )
        after = await self.until_state(self.red, USABLE)
        self.assertEqual((after.uid, after.access), (before.uid, before.access))
        self.assertNotEqual(self.pid(self.red), red)
        self.assertEqual((self.pid(self.green), self.port(self.red)), (green, port))
        # The hint None, for no single space, may come at any time.
        self.assertIn(self.red, hints)
        self.assertNotIn(self.green, hints)

    async def test_deleted(self) -> None:
        """The sessions of a deleted space end before its process, and it is deleted even if they cannot be ended."""
        await self.usable(self.red)
        pid = self.pid(self.red)
        await self.provider.delete(self.red, "owner")
        while await self.provider.list_names():
            await pause(0.01)
        ((path, pids),) = self.world.without_sessions
        self.assertTrue(path.endswith("admin.kubeconfig"), path)
        self.assertEqual((pids, self.world.pids()), ([pid], []))

    async def test_another_manager(self) -> None:
        """The next manager has the same spaces, at the same ports, with the same kubeconfigs."""
        before = await self.usable(self.red)
        port = self.port(self.red)
        await self.provider.close()
        self.assertEqual(self.world.pids(), [])
        self.provider = self.world.make()
        self.assertEqual(await self.provider.list_names(), [self.red])
        after = await self.until_state(self.red, USABLE)
        self.assertEqual((after.uid, after.access), (before.uid, before.access))
        self.assertEqual(self.port(self.red), port)

    async def test_in_use(self) -> None:
        """A second adaptor on the directory fails with the PID of the first."""
        await self.usable(self.red)
        second = self.world.make()
        with self.assertRaises(ServiceUnavailable) as caught:
            await second.list_spaces()
        self.assertIn(f"in use by process {os.getpid()}", caught.exception.message)

    async def test_next_manager(self) -> None:
        """
        The next manager restarts existing spaces, and reports them as starting until they serve.
        """
        await self.usable(self.red)
        await self.provider.close()
        self.provider = self.world.make()
        info = await self.provider.get(self.red)
        self.assertEqual((info.state, info.message), (BUILDING, "it is being started"))
        await self.until_state(self.red, USABLE)

    async def ends(self, *lines: str, then: str) -> str:
        """
        Run a process that writes lines and ends; return how its space reports the end.

        :param then: statement that ends it.
        """
        program = f"import os; print({NEWLINE.join(lines)!r}, flush=True); {then}"
        self.world.means = replace(
            self.world.means,
            argv=lambda state, port: [sys.executable, "-I", "-S", "-c", program],
        )
        self.provider = self.world.make()
        await self.provider.create(self.red, SpaceRequest("owner"))
        while not (info := await self.provider.get(self.red)).message:
            await pause(0.01)
        self.assertEqual((info.state, info.reason), (BUILDING, "Restarting"))
        before, _, after = info.message.partition("its process ended: ")
        how, _, after = after.rpartition("; ")
        self.assertEqual((before, after), ("", "it is started again"))
        return how

    async def test_why_it_cannot_start(self) -> None:
        """The message of a space whose process ended has the exit code and the last error."""
        how = await self.ends(
            "exec-standalone: the disk is full: free some", then="raise SystemExit(1)"
        )
        self.assertEqual(how, "exited with code 1: the disk is full: free some")

    async def test_killed_after_output(self) -> None:
        """A killed process is reported with the signal, whatever it logged before."""
        how = await self.ends(SESSIONS, then="os.kill(os.getpid(), 9)")
        self.assertEqual(how, "killed by signal 9 (SIGKILL)")

    async def test_failed_after_output(self) -> None:
        """The last warning or error of the log is the reason; later lines of level info are not."""
        critical = "2026-11-21T17:00:00+0000 [a.b#critical] exec-standalone: cannot listen"
        for lines, how in (
            ([SESSIONS], "exited with code 3"),
            ([critical, SESSIONS], "exited with code 3: cannot listen"),
            (["Traceback:", "  raise", "OSError: broken"], "exited with code 3: OSError: broken"),
        ):
            self.assertEqual(await self.ends(*lines, then="raise SystemExit(3)"), how)
            await self.provider.close()

    async def test_ended(self) -> None:
        """A process that ends without an error is reported with exit code 0."""
        warning = "2026-11-21T17:00:00+0000 [a.b#warn] the clock went back"
        self.assertEqual(await self.ends(warning, then="pass"), "exited with code 0")

    async def test_no_port_left(self) -> None:
        """A space waits for a free port of the range, and says so; then it gets that port."""
        with busy_port(self) as port:
            self.world.means = replace(self.world.means, ports=range(port, port + 1))
            self.provider = self.world.make()
            await self.provider.create(self.red, SpaceRequest("owner"))
            while not (info := await self.provider.get(self.red)).message:
                await pause(0.01)
            self.assertEqual((info.state, info.reason), (BUILDING, "NoPort"))
            self.assertIn(f"no free port from {port} to {port}", info.message)
            self.assertNotIn("process ended", info.message)
        await self.until_state(self.red, USABLE)
        self.assertEqual(self.port(self.red), str(port))

    async def test_deaf(self) -> None:
        """A process that ignores SIGTERM is killed with its process group."""
        deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
        small = SMALL.replace("sys.stdin.read()", "import time; time.sleep(600)")
        fork = f"{deaf}\n{small}".replace("import time", "os.fork(); import time")
        self.world.means = replace(
            self.world.means,
            argv=lambda state, port: [sys.executable, "-I", "-S", "-c", fork, state, str(port)],
        )
        self.patch(processes, "STOP_SECONDS", 0.05)
        self.provider = self.world.make()
        await self.usable(self.red)
        self.assertGreater(len(self.world.pids()), 0)
        await self.provider.close()
        while self.world.pids():
            await pause(0.01)

    async def test_damaged(self) -> None:
        """A damaged record breaks only its own space, and is not touched."""
        await self.usable(self.red)
        path = self.world.record(self.green)
        with open(path, "w") as file:
            file.write('{"uid": "../../red"}')
        green, red = await self.provider.list_spaces()
        self.assertEqual((red.state, green.state, green.owner), (USABLE, BROKEN, None))
        self.assertIn(path, green.message)
        with self.assertRaises(AlreadyExists):
            await self.provider.create(self.green, SpaceRequest("owner"))
        for owner in ("owner", ""):
            # Not a Conflict, because its Space would then go and leave the process running.
            with self.assertRaises(ServiceUnavailable) as told:
                await self.provider.delete(self.green, owner)
            self.assertIn(path, told.exception.message)
        self.assertTrue(os.path.exists(path))

    def looking(self) -> bool:
        """Return whether the provider looks for changes."""
        return bool(self.provider._checking.running)

    async def test_put_right(self) -> None:
        """A record that was briefly unreadable is read again, even without a change."""
        await self.usable(self.red)
        path = self.world.record(self.red)
        with open(path, "rb") as file:
            content = file.read()
        with open(path, "wb") as file:
            file.write(b"?" * len(content))
        damaged = os.stat(path)
        self.assertEqual((await self.provider.get(self.red)).state, BROKEN)
        with open(path, "wb") as file:
            file.write(content)
        os.utime(path, ns=(damaged.st_atime_ns, damaged.st_mtime_ns))
        self.assertEqual((await self.provider.get(self.red)).state, USABLE)

    async def test_full_disk(self) -> None:
        """
        On a full disk, creating fails but deleting works, and removes the process and its files.
        """
        await self.usable(self.red)
        before = self.pid(self.red)

        def full(path: str, content: bytes) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        self.patch(records, "write_private", full)
        with self.assertRaises(ServiceUnavailable) as told:
            await self.provider.create(self.green, SpaceRequest("owner"))
        self.assertIn("No space left", told.exception.message)
        home = self.world.home(self.red)
        await self.provider.delete(self.red, "owner")
        self.assertEqual((await self.provider.get(self.red)).state, GOING)
        while await self.provider.list_names():
            await pause(0.01)
        self.assertFalse(os.path.exists(home))
        with self.assertRaises(ProcessLookupError):
            os.kill(before, 0)

    async def test_directory_is_a_file(self) -> None:
        """
        If the state directory cannot be read, calls fail with 503 until it can be read again.
        """
        await self.usable(self.red)
        above = os.path.dirname(self.world.path)
        os.rename(above, above + ".away")
        with open(above, "w"):
            pass
        for ask in (
            lambda: self.provider.get(self.red),
            lambda: self.provider.create(self.green, SpaceRequest("o")),
        ):
            with self.assertRaises(ServiceUnavailable):
                await ask()
        stamp, looks = records.Store.stamp, []

        def counted(store: records.Store) -> int:
            looks.append(None)
            return stamp(store)

        self.patch(records.Store, "stamp", counted)
        while len(looks) < 2:
            await pause(0.05)
        self.assertTrue(self.looking())
        os.remove(above)
        os.rename(above + ".away", above)
        self.assertEqual((await self.provider.get(self.red)).state, USABLE)

    async def test_look_that_fails(self) -> None:
        """An unexpected error about one space is logged, once; looks go on."""
        await self.usable(self.red)
        (space,) = self.provider.spaces()
        looks = 0

        def failing() -> None:
            nonlocal looks
            looks += 1
            raise KeyError("nobody thought of")

        self.patch(space, "maintain", failing)
        self.patch(local, "CHECKS_PER_MAINTENANCE", 1)
        while looks < 2:
            await pause(0.01)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    async def test_renewed(self) -> None:
        """A kubeconfig near its expiry is renewed without restarting the space."""
        before = await self.usable(self.red)
        pid = self.pid(self.red)
        (space,) = self.provider.spaces()
        self.world.means = replace(self.world.means, now=lambda: time.time() + 340 * 86400)
        space._environment = self.world.means
        space.maintain()
        while (after := await self.provider.get(self.red)).access == before.access:
            await pause(0.01)
        self.assertEqual((after.uid, self.pid(self.red)), (before.uid, pid))
        self.assertNotEqual(after.version, before.version)

    async def test_secrets_are_private(self) -> None:
        """Files of a space are private; its log and environment have no token."""
        info = await self.usable(self.red)
        home = self.world.home(self.red)
        for path in (home, os.path.join(home, ACCESS), self.world.record(self.red)):
            self.assertEqual(os.stat(path).st_mode & 0o077, 0, path)
        (secret,) = secrets_of(info.access["External"].kubeconfig)
        with open(os.path.join(home, "log")) as log:
            self.assertNotIn(secret, log.read())
        self.assertNotIn("TOKEN", environment({"MY_TOKEN": "x", "PATH": "/bin"}))
