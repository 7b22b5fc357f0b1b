"""
Tests of sessions at a whole runtime whose machines end and start again.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from tests import needs
from tests.runtimes.qemus import COUNTER, boot_rom
from tests.runtimes.support import User, open_console
from tests.runtimes.test_host import ResumeCase
from tests.tiers import PROGRAMS
from twisted_exec.api.status import APIError, Conflict
from twisted_exec.console.notices import LINE_AGAIN
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.program.metrics import metrics_text
from twisted_exec.streaming.interfaces import MACHINE_DELETED, POWERED_OFF
from twisted_exec.wire.marks import Ack, Notice
from twisted_exec.wire.resume import MARKS
from twisted_exec.wire.stream_options import CONSOLE


class RebootCase(ResumeCase):
    """A machine with a user of our client, and one of a stock client."""

    async def open(
        self, session: str, resume: str = MARKS, user: str = "ann", options: Any = CONSOLE
    ) -> User:
        request = pb.ExecRequest(machine_id=self.machine_id)
        answer = await self.client.exec(request, user=user, session=session)
        console = await open_console(
            answer.url, resume=resume, options=options, X_Twisted_Exec_User=user
        )
        self.addCleanup(lambda: console.stream.abort())
        return console

    def notices(self, user: User) -> list[str]:
        return [each.text for each in user.marks if isinstance(each, Notice)]

    async def started_again(self, *users: User) -> None:
        """Wait until users have read that the machine has started again."""
        for user in users:
            if user.stream.resumable is None:
                await self.until(lambda user=user: LINE_AGAIN.encode() in user.got)
            else:
                await self.until(lambda user=user: LINE_AGAIN in self.notices(user))

    async def set_power(self, power: int) -> None:
        request = pb.UpdateMachinePowerRequest(machine_id=self.machine_id, power=power)  # type: ignore[arg-type]
        await self.client.update_machine_power(request)

    def record_types(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.records.getvalue().splitlines()]


class CommandTests(RebootCase):
    """A shell."""

    starts = PROGRAMS
    exact = True

    async def test_killed(self) -> None:
        """A command that is killed starts again, and its sessions go on: no end, no second session."""
        await self.create()
        ours, stock = await self.open("s1"), await self.open("s2", resume="")
        ours.stream.write(b"echo one$((1)); kill -9 $$\n")
        await self.started_again(ours, stock)
        ours.stream.write(b"echo two$((2))\n")
        await self.until(lambda: b"two2\r\n" in ours.got and b"two2\r\n" in stock.got)
        await self.until_seen(ours.got)
        killed = "the process was ended by signal 9"
        waits = f"{killed}; this session waits up to 3600 s for the machine to start again"
        self.assertEqual(self.notices(ours), [waits, LINE_AGAIN])
        self.assertEqual(self.record_types(), ["start", "start"])
        boots = self.machines.runtime.machines.supervisors[self.machine_id].journal.boots()
        self.assertEqual(len(boots), 2)
        self.assertIn(b"one1", ours.got[: boots[1].offset])
        separator = b"\r\n[the process has ended; a new one starts]\r\n"
        self.assertTrue(ours.got[boots[1].offset :].startswith(separator))  # not in logs --previous
        self.assertNotIn(b"one1", ours.got[boots[1].offset :])
        back = await self.back(ours)
        back.stream.write(b"exit 7\n")
        await self.until(lambda: back.gone and stock.gone)
        assert back.ending is not None and stock.ending is not None
        self.assertEqual((back.ending.exit_code, stock.ending.exit_code), (7, 7))
        text = metrics_text(self.machines.streams.registry).decode()
        self.assertIn("twisted_exec_sessions_resumed_total 1.0", text)

    async def test_killed_in_editor(self) -> None:
        """A boot leaves the screen of a dead editor, for each user."""
        await self.create()
        ours, stock = await self.open("s1"), await self.open("s2", resume="")
        ours.stream.write(b"printf '\\033[?%dh' 1049 25; kill -9 $$\n")
        await self.started_again(ours, stock)
        separator = b"\x1b[?1049l\r\n[the process has ended; a new one starts]\r\n"
        await self.until(lambda: separator in ours.got and separator in stock.got)

    async def back(self, user: User) -> User:
        """Lose a user's connection, and resume the session."""
        user.stream.abort()
        await self.until(lambda: self.machines.streams.kept_sessions.absent)
        back = await self.open("s3", self.resume(user, "s1"))
        await self.until(lambda: back.marks)
        self.assertIsInstance(back.marks[0], Ack)
        return back

    async def test_power_cycle(self) -> None:
        """A machine that is switched off and on keeps its sessions; new ones are refused meanwhile."""
        await self.create()
        ours, stock = await self.open("s1"), await self.open("s2", resume="")
        ours.stream.write(b"echo one$((1))\n")
        await self.until(lambda: b"one1\r\n" in stock.got)
        await self.set_power(pb.POWER_OFF)
        await self.until(lambda: not self.alive())
        with self.assertRaises(APIError) as caught:
            await self.open("s4")
        self.assertEqual(caught.exception.code, Conflict.code)
        back = await self.back(ours)
        back.stream.write(b"echo typed-while-off\n")
        await self.until(lambda: any("is not sent" in text for text in self.notices(back)))
        await self.set_power(pb.POWER_ON)
        await self.started_again(back, stock)
        back.stream.write(b"echo two$((2))\n")
        await self.until(lambda: b"two2\r\n" in stock.got)
        self.assertNotIn(b"typed-while-off", self.printed())
        await self.until_seen(ours.got, back.got)

    async def test_two_connections(self) -> None:
        """A user whose loss nobody has noticed yet resumes the session of a machine that is off."""
        await self.create()
        ours = await self.open("s1")
        await self.until(lambda: len(ours.marks) > 1)
        await self.set_power(pb.POWER_OFF)
        await self.until(lambda: not self.alive())
        back = await self.open("s2", self.resume(ours, "s1"))
        await self.until(lambda: ours.gone)
        await self.set_power(pb.POWER_ON)
        await self.started_again(back)

    async def test_stays_off(self) -> None:
        """A machine that stays off ends its sessions after the time, with the reason."""
        await self.create(resume_seconds=1)
        ours, stock = await self.open("s1"), await self.open("s2", resume="")
        await self.set_power(pb.POWER_OFF)
        await self.until(lambda: ours.gone and stock.gone)
        for user in (ours, stock):
            assert user.ending is not None
            self.assertEqual(user.ending.reason, POWERED_OFF)

    async def test_disabled(self) -> None:
        """With ``--resume-seconds 0`` sessions end with their machine."""
        await self.create(resume_seconds=0)
        killed = await self.open("s1")
        killed.stream.write(b"kill -9 $$\n")
        await self.until(lambda: killed.gone)
        assert killed.ending is not None
        self.assertEqual(killed.ending.exit_code, 137)

    async def test_deleted(self) -> None:
        """A machine that is deleted while its sessions wait ends them at once."""
        await self.create()
        ours, stock = await self.open("s1"), await self.open("s2", resume="")
        await self.until(lambda: ours.marks)
        await self.set_power(pb.POWER_OFF)
        await self.until(lambda: not self.alive())
        await self.client.delete_machine(pb.DeleteMachineRequest(machine_id=self.machine_id))
        await self.until(lambda: ours.gone and stock.gone)
        for user in (ours, stock):
            assert user.ending is not None
            self.assertEqual(user.ending.reason, MACHINE_DELETED)

    async def test_script(self) -> None:
        """A session without a terminal ends with the command that is killed."""
        await self.create()
        script = await self.open("s1", resume="", options=None)
        script.stream.write(b"kill -9 $$\n")
        await self.until(lambda: script.gone)
        assert script.ending is not None
        self.assertEqual(script.ending.exit_code, 137)


