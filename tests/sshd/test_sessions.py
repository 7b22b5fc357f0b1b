"""
Tests for :mod:`twisted_exec.sshd.sessions`, :mod:`.answers` and :mod:`.door`, with stock ssh.
"""

from __future__ import annotations

from twisted.internet.defer import maybeDeferred

from tests.cli.fleet.test_run import Shell
from twisted_exec.api.kinds.consolepolicies import REASON_REQUIRED
from twisted_exec.api.status import APIError, Conflict, Forbidden
from twisted_exec.ssh.channel import NO_FORWARDING
from twisted_exec.streaming.interfaces import REVOKED, Ending
from twisted_exec.testing.console import EchoAttachment, RecordingAttachment
from twisted_exec.wire.endings import LOGIN_EXPIRED

from .support import SIZE, DoorCase


class CommandTests(DoorCase):
    """Commands in machines, and other commands."""

    async def test_run(self) -> None:
        """The output is that of the command alone, and the exit code is the command's."""
        self.serve(Shell("vm"))
        process = self.gate("vm@gate", "run", "printf 'a\\nb'; exit 7")
        self.assertEqual((await process.ended, process.stdout), (7, b"a\nb"), process.stderr)
        self.assertEqual(process.stderr, b"")

    async def test_user(self) -> None:
        """Requests are those of the user, whose login they name; the user name of ssh is the machine alone."""
        self.consoles.machines["lab/vm"] = lambda: Shell("vm")
        process = self.gate("lab/vm@gate", "run", "true")
        self.assertEqual(await process.ended, 0, process.stderr)
        facts = self.impersonated()
        self.assertTrue(facts.pop("extra-ssh-key")[0].startswith("SHA256:"))
        self.assertEqual(
            facts,
            {
                "user": ["ada"],
                "group": ["crew"],
                "extra-ssh-certificate": ["ada@laptop (serial 7)"],
                "extra-ssh-address": ["127.0.0.1"],
            },
        )
        process = self.gate("lab/vm@gate", "run", "true", key="bob")
        self.assertEqual(await process.ended, 0, process.stderr)
        facts = self.impersonated()
        self.assertEqual((facts["user"], facts["group"]), (["bob"], ["night"]))
        self.assertNotIn("extra-ssh-certificate", facts)

    async def test_names_of_users(self) -> None:
        """The name of another user in place of the machine does not make its owner that user."""
        for name in ("bob", "admin", "root", "system:masters", "lab/admin"):
            process = self.gate(f"{name}@gate", "run", "true")
            self.assertEqual(await process.ended, 125)
            for heads in self.consoles.heads:
                self.assertEqual(heads.getRawHeaders("Impersonate-User"), ["ada"])

    async def test_no_machines(self) -> None:
        """A user name with characters of shells, URLs or paths reaches no server."""
        for name in (
            "../vm",
            "%2e%2e/vm",
            "lab%2fvm",
            "a b",
            "vm?x",
            "*",
            "a/b/c/d",
            "x" * 300,
        ):
            process = self.gate("-l", name, "gate", "run", "true")
            self.assertEqual(await process.ended, 125, name)
            self.assertIn(b"names no machine: the user name of ssh is a machine", process.stderr)
        self.assertEqual(self.consoles.heads, [])

    async def test_list(self) -> None:
        """``list`` shows the machines; without the right to see all, those of the namespace."""
        for name in ("web-1", "web-2"):
            self.serve(Shell(name), f"default/{name}")
        process = self.gate("gate", "list", "default")
        self.assertEqual(await process.ended, 0, process.stderr)
        self.assertIn(b"NAME", process.stdout)
        for name in (b"web-1", b"web-2"):
            self.assertIn(name, process.stdout)

    async def test_list_unknown_namespace(self) -> None:
        """``list`` of a namespace that does not exist says so, and fails."""
        self.consoles.namespaces = {"default", "empty"}
        process = self.gate("gate", "list", "nix")
        self.assertEqual(await process.ended, 1)
        self.assertIn(b'namespace "nix" does not exist; ssh GATE list shows', process.stderr)
        process = self.gate("gate", "list", "empty")
        self.assertEqual(await process.ended, 0)
        self.assertIn(b"There are no machines.", process.stderr)

    async def test_mistakes(self) -> None:
        """
        A command that does not exist is refused, with those that there are; so is a wrong option.

        The exit code is 125 for what a machine might run, whose own codes are others, and else 1.
        """
        for words, message in (
            (("uname", "-a"), b'there is no command "uname"'),
            (("uname", "-a"), b"there are also list, log, screen and power on|off"),
            (("power", "maybe"), b"power has one argument: on or off"),
            (("log", "--kubeconfig=x"), b"unrecognized arguments: --kubeconfig"),
            (("force",), b"force needs a terminal: ssh -t"),
            (("run",), b"run"),
            (("force", "run"), b"run"),
        ):
            process = self.gate("vm@gate", *words)
            code = 1 if words[0] in ("power", "log") or words == ("force",) else 125
            self.assertEqual(await process.ended, code, words)
            self.assertIn(message, process.stderr)
        self.assertEqual(self.consoles.heads, [])

    async def test_reason(self) -> None:
        """The reason comes from a variable, for ``screen``, too."""
        self.serve(Shell("vm"))
        process = self.gate("vm@gate", "run", "true", EXEC_REASON="ticket 4711")
        self.assertEqual(await process.ended, 0, process.stderr)
        self.assertIn(b"reason=ticket%204711", self.consoles.queries[0])
        self.consoles.queries.clear()
        self.consoles.machines["default/vm"] = Forbidden("no")
        process = self.gate("vm@gate", "screen", EXEC_REASON="ticket 4711")
        self.assertEqual(await process.ended, 1)
        [query] = [each for each in self.consoles.queries if each.startswith(b"as=")]
        self.assertIn(b"&reason=ticket%204711", query)
        process = self.gate("vm@gate", "list", EXEC_REASON="x" * 300)
        self.assertEqual(await process.ended, 1)
        self.assertIn(b"EXEC_REASON: the reason has 300 characters", process.stderr)

    async def test_refused(self) -> None:
        """Refusals of the server are for the user, unless they are about the door."""
        for error, message in (
            (Forbidden("not you"), b"forbidden: not you"),
            (
                Forbidden(
                    'users "ada" is forbidden: User "door" cannot impersonate resource "users"'
                ),
                b"the ssh door may not act as you, its operator has to allow that",
            ),
            (
                APIError("no", code=401, reason="Unauthorized"),
                b"the API server does not accept the login of the ssh door, which is not yours",
            ),
        ):
            self.consoles.machines["default/vm"] = error
            process = self.gate("vm@gate", "run", "true")
            self.assertEqual(await process.ended, 125)
            self.assertIn(message, process.stderr)
            self.assertNotIn(b"kubeconfig", process.stderr)

    async def test_remedies(self) -> None:
        """Remedies are commands of ssh: the user may have no kubeconfig."""
        off = """power it on: kubectl patch vm vm -n default --type=merge -p '{"spec":{"power":"On"}}'"""
        details = {"causes": [{"reason": REASON_REQUIRED, "message": ""}]}
        for error, words, message in (
            (None, ("run", "true"), b"(the user name of ssh is the machine)"),
            (None, ("screen",), b"(the user name of ssh is the machine)"),
            (Conflict(off), ("run", "true"), b"power it on: ssh default/vm@GATE power on\n"),
            (Conflict(off), ("log",), b"power it on: ssh default/vm@GATE power on\n"),
            (
                Forbidden("a reason, please", details=details),
                ("run", "true"),
                b"; by ssh: ssh -o SetEnv=EXEC_REASON=",
            ),
            *(
                (
                    Forbidden(
                        f'policy "p" requires a reason: use kubectl console {option}--reason TICKET '
                        f"-n default vm{more}",
                        details=details,
                    ),
                    ("run", "true"),
                    b'policy "p" requires a reason: use ssh -o SetEnv=EXEC_REASON=TICKET\n',
                )
                for option, more in (
                    ("", ", or kubectl exec -it -n default vm -- console --reason TICKET"),
                    ("--force ", ""),
                )
            ),
            (
                Forbidden("you may drive it: open it without --force"),
                ("run", "true"),
                b"open it without the command force\n",
            ),
        ):
            self.consoles.machines.clear()
            self.consoles.machines["lab/vm"] = lambda: Shell("vm")
            if error is not None:
                self.consoles.machines["default/vm"] = error
            process = self.gate("vm@gate", *words)
            self.assertIn(await process.ended, (1, 125))
            self.assertIn(message, process.stderr)
            self.assertNotIn(b"kubectl", process.stderr)

    async def test_refused_features(self) -> None:
        """Nothing is forwarded, there are no subsystems, and no other variables; each has a sentence."""
        self.serve(Shell("vm"))
        process = self.gate("-W", "10.0.0.1:22", "vm@gate")
        self.assertEqual(await process.ended, 255)
        self.assertIn(NO_FORWARDING.encode(), process.stderr)
        process = self.gate("-s", "vm@gate", "sftp")
        self.assertEqual(await process.ended, 1)
        self.assertIn(b'there is no subsystem "sftp"', process.stderr)
        process = self.gate("-o", "SetEnv=LD_PRELOAD=x", "vm@gate", "run", "true")
        self.assertEqual(await process.ended, 0)
        self.assertIn(b'the variable "LD_PRELOAD" is refused', process.stderr)


