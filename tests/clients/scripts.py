"""
The rows of the libraries: programs that use one, and say on their output what they see.

``PROGRAM COLUMN MACHINE MARK`` tries one column and exits with 0 when it could.  In its
environment are ``KUBECONFIG``, ``NAMESPACE``, ``TOKEN``, ``SERVER`` and ``CA``.  What the
line has is printed as it comes; the mark is a new word for what is asked or written.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version as version_of
from importlib.util import find_spec
from pathlib import Path

from twisted.internet import reactor
from twisted.internet.utils import getProcessOutput

from tests import needs
from tests.flows import forks, programs
from tests.flows.programs import Program

from .client import REQUIRED_EXIT_CODE, Client, expect, new_mark
from .kubectl import QUIET_SECONDS, served
from .place import NAMESPACE, PATIENCE_SECONDS, Place, answer, answers, question
from .table import Row

_HERE = Path(__file__).parent

NO_SCHEMAS = "The library cannot show schemas."
FETCH_FIRST = (
    "The page makes a plain request to the server first: the server requests an optional client "
    "certificate, and without that first request Chromium does not open the WebSocket without one."
)
NO_STATUS = "Its ``Attach`` discards the status; its other functions were tested."
NOT_HTTP = "A plain HTTP request, not a WebSocket, as in the other rows."
NO_APPLY = "The library has no apply; the test creates an object and changes it with a merge patch."
NO_SERVER_SIDE_APPLY = "The library has no server-side apply."
NO_ATTACH = "The library has no attach."
NO_RESIZE = "The library cannot send a size."
NO_CONSOLE = "The library opens the consoles of Pods only."
VERSION_4 = "The library requests version 4 of the protocol, which cannot signal the end of input."
VERSION_5_HEADER = (
    "With a default header that requests version 5 of the protocol; by default the library requests"
    " version 4, which cannot signal the end of input."
)
READS_ONLY = (
    "The library's ``exec`` requests version 4 of the protocol and then sends no input; the test reads"
    " what another viewer types."
)
MACHINES_EXEC = (
    "Opens ``machines/exec`` with the client's own WebSocket instead of ``kubectl console``."
)


class Script(Client):
    """A program of one library."""

    consoles: Sequence[str] = ("attach", "exec", "console")
    """The ways to a console that it has."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = list(argv)

    def prepared(self, place: Place) -> Sequence[str]:
        """The command, made ready."""
        return self._argv

    async def try_get(self, place: Place) -> None:
        """The machine, and the Pod that it is, too."""
        program = await self._ran(place, "get")
        for kind in ("machine", "pod"):
            expect(f"{kind} {place.machine} Running\n".encode() in program.stdout, program)

    async def try_watch(self, place: Place) -> None:
        """A change of the machine is told when it happens."""
        mark = new_mark()
        program = self._start(place, "watch", mark)
        try:
            await program.until(b"watching\n", seconds=PATIENCE_SECONDS)
            await place.label(mark)
            await program.until(f"MODIFIED {mark}\n".encode(), seconds=PATIENCE_SECONDS)
            expect(await program.ended == 0, program)
        finally:
            await program.stop()

    async def try_apply(self, place: Place) -> None:
        """Created, then changed."""
        program = await self._ran(place, "apply")
        found = await place.object(f"{place.machine}-applied")
        expect(found["metadata"]["labels"] == {"a": "2"}, program)

    async def try_server_side_apply(self, place: Place) -> None:
        """Two managers: the second is told of the conflict, and may force it."""
        program = await self._ran(place, "server-side-apply")
        expect(b"conflict 409\n" in program.stdout, program)
        expect(await served(place, "2", "two"), program)

    async def try_can_i(self, place: Place) -> None:
        """Who may open the console, and who may not."""
        may = await self._ran(place, "can-i")
        expect(may.stdout == b"true\n", may)
        not_ = await self._ran(place, "can-i", env={"KUBECONFIG": place.chain.nobody})
        expect(not_.stdout == b"false\n", not_)

    async def try_attach(self, place: Place) -> None:
        """A question and its answer."""
        await self._talk(place, "attach")

    async def try_exec(self, place: Place) -> None:
        """A question and its answer."""
        await self._talk(place, "exec")

    async def try_console(self, place: Place) -> None:
        """A question and its answer."""
        await self._talk(place, "console")

    async def try_logs_f(self, place: Place) -> None:
        """What was printed, and then what is."""
        viewer = await place.company()
        before, after = new_mark(), new_mark()
        await viewer.ask(question(before), answer(before), seconds=PATIENCE_SECONDS)
        program = self._start(place, "logs", after)
        try:
            await program.until(answer(before), seconds=PATIENCE_SECONDS)
            viewer.type(question(after))
            await program.until(answer(after), seconds=PATIENCE_SECONDS)
            expect(await program.ended == 0, program)
        finally:
            await program.stop()
        await viewer.leave()

    async def try_stdin_EOF(self, place: Place) -> None:
        """The end of input ends that attachment after two quiet seconds, and nothing else."""
        viewer = await place.company()
        for way in self.consoles:
            mark, since = new_mark(), reactor.seconds()
            program = await self._ran(place, f"end-{way}", mark)
            expect(answer(mark) in program.stdout, program)
            expect(program.stdout.endswith(b"\nstatus Success\n"), program)
            expect(reactor.seconds() - since >= QUIET_SECONDS, program)
            await answers(viewer)
        await viewer.leave()

    async def try_resize(self, place: Place) -> None:
        """The machine's terminal has the size that was told."""
        mark = new_mark()
        program = await self._ran(place, "resize", mark)
        expect(answer(mark) in program.stdout, program)

    async def try_exit_status(self, place: Place) -> None:
        """A process that exits 7 says so to every viewer."""
        for way in self.consoles:
            viewer = await place.company()
            program = await self._ran(place, f"exit-{way}")
            expect(program.stdout.endswith(b"\nexit 7\n"), program)
            lost = await viewer.ended
            expect(lost.ending.exit_code == REQUIRED_EXIT_CODE, program)

    async def _talk(self, place: Place, column: str) -> None:
        mark = new_mark()
        program = await self._ran(place, column, mark)
        expect(answer(mark) in program.stdout, program)

    def _start(
        self, place: Place, column: str, mark: str = "", env: Mapping[str, str] | None = None
    ) -> Program:
        chain = place.chain
        facts = {
            "KUBECONFIG": chain.admin,
            "NAMESPACE": NAMESPACE,
            "TOKEN": chain.token,
            "SERVER": chain.server,
            "CA": chain.ca,
            "PYTHONUNBUFFERED": "1",
        }
        argv = [*self.prepared(place), column, place.machine, mark]
        return self._start_script(argv, {**facts, **(env or {})})

    def _start_script(self, argv: Sequence[str], env: Mapping[str, str]) -> Program:
        return programs.start(argv, env=env)

    async def _ran(
        self, place: Place, column: str, mark: str = "", env: Mapping[str, str] | None = None
    ) -> Program:
        program = self._start(place, column, mark, env)
        try:
            program.ended.addTimeout(PATIENCE_SECONDS, reactor)
            await program.ended
        finally:
            await program.stop()
        expect(program.exit_code == 0, program)
        return program


