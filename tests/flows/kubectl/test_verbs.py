"""
Every verb of kubectl, for all our kinds, against an API server.

:mod:`tests.interop.clients` runs every installed kubectl.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from base64 import b64encode
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives.serialization import Encoding
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults
from twisted.trial.unittest import TestCase

from tests import needs
from tests.apiserver.signing.test_poollets import request
from tests.flows import kubectls
from tests.flows.deployment import Deployment
from tests.flows.programs import Program, start
from tests.tiers import PROGRAMS

reactor: Any = _reactor

AT_ONCE = 6
SECONDS = 600.0
"""Most that a command may take; it only ends what hangs."""
TABLE = Path(__file__).with_name("verbs.yaml")


@dataclass(frozen=True)
class Command:
    """
    One command.

    :param line: its words, separated by spaces; single quotes keep spaces within a word.
    :param shows: regular expressions that its output must match, in any order.
    :param code: its exit code; ``None`` where versions differ.
    :param stdin: its standard input.
    :param since: the first minor version of kubectl with this command.
    :param until: the last minor version of kubectl with this command.
    :param editor: a ``sed`` script that replaces the interactive editor.
    :param starts: a name; the command runs until the row that ``ends`` this name.
    :param ends: the name of a started command to wait for first.
    :param once: runs with the newest kubectl only, because only the server's answer matters.
    :param keeps: a word that later input replaces with the output of this command.
    """

    line: str
    shows: tuple[str, ...] = ()
    code: int | None = 0
    stdin: str = ""
    since: int = 0
    until: int = 999
    editor: str = ""
    starts: str = ""
    ends: str = ""
    keeps: str = ""
    once: bool = False


def commands(minor: int, newest: bool) -> Iterator[Command]:
    """Yield the rows of the table for kubectl 1.``minor``."""
    data = yaml.safe_load(TABLE.read_text())
    for entry in data["rows"]:
        stdin = data["documents"][entry["stdin"]] if "stdin" in entry else ""
        each = Command(**{**entry, "shows": tuple(entry.get("shows", ())), "stdin": stdin})
        if each.since <= minor <= each.until and (newest or not each.once):
            yield each


class Kubectl:
    """
    One kubectl and its results.

    :param at_once: limits the concurrent runs of all kubectls together.
    :ivar namespace: the kubectl's own namespace, such as ``k127``.
    :ivar wrong: a paragraph for each row with an unexpected result.
    """

    def __init__(
        self, path: str, minor: int, directory: Path, admin: str, at_once: DeferredSemaphore
    ) -> None:
        self.path, self.minor, self.namespace = path, minor, f"k1{minor}"
        self.wrong: list[str] = []
        self._home = directory / self.namespace
        self._home.mkdir()
        self._config = self._home / "config"
        self._config.write_bytes(Path(admin).read_bytes())
        self._begun: dict[str, tuple[Command, Program]] = {}
        signing_request = request().public_bytes(Encoding.PEM)
        self._kept = {"NAME": self.namespace, "REQUEST": b64encode(signing_request).decode()}
        self._at_once = at_once

    async def tell(self, rows: list[Command]) -> None:
        """Run the rows in order."""
        await self._run(Command(f"create namespace {self.namespace}", ("created",)))
        await self._run(Command(f"config set-context --current --namespace={self.namespace}"))
        for each in rows:
            if each.ends:
                await self._end(each.ends)
            await self._run(each)
        for name in list(self._begun):
            await self._end(name)

    def _start(self, each: Command) -> Program:
        words = [word.replace("{n}", self.namespace) for word in shlex.split(each.line)]
        env = {"HOME": str(self._home), "KUBECONFIG": str(self._config)}
        editor = self._home / "editor"
        editor.write_text(f"#!/bin/sh\nsed -i '{each.editor}' \"$1\"\n")
        editor.chmod(0o700)
        program = start([self.path, *words], env=env | {"KUBE_EDITOR": str(editor)})
        typed = re.sub("|".join(self._kept), lambda word: self._kept[word[0]], each.stdin)
        program.type(typed.encode())
        assert program.transport is not None
        program.transport.closeStdin()
        return program

    async def _run(self, each: Command) -> None:
        await self._at_once.acquire()
        try:
            program = self._start(each)
            if each.starts:
                self._begun[each.starts] = each, program
                return
            await self._ended(program)
            self._check(each, program)
            if each.keeps:
                self._kept[each.keeps] = program.stdout.decode()
        finally:
            self._at_once.release()

    async def _end(self, name: str) -> None:
        """End a row that was started earlier; stop a watch once it has printed its patterns."""
        each, program = self._begun.pop(name, (None, None))
        if each is None or program is None:
            return
        if each.code is None:
            for pattern in each.shows:
                found = program.until(pattern.encode(), seconds=SECONDS)
                await found.addErrback(lambda _: None)
            await program.stop()
        else:
            await self._ended(program)
        self._check(each, program)

    async def _ended(self, program: Program) -> None:
        late = reactor.callLater(SECONDS, program.transport.signalProcess, "KILL")
        await _shared(program.ended)
        if late.active():
            late.cancel()

    def _check(self, each: Command, program: Program) -> None:
        printed = program.output.decode(errors="replace")
        missing = [
            pattern
            for pattern in (one.replace("{n}", self.namespace) for one in each.shows)
            if not re.search(pattern, printed, re.MULTILINE)
        ]
        if missing or each.code not in (None, program.exit_code):
            self.wrong.append(
                f"kubectl 1.{self.minor} {each.line}\n-> {program.exit_code}, without {missing}\n"
                f"{printed[-1500:]}"
            )


def _shared(ended: Deferred[int]) -> Deferred[int]:
    """Return a Deferred that fires as ``ended`` does, and leaves its result unchanged."""
    mine: Deferred[int] = Deferred()

    def tell(code: int) -> int:
        mine.callback(code)
        return code

    ended.addCallback(tell)
    return mine


async def minor_of(path: str) -> int:
    """The minor version of a kubectl."""
    _, printed, _ = await kubectls.run(path, "version", "--client", "-o", "json", env={})
    return int(re.sub(r"\D", "", json.loads(printed)["clientVersion"]["minor"]))


class VerbCase(TestCase):
    """An API server, and kubectls that use it at the same time."""

    starts = PROGRAMS
    skip = needs.kubectl()

    async def setUp(self) -> None:
        self.deployment = Deployment(self.mktemp())
        self.addCleanup(self.deployment.stop)
        # The machines name a pool that does not exist, and the table creates its own Events.
        await self.deployment.start_api("--no-scheduler")

    async def check_table(self, paths: Collection[str]) -> None:
        """Check that each row has its expected output and exit code with each of some kubectls."""
        found = {await minor_of(path): path for path in paths}
        directory = Path(os.path.abspath(self.mktemp()))
        directory.mkdir(parents=True)
        at_once, newest = DeferredSemaphore(AT_ONCE), max(found)
        those = [
            Kubectl(path, minor, directory, self.deployment.admin, at_once)
            for minor, path in found.items()
        ]
        await gatherResults(
            [
                Deferred.fromCoroutine(each.tell(list(commands(each.minor, each.minor == newest))))
                for each in those
            ],
            consumeErrors=True,
        )
        wrong = [told for each in those for told in each.wrong]
        self.assertEqual(wrong, [], "\n\n".join(wrong))


class VerbTests(VerbCase):
    """The table ``verbs.yaml``."""

    async def test_table(self) -> None:
        """Each row has its expected output and exit code with kubectl."""
        await self.check_table([kubectls.found()["kubectl"]])