class ConsoleTests(DoorCase):
    """Consoles with and without a terminal."""

    async def test_keys(self) -> None:
        """Keys reach the machine, and its output the user, who reads whose console it is and why it ends."""
        attachment = self.serve(EchoAttachment(b"$ "))
        process = self.gate("vm@gate", size=SIZE)
        await process.until(rb"Connected to vm\.")
        process.type(b"hello")
        await process.until(b"hello")
        while not attachment.sizes:
            await self.tick()
        self.assertEqual(attachment.sizes, [SIZE])
        attachment.transport.end(Ending("Completed", "", 5))
        self.assertEqual(await self.ends_on_terminal(process), 5)
        self.assertIn(b"session ended: Completed", process.stdout)

    async def test_watches(self) -> None:
        """Without a terminal the session watches."""
        attachment = self.serve(RecordingAttachment(b"login: "))
        process = self.gate("vm@gate")
        await process.until(b"login: ")
        process.type(b"root\n")
        attachment.transport.write(b"booted\n")
        await process.until(b"booted\n")
        attachment.transport.end(Ending("Completed", "", 0))
        self.assertEqual(await process.ended, 0)
        self.assertEqual(attachment.received, b"")
        self.assertTrue(attachment.transport.options.read_only)

    async def test_closed(self) -> None:
        """A client that is killed leaves no session."""
        attachment = self.serve(EchoAttachment(b"$ "))
        process = self.gate("vm@gate", size=SIZE)
        await process.until(rb"Connected to vm\.")
        process.signal(9)
        admission = self.door.door.admission
        while not attachment.detached_with or admission.sessions or self.door.door.connections:
            await self.tick()
        self.assertEqual((admission.logged_in, admission.strangers), (0, 0))