class PythonScript(Script):
    """
    A script of a Python library, which takes longer to import than most scripts take to run.

    :cvar library: the library's package; forks of one process that has imported it run the script.
    :cvar modules: what the script imports of it besides.
    :cvar script: the file name in the directory ``python``.
    """

    library = ""
    modules: Sequence[str] = ()
    script = ""

    def __init__(self) -> None:
        super().__init__([str(_HERE / "python" / self.script)])

    async def attempt(self, place: Place, failures: list[str]) -> Row:
        # These libraries read the default path of the kubeconfig when they are imported.
        self._environment = {"KUBECONFIG": place.chain.admin}
        self._nursery = forks.Nursery([self.library, *self.modules], self._environment)
        try:
            return await super().attempt(place, failures)
        finally:
            self._nursery.close()

    def _start_script(self, argv: Sequence[str], env: Mapping[str, str]) -> Program:
        if self._environment.items() <= env.items():
            return programs.fork(argv, self._nursery, env)
        return programs.start([sys.executable, *argv], env=env)

    async def version(self) -> str:
        return version_of(self.library)


class PythonClient(PythonScript):
    """The library ``kubernetes``."""

    library, script = "kubernetes", "kubernetes_client.py"
    modules = ("kubernetes.dynamic", "kubernetes.stream")

    name = "Python ``kubernetes``"
    cannot = {"explain": NO_SCHEMAS}
    notes = {"apply": NO_APPLY, "console": MACHINES_EXEC}


class AsyncioClient(PythonScript):
    """The library ``kubernetes_asyncio``."""

    library, script = "kubernetes_asyncio", "kubernetes_asyncio_client.py"
    modules = ("kubernetes_asyncio.stream",)

    name = "Python ``kubernetes_asyncio``"
    cannot = {"explain": NO_SCHEMAS}
    notes = {"apply": NO_APPLY, "console": MACHINES_EXEC, "stdin EOF": VERSION_5_HEADER}


class Kr8sClient(PythonScript):
    """The library ``kr8s``."""

    library, script = "kr8s", "kr8s_client.py"
    modules = ("kr8s.asyncio.objects",)

    name = "Python ``kr8s``"
    cannot = {
        "server-side apply": NO_SERVER_SIDE_APPLY,
        "explain": NO_SCHEMAS,
        "attach": NO_ATTACH,
        "resize": NO_RESIZE,
    }
    notes = {"apply": NO_APPLY, "exec": READS_ONLY, "console": MACHINES_EXEC}
    consoles = ("console",)

    async def try_exec(self, place: Place) -> None:
        """The answer to another viewer's question."""
        viewer, mark = await place.company(), new_mark()
        program = self._start(place, "exec", mark)
        try:
            await viewer.ask(question(mark), answer(mark), seconds=PATIENCE_SECONDS)
            await program.until(answer(mark), seconds=PATIENCE_SECONDS)
        finally:
            await program.stop()
        await viewer.leave()


