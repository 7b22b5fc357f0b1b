"""
No test waits for a time: the tests' code, read for what it waits for.

``tests/README.rst`` says how a test waits. Benchmarks and interop suites are about time, and are not read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).parents[1]
NOT_READ = ("tests/benchmarks/", "tests/interop/")

PAUSES = {
    "tests/contracts/space_world.py pause",
    "tests/flows/deployment.py pause",
    "tests/iri/test_rpc.py _turn",
    "tests/kube/kubeconfig/test_plugin.py RunTests._pause",
    "tests/runtimes/support.py pause",
}
"""Functions that wait between two looks; each call must itself be in a loop that looks."""
_PAUSE_NAMES = {each.rpartition(" ")[2].rpartition(".")[2] for each in PAUSES}

_NOTHING_HAPPENS = (
    "that nothing happens is no event; a longer or shorter wait fails no right product"
)
_BETWEEN_LOOKS = "callers look again after it"
_ENDS_ITSELF = "the process ends by itself"
EXCEPTIONS = {
    "tests/clients/matrix.py ": "a program; it runs the reactor for its own work",
    "tests/contracts/console.py ConsoleContract.test_paused": _NOTHING_HAPPENS,
    "tests/contracts/console.py OutputOnlyContract.test_input_discarded": _NOTHING_HAPPENS,
    "tests/contracts/console.py BreakableContract.test_break": _NOTHING_HAPPENS,
    "tests/contracts/space_world.py SpaceWorld.turn": _BETWEEN_LOOKS,
    "tests/flows/forks.py _serve": _ENDS_ITSELF,
    "tests/kube/console_cases.py ConsolesCase._settle": "clean-up: clients' ends of connections see the end of the server",
    "tests/program/handover/program.py Handable.trouble": "the program under test hangs on purpose",
    "tests/program/handover/test_handover.py HandOverTests.test_generation_without_sessions": _NOTHING_HAPPENS,
    "tests/program/handover/test_handover.py HandOverTests.test_process": _NOTHING_HAPPENS,
    "tests/runtimes/keeper/test_client.py LifeTests.test_restart_race": "a race, begun at various moments",
    "tests/runtimes/keeper/test_process.py MisbehaviourTests.test_other_user": _ENDS_ITSELF,
    "tests/runtimes/qemu/test_run.py BootTests.test_u_boot": "the processor time of an idle second is the subject",
    "tests/runtimes/serving/test_stream_server.py ReadTests.test_slow": "room for what a server might do for its paused reader",
    "tests/runtimes/test_processes.py ReadTests.test_zombie": _ENDS_ITSELF,
    "tests/runtimes/test_pty.py ReleaseTests.test_input_in_flight": "however much the terminal has accepted by then",
    "tests/shared.py _end": "a bounded poll when the reactor does not run any more",
    "tests/spacemanager/providers/test_kind_provider.py LookTests.test_hint_when_made": "room for further hints of the listing, of which any number is right",
    "tests/spacemanager/providers/kind_world.py KindWorld.turn": _BETWEEN_LOOKS,
    "tests/storage/etcd/test_restore.py UsedTests.ask": _BETWEEN_LOOKS,
    "tests/stalls.py run": "it is the program that makes others wait",
}
"""File and function of each other wait, and why it is right."""


class Waits(ast.NodeVisitor):
    """
    The waits of one module that are neither for an event nor between two looks.

    :ivar found: function and line of each.
    """

    def __init__(self) -> None:
        self.found: list[tuple[str, int]] = []
        self._names: list[str] = []
        self._loop: ast.AST | None = None

    def _enter(self, node: ast.AST, loop: ast.AST | None, *names: str) -> None:
        before, self._loop = self._loop, loop
        self._names += names
        self.generic_visit(node)
        self._names = self._names[: len(self._names) - len(names)]
        self._loop = before

    def visit_FunctionDef(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ) -> None:
        self._enter(node, None, node.name)

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_While(self, node: ast.While | ast.For) -> None:
        self._enter(node, node)

    visit_For = visit_While

    def _is_polling(self, *kinds: type[ast.AST]) -> bool:
        """Return whether the innermost loop is of one of these kinds, and ends when it has seen something."""
        if isinstance(self._loop, ast.For):  # with no more than so many looks
            ends = any(isinstance(each, ast.Break | ast.Return) for each in ast.walk(self._loop))
            return ast.For in kinds and ends
        return type(self._loop) in kinds

    def visit_Await(self, node: ast.Await) -> None:
        if isinstance(node.value, ast.Call):
            _, name = _called(node.value)
            if name in _PAUSE_NAMES and not _is_turn(node.value.args):
                self._found(node, is_right=self._is_polling(ast.While, ast.For))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        owner, name = _called(node)
        arguments = {each.arg for each in node.keywords}
        if name == "deferLater":
            on_clock = "clock" in ast.unparse(node.args[0])
            is_turn = _is_turn(node.args[1:])
            self._found(node, is_right=on_clock or is_turn or self._is_polling(ast.While, ast.For))
        elif name == "callLater" and _fires(node.args):
            self._found(node, is_right=_is_turn(node.args) or self._is_polling(ast.While, ast.For))
        elif name in ("sleep", "react"):  # trial's timeout ends none of these
            self._found(node, is_right=self._is_polling(ast.For))
        elif owner == "os" and name in ("wait", "wait3", "wait4", "waitpid", "waitid"):
            self._found(node, is_right="WNOHANG" in ast.unparse(node))
        elif owner == "select" and name == "select":
            self._found(node, is_right=len(node.args) == 4)
        elif name == "communicate":
            self._found(node, is_right="timeout" in arguments)
        elif name == "wait" and owner != "self":
            self._found(node, is_right=bool(node.args or node.keywords))
        self.generic_visit(node)

    def _found(self, node: ast.expr, *, is_right: bool = False) -> None:
        if not is_right:
            self.found.append((".".join(self._names), node.lineno))


def _called(node: ast.Call) -> tuple[str, str]:
    """What a function belongs to, and its name."""
    if isinstance(node.func, ast.Attribute):
        owner = node.func.value
        return owner.id if isinstance(owner, ast.Name) else "", node.func.attr
    return "", node.func.id if isinstance(node.func, ast.Name) else ""


def _is_turn(arguments: list[ast.expr]) -> bool:
    """Return whether a delay is one turn of the reactor."""
    return bool(arguments) and ast.unparse(arguments[0]) == "0"


def _fires(arguments: list[ast.expr]) -> bool:
    """Return whether a delayed call does nothing but fire a Deferred."""
    return len(arguments) > 1 and ast.unparse(arguments[1]).endswith((".callback", ".errback"))


def waits() -> Iterator[tuple[str, int]]:
    """Yield file and function, and line, of each wait that must be an exception."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(NOT_READ):
            visitor = Waits()
            visitor.visit(ast.parse(path.read_text(encoding="utf-8"), name))
            for function, line in visitor.found:
                yield f"{name} {function}", line


