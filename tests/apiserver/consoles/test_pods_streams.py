"""
Tests for :mod:`twisted_exec.apiserver.consoles.pods`.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.chain import POD, MachineTestCase
from tests.apiserver.support import MERGE, PODS, APITestCase
from tests.streaming.raw import Raw
from twisted_exec.api import kinds
from twisted_exec.streaming.interfaces import REVOKED

QUERY = "?container=console&stdin=true&stdout=true&tty=true"
COMMAND = "&command=console"


class StreamTests(MachineTestCase):
    """``pods/attach`` and ``pods/exec``."""

    async def echo(self, end: Raw) -> None:
        end.transport.write(b"hello")  # type: ignore[union-attr]
        await self.until(lambda: b"hello" in end.received)

    async def test_attach(self) -> None:
        """GET or POST, it is the machine's console, asked for as such."""
        for method in (b"GET", b"POST"):
            end = await self.open(path=f"{POD}/attach", query=QUERY, method=method)
            await self.echo(end)
        (_, uri, _), _ = self.pool.requests
        self.assertEqual(
            uri,
            "/apis/compute.ironcore.dev/namespaces/default/machines/vm/exec"
            "?stdin=true&stdout=true&tty=true",
        )

    async def test_exec(self) -> None:
        """The console is the only command."""
        await self.echo(await self.open(path=f"{POD}/exec", query=QUERY + COMMAND))

    async def test_no_input(self) -> None:
        """Without input an exec is to end, unless it only watches; an attach goes on."""
        for subresource, query, forwarded in (
            ("exec", "?stdout=1&command=console", "stdout=true&inputEnded=true"),
            ("exec", f"{QUERY}{COMMAND}", "stdin=true&stdout=true&tty=true"),
            (
                "exec",
                "?stdout=1&command=console&command=--read-only",
                "stdout=true&readOnly=true",
            ),
            ("attach", "?stdout=1", "stdout=true"),
        ):
            await self.open(path=f"{POD}/{subresource}", query=query)
            _, uri, _ = self.pool.requests[-1]
            self.assertEqual(uri.partition("?")[2], forwarded)

    async def test_roles(self) -> None:
        """Options of the command select read-only or forced sessions."""
        for option, word in (("--read-only", "readOnly"), ("--force", "force")):
            query = f"{QUERY}{COMMAND}&command={option}"
            await self.echo(await self.open(path=f"{POD}/exec", query=query))
            (*_, (_, uri, _)) = self.pool.requests
            self.assertTrue(uri.endswith(f"?stdin=true&stdout=true&tty=true&{word}=true"), uri)

    async def test_reason(self) -> None:
        """The command may give the reason of the session, which is on record."""
        for words in (
            "&command=--reason&command=OPS%201",
            "&command=--reason%3DOPS%201",
            "&command=--read-only&command=--reason&command=OPS%201",
        ):
            query = f"{QUERY}{COMMAND}{words}"
            await self.echo(await self.open(path=f"{POD}/exec", query=query))
            self.assertEqual(self.audit[-1]["declared_reason"], "OPS 1")
        control = f"{QUERY}{COMMAND}&command=--reason&command=%1b"
        message = await self.refused(400, path=f"{POD}/exec", query=control)
        self.assertIn("the reason has a control or invisible character (U+001B)", message)

    async def test_record(self) -> None:
        """The audit has the machine's session."""
        end = await self.open(path=f"{POD}/exec", query=QUERY + COMMAND)
        end.transport.loseConnection()  # type: ignore[union-attr]
        await self.until(lambda: len(self.audit) == 2)
        for record in self.audit:
            self.assertEqual(
                [record[key] for key in ("machine", "namespace", "uid", "user", "pool")],
                ["vm", "default", self.made["metadata"]["uid"], "admin", "pool-a"],
            )

    async def test_commands(self) -> None:
        """Anything else is no command of a serial console."""
        for words in (
            "",
            "&command=ls",
            "&command=console%20",
            "&command=--force",
        ):
            told = await self.refused(400, path=f"{POD}/exec", query=QUERY + words)
            self.assertIn("runs no commands", told)
            self.assertIn("kubectl attach -it vm", told)
        self.assertEqual(self.pool.requests, [])
        self.assertEqual({code for _, code in self.ends()}, {400})

    async def test_wrong_options(self) -> None:
        """A user who mistypes an option of the command reads which there are."""
        for words, problem in (
            ("&command=-l", 'has no option "-l"'),
            ("&command=ls", 'has no option "ls"'),
            ("&command=--force&command=--read-only", "has either --read-only or --force"),
            ("&command=--reason", "has no text behind --reason"),
            ("&command=--reason=a&command=--reason&command=b", "has --reason twice"),
            ("&command=--record&command=--record=all", "has --record twice"),
        ):
            told = await self.refused(400, path=f"{POD}/exec", query=QUERY + COMMAND + words)
            self.assertIn(
                f'machine "vm": the command console {problem}; its options are --read-only,', told
            )
        self.assertEqual(self.pool.requests, [])

    async def test_container(self) -> None:
        """There is one container, which need not be named."""
        await self.echo(await self.open(path=f"{POD}/attach", query="?stdout=1"))
        for subresource in ("attach", "exec"):
            told = await self.refused(
                400, path=f"{POD}/{subresource}", query="?container=other&stdout=1" + COMMAND
            )
            self.assertIn('container "other" is not valid', told)

    async def test_no_streams(self) -> None:
        """A request without streams is refused in a kubelet's words."""
        told = await self.refused(400, path=f"{POD}/attach", query="?stdin=false&tty=1")
        self.assertIn("you must specify at least 1 of stdin, stdout, stderr", told)

    async def test_unknown(self) -> None:
        """First permissions, then existence, then validity."""
        wrong = "?container=other"
        for user, code, name in (("", 401, "vm"), ("jane", 403, "vm"), ("admin", 404, "no")):
            await self.refused(code, name, path=f"{POD}/exec", query=wrong, user=user)
        for subresource in ("attach", "exec"):
            told = await self.refused(404, "no", path=f"{POD}/{subresource}", query=QUERY + COMMAND)
            self.assertEqual(told, 'pods "no" not found')

    async def test_no_pool(self) -> None:
        """A missing pool has its own message."""
        await self.make_machine("homeless", pool="nowhere")
        told = await self.refused(404, "homeless", path=f"{POD}/attach", query=QUERY)
        self.assertIn('machinepools.compute.ironcore.dev "nowhere" not found', told)

    async def test_right(self) -> None:
        """The right is that of the machine's console, and ends a session when it goes."""
        roles = kinds.ROLES.resource, kinds.ROLEBINDINGS.resource
        rule = {
            "apiGroups": ["compute.ironcore.dev"],
            "resources": ["machines/exec"],
            "verbs": ["create"],
        }
        await self.admin.create(roles[0], {"metadata": {"name": "r"}, "rules": [rule]}, "default")
        binding: dict[str, Any] = {
            "metadata": {"name": "b"},
            "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "name": "jane"}],
        }
        await self.admin.create(roles[1], binding, "default")
        end = await self.open(path=f"{POD}/attach", query=QUERY, user="jane")
        await self.echo(end)
        await self.admin.delete(roles[1], "b", "default")
        await self.until(lambda: end.lost)
        await self.until(lambda: len(self.audit) == 2)
        ((reason, _),) = self.ends()
        self.assertEqual(reason, REVOKED)

    async def test_method(self) -> None:
        """Nothing else is done to a stream."""
        told = await self.refused(405, path=f"{POD}/attach", method=b"PUT")
        self.assertIn("allowed: GET, POST", told)


