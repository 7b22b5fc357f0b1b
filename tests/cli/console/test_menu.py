"""Tests for :mod:`twisted_exec.cli.console.menu` and its dialogs, in a session."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from tests.cli.console.test_session import FakeStream, SessionCase
from tests.console.test_floor import Person
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.kinds import CONSOLERECORDINGS
from twisted_exec.api.kinds.reviews import SELFSUBJECTREVIEWS
from twisted_exec.api.status import Forbidden, GatewayTimeout
from twisted_exec.cli.console.escape import EscapeCommand, parse_escape
from twisted_exec.cli.console.interfaces import NextSession
from twisted_exec.cli.console.menu import (
    BEGIN_SECONDS,
    NO_SERVER,
    OFF_SECONDS,
    MachineAccess,
    act,
    switch_on_again,
)
from twisted_exec.cli.console.session import NO_SCREEN, Outcome
from twisted_exec.console.floor import Floor
from twisted_exec.console.notices import RESTARTED
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.wire.endings import COMPLETED, POWERED_OFF, Ending
from twisted_exec.wire.marks import Attendance, Notice, NoticeKind, NoticeRole
from twisted_exec.wire.resize import TerminalSize


class FakeClient:
    """An API server's machines; ``power`` has the patches."""

    def __init__(self) -> None:
        self.machines = {"a": "Running", "b-1": "Shutdown", "b-2": "Running\x1b[2J"}
        self.power: list[tuple[str, str]] = []
        self.recorded: list[Any] = []
        self.recordings: list[Any] = []
        self.ended: list[str] = []
        self.refusal: Exception | None = None
        self.silent = False
        self.spec = {"power": "On"}
        self.ready: dict[str, str] = {}
        self.conditions: list[dict[str, str]] = []
        self.asked: dict[str, str] = {}
        self.review: Any = {"status": {"allowed": True}}
        self.denied: tuple[str, str] | None = None
        self.reading_recordings: Callable[[str], Deferred[Any]] = lambda name: succeed(
            {"status": {"phase": "Recording"}}
        )

    def get(self, resource: Any, name: str, namespace: str) -> Deferred[Any]:
        if self.silent:
            return Deferred()
        if resource is CONSOLERECORDINGS.resource:
            return self.reading_recordings(name)
        conditions = [{"type": "Ready", **self.ready}, *self.conditions]
        status = {"state": self.machines[name], "conditions": conditions}
        return succeed({"status": status, "spec": self.spec})

    async def create(self, resource: Any, review: Any, namespace: str | None = None) -> Any:
        if resource is SELFSUBJECTREVIEWS.resource:
            return {"status": {"userInfo": {"username": "eve@x"}}}
        if resource is CONSOLERECORDINGS.resource:
            if self.refusal is not None:
                raise self.refusal
            self.recorded.append({**review, "namespace": namespace})
            return {"metadata": {"name": "a-x7"}}
        self.asked = review["spec"]["resourceAttributes"]
        if (self.asked["verb"], self.asked["resource"]) == self.denied:
            return {"status": {"allowed": False}}
        return await self.review if isinstance(self.review, Deferred) else self.review

    def list(self, resource: Any, namespace: str, trim: Callable[[Any], Any]) -> Deferred[Any]:
        if self.silent:
            return Deferred()
        if self.refusal is not None:
            return fail(self.refusal)
        if resource is CONSOLERECORDINGS.resource:
            return succeed({"items": list(map(trim, self.recordings))})
        items = [
            trim({"metadata": {"name": name}, "status": {"state": state}, "spec": {}})
            for name, state in self.machines.items()
        ]
        return succeed({"items": items})

    async def patch(self, resource: Any, name: str, patch: Any, namespace: str) -> Any:
        if self.refusal is not None:
            raise self.refusal
        if resource is CONSOLERECORDINGS.resource:
            self.ended += [name] * patch["spec"]["ended"]
            return
        self.power.append((name, patch["spec"]["power"]))


class FakeAccess(MachineAccess):
    """Access to the machine ``a``."""

    fake: FakeClient

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Any]:
        yield self.fake


