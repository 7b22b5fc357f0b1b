"""
Rights at a console, found by opening consoles: verbs, roles and clients.

Each client requests a console in three ways in the name of a user with each role, and types.  A
witness reads all that the machine prints, which shows what the machine got.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from twisted.internet import reactor
from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults

from tests.flows import programs
from tests.flows.deployment import Deployment, pause
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError, Forbidden
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.console import ConsoleOptions, open_console
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.streaming.remotecommand.carriers import OVER_SPDY
from twisted_exec.testing.console import RecordingUser
from twisted_exec.wire.channel import V5
from twisted_exec.wire.stream_options import CONSOLE

ANSWERS = Path(__file__).parents[3] / "docs" / "reference" / "rights-table.inc"
CLIENTS = ANSWERS.with_name("rights-clients.inc")
COMMAND = "python -m tests.interop.rights"
"""Writes both tables."""

OBSERVE, DRIVE, TAKEOVER = "observe", "drive", "takeover"
FLAGS = {OBSERVE: ["--read-only"], DRIVE: [], TAKEOVER: ["--force"]}
REQUESTS = tuple(FLAGS)
MODES = ("compatible", "strict")
EXEC_ONLY = "exec-only"
ROLES = (
    "no role",
    "view",
    "console-observer",
    "console-user",
    "console-operator",
    "edit",
    "admin",
    EXEC_ONLY,
)

OBSERVER, DRIVER, TAKEN = "observer", "driver", "driver, taken over"
REFUSED = "403"
WEBSOCKET, SPDY = "WebSocket", "SPDY"

_RBAC = "rbac.authorization.k8s.io"
_FORBIDDEN = re.compile(rb"(?i)forbidden")
_IN_USE = b"the writer of this console is"
_AT_ONCE = 4
"""Clients that run at the same time."""

Cell = tuple[str, str]
"""A role and a request."""


@dataclass(frozen=True)
class Trial:
    """
    One request for a console.

    :param line: what the user types.
    :param until: the output that shows the answer.
    """

    kubeconfig: str
    machine: str
    request: str
    line: bytes
    until: re.Pattern[bytes]


@dataclass(frozen=True)
class Client:
    """
    One client over one protocol.

    :param command: what a user types; empty for a program that uses the library.
    :param attempt: opens the console and types; returns what the user reads.
    """

    name: str
    protocol: str
    command: str
    attempt: Callable[[Trial], Awaitable[bytes]]


def ours() -> list[Client]:
    """Return our client, over both protocols."""

    def over(protocol: str) -> Callable[[Trial], Awaitable[bytes]]:
        async def attempt(trial: Trial) -> bytes:
            flags = FLAGS[trial.request]
            options = replace(CONSOLE, read_only="--read-only" in flags, force="--force" in flags)
            user = RecordingUser()
            config = load(trial.kubeconfig)
            try:
                client = await open_console(
                    config,
                    config.namespace,
                    trial.machine,
                    user,
                    reactor,
                    ConsoleOptions(protocols=(protocol,), stream=options),
                )
            except APIError as error:
                if error.code != Forbidden.code:
                    raise
                return f"Error from server (Forbidden): {error.message}".encode()
            client.write(trial.line)
            while not trial.until.search(user.received) and not user.detached_with:
                await pause()
            client.leave()
            return user.received

        return attempt

    return [
        Client("twisted-exec", WEBSOCKET, "", over(V5)),
        Client("twisted-exec", SPDY, "", over(OVER_SPDY)),
    ]


def of_kubectl(name: str, path: str, minor: str, home: str, *, pods: bool = True) -> list[Client]:
    """
    Return the ways of one kubectl to a console.

    :param minor: such as ``1.27``.
    :param home: where kubectl keeps what it discovered.
    :param pods: machines are shown as Pods.
    """
    has_websockets = int(minor.partition(".")[2]) >= 29
    clients = [_plugin(name, [path, "console"], home)]
    if pods:
        for protocol, choice in ((SPDY, "false"), (WEBSOCKET, "true")):
            if protocol == WEBSOCKET and not has_websockets:
                continue
            attempt = _run(
                [path, "-v=6", "exec", "-i", "NAME", "--", "console"],
                HOME=home,
                KUBECTL_REMOTE_COMMAND_WEBSOCKETS=choice,
            )
            clients.append(Client(name, protocol, "``kubectl exec``", _checked(attempt, protocol)))
    return clients


def _plugin(name: str, command: Sequence[str], home: str) -> Client:
    # The plugin is our client: it uses no stream of kubectl's.  Observers find the answer in the history.
    attempt = _run([*command, "NAME", "--from=start"], ends_input=True, HOME=home)
    return Client(name, WEBSOCKET, "``kubectl console``", attempt)


def _run(
    words: Sequence[str], *, ends_input: bool = False, **env: str
) -> Callable[[Trial], Awaitable[bytes]]:
    async def attempt(trial: Trial) -> bytes:
        argv = [trial.machine if word == "NAME" else word for word in words]
        plugins = os.path.dirname(programs.script("kubectl-console"))
        program = programs.start(
            [*argv, *FLAGS[trial.request]],
            env={
                **env,
                "KUBECONFIG": str(Path(trial.kubeconfig).resolve()),
                "PATH": f"{plugins}:{os.environ['PATH']}",
            },
        )
        program.type(trial.line)
        if ends_input and trial.request != OBSERVE:
            # Then the program says whether the line was sent.
            program.transport.closeStdin()  # type: ignore[union-attr]
        while program.exit_code is None and not trial.until.search(program.output):
            await pause()
        if _FORBIDDEN.search(program.output):
            await program.ended  # after the whole message
        await program.stop()
        return program.output

    return attempt


def _checked(
    attempt: Callable[[Trial], Awaitable[bytes]], protocol: str
) -> Callable[[Trial], Awaitable[bytes]]:
    """Make sure that kubectl used the protocol: a WebSocket begins with GET, SPDY with POST."""

    async def checked(trial: Trial) -> bytes:
        output = await attempt(trial)
        verbs = re.findall(rb'(GET|POST)"?(?: url=")? ?https://[^ "]*/exec\?', output)
        expected = b"GET" if protocol == WEBSOCKET else b"POST"
        if _FORBIDDEN.search(output):
            # A refused WebSocket is followed by SPDY.  Without get on the Pod there is neither.
            verbs = verbs[:1] or [expected]
        assert set(verbs) == {expected}, (protocol, verbs, output)
        return output

    return checked


@dataclass
class Site:
    """
    Where rights are tried.

    :param admin: path of the kubeconfig of a user who may do everything.
    :param kubeconfig: writes the kubeconfig of a user; returns its path.
    :param create_machine: creates a machine whose console is a shell, and waits until it runs.
    """

    admin: str
    client: KubeClient
    kubeconfig: Callable[[str], str]
    create_machine: Callable[[str], Awaitable[object]]
    users: dict[str, str] = field(default_factory=dict)

    async def bind(self) -> None:
        """Create the users, each with a role."""
        await self.client.create(
            kinds.CLUSTERROLES.resource,
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "ClusterRole",
                "metadata": {"name": EXEC_ONLY},
                "rules": [
                    _rule(["get"], "machines"),
                    # A WebSocket is a GET, for which kube-apiserver asks for get.
                    _rule(["create", "get"], "machines/exec"),
                ],
            },
        )
        for role in ROLES:
            user = f"user-{role.replace(' ', '-')}"
            self.users[role] = self.kubeconfig(user)
            if role == "no role":
                continue
            binding = {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": user},
                "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": user}],
            }
            await self.client.create(kinds.ROLEBINDINGS.resource, binding, "default")

    async def found(self, clients: Sequence[Client]) -> dict[Cell, str]:
        """
        Try all cells with all clients.

        :raises AssertionError: two clients with the same protocol have different answers.
        """
        await self.bind()
        turns = DeferredSemaphore(_AT_ONCE)
        each = [
            turns.run(
                lambda number=number, client=client: Deferred.fromCoroutine(
                    self._found(client, f"m-{number}")
                )
            )
            for number, client in enumerate(clients)
        ]
        several: list[dict[Cell, str]] = await gatherResults(each, consumeErrors=True)
        answers: dict[Cell, str] = {}
        for cell in several[0]:
            by_protocol: dict[str, str] = {}
            for client, found in zip(clients, several, strict=True):
                first = by_protocol.setdefault(client.protocol, found[cell])
                assert found[cell] == first, (client, cell, found[cell], first)
            answers[cell] = by_protocol[WEBSOCKET]
            if by_protocol[SPDY] != by_protocol[WEBSOCKET]:
                answers[cell] += f" (SPDY: {by_protocol[SPDY]})"
        return answers

    async def _found(self, client: Client, machine: str) -> dict[Cell, str]:
        await self.create_machine(machine)
        console = _Console(self.admin, machine)
        await console.open()
        try:
            answers = {}
            for role in ROLES:
                for request in REQUESTS:
                    answers[role, request] = await console.answer(client, self.users[role], request)
            await console.check()
            return answers
        finally:
            console.close()


def of_deployment(deployment: Deployment) -> Site:
    """Return the site of our three programs."""
    return Site(
        deployment.admin,
        deployment.client,
        deployment.kubeconfig,
        lambda name: deployment.create_machine(name, "shell"),
    )


def _rule(verbs: list[str], resource: str) -> dict[str, object]:
    group = kinds.MACHINES.resource.group
    return {"apiGroups": [group], "resources": [resource], "verbs": verbs}


class _Console:
    """
    A machine's console, with a witness who reads all that it prints.

    :param admin: path of the kubeconfig of a user who may do everything.
    """

    def __init__(self, admin: str, machine: str) -> None:
        self._admin, self._machine = admin, machine
        self._driven: list[bytes] = []
        self._others: list[bytes] = []

    async def _attach(self, **options: bool) -> tuple[RecordingUser, Callable[[bytes], None]]:
        user, config = RecordingUser(), load(self._admin)
        options_of_stream = replace(CONSOLE, **options)
        client = await open_console(
            config,
            config.namespace,
            self._machine,
            user,
            reactor,
            ConsoleOptions(stream=options_of_stream),
        )
        self._leave = client.leave
        return user, client.write

    async def open(self) -> None:
        """Attach the witness, and wait until the shell answers."""
        while True:
            try:
                self._witness, _ = await self._attach(read_only=True)
                break
            except APIError as error:
                if error.code != 503:
                    raise
                await pause()
        self.close = self._leave
        await (await self._hold())()

    async def _hold(self) -> Callable[[], Awaitable[RecordingUser]]:
        """Attach a user who has the floor and whom the machine answers; return how to leave."""
        user, write = await self._attach(force=True)
        leave = self._leave
        self._write = write
        await self._ask(write)

        async def left() -> RecordingUser:
            leave()
            while not user.detached_with:
                await pause()
            return user

        return left

    async def _ask(self, write: Callable[[bytes], None]) -> bytes:
        """Type a question; return its answer, which the witness has seen."""
        mark = _mark()
        write(_question(mark))
        while _answer(mark) not in self._witness.received:
            await pause()
        return _answer(mark)

    async def answer(self, client: Client, kubeconfig: str, request: str) -> str:
        """Try one request of a client while another user has the floor, unless it is to drive."""
        while True:
            leave = None if request == DRIVE else await self._hold()
            mark, patterns = _mark(), [_FORBIDDEN.pattern, re.escape(_IN_USE)]
            if request == OBSERVE:
                # The output of the machine reaches observers.
                patterns = [patterns[0], await self._ask(self._write)]
            else:
                patterns += [_answer(mark), rb"(?:what you type is|the input was) not sent"]
            until = re.compile(b"|".join(patterns))
            line = _question(mark)
            trial = Trial(kubeconfig, self._machine, request, line, until)
            output = await client.attempt(trial)
            holder = None if leave is None else await leave()
            assert until.search(output), (client, request, output)
            if request == OBSERVE or _IN_USE not in output:
                return self._judged(output, mark, holder)
            self._others.append(_answer(mark))  # the last holder had not left yet

    def _judged(self, output: bytes, mark: bytes, holder: RecordingUser | None) -> str:
        if _answer(mark) in output:
            self._driven.append(_answer(mark))
            taken = holder is not None and b"has taken over this console" in holder.received
            return TAKEN if taken else DRIVER
        self._others.append(_answer(mark))
        if holder is not None:
            assert b"has taken over" not in holder.received, holder.received
        if not _FORBIDDEN.search(output):
            return OBSERVER
        for right in (DRIVE, OBSERVE):
            if b"you may %s it" % right.encode() in output:
                return f"{REFUSED}: you may {right} it"
        return REFUSED

    async def check(self) -> None:
        """
        Compare what the machine got with the answers of the clients.

        :raises AssertionError: it got other input.
        """
        await (await self._hold())()
        for answer in self._driven:
            assert answer in self._witness.received, answer
        for answer in self._others:
            assert answer not in self._witness.received, answer


def _mark() -> bytes:
    return f"m{secrets.token_hex(6)}".encode()


def _question(mark: bytes) -> bytes:
    """Return a line whose echo is not its answer."""
    return b"echo %s$((6*7))z\n" % mark


def _answer(mark: bytes) -> bytes:
    return mark + b"42z"


Answers = Mapping[str, Mapping[Cell, str]]
"""By the mode of the verbs."""

_REQUESTS = ("``--read-only``", "without options", "``--force``")


def answers_table(answers: Answers, aggregated: Answers) -> str:
    """
    Return the table of answers.

    :param aggregated: those behind a kube-apiserver.
    """
    lines = [".. list-table::", "   :header-rows: 1", ""]
    lines += _row("Role", "Verbs", *_REQUESTS)
    for role in ROLES:
        for mode in MODES:
            cells = [_cell(answers[mode], aggregated[mode], (role, each)) for each in REQUESTS]
            shown = role if role in ("no role", EXEC_ONLY) else f"``{role}``"
            lines += _row(shown, mode, *cells)
    return "\n".join([*lines, ""])


_BEHIND = "; behind a kube-apiserver: "


def _cell(answers: Mapping[Cell, str], aggregated: Mapping[Cell, str], cell: Cell) -> str:
    answer, other = answers[cell], aggregated[cell]
    return answer if answer == other else f"{answer}{_BEHIND}{other}"


def _row(first: str, *others: str) -> list[str]:
    return [f"   * - {first}", *(f"     - {each}" for each in others)]


def answers_of_table(text: str) -> Answers:
    """Return the answers of :func:`answers_table` without a kube-apiserver."""
    answers: dict[str, dict[Cell, str]] = {mode: {} for mode in MODES}
    _, *rows = text.split("   * - ")[1:]
    for row in rows:
        role, mode, *cells = (each.strip() for each in row.split("     - "))
        for request, cell in zip(REQUESTS, cells, strict=True):
            answers[mode][role.strip("`"), request] = cell.partition(_BEHIND)[0]
    return answers


def clients_table(clients: Mapping[str, Sequence[Client]]) -> str:
    """
    Return the table of the clients that had these answers.

    :param clients: by their server.
    """
    columns: dict[tuple[str, str], dict[str, list[str]]] = {}
    for server, several in clients.items():
        for each in several:
            column = columns.setdefault((each.command, server), {})
            column.setdefault(each.name, []).append(each.protocol)
    names = dict.fromkeys(each.name for several in clients.values() for each in several)
    heads = [f"{command or 'library'}, {server}" for command, server in columns]
    lines = [".. list-table::", "   :header-rows: 1", ""]
    lines += _row("Client", *heads)
    for name in names:
        lines += _row(name, *(" and ".join(each.get(name, [])) for each in columns.values()))
    return "\n".join([*(line.rstrip() for line in lines), ""])