class RefusalTests(APITestCase):
    """Requests that a view refuses."""

    pods_view = True

    def test_writes(self) -> None:
        """The refusal says what to do instead."""
        self.make_machine("a")
        for method, path, told in (
            ("POST", PODS, "create machines in API group compute.ironcore.dev instead"),
            ("DELETE", PODS, "delete machines in"),
            ("DELETE", f"{PODS}/a", 'delete machine "a" in'),
            ("PUT", f"{PODS}/a", 'replace machine "a" in'),
            ("PATCH", f"{PODS}/a", 'patch machine "a" in'),
            ("PATCH", f"{PODS}/a/status", 'patch machine "a" in'),
            ("PUT", f"{PODS}/a/status", 'replace machine "a" in'),
        ):
            self.assertIn(told, self.refused(405, method, path, {}, content_type=MERGE))
            response = self.ask(method, path, {})
            self.assertEqual(response.headers["allow"], "GET")
        self.answer("GET", f"{PODS}/a")

    def test_containers(self) -> None:
        """No containers can be added; ``kubectl debug`` learns how to type commands."""
        for method in ("PUT", "PATCH"):
            path = f"{PODS}/a/ephemeralcontainers"
            told = self.refused(405, method, path, {}, content_type=MERGE)
            self.assertIn('machine "a": a serial console runs no commands: kubectl console a', told)

    def test_ports(self) -> None:
        """There are none to forward."""
        for method in ("GET", "POST"):
            told = self.refused(501, method, f"{PODS}/a/portforward")
            self.assertIn('no port of pod "a" can be forwarded', told)

    def test_nobody(self) -> None:
        """Without authentication nothing is answered."""
        for method, path in (("DELETE", f"{PODS}/a"), ("POST", f"{PODS}/a/portforward")):
            self.refused(401, method, path, user="")