class WaitTests(SynchronousTestCase):
    """The code of the tests."""

    def test_all(self) -> None:
        """Every wait is for a clock, an event, a log line or between two looks; others have a reason."""
        found = dict(waits())
        known = PAUSES | set(EXCEPTIONS)
        remedy = "wait for an event or look again in a loop: see tests/README.rst"
        self.assertEqual(
            {f"{each}, line {found[each]}" for each in found.keys() - known}, set(), remedy
        )
        self.assertEqual(known - found.keys(), set(), "these wait no more: remove them here")

    def test_found(self) -> None:
        """Waits for a time are found, and looks in a loop are none."""
        table = {
            "async def f(): await deferLater(reactor, 0.1)": 1,
            "async def f():\n while not done(): await deferLater(reactor, 0.1)": 0,
            "async def f():\n for _ in '12': await deferLater(reactor, 0.1)": 1,
            "async def f():\n for _ in '12':\n  if done(): return\n  await deferLater(reactor, 0.1)": 0,
            "async def f():\n while not done():\n  async def g(): await pause()": 1,
            "async def f(): await deferLater(reactor, 0)": 0,
            "async def f(): await deferLater(self.clock, 9)": 0,
            "reactor.callLater(0.1, done.callback, None)": 1,
            "reactor.callLater(0, done.callback, None)": 0,
            "reactor.callLater(60, process.kill)": 0,
            "async def f(): await asyncio.sleep(1)": 1,
            "while not done(): time.sleep(0.1)": 1,
            "for _ in '12':\n if done(): break\n time.sleep(0.1)": 0,
            "task.react(main)": 1,
            "os.waitpid(pid, 0)": 1,
            "os.waitpid(pid, os.WNOHANG)": 0,
            "process.wait()": 1,
            "process.wait(60)": 0,
            "process.communicate()": 1,
            "select.select([file], [], [])": 1,
        }
        for code, count in table.items():
            visitor = Waits()
            visitor.visit(ast.parse(code))
            self.assertEqual(len(visitor.found), count, code)