class MenuCase(SessionCase):
    """A session at a terminal of 60 columns and 6 rows."""

    def setUp(self) -> None:
        self.client = FakeClient()
        self.drawn = b""
        self.said: list[str] = []
        self.full_screen = False
        self.directory = self.mktemp()
        os.mkdir(self.directory)

    def open(self, *, with_server: bool = True, **more: Any) -> FakeStream:
        """Open a session of the machine ``a``."""

        def carry_out(command: EscapeCommand, dialog: Any, scrollback: Any) -> Any:
            access = self.access(self.clock) if with_server else None
            return act(command, dialog, scrollback, "a", access)

        self.begin(
            escapes=parse_escape("^],~"),
            act=carry_out,
            draw=self.draw,
            say=self.said.append,
            full_screen=lambda: self.full_screen,
            moves_cursor=True,
            **{"size": lambda: TerminalSize(60, 6), **more},
        )
        return self.attach()

    def access(self, clock: Clock | None = None) -> FakeAccess:
        config = ClientConfig("https://server", namespace="ns")
        access = FakeAccess(config, IRONCORE, "a", "agent", clock or Clock())
        object.__setattr__(access, "fake", self.client)
        return access

    def draw(self, data: bytes) -> None:
        self.drawn += data

    def type(self, *pieces: bytes) -> str:
        """Type; return what was drawn."""
        self.drawn = b""
        for piece in pieces:
            self.session.typed(piece)
        return self.drawn.decode()


class EndTests(MenuCase):
    """Sessions that end at a question."""

    def test_new_line(self) -> None:
        """What follows begins a line, also behind an answer that is being typed."""
        for keys, question in ((b"~P", "any other key cancels: "), (b"~Lx", ": x")):
            for output in (b"", b"$ "):
                for end in (
                    lambda: self.session.typed(b"\x1d"),
                    lambda: self.session.detached("gone"),
                ):
                    self.open()
                    self.session.data_received(output)
                    self.assertTrue(self.type(keys).endswith(question), self.drawn)
                    end()
                    drawn = f"{question}\r\n".encode()
                    self.assertTrue(self.drawn.endswith(drawn), self.drawn)