class LightkubeClient(PythonScript):
    """The library ``lightkube``."""

    library, script = "lightkube", "lightkube_client.py"

    name = "Python ``lightkube``"
    cannot = {
        "explain": NO_SCHEMAS,
        "attach": NO_ATTACH,
        "console": NO_CONSOLE,
        "resize": NO_RESIZE,
    }
    notes = {"apply": NO_APPLY}
    consoles = ("exec",)


class JavaScriptClient(Script):
    """The library ``@kubernetes/client-node``."""

    name = "JavaScript ``@kubernetes/client-node``"
    cannot = {"explain": NO_SCHEMAS}
    notes = {
        "apply": NO_APPLY,
        "console": MACHINES_EXEC,
        "stdin EOF": NO_STATUS,
        "exit status": NO_STATUS,
    }
    consoles = ("exec", "console")

    def __init__(self, modules: str) -> None:
        super().__init__(["node"])
        self._modules = modules

    def prepared(self, place: Place) -> Sequence[str]:
        # node looks for modules beside the program's real place.
        program = Path(place.home, "client.mjs")
        if not program.exists():
            shutil.copy(_HERE / "javascript" / "client.mjs", program)
            os.symlink(self._modules, program.parent / "node_modules")
        return [*self._argv, str(program)]

    async def version(self) -> str:
        package = Path(self._modules, "@kubernetes/client-node/package.json").read_text()
        found = re.search(r'"version": "([^"]+)"', package)
        assert found is not None
        return found[1]


class KubeRsClient(Script):
    """The crate ``kube``."""

    name = "Rust ``kube``"
    cannot = {"explain": NO_SCHEMAS}
    notes = {"apply": NO_APPLY, "console": MACHINES_EXEC}

    def __init__(self, program: str) -> None:
        super().__init__([program])

    async def version(self) -> str:
        locked = (_HERE / "rust" / "Cargo.lock").read_text()
        found = re.search(r'name = "kube"\nversion = "([^"]+)"', locked)
        assert found is not None
        return found[1]


class Fabric8Client(Script):
    """The library ``kubernetes-client`` of fabric8."""

    name = "Java ``io.fabric8:kubernetes-client``"
    cannot = {"explain": NO_SCHEMAS, "console": NO_CONSOLE, "stdin EOF": VERSION_4}
    notes = {"apply": NO_APPLY}
    consoles = ("attach", "exec")

    def __init__(self, directory: str) -> None:
        path = f"{directory}/fabric8-client-0.jar:{directory}/dependency/*"
        super().__init__(["java", "-cp", path, "Fabric8Client"])

    async def version(self) -> str:
        project = (_HERE / "java" / "pom.xml").read_text()
        found = re.search(
            r"<artifactId>kubernetes-client</artifactId>\s*<version>([^<]+)<", project
        )
        assert found is not None
        return found[1]


class Browser(Script):
    """A WebSocket as a page opens it: the token among the subprotocols, and an Origin."""

    name = "WebSocket of a page"
    cannot = dict.fromkeys(("get", "apply", "server-side apply", "explain", "can-i"), NOT_HTTP)
    notes = {"console": MACHINES_EXEC}

    def __init__(self) -> None:
        super().__init__([sys.executable, str(_HERE / "browser" / "client.py")])

    async def version(self) -> str:
        return f"websockets {version_of('websockets')}"


class Chromium(Browser):
    """The same by a page in a real browser."""

    name = "WebSocket of a page in Chromium"
    notes = dict.fromkeys(("watch", "attach", "exec", "logs -f"), FETCH_FIRST) | {
        "console": MACHINES_EXEC
    }

    def __init__(self, program: str) -> None:
        Script.__init__(self, [sys.executable, str(_HERE / "browser" / "page.py"), program])
        self._program = program

    async def version(self) -> str:
        told = await getProcessOutput(self._program, ["--version"], env=os.environ, errortoo=True)
        found = re.search(rb"Chromium (\S+)", told)
        assert found is not None, told
        return found[1].decode()


def browsers() -> list[Client]:
    """The real browser, if there is one."""
    program = shutil.which("chromium")
    return [Chromium(program)] if program else []


def built() -> list[Client]:
    """Those whose programs were built from their languages' packages."""
    clients: list[Client] = []
    if program := needs.kube_rs_program():
        clients.append(KubeRsClient(program))
    if needs.fabric8() is None:
        clients.append(Fabric8Client(needs.fabric8_directory()))
    return clients


def found() -> list[Client]:
    """Those whose libraries are installed."""
    clients: list[Client] = []
    if find_spec("kubernetes") is not None:
        clients.append(PythonClient())
    if find_spec("kubernetes_asyncio") is not None:
        clients.append(AsyncioClient())
    if find_spec("kr8s") is not None:
        clients.append(Kr8sClient())
    if find_spec("lightkube") is not None:
        clients.append(LightkubeClient())
    if needs.javascript() is None:
        clients.append(JavaScriptClient(needs.node_modules()))
    if find_spec("websockets") is not None:
        clients.append(Browser())
    return clients
