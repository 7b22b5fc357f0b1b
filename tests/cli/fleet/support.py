"""An API server with many machines in the reactor of the tests, and the command line for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.endpoints import TCP4ServerEndpoint

from tests.audits import AuditList
from tests.kube.console_cases import Consoles, ConsolesCase
from twisted_exec.api.logs import parse
from twisted_exec.api.selectors import parse_labels
from twisted_exec.api.status import APIError, NotFound
from twisted_exec.cli.console import space
from twisted_exec.cli.console.options import parse_options
from twisted_exec.cli.console.space import Visit
from twisted_exec.cli.fleet import targets, task
from twisted_exec.cli.options import config_of
from twisted_exec.console.log import LogStream
from twisted_exec.journal.journal import Journal
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.program.audit import Trail
from twisted_exec.spaces.interfaces import SpaceName
from twisted_exec.streaming.http.responses import respond_json
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.sessions.registry import Sessions


def screen(text: str) -> dict[str, Any]:
    """Return a screen with one row."""
    cursor = {"row": 0, "column": 0, "visible": False}
    return {"epoch": "0" * 16, "offset": len(text), "cursor": cursor, "lines": [{"text": text}]}


class Fleet(Consoles):
    """
    Serves machines, their logs, their screens, and their consoles as :class:`Consoles` does.

    :ivar journals: by ``NAMESPACE/NAME``; the machines are those with a journal.
    :ivar labels: likewise.
    :ivar problems: refuse the logs of machines, likewise.
    :ivar list_problem: refuses lists.
    :ivar missing_namespace: of this name the server says that it does not exist.
    :ivar documents: of discovery, in place of those of :class:`Consoles`, by path.
    :ivar frames: the server knows frames.
    :ivar is_silent: the server answers nothing.
    :ivar has_silent_logs: the server answers no requests for logs.
    :ivar log_queries: of each request for a log.
    """

    def __init__(self) -> None:
        super().__init__()
        self.journals: dict[str, Journal] = {}
        self.labels: dict[str, dict[str, str]] = {}
        self.problems: dict[str, APIError] = {}
        self.list_problem: APIError | None = None
        self.missing_namespace = ""
        self.documents: dict[str, Any] = {}
        self.frames = True
        self.is_silent = self.has_silent_logs = False
        self.listed = 0
        self.log_queries: list[str] = []
        self.sessions = Sessions(Trail(AuditList(), "apiserver", reactor))

    def add(self, *keys: str) -> None:
        """Add machines with an empty journal, and the label ``app=web``."""
        for key in keys:
            self.journals[key], self.labels[key] = Journal(), {"app": "web"}

    async def dispatch(self, request: Request) -> None:
        parts = request.path.decode().split("/")
        if self.is_silent or (self.has_silent_logs and parts[-1] == "log"):
            self.heads.append(request.requestHeaders)
            return
        if self.missing_namespace and parts[-2:] == ["namespaces", self.missing_namespace]:
            raise NotFound("namespaces", self.missing_namespace)
        if parts[-1] == "machines":
            self._list(request, parts[5] if parts[4] == "namespaces" else "")
        elif parts[-1] == "screen":
            respond_json(request, 200, screen(f"screen of {parts[7]}"))
        elif parts[-1] == "log":
            await self._log(request, f"{parts[5]}/{parts[7]}")
        else:
            await super().dispatch(request)

    def _discovery(self) -> dict[str, Any]:
        return super()._discovery() | self.documents

    def _list(self, request: Request, namespace: str) -> None:
        if self.list_problem is not None:
            raise self.list_problem
        selector = parse_labels(request.args.get(b"labelSelector", [b""])[0].decode())
        keys = [
            key
            for key in sorted(self.journals)
            if namespace in ("", key.partition("/")[0]) and selector.matches(self.labels[key])
        ]
        first = int(request.args.get(b"continue", [b"0"])[0])
        end = first + int(request.args.get(b"limit", [b"1000000"])[0])
        items = [
            {
                "metadata": {
                    "namespace": key.split("/")[0],
                    "name": key.split("/")[1],
                    "uid": f"u-{key}",
                }
            }
            for key in keys[first:end]
        ]
        self.listed += len(items)
        more = {"continue": str(end)} if end < len(keys) else {}
        respond_json(request, 200, {"items": items, "metadata": more})

    async def _log(self, request: Request, key: str) -> None:
        self.log_queries.append(request.uri.decode().partition("?")[2])
        if key in self.problems:
            raise self.problems[key]
        if key not in self.journals:
            raise NotFound("machines", key.partition("/")[2], "compute.ironcore.dev")
        args = dict(request.args)
        if not self.frames:
            args.pop(b"frames", None)
        stream = LogStream(request, self.journals[key], parse(args, "vm"), "vm")
        await stream.run(self.sessions.open(request.subject))

    def cut(self) -> None:
        """Lose all logs, as when the server is killed."""
        for session in self.sessions.live():
            session.cut()


class FleetCase(ConsolesCase):
    """Serves ``self.fleet``."""

    def setUp(self) -> Any:
        serving = super().setUp()
        self.fleet = self.site.resource = Fleet()
        self.messages: list[str] = []
        self.patch(task, "say", self.messages.append)
        return serving

    def options(self, *words: str) -> Any:
        return parse_options([*words, "--kubeconfig", self.kubeconfig()])

    def task(self, make: Callable[..., Any], *words: str) -> Any:
        """Return the task of a command line."""
        options = self.options(*words)
        return make(options, config_of(options), reactor)


class FleetsCase(FleetCase):
    """
    Serves the fleets of Spaces; ``self.fleet`` has the Spaces, which are not read.

    :ivar fleets: by the name of the Space.
    """

    async def setUp(self) -> None:
        await super().setUp()
        self.fleets: dict[str, Fleet] = {}
        self.visits: dict[str, ClientConfig] = {}

        async def spaces(*_: Any) -> list[SpaceName]:
            return [SpaceName(name, "p", "") for name in self.fleets]

        def visit(mine: Any, options: Any, reactor: Any) -> Deferred[Visit]:
            return succeed(Visit(self.visits[options.space]))

        self.patch(targets, "_spaces", spaces)
        self.patch(space, "visit", visit)

    async def add_fleet(self, name: str, *machines: str) -> Fleet:
        """Serve the machines of a Space."""
        fleet = self.fleets[name] = Fleet()
        fleet.add(*(f"default/{machine}" for machine in machines))
        site = Site(fleet, reactor)  # type: ignore[arg-type]
        endpoint = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        port = await endpoint.listen(site)  # type: ignore[arg-type]
        self.addCleanup(lambda: maybeDeferred(port.stopListening))
        self.addCleanup(site.drain)
        self.visits[name] = ClientConfig(f"http://127.0.0.1:{port.getHost().port}")
        return fleet

    def options(self, *words: str) -> Any:
        return super().options("--space", "*", *words)