class ScrollbackTests(MenuCase):
    """Scrollback, search and save."""

    def test_view(self) -> None:
        """The view has the terminal until q; the machine's output and messages wait, and no key is sent."""
        stream = self.open()
        self.session.data_received(b"one\r\ntwo\r\n")
        drawn = self.type(b"~H")
        self.assertTrue(drawn.startswith("\x1b[?1049h"))
        self.assertIn("two", drawn)
        self.session.data_received(b"three\r\n")
        self.session.typed(b"xj")
        self.assertEqual(self.sink.written, b"one\r\ntwo\r\n")
        self.assertTrue(self.type(b"q").endswith("\x1b[?1049l"))
        self.assertEqual(self.sink.written, b"one\r\ntwo\r\nthree\r\n")
        self.assertEqual((stream.told[1:], stream.sent), (["pause", "pause", "resume"], b""))
        self.session.typed(b"next")
        self.assertEqual(stream.sent, b"next")

    def test_low_window(self) -> None:
        """The view begins at the last lines of the window, and a search shows the line it has found."""
        self.open()
        self.session.data_received(b"".join(b"line %d\r\n" % each for each in range(1, 41)))
        self.assertIn("36-40 of 40", self.type(b"~H"))
        self.type(b"q")
        self.assertIn("\x1b[1m\x1b[7mline 20\x1b[27m", self.type(b"~G", b"line 20\r"))

    def test_search(self) -> None:
        """A text opens the view where it is; without a text nothing opens."""
        self.open()
        self.session.data_received(b"\r\n".join([b"needle", *[b"hay"] * 50]))
        self.assertIn("\x1b[1m\x1b[7mneedle", self.type(b"~G", b"nex\x7fedle\r"))
        self.type(b"q")
        self.assertNotIn("\x1b[?1049h", self.type(b"~G", b"needle", b"\x1b"))
        drawn = self.type(b"~G", b"none\r")
        self.assertTrue(drawn.endswith('\r\nNo line has "none".\r\n'), drawn)
        self.assertIn("hay", self.type(b"~G", b"hay\r", b"/"))
        self.assertIn("\x1b[1m\x1b[7mneedle", self.type(b"\x15needle\r"))
        self.assertRegex(self.type(b"n"), r'no earlier line has "needle"  q quit +\x1b\[m\Z')

    def test_other_screen(self) -> None:
        """A view over an editor shares its screen; then a change of size makes the editor draw again."""
        stream = self.open()
        self.full_screen = True
        self.assertNotIn("1049", self.type(b"~H", b"q"))
        self.assertEqual(stream.told[-2:], [(60, 5), (60, 6)])

    def test_save(self) -> None:
        """The lines are in a new file that only its user can read; another file is never replaced."""
        self.open()
        self.session.data_received(b"\x1b[31mone\x1b[m\r\ntwo")
        path = os.path.join(self.directory, "log")
        drawn = self.type(b"~W", path.encode() + b"\r")
        words = " ".join(drawn.split())  # messages are broken at blanks
        self.assertIn(f"is a file in {os.getcwd()}.", words)
        self.assertIn("Save 2 lines in [a-", drawn)
        self.assertIn(f"Saved 2 lines in {os.path.abspath(path)}.", words)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "one\ntwo\n")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.assertIn("Nothing was saved.", self.type(b"~W", b"\x03"))

    def test_other_name(self) -> None:
        """A name that cannot be used is asked for again; no key reaches the machine."""
        stream = self.open()
        self.session.data_received(b"one")
        path = os.path.join(self.directory, "log")
        with open(path, "w", encoding="utf-8"):
            pass
        drawn = self.type(b"~W", path.encode() + b"\r")
        self.assertIn("exists, and is left as it is", drawn)
        self.assertTrue(drawn.endswith("]: "), drawn)
        drawn = " ".join(self.type(f"{path}/x\r".encode()).split())
        self.assertIn("x cannot be written: Not a directory; give another name.", drawn)
        self.assertIn("Saved 1 line in", self.type(f"{path}-2\r".encode()))
        self.assertEqual(stream.sent, b"")

    def test_save_view(self) -> None:
        """The view saves, too, and says so in its last row."""
        self.open()
        self.session.data_received(b"one")
        path = os.path.join(self.directory, "log")
        self.assertIn("] (Ctrl-C cancels): ", self.type(b"~H", b"w"))
        self.assertIn("nothing was saved", self.type(b"\x03"))
        self.assertIn("Saved 1 line in ", self.type(b"w", path.encode() + b"\r"))
        self.assertTrue(os.path.exists(path))
        again = self.type(b"w", path.encode() + b"\r")
        self.assertIn("one", again.rpartition("(Ctrl-C cancels)")[2], "the view goes on")

    def test_resized(self) -> None:
        """A view is drawn anew when the terminal has another size."""
        self.open()
        self.type(b"~H")
        self.drawn = b""
        self.session.window_changed()
        self.assertIn(b"no lines", self.drawn)

    def test_leave(self) -> None:
        """The key that leaves does so in a view, which is closed first."""
        self.open()
        self.session.data_received(b"one\r\n")
        self.type(b"~H")
        self.session.data_received(b"two\r\n")
        self.assertTrue(self.type(b"\x1d").endswith("\x1b[?1049l"))
        self.sink.flush()
        self.session.detached("")
        self.assertEqual((self.outcome(), self.sink.written), (Outcome(), b"one\r\ntwo\r\n"))

    def test_ended(self) -> None:
        """The end of the session closes a view."""
        self.open()
        self.type(b"~H")
        self.session.ended(Ending(COMPLETED))
        self.assertTrue(self.drawn.endswith(b"\x1b[?1049l"))

    def test_no_terminal(self) -> None:
        """
        Without a place to draw, and before the session is open, there is no dialog.

        The machine does not get the keys that follow a command for one.
        """
        self.begin(escapes=parse_escape("^],~"), say=self.said.append, act=self.fail)
        self.attach()
        for command in (b"~H", b"~L", b"~P", b"~R", b"~M"):
            self.session.typed(command)
            self.assertEqual(self.said.pop(), NO_SCREEN)
        self.begin(
            escapes=parse_escape("^],~"), say=self.said.append, draw=self.draw, act=self.fail
        )
        self.session.typed(b"a\r~P")
        self.session.typed(b"fy")
        stream = self.attach()
        (told,) = self.said
        self.assertEqual(
            told, "this command works when the console is open; no further key is sent until then"
        )
        self.assertEqual((stream.sent, self.session.discarded_keys, self.drawn), (b"a\r", 2, b""))


class NarrowTests(MenuCase):
    """Questions in a window of 20 columns."""

    def open(self, **more: Any) -> FakeStream:
        return super().open(size=lambda: TerminalSize(20, 8), **more)

    def test_line(self) -> None:
        """The prompt is printed once, and only its last row again behind each key."""
        stream = self.open()
        stream.attendance, stream.is_resumable = Attendance(2, message_characters=200), True
        self.assertEqual(self.type(b"~M").split("\r\n"), ["Message to all", "\r\x1b[K  viewers: "])
        self.assertEqual(self.type(b"h", b"i"), "\r\x1b[K  viewers: h\r\x1b[K  viewers: hi")
        self.type(b"\r")
        self.type(b"~W")
        rows = re.split(r"\r\n|\r\x1b\[K", self.type(b"x"))
        self.assertLess(max(map(len, rows)), 20, rows)

    def test_key(self) -> None:
        """A question is broken at blanks."""
        self.open()
        rows = self.type(b"~P").split("\r\n")
        self.assertLessEqual(max(map(len, rows)), 20)
        question = " ".join(row.strip() for row in rows[-4:])
        self.assertIn("r reset (off and on); any other key cancels:", question)
        rows = self.type(b"r").split("\r\n")
        self.assertEqual(rows[-3:], ["y confirms; any", "  other key", "  cancels: "])

    def test_view(self) -> None:
        """The prompt in the last row of a view stays in that row."""
        self.open()
        self.session.data_received(b"one\r\n")
        self.type(b"~H")
        self.assertIn("C cancels): ", drawn := self.type(b"w"))
        self.assertLess(len(drawn.rpartition("\x1b[K")[2]), 20)
        self.type(b"\x03", b"q")


