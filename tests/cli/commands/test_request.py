"""
Tests for :mod:`twisted_exec.cli.commands.request` and :mod:`twisted_exec.cli.console.approval`, against a real
API server.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from tests.apiserver.chain import ChainTestCase
from tests.cli.typed import typed
from twisted_exec.api import kinds
from twisted_exec.api.dialects import DIALECTS
from twisted_exec.api.kinds import Object
from twisted_exec.api.status import Forbidden, NotFound
from twisted_exec.api.times import timestamp
from twisted_exec.cli.console import approval as waiting
from twisted_exec.cli.console.approval import ApprovalWait, approval, is_required
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.wire.stream_options import CONSOLE

reactor: Any = _reactor
REQUESTS = kinds.CONSOLEREQUESTS.resource


class RequestCase(ChainTestCase):
    """Jane edits a namespace with a machine; the administrator approves."""

    async def setUp(self) -> None:
        await super().setUp()
        binding = {
            "metadata": {"name": "jane"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "edit",
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
        }
        await self.admin.create(kinds.ROLEBINDINGS.resource, binding, "default")
        await self.make_machine()

    async def request(self, name: str = "r", **spec: Any) -> Object:
        body = {"metadata": {"name": name}, "spec": {"machine": "vm", **spec}}
        return await self.client("jane").create(REQUESTS, body, "default")

    async def run_command(self, *arguments: str, user: str = "admin") -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        words = ["request", *arguments, "--kubeconfig", self.kubeconfig(f"user-{user}")]
        return await typed(self, *words)


class CommandTests(RequestCase):
    """Each command, as a user types it."""

    async def test_list(self) -> None:
        """``list`` shows what waits and what was decided."""
        none = (0, "", "No requests found in default namespace.\n")
        self.assertEqual(await self.run_command("list"), none)
        self.assertEqual(await self.run_command("list", "-A"), (0, "", "No requests found\n"))
        await self.request(reason="OPS-1")
        code, out, err = await self.run_command("list")
        self.assertEqual((code, err), (0, ""))
        head, row = out.splitlines()
        self.assertEqual(
            head.split(), ["NAME", "MACHINE", "USER", "RIGHT", "STATE", "LEFT", "REASON"]
        )
        self.assertRegex(row, r"^r +vm +jane +drive +Pending +(24|23)h\S* +OPS-1$")
        await self.run_command("approve", "r")
        _, out, _ = await self.run_command("list", "-A")
        self.assertRegex(out, r"\ndefault +r +vm +jane +drive +Approved +(60|59)m")

    async def test_approve(self) -> None:
        """``approve`` says what it has allowed, and ``show`` shows it."""
        await self.request(reason="OPS-1")
        code, out, err = await self.run_command("approve", "r", "--reason", "go on")
        self.assertEqual((code, err), (0, ""))
        start = 'request "r" approved: user "jane" may drive machine "vm" until 20'
        self.assertTrue(out.startswith(start), out)
        _, out, _ = await self.run_command("show", "r")
        for line in (
            "State:           Approved",
            "Decided by:      admin",
            "Remark:          go on",
        ):
            self.assertIn(f"{line}\n", out)

    async def test_deny(self) -> None:
        """``deny`` denies, and withdraws an approval."""
        await self.request()
        await self.run_command("approve", "r")
        done = 'approval of request "r" withdrawn; a session that still uses it ends\n'
        self.assertEqual(await self.run_command("deny", "r"), (0, done, ""))
        request = await self.admin.get(REQUESTS, "r", "default")
        self.assertTrue(request["status"]["denied"])
        await self.request("no")
        denied = (0, 'request "no" denied\n', "")
        self.assertEqual(await self.run_command("deny", "no"), denied)

    async def test_final(self) -> None:
        """A request whose approval was used, withdrawn or denied cannot be approved, and the user reads why."""
        await self.request("used")
        await self.run_command("approve", "used")
        used = await self.storage.get(REQUESTS, "default", "used")
        status = {**used["status"], "session": "s-1", "useTime": used["status"]["decisionTime"]}
        await self.storage.update(REQUESTS, {**used, "status": status})
        for name, decisions in (("withdrawn", ("approve", "deny")), ("denied", ("deny",))):
            await self.request(name)
            for decision in decisions:
                await self.run_command(decision, name)
        for name, why in (
            ("used", "its approval was for one session, which has begun"),
            ("withdrawn", "its approval was withdrawn, which is final"),
            ("denied", "a denial is final"),
        ):
            code, out, err = await self.run_command("approve", name)
            self.assertEqual((code, out), (1, ""))
            wanted = (
                f'request "{name}" cannot be approved: {why}; user "jane" creates another request\n'
            )
            self.assertIn(wanted, err)

    async def test_denied_twice(self) -> None:
        """A request that is denied, or whose approval is withdrawn, is not denied again, and the user reads its state."""
        for name, decisions, state in (
            ("withdrawn", ("approve", "deny"), "its approval is already withdrawn"),
            ("denied", ("deny",), "it is already denied"),
        ):
            await self.request(name)
            for decision in decisions:
                await self.run_command(decision, name)
            code, out, err = await self.run_command("deny", name)
            self.assertEqual((code, out), (1, ""))
            self.assertIn(f'request "{name}" cannot be denied: {state}\n', err)

    async def test_refusals(self) -> None:
        """Errors are one line that names the object."""
        await self.request()
        code, out, err = await self.run_command("approve", "x")
        self.assertEqual((code, out), (1, ""))
        self.assertIn('consolerequest "x" not found in namespace "default"; twisted-exec', err)
        for command, roles in (
            ("approve", "roles console-approver and console-user"),
            ("deny", "roles console-approver and console-user"),
            ("show", "role console-session-reader"),
        ):
            code, out, err = await self.run_command(command, "r", user="eve")
            self.assertEqual((code, out, err.count("\n")), (1, "", 1))
            self.assertIn('User "eve" cannot ', err)
            self.assertIn(f"; ask an administrator for the {roles}: kubectl create ", err)

    async def test_without_drive(self) -> None:
        """An approver who may not drive the console reads the role that may, and no role of observers."""
        await self.request()
        await self.admin.create(
            kinds.ROLEBINDINGS.resource,
            {
                "metadata": {"name": "eve"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "console-approver",
                },
                "subjects": [
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}
                ],
            },
            "default",
        )
        code, out, err = await self.run_command("approve", "r", user="eve")
        self.assertEqual((code, out), (1, ""))
        self.assertIn(
            "; ask an administrator for the role console-user: kubectl create rolebinding ", err
        )

    async def test_own(self) -> None:
        """The user of a request reads that another user decides, and not which role is missing."""
        await self.request()
        await self.admin.create(
            REQUESTS, {"metadata": {"name": "mine"}, "spec": {"machine": "vm"}}, "default"
        )
        for command, name, user in (
            ("approve", "r", "jane"),
            ("deny", "r", "jane"),
            ("approve", "mine", "admin"),
        ):
            code, out, err = await self.run_command(command, name, user=user)
            self.assertEqual((code, out), (1, ""))
            self.assertIn(
                f'request "{name}" is your own: another user approves or denies it, who has the role '
                "console-approver and may drive the console; to withdraw it, run "
                f"kubectl delete consolerequest -n default {name}\n",
                err,
            )


class ApprovalTests(RequestCase):
    """``kubectl console --request``."""

    def setUp(self) -> Any:
        self.patch(waiting, "LOOK_SECONDS", 0.01)
        return super().setUp()

    def ask(
        self,
        former: str = "",
        reason: str = "OPS-1",
        causes: Sequence[Object] = (),
        opens: Sequence[bool] = (),
    ) -> tuple[Deferred[None], list[str]]:
        """
        Ask for an approval, as the program does.

        :param former: the request that the server's refusal names.
        :param causes: of that refusal; usually one without a text.
        :param opens: whether the console opens without the approval, for each attempt.
        """
        lines: list[str] = []
        config = load(self.kubeconfig("user-jane"))
        cause = {"reason": "ApprovalRequired", **({"request": former} if former else {})}
        refusal = Forbidden("no", details={"causes": causes or [cause]})
        attempts = iter(opens)

        async def attempt() -> bool:
            return next(attempts)

        made = approval(
            config,
            "vm",
            DIALECTS,
            CONSOLE,
            reason,
            reactor,
            lines.append,
            600.0,
            refusal,
            attempt,
            ApprovalWait(reactor),
        )
        return Deferred.fromCoroutine(made), lines

    async def made(self, lines: list[str]) -> str:
        await self.until(lambda: lines)
        (request,) = (await self.admin.list(REQUESTS, "default"))["items"]
        return str(request["metadata"]["name"])

    async def decide(self, name: str, **status: Any) -> None:
        await self.admin.patch(
            REQUESTS, name, {"status": status}, "default", subresource="approval"
        )

    async def test_approved(self) -> None:
        """The user reads the exact commands for the approver, and goes on after the approval."""
        asking, lines = self.ask()
        name = await self.made(lines)
        self.assertTrue(name.startswith("vm-"))
        self.assertIn(
            f"  twisted-exec request approve -n default {name}\nor\n  kubectl patch ", lines[0]
        )
        self.assertIn(f"kubectl patch consolerequest -n default {name} --subresource=", lines[0])
        await self.decide(name, approved=True)
        await asking
        self.assertIn(f'user "admin" approved request "{name}", until 20', lines[1])
        request = await self.admin.get(REQUESTS, name, "default")
        spec = {key: request["spec"][key] for key in ("machine", "right", "reason", "user")}
        expected = {"machine": "vm", "right": "drive", "reason": "OPS-1", "user": "jane"}
        self.assertEqual(spec, expected)

    async def test_not_needed(self) -> None:
        """The wait ends when the console opens without an approval, such as after the deletion of a policy."""
        self.patch(waiting, "REMIND_SECONDS", 0.01)
        asking, lines = self.ask(opens=[False, True])
        await asking
        (request,) = (await self.admin.list(REQUESTS, "default"))["items"]
        name = request["metadata"]["name"]
        self.assertEqual(
            lines[1:],
            [
                f'request "{name}" still waits',
                f'no approval is needed any more; to withdraw request "{name}", run '
                f"kubectl delete consolerequest -n default {name}",
            ],
        )

    async def test_required(self) -> None:
        """Only a refusal that lacks nothing but an approval leads to a request."""
        for causes, required in (
            ([{"reason": "ApprovalRequired"}, {"reason": "ApprovalRequired"}], True),
            ([{"reason": "ReasonRequired"}, {"reason": "ApprovalRequired"}], False),
            ([{"reason": "ApprovalRequired"}, {"reason": "MissingRight"}], False),
            ([{"reason": "ConsolePolicyNotMet"}], False),
            (["ApprovalRequired"], False),
            (None, False),
        ):
            refusal = Forbidden("no", details={"causes": causes})
            self.assertEqual(is_required(refusal), required, causes)
        self.assertFalse(is_required(ValueError()))

    async def test_approvers(self) -> None:
        """The user reads whom to ask, as the policies say."""
        causes = [
            {"reason": "ApprovalRequired", "message": f"{policy} requires the approval"}
            for policy in ("a", "b\x1b", "a")
        ]
        asking, lines = self.ask(causes=causes)
        await self.until(lambda: lines)
        self.assertRegex(
            lines[0], r'^a requires the approval\nb\S* requires the approval\nrequest "vm-'
        )
        asking.cancel()
        await self.assertFailure(asking, CancelledError)

    async def test_denied(self) -> None:
        """A denial ends the program with the approver's remark."""
        asking, lines = self.ask()
        name = await self.made(lines)
        await self.decide(name, denied=True, message="not now")
        failure = await self.assertFailure(asking, Forbidden)
        self.assertEqual(failure.message, f'user "admin" denied request "{name}": not now')

    async def test_deleted(self) -> None:
        """A request that is deleted is not waited for."""
        asking, lines = self.ask()
        name = await self.made(lines)
        await self.admin.delete(REQUESTS, name, "default")
        failure = await self.assertFailure(asking, NotFound)
        self.assertEqual(failure.message, f'request "{name}" was deleted')

    async def test_again(self) -> None:
        """A user who asks again for the same waits for the request that waits already."""
        asking, lines = self.ask()
        name = await self.made(lines)
        asking.cancel()
        await self.assertFailure(asking, CancelledError)
        asking, lines = self.ask(former=name)
        self.assertEqual(await self.made(lines), name)
        self.assertTrue(lines[0].startswith(f'your request "{name}" waits already for'), lines)
        self.assertIn(f"  twisted-exec request approve -n default {name}\nor\n", lines[0])
        await self.decide(name, approved=True)
        await asking

    async def test_another_waits(self) -> None:
        """A request for another reason or right is a new one, and its user reads of the one that waits."""
        await self.request("old", reason="OPS-0")
        await self.request("look", reason="OPS-1", right="observe")
        for former, what in (("old", 'drive, "OPS-0"'), ("look", 'observe, "OPS-1"')):
            asking, lines = self.ask(former)
            await self.until(lambda lines=lines: len(lines) == 2)
            self.assertNotIn(f'"{former}"', lines[0])
            self.assertEqual(
                lines[1],
                f'your earlier request "{former}" ({what}) waits, too; if you no longer need it: '
                f"kubectl delete consolerequest -n default {former}",
            )
            asking.cancel()
            await self.assertFailure(asking, CancelledError)

    async def test_former_is_over(self) -> None:
        """A request that was decided, or is deleted, is no longer waited for or named."""
        await self.request("no", reason="OPS-1")
        await self.decide("no", denied=True)
        for former in ("no", "gone"):
            asking, lines = self.ask(former)
            await self.until(lambda lines=lines: lines)
            self.assertRegex(lines[0], '^request "vm-[a-z0-9]+" waits')
            asking.cancel()
            await self.assertFailure(asking, CancelledError)
            self.assertEqual(len(lines), 2)

    def test_described(self) -> None:
        """A user reads for how long the request has waited, and that the server does not answer."""
        clock = Clock()
        wait = ApprovalWait(clock)
        clock.advance(2)
        self.assertEqual(str(wait), "asking for an approval, 2 s")
        metadata = {"name": "r", "creationTimestamp": timestamp(time.time() - 59)}
        wait.begun({"metadata": metadata})
        clock.advance(3)
        waits = 'request "r" waits for another user, 1 min '
        self.assertRegex(str(wait), f"{waits}[23] s$")
        wait.asked()
        clock.advance(3)
        self.assertRegex(str(wait), f"{waits}[56] s$")
        clock.advance(1)
        self.assertRegex(str(wait), f"^no answer of the server for 4 s; {waits}[67] s$")
        wait.problem = "did not answer"
        wait.asked()
        clock.advance(1)
        silence = "no answer of the server for 5 s: did not answer"
        self.assertRegex(wait.describe(), f"^{waits}[78] s; {silence}$")
        wait.answered()
        self.assertRegex(wait.describe(), f"{waits}[78] s$")

    async def test_left(self) -> None:
        """Ctrl-C leaves the request where it is."""
        asking, lines = self.ask()
        name = await self.made(lines)
        asking.cancel()
        await self.assertFailure(asking, CancelledError)
        self.assertIn(f'request "{name}" stays', lines[-1])
        await self.admin.get(REQUESTS, name, "default")