class VirtualMachineTests(RebootCase):
    """A virtual machine that counts from 0."""

    starts = PROGRAMS
    exact = True
    skip = needs.qemu()

    async def test_crash(self) -> None:
        """The emulator is killed; the next boot begins behind the last byte of the one before."""
        firmware = os.path.join(self.directory, "counter.rom")
        with open(firmware, "wb") as file:
            file.write(boot_rom(COUNTER))
        vm: dict[str, Any] = {"name": "vm", "driver": "qemu", "firmware": firmware}
        vm["capabilities"] = {"cpu": 1, "memory": "16Mi"}
        await self.start(vm)
        await self.create("vm")
        ours, stock = await self.open("s1"), await self.open("s2", resume="")
        await self.until(lambda: len(ours.got) > 1000)
        (pid,) = self.alive()
        os.kill(pid, signal.SIGKILL)
        await self.started_again(ours, stock)
        (start,) = (boot.offset for boot in self.boots_of() if boot.number == 2)
        await self.until(lambda: len(ours.got) > start + 1000)
        for part in (ours.got[:start], ours.got[start : start + 999]):
            lines = bytes(part).split(b"\n")[:-1]
            self.assertEqual(lines, [b"%08x" % number for number in range(len(lines))])
        self.assertIn('the emulator of "default/x" ended', self.notices(ours)[0])

    def boots_of(self) -> Any:
        return self.machines.runtime.machines.supervisors[self.machine_id].journal.boots()