class MachinesTests(MenuCase):
    """Another machine."""

    def test_switch(self) -> None:
        """A number, a name, or a part of one ends this session and names the next one."""
        for answer, machine in ((b"2", "b-1"), (b"b-2", "b-2"), (b"-1", "b-1")):
            stream = self.open()
            drawn = self.type(b"~L")
            self.assertIn("Machines in namespace ns:\r\n   1  a    Running  (this one)", drawn)
            self.assertIn("   3  b-2  Running?[2J\r\n", drawn)
            self.type(answer + b"\r")
            self.assertEqual(stream.told[-1], "leave")
            self.sink.flush()
            self.session.detached("")
            self.assertEqual(self.outcome(), Outcome(next=NextSession(machine)))

    def test_ahead(self) -> None:
        """What is typed behind the command is for the dialog, also if it comes with it."""
        stream = self.open()
        self.type(b"~Lb-1\r")
        self.assertEqual((stream.told[-1], stream.sent), ("leave", b""))

    def test_behind_ahead(self) -> None:
        """The machine has nothing of that, so the next command needs no Enter."""
        stream = self.open()
        self.type(b"~L1\r")
        self.type(b"~Lx")
        self.type(b"\x03")
        self.assertIn("This is the console of a.", self.type(b"~L", b"1\r"))
        self.assertEqual(stream.sent, b"")

    def test_stay(self) -> None:
        """Enter, Ctrl-C and the machine itself change nothing; a part of many names counts and lists these."""
        stream = self.open()
        matches = '2 names in namespace ns have "b" in them:\r\n   1  b-1  Shutdown\r\n   2  b-2'
        self.assertIn(matches, self.type(b"~L", b"b\r"))
        self.type(b"\r")
        self.assertIn('No name in namespace ns has "none" in it', self.type(b"~L", b"none\r"))
        self.type(b"\x03")
        self.assertIn("This is the console of a.", self.type(b"~L", b"1\r"))
        self.session.typed(b"ls\r")
        self.assertEqual((stream.sent, "leave" in stream.told), (b"ls\r", False))

    def test_many(self) -> None:
        """A list that is longer than the terminal is cut, and says so."""
        for count, more in ((4, ""), (5, "and 2 more: type a part of the name")):
            self.client.machines = {f"m-{number}": "Running" for number in range(count)}
            self.open()
            shown = self.type(b"~L").partition("Machines in")[2]
            rows = shown.split("\r\n")[1:-1]
            self.assertEqual(len(rows), 4, rows)
            self.assertEqual("more" in rows[-1], bool(more))
            self.assertIn(more, rows[-1])

    def test_no_server(self) -> None:
        """A console from a runtime knows no machines, and the machine does not get the answers."""
        stream = self.open(with_server=False)
        for keys in (b"~L2\r", b"~Pfy\r", b"~Ry\r", b"~L\x03"):
            self.assertIn(NO_SERVER, self.type(keys).replace("\r\n  ", " "))
        self.assertEqual(stream.sent, b"")
        self.session.typed(b"ls\r")
        self.assertEqual(stream.sent, b"ls\r")

    def test_forbidden(self) -> None:
        """A user without the right reads the refusal, and the machine does not get the answer."""
        stream = self.open()
        self.client.refusal = Forbidden('User "eve" cannot list resource "machines"')
        drawn = self.type(b"~L", b"2\r")
        self.assertIn('cannot list resource "machines"', drawn)
        self.assertIn("Output waits; Enter goes on: 2", drawn)
        self.assertEqual(stream.sent, b"")
        self.assertIn("cannot list", self.type(b"~L"))
        self.session.typed(b"\x1d")
        self.assertEqual((stream.sent, stream.told[-1]), (b"", "leave"))

    def test_missing_right(self) -> None:
        """A right that the user lacks has its own words, and not those of RBAC."""
        self.open()
        self.client.refusal = Forbidden(
            'machines.compute.ironcore.dev is forbidden: User "eve" cannot list resource "machines" in API group '
            '"compute.ironcore.dev" in the namespace "ns"'
        )
        drawn = self.type(b"~L").replace("\r\n  ", " ")
        self.assertIn("you may not list machines in namespace ns; ask an administrator", drawn)
        self.assertNotIn("API group", drawn)


