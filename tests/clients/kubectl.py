"""
The rows of the kubectls: commands as a user types them, in a terminal where one is needed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall

from tests import needs
from tests.flows import kubectls, programs
from tests.flows.programs import Program

from .client import REQUIRED_EXIT_CODE, Client, expect, new_mark
from .place import PATIENCE_SECONDS, Place, answer, answers, machine, question

QUIET_SECONDS = 2.0
"""After the end of input, before the machine's end ends the attachment."""


class Kubectl(Client):
    """
    One kubectl.

    :cvar pods: machines are shown as Pods as well, so that kubectl's own commands open consoles.
    """

    pods = True

    def __init__(self, path: str, minor: str, version: str) -> None:
        self.name = f"kubectl {minor}"
        self.path, self.minor, self._version = path, minor, version

    async def version(self) -> str:
        return self._version

    # Columns.

    async def try_get(self, place: Place) -> None:
        """The table, and one field; as a machine and as a Pod."""
        table = await self._ran(place, "get", "machines", place.machine)
        expect(b"NAME" in table.stdout and b"Running" in table.stdout, table)
        shown = [("machine", "{.status.state}", b"Running")]
        if self.pods:
            shown.append(("pod", "{.status.phase}", b"Running"))
        for kind, path, state in shown:
            field = await self._ran(place, "get", kind, place.machine, "-o", f"jsonpath={path}")
            expect(field.stdout == state, field)

    async def try_watch(self, place: Place) -> None:
        """A change of the machine is shown when it happens."""
        path = "jsonpath={.metadata.name}={.metadata.labels.tried}\n"
        program = self._start(place, "get", "machine", place.machine, "--watch", "-o", path)
        try:
            await program.until(place.machine.encode() + b"=", seconds=PATIENCE_SECONDS)
            # kubectl passes over the first event of its watch: what changes between its
            # look and its watch is never shown.  So there is a change every now and then.
            changing = LoopingCall(lambda: Deferred.fromCoroutine(place.label(new_mark())))
            done = changing.start(1)
            try:
                await program.until(
                    place.machine.encode() + b"=m[0-9a-f]{8}", seconds=PATIENCE_SECONDS
                )
            finally:
                changing.stop()
                await done
        finally:
            await program.stop()

    async def try_apply(self, place: Place) -> None:
        """Created, configured, unchanged."""
        body = machine(f"{place.machine}-applied")
        for labels, told in (
            ({}, "created"),
            ({"a": "1"}, "configured"),
            ({"a": "1"}, "unchanged"),
        ):
            body["metadata"]["labels"] = labels
            file = place.file("applied.yaml", body)
            applied = await self._ran(place, "apply", "-f", file)
            expect(applied.stdout.strip().endswith(told.encode()), applied)
        found = await place.object(f"{place.machine}-applied")
        expect(found["metadata"]["labels"] == {"a": "1"}, applied)

    async def try_server_side_apply(self, place: Place) -> None:
        """Two managers: the second is told of the conflict, and may force it."""
        body = machine(f"{place.machine}-served")
        body["metadata"]["labels"] = {"a": "1"}
        apply = ("apply", "--server-side", "-f", place.file("served.yaml", body))
        await self._ran(place, *apply, "--field-manager=one")
        body["metadata"]["labels"] = {"a": "2"}
        place.file("served.yaml", body)
        refused = await self._run(place, *apply, "--field-manager=two")
        expect(refused.exit_code != 0 and b"conflict" in refused.output, refused)
        forced = await self._ran(place, *apply, "--field-manager=two", "--force-conflicts")
        expect(await served(place, "2", "two"), forced)

    async def try_explain(self, place: Place) -> None:
        """A field, with what it is for."""
        told = await self._ran(place, "explain", "machines.spec.power")
        expect(b"power" in told.stdout and b"Machine" in told.stdout, told)
        if self.pods:
            await self._ran(place, "explain", "pods.spec")

    async def try_can_i(self, place: Place) -> None:
        """Who may open the console, and who may not."""
        ask = ("auth", "can-i", "create", "machines", "--subresource=exec")
        may = await self._ran(place, *ask)
        expect(may.stdout.strip() == b"yes", may)
        other = {"KUBECONFIG": place.chain.nobody}
        not_ = await self._run(place, *ask, env=other)
        expect(not_.stdout.strip().startswith(b"no") and not_.exit_code == 1, not_)

    async def try_attach(self, place: Place) -> None:
        """At a terminal."""
        await self._talk(place, "attach", "-it", place.machine)

    async def try_exec(self, place: Place) -> None:
        """At a terminal; and no other command than the console is run."""
        await self._talk(place, "exec", "-it", place.machine, "--", "console")
        refused = await self._run(place, "exec", place.machine, "--", "ls")
        expect(refused.exit_code == 1 and b"runs no commands" in refused.output, refused)

    async def try_logs_f(self, place: Place) -> None:
        """What was printed, and then what is."""
        viewer = await place.company()
        before, after = new_mark(), new_mark()
        await viewer.ask(question(before), answer(before), seconds=PATIENCE_SECONDS)
        program = self._start(place, "logs", "-f", place.machine)
        try:
            await program.until(answer(before), seconds=PATIENCE_SECONDS)
            viewer.type(question(after))
            await program.until(answer(after), seconds=PATIENCE_SECONDS)
        finally:
            await program.stop()
        await viewer.leave()

    async def try_console(self, place: Place) -> None:
        """Our plugin at a terminal, and away by its escape key."""
        program = self._terminal(place, "console", place.machine)
        try:
            await program.until(rb"Ctrl-\] leaves", seconds=PATIENCE_SECONDS)
            await ask(program)
            program.type(b"\x1d")
            expect(await program.ended == 0, program)
        finally:
            await program.stop()

    async def try_stdin_EOF(self, place: Place) -> None:
        """The end of a pipe ends that attachment after two quiet seconds, and nothing else."""
        viewer = await place.company()
        for command in self._ways(place, "-i"):
            mark, since = new_mark(), reactor.seconds()
            program = await self._ran(place, *command, stdin=question(mark))
            expect(answer(mark) in program.stdout, program)
            expect(reactor.seconds() - since >= QUIET_SECONDS, program)
            await answers(viewer)
        await viewer.leave()

    async def try_resize(self, place: Place) -> None:
        """The window's size is the machine's terminal's."""
        program = self._terminal(place, *self._ways(place, "-it")[0])
        try:
            await ask(program)
            programs.resize(program, 101, 31)
            await until_size(program, b"31 101")
        finally:
            await program.stop()

    async def try_exit_status(self, place: Place) -> None:
        """A process that exits 7 makes every viewer exit 7."""
        for command in self._ways(place, "-it"):
            viewer = await place.company()
            program = self._terminal(place, *command)
            try:
                await ask(program)
                program.type(b"exit 7\n")
                expect(await program.ended == REQUIRED_EXIT_CODE, program)
            finally:
                await program.stop()
            lost = await viewer.ended
            expect(lost.ending.exit_code == REQUIRED_EXIT_CODE, program)

    # Running one.

    def _ways(self, place: Place, flags: str) -> list[tuple[str, ...]]:
        """Every command that opens a console."""
        own = [
            ("attach", flags, place.machine),
            ("exec", flags, place.machine, "--", "console"),
        ]
        return [*(own if self.pods else []), ("console", place.machine)]

    def _env(self, place: Place) -> dict[str, str]:
        plugins = os.path.dirname(programs.script("kubectl-console"))
        return {
            "HOME": place.home,  # where kubectl keeps what it discovered
            "KUBECONFIG": place.chain.admin,
            "PATH": f"{plugins}:{os.environ['PATH']}",
        }

    def _start(self, place: Place, *argv: str, env: Mapping[str, str] | None = None) -> Program:
        return programs.start([self.path, *argv], env={**self._env(place), **(env or {})})

    async def _run(
        self, place: Place, *argv: str, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> Program:
        """Fires when it has ended, with what it was."""
        program = self._start(place, *argv, env=env)
        try:
            assert program.transport is not None
            program.type(stdin)
            program.transport.closeStdin()
            program.ended.addTimeout(PATIENCE_SECONDS, reactor)
            await program.ended
        finally:
            await program.stop()
        return program

    async def _ran(self, place: Place, *argv: str, stdin: bytes = b"") -> Program:
        program = await self._run(place, *argv, stdin=stdin)
        expect(program.exit_code == 0, program)
        return program

    def _terminal(self, place: Place, *argv: str) -> Program:
        """In a terminal of 80 by 24."""
        return programs.terminal([self.path, *argv], **self._env(place))

    async def _talk(self, place: Place, *argv: str) -> None:
        program = self._terminal(place, *argv)
        try:
            await ask(program)
        finally:
            await program.stop()


async def ask(program: Program) -> None:
    """Type a question until the machine is there to answer it."""
    mark = new_mark()
    # What is typed before the stream stands waits in the terminal; kubectl then sends it.
    program.type(question(mark))
    await program.until(answer(mark), seconds=PATIENCE_SECONDS)


async def until_size(program: Program, size: bytes) -> None:
    """The machine's terminal has a size, at the latest when it has heard of it."""
    mark = new_mark()
    program.type(
        f"until [ \"$(stty size)\" = '{size.decode()}' ]; do sleep 0.1; done; echo {mark}$((6*7))z\n".encode()
    )
    await program.until(answer(mark), seconds=PATIENCE_SECONDS)


async def served(place: Place, value: str, manager: str) -> bool:
    """The label of the object that was applied on the server's side, and whose it is."""
    metadata = (await place.object(f"{place.machine}-served"))["metadata"]
    owners = [
        one["manager"]
        for one in metadata.get("managedFields", [])
        if one["operation"] == "Apply" and "f:a" in json.dumps(one["fieldsV1"])
    ]
    return metadata["labels"] == {"a": value} and owners == [manager]


async def found() -> list[Kubectl]:
    """One of each minor version that this machine has, the oldest first."""
    return await _each_minor(kubectls.found().values())


async def oldest() -> list[Kubectl]:
    """kubectl 1.20, if it is installed."""
    program = needs.oldest_kubectl_program()
    return await _each_minor([program] if program else [])


async def newest() -> list[Kubectl]:
    """The one that was built from Go, if there is one."""
    program = needs.newest_kubectl_program()
    return await _each_minor([program] if program else [])


async def _each_minor(paths: Iterable[str]) -> list[Kubectl]:
    known: dict[tuple[int, int], Kubectl] = {}
    for path in paths:
        code, told, output = await kubectls.run(
            path, "version", "--client", "-o", "json", env={"KUBECONFIG": os.devnull}
        )
        assert code == 0, output
        version = json.loads(told)["clientVersion"]
        number = int(version["major"]), int(version["minor"].rstrip("+"))
        name = ".".join(map(str, number))
        known.setdefault(number, Kubectl(path, name, version["gitVersion"]))
    return [known[number] for number in sorted(known)]