class EndTests(DoorCase):
    """What ends open sessions."""

    async def test_withdrawn(self) -> None:
        """If the door loses a right, or its login expires, the user reads that it is the door's."""
        not_by = b"the ssh door may not act as you, its operator has to allow that: "
        cannot = 'users "ada" is forbidden: User "door" cannot impersonate resource "users" in API group ""'
        for message, line in (
            (
                f"{LOGIN_EXPIRED} at noon; open the console again with a new one",
                b"does not accept the login of the ssh door",
            ),
            (cannot, not_by + cannot.encode()),
            ("impersonated users do not count", b"and kubectl console connects as yourself"),
        ):
            attachment = self.serve(EchoAttachment(b"$ "))
            process = self.gate("vm@gate", size=SIZE)
            await process.until(rb"Connected to vm\.")
            attachment.transport.end(Ending(REVOKED, message))
            await self.ends_on_terminal(process)
            self.assertIn(line, process.stdout)
            for wrong in (b"with a new one", b"a role with impersonate"):
                self.assertNotIn(wrong, process.stdout)

    async def ends(self, key: str = "ada") -> bytes:
        """Open a console; return what the user reads when the door ends it."""
        attachment = self.serve(EchoAttachment(b"$ "))
        process = self.gate("vm@gate", size=SIZE, key=key)
        await process.until(rb"Connected to vm\.")
        changed = maybeDeferred(self.change)
        await self.ends_on_terminal(process)
        await changed
        while not attachment.detached_with:
            await self.tick()
        return process.stdout + process.stderr

    def change(self) -> object:
        raise NotImplementedError

    async def test_expired(self) -> None:
        """A certificate that expires ends the sessions, and the user reads that."""
        self.change = lambda: setattr(self, "later_seconds", 3601.0)  # type: ignore[method-assign]
        self.assertIn(b"your login has expired; get a new certificate or key", await self.ends())

    async def test_removed_key(self) -> None:
        """So does a key that is removed."""
        self.change = lambda: self.users(keys="eve")  # type: ignore[method-assign]
        self.assertIn(b"your ssh key is not known here any more", await self.ends("bob"))

    async def test_revoked(self) -> None:
        """So does a certificate that is revoked, by a KRL."""

        def revoke() -> None:
            krl = self.path("revoked.krl")
            self.keygen("-k", "-f", krl, self.path("ada-cert.pub"))
            self.users(more="revoked: revoked.krl\n")

        self.change = revoke  # type: ignore[method-assign]
        self.assertIn(b"your ssh key or certificate is revoked", await self.ends())

    async def test_other_groups(self) -> None:
        """So do other groups of the user."""
        self.change = lambda: self.users(groups="visitors")  # type: ignore[method-assign]
        self.assertIn(b"your groups have changed; log in again", await self.ends())

    async def test_stopped(self) -> None:
        """So does the end of the program."""
        self.change = lambda: self.door.stopService()  # type: ignore[method-assign]
        self.assertIn(b"exec-sshd is restarting", await self.ends())