class PowerTests(MenuCase):
    """The power of the machine."""

    def test_power(self) -> None:
        """One key chooses what the machine is not yet; y confirms that it is to be off."""
        for key, power in ((b"o", "On"), (b"f", "Off")):
            self.open()
            self.client.power = []
            self.client.spec = {"power": "On" if power == "Off" else "Off"}
            drawn = self.type(b"~P")
            self.assertIn(f"Machine a is Running; its power is {self.client.spec['power']}.", drawn)
            self.assertEqual(("o on" in drawn, "f off" in drawn), (power == "On", power == "Off"))
            drawn = self.type(key)
            if power == "Off":
                self.assertTrue(all(len(row) < 60 for row in drawn.split("\r\n")), drawn)
                self.assertEqual(self.client.power, [])
                drawn = self.type(b"y")
            self.assertIn("a is being powered", drawn)
            self.assertEqual(self.client.power, [("a", power)])

    def test_not_ready(self) -> None:
        """Why a machine is not ready is said, such as that others have switched its server off."""
        self.open()
        self.client.ready = {"status": "False", "message": "the server is off\x1b[2J, switch it on"}
        drawn = self.type(b"~P").replace("\r\n", "\n").replace("\n  ", " ")
        self.assertIn("its power is On.\nIt is not ready: the server is off", drawn)
        self.assertNotIn("\x1b[2J", drawn)

    def test_off_as_asked(self) -> None:
        """A machine that is off as its user wants has no problem."""
        self.open()
        self.client.machines["a"], self.client.spec = "Shutdown", {"power": "Off"}
        self.client.ready = {"status": "False", "message": "powered off, as spec.power says"}
        self.assertNotIn("not ready", self.type(b"~P"))

    def test_not_switched(self) -> None:
        """Where the class does not switch the machine, the power opens and closes the console, and there is no reset."""
        self.open()
        self.client.conditions = [{"type": "PowerSwitched", "status": "False"}]
        drawn = self.type(b"~P").replace("\r\n  ", " ")
        self.assertIn("its class does not switch the machine itself", drawn)
        self.assertIn("Power: f off (closes the console); any", drawn)
        drawn = self.type(b"f").replace("\r\n  ", " ")
        self.assertIn("Close the console of a? The machine itself goes on.", drawn)
        self.assertNotIn("programs", drawn)
        drawn = self.type(b"y").replace("\r\n  ", " ")
        self.assertIn("The console of a is being closed; the machine itself is not", drawn)
        self.assertIn("The power was not changed.", self.type(b"~P", b"r"))
        self.client.spec = {"power": "Off"}
        self.type(b"~P")
        drawn = self.type(b"o").replace("\r\n  ", " ")
        self.assertIn("The console of a is being opened; the machine itself is not", drawn)
        self.assertEqual(self.client.power, [("a", "Off"), ("a", "On")])

    def test_not_started(self) -> None:
        """A machine that has not started cannot be powered off or reset, but on."""
        self.open()
        self.client.machines["a"] = "Pending"
        drawn = self.type(b"~P")
        self.assertIn("It has not started yet", drawn)
        self.assertNotIn("Power: ", drawn)
        self.type(b"\r")
        self.client.spec = {"power": "Off"}
        self.assertIn("o on", self.type(b"~P"))

    def test_observer(self) -> None:
        """An observer reads who works at the machine."""
        self.open()
        self.session.notice(Notice("ada types", NoticeKind.ROLE, NoticeRole.OBSERVER, "ada"))
        drawn = self.type(b"~P")
        self.assertIn("You are an observer; ada is the writer.", drawn)
        self.assertIn("Power: ", drawn)

    def test_cancelled(self) -> None:
        """Any other key cancels, at both questions."""
        self.open()
        for keys in (b"x", b"\x1b[A", b"fn", b"f\r", b"\x03"):
            self.assertIn("The power was not changed.", self.type(b"~P", keys))
        self.assertIn("was not changed: it is On already.", self.type(b"~P", b"o"))
        self.client.spec = {"power": "Off"}
        for keys in (b"f", b"r"):
            self.assertIn("was not changed: it is Off already.", self.type(b"~P", keys))
        self.assertIn("The power was not changed.", self.type(b"~P", b"\r"))
        self.assertEqual(self.client.power, [])

    def test_no_right(self) -> None:
        """A user without the right reads that at once, and the machine does not get the answer."""
        stream = self.open()
        self.client.review = {"status": {"allowed": False}}
        shown = self.type(b"~P").replace("\r\n ", "")
        self.assertIn(
            "You may not change it; ask an administrator for the role edit: kubectl create rolebinding "
            "eve-x-edit --clusterrole=edit --user=eve@x -n ns",
            shown,
        )
        self.session.typed(b"ry\r")
        self.assertEqual((stream.sent, self.client.power), (b"", []))

    def test_forbidden(self) -> None:
        """A user who loses the right meanwhile reads the refusal, and the session goes on."""
        stream = self.open()
        self.client.refusal = Forbidden('User "eve" cannot patch resource "machines"')
        self.assertIn('cannot patch resource "machines"', self.type(b"~P", b"r", b"y"))
        self.session.typed(b"ls\r")
        self.assertEqual(stream.sent, b"ls\r")

    def test_slow_server(self) -> None:
        """
        A line counts the seconds until the server answers, or Ctrl-C ends the wait.

        Keys typed meanwhile are dropped then, and counted.
        """
        stream = self.open()
        self.client.silent = True
        for command, awaited in ((b"~P", "about a"), (b"~L", "for the machines")):
            self.session.data_received(b"$ ")
            self.assertEqual(self.type(command, "x\u00e9\u00e9".encode()), "")
            for second in (1, 2):
                self.clock.advance(second - 0.5)
                line = f"\r\x1b[Kasking the server {awaited}, {second} s (Ctrl-C cancels)"
                self.assertTrue(self.drawn.decode().endswith(line), self.drawn)
            self.assertEqual(self.drawn.count(b"\n"), 1)
            erased = "\r\x1b[K3 keys typed meanwhile were discarded\r\n"
            self.assertEqual(self.type(b"\x03"), erased)
            self.session.typed(b"ls\r")
        self.assertEqual(stream.sent, b"ls\rls\r")

    def test_slow_server_and_paste(self) -> None:
        """Keys that are too many to be kept are counted, too."""
        self.open()
        self.client.silent = True
        self.type(b"~P", b"x" * 5000)
        self.assertIn("5000 keys typed meanwhile were discarded", self.type(b"\x03"))

    def test_reset(self) -> None:
        """A reset ends the session, waits until the machine is off, switches it on, and waits again."""
        self.open()
        self.type(b"~P", b"ry")
        self.sink.flush()
        self.session.detached("")
        self.assertEqual(self.outcome(), Outcome(next=NextSession("a", reset=True)))
        access = self.access()
        switched_on: Deferred[None] = Deferred()
        resetting = Deferred.fromCoroutine(
            switch_on_again(access, lambda: switched_on.callback(None))
        )
        access.reactor.advance(1)
        self.assertEqual(self.client.power, [("a", "Off")])
        self.assertNoResult(switched_on)
        self.client.machines["a"] = "Shutdown"
        access.reactor.advance(1)
        self.assertEqual(self.client.power, [("a", "Off"), ("a", "On")])
        self.successResultOf(switched_on)
        self.assertNoResult(resetting)
        self.client.machines["a"] = "Running"
        access.reactor.advance(1)
        self.successResultOf(resetting)

    def test_reset_waits(self) -> None:
        """A machine that does not go off is to be on after a while, and its user learns that there was no reset."""
        access = self.access()
        resetting = Deferred.fromCoroutine(switch_on_again(access, lambda: None))
        access.reactor.pump([1] * int(OFF_SECONDS + 1))
        failure = self.failureResultOf(resetting, GatewayTimeout)
        self.assertIn("a was not reset: it was still running 90 s", str(failure.value))
        self.assertEqual(self.client.power, [("a", "On")])


class RecordTests(MenuCase):
    """A recording that begins in an open session."""

    def test_record(self) -> None:
        """One key begins a recording behind a question, and the user reads how to end it."""
        stream = self.open()
        for key, count in ((b"n", 0), (b"y", 1)):
            drawn = self.type(b"~R", key).replace("\r\n  ", " ")
            self.assertIn("Record a? What the machine prints is kept", drawn)
            self.assertEqual(len(self.client.recorded), count)
        self.assertIn("The recording a-x7 has begun. ~R ends it.", drawn)
        (made,) = self.client.recorded
        spec = {
            "machine": "a",
            "machineResource": "machines.compute.ironcore.dev",
            "input": "masked",
        }
        self.assertEqual((made["spec"], made["namespace"]), (spec, "ns"))
        self.session.typed(b"ls\r")
        self.assertEqual(stream.sent, b"ls\r")

    def test_not_begun(self) -> None:
        """The user reads why a recording does not begin, or has failed; a user who may not read it learns its name."""
        self.open()
        why = "the disk is full\x1b[2J"
        for status, told in (
            (
                {"message": why},
                "has not begun: the disk is full?[2J. It begins by itself as soon as",
            ),
            ({"phase": "Failed", "message": why}, "has failed: the disk is full?[2J."),
        ):
            self.client.reading_recordings = lambda name, status=status: succeed({"status": status})
            self.assertIn(f"The recording a-x7 {told}", self.recorded())
        self.client.reading_recordings = lambda name: fail(Forbidden("no"))
        self.assertIn("The recording a-x7 begins. ~R ends it.", self.recorded())

    def test_late(self) -> None:
        """A wait for a runtime that says nothing ends after a few seconds."""
        self.open()
        self.client.reading_recordings = lambda name: succeed({})
        self.assertNotIn("a-x7", self.recorded())
        self.clock.pump([1] * int(BEGIN_SECONDS))
        self.assertIn("The recording a-x7 begins. ~R ends it.", self.drawn.decode())

    def recorded(self) -> str:
        """Begin a recording; return what is drawn, without line breaks."""
        return self.type(b"~R", b"y").replace("\r\n  ", " ")

    def test_no_right(self) -> None:
        """A user without the right reads that before any question, and how to get the right."""
        stream = self.open()
        self.client.review = {"status": {"allowed": False}}
        drawn = self.type(b"~R").replace("\r\n  ", " ")
        self.assertNotIn("Record a?", drawn)
        self.assertIn(
            "You may not record a; ask an administrator for the role edit: kubectl create rolebinding "
            "eve-x-edit --clusterrole=edit --user=eve@x -n ns",
            drawn,
        )
        group = CONSOLERECORDINGS.resource.group
        right = {"verb": "create", "group": group, "resource": "consolerecordings", "name": ""}
        self.assertEqual(self.client.asked, {**self.client.asked, **right})
        self.session.typed(b"y")
        self.assertEqual((stream.sent, self.client.recorded), (b"", []))

    def test_may_not_play(self) -> None:
        """A user who may record, and not play recordings, reads that in the question."""
        self.open()
        self.assertNotIn("play", self.type(b"~R", b"n"))
        self.client.denied = ("get", "consolerecordings")
        drawn = self.type(b"~R", b"n").replace("\r\n  ", " ")
        self.assertIn(
            "until a user ends it. You may not play it; to do so, ask an administrator for the role "
            "console-recording-reader: kubectl create rolebinding eve-x-console-recording-reader "
            "--clusterrole=console-recording-reader --user=eve@x -n ns",
            drawn,
        )
        self.assertEqual(self.client.asked["subresource"], "content")

    def test_forbidden(self) -> None:
        """A user without the right reads the refusal, also if the server does not say it before."""
        self.open()
        self.client.refusal = Forbidden('User "eve" cannot create resource "consolerecordings"')
        drawn = self.type(b"~R", b"y").replace("\r\n  ", " ")
        self.assertIn('cannot create resource "consolerecordings"', drawn)

    def test_end(self) -> None:
        """The recordings that go on are named, and one key ends the only one, or the one that the user names."""

        def recording(name: str, machine: str = "a", **status: str) -> dict[str, Any]:
            return {"metadata": {"name": name}, "spec": {"machine": machine}, "status": status}

        self.open()
        self.client.recordings = [recording("a-x1"), recording("a-0", phase="Closed")]
        self.client.recordings.append(recording("b-1-x", "b-1"))
        self.assertIn("Nothing was changed", self.type(b"~R", b"n"))
        drawn = self.type(b"~R", b"e")
        self.assertIn("that go on: a-x1\r\n", drawn)
        self.assertIn("The recording a-x1 ends.", drawn)
        self.client.recordings.append(recording("a-x2", phase="Recording"))
        self.type(b"~R", b"e", b"a-x2\r")
        self.assertIn("No recording was ended", self.type(b"~R", b"e", b"b-1-x\r"))
        self.assertEqual(self.client.ended, ["a-x1", "a-x2"])
        self.type(b"~R", b"r", b"y")
        self.assertEqual(len(self.client.recorded), 1)

    def test_required(self) -> None:
        """Only users who may update policies are offered to end a recording that a policy requires."""
        spec = {"machine": "a", "policies": ["recorded"]}
        self.client.recordings = [{"metadata": {"name": "a-x1"}, "spec": spec}]
        self.open()
        self.client.denied = ("update", "consolepolicies")
        drawn = self.type(b"~R", b"e").replace("\r\n  ", " ")
        self.assertIn(
            "a-x1 ends after the last session; only users who may update its policy can", drawn
        )
        self.assertNotIn("e ends", drawn)
        self.assertIn("Nothing was changed", drawn)
        own = {"metadata": {"name": "a-x2"}, "spec": {"machine": "a"}}
        self.client.recordings.append(own)
        drawn = self.type(b"~R", b"e").replace("\r\n  ", " ")
        self.assertIn("e ends the recording a-x2;", drawn)
        self.assertEqual(self.client.ended, ["a-x2"])
        self.client.denied, self.client.recordings = None, self.client.recordings[:1]
        self.assertIn("e ends it", self.type(b"~R", b"e"))
        self.assertEqual(self.client.ended, ["a-x2", "a-x1"])

    def test_no_server(self) -> None:
        """A console from a runtime has no recordings to begin."""
        self.open(with_server=False)
        self.assertIn(NO_SERVER, self.type(b"~R").replace("\r\n  ", " "))


class TakeOverTests(MenuCase):
    """The answer to ``~f``."""

    def open(self, **more: Any) -> FakeStream:
        """Open a session that knows its role."""
        stream = super().open(**more)
        self.session.attendance_changed(Attendance(2))
        return stream

    def refuse(self, user: Person) -> str:
        """Let the floor answer; return what is drawn."""
        floor, drawn = Floor(Clock()), len(self.drawn)
        floor.join(Person("ada"))
        floor.join(user, force=True)
        self.session.notice(user.notices[-1])
        return self.drawn[drawn:].decode().replace("\r\n ", "")

    def test_refused(self) -> None:
        """The user reads the command that grants the smallest role, once for each attempt."""
        for is_allowed, role in ((True, "console-operator"), (False, "console-user")):
            self.setUp()
            self.open()
            eve = Person("eve", may_take_over=False, denied=not is_allowed)
            self.assertEqual(self.refuse(eve), "")
            self.client.review = {"status": {"allowed": is_allowed}}
            self.session.typed(b"~f")
            told = (
                f"An administrator grants the role {role} so: kubectl create rolebinding eve-x-{role} "
                f"--clusterrole={role} --user=eve@x -n ns"
            )
            self.assertIn(told, self.refuse(eve))
            self.assertEqual(
                (self.client.asked["verb"], self.client.asked["subresource"]), ("drive", "console")
            )
            self.assertEqual(self.refuse(eve), "")

    def test_typed_meanwhile(self) -> None:
        """What is typed while the server is asked who grants it is not lost: the next command follows."""
        for key, drawn in ((b"~Mon my way", b"Message to all viewers: "), (b"ab\x03c", b"")):
            self.setUp()
            stream = self.open()
            stream.attendance, stream.is_resumable = Attendance(2, message_characters=200), True
            answer: Deferred[Any] = Deferred()
            self.client.review = answer
            self.session.typed(b"~f")
            self.assertEqual(self.refuse(Person("eve", may_take_over=False)), "")
            self.drawn = b""
            for each in (key[:2], key[2:]):
                self.session.typed(each)
            if b"\x03" not in key:
                self.assertEqual((stream.sent, self.drawn), (b"|", b""))
                answer.callback({"status": {"allowed": True}})
                self.assertIn(b"An administrator grants", self.drawn)
                self.assertIn(drawn + b"on my way", self.drawn)
            else:
                self.assertEqual((stream.sent, self.drawn), (b"|abc", b""))

    def test_pasted_meanwhile(self) -> None:
        """A longer paste is discarded as a whole, and counted."""
        stream = self.open()
        answer: Deferred[Any] = Deferred()
        self.client.review = answer
        self.session.typed(b"~f")
        self.refuse(Person("eve", may_take_over=False))
        for each in (b"x" * 1000, b"y" * 1000, b"z"):
            self.session.typed(each)
        answer.callback({"status": {"allowed": True}})
        self.assertIn(b"2001 keys typed meanwhile were discarded", self.drawn)
        self.assertEqual(stream.sent, b"|")

    def test_allowed(self) -> None:
        """Nothing is said after a takeover, nor without an API server."""
        self.open()
        self.session.typed(b"~f")
        self.assertEqual(self.refuse(Person("eve")), "")
        self.open(with_server=False)
        self.session.typed(b"~f")
        self.assertEqual(self.refuse(Person("eve", may_take_over=False)), "")


class OffTests(SessionCase):
    """A machine that is powered off."""

    def test_powered_off(self) -> None:
        """The user reads the command that powers the machine on, where it is known."""
        off = 'machine "a" was powered off'
        for command, remedy in (
            ("", ""),
            ("kubectl patch machine a", "; to power it on, run kubectl patch machine a"),
        ):
            self.begin(power_on=partial(str, command))
            self.attach()
            self.session.ended(Ending(POWERED_OFF, off))
            self.sink.flush()
            self.session.detached("")
            self.assertEqual(self.outcome().line, f"session ended: PoweredOff: {off}{remedy}")

    def test_lost_while_off(self) -> None:
        """A user who waits for a machine that is off reads that command when the server is lost, too."""
        off = Notice("it was powered off; ...", NoticeKind.INTERRUPTED, why="it was powered off")
        command = "kubectl patch machine a"
        remedy = f"; if the machine is still off, to power it on, run {command}"
        reason = "the session could not be resumed: no session; open the console again"
        for notices, expected in (((off,), remedy), ((off, RESTARTED), ""), ((), "")):
            self.begin(power_on=lambda: command)
            self.attach()
            for each in notices:
                self.session.notice(each)
            self.session.detached(reason)
            self.sink.flush()
            self.assertEqual(self.outcome().line, reason + expected)
