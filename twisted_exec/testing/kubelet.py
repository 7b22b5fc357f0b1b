"""
A kubelet without a container runtime: an API server's streams end here in commands of this host.

Source of routes, codes and texts: Kubernetes, ``pkg/kubelet/server/server.go``; of what the streams
do, ``k8s.io/kubelet/pkg/cri/streaming``.

The double is no sandbox: whoever may ask may run any command as the user of this process; give it a
client CA, or listen on loopback only::

  kubelet = Kubelet(reactor, {("default", "web"): {"main": Container()}}, tls=tls, client_ca=pem)
  port = await kubelet.listen("tcp:0:interface=127.0.0.1")
  ...
  await kubelet.stop()
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import deferLater
from zope.interface import implementer

from twisted_exec.api.status import (
    APIError,
    BadRequest,
    Forbidden,
    InternalError,
    NotFound,
    Unauthorized,
)
from twisted_exec.streaming.http.responses import Dispatcher, respond, respond_text
from twisted_exec.streaming.http.routes import Routes
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.http.upgrade_server import header_pairs, requested_protocol, take_over
from twisted_exec.streaming.http.websocket import ServerSocket, server_factory, start
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    Ending,
    IAttachment,
    IAttachmentTransport,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.carriers import STREAM_PROTOCOL, UPGRADE_REQUIRED
from twisted_exec.streaming.remotecommand.server import ConsoleServer
from twisted_exec.streaming.remotecommand.serving import serve
from twisted_exec.streaming.text.stream import TextAnswer
from twisted_exec.testing.kubelet_ports import (
    OLD_PROTOCOLS,
    PORT_FORWARD,
    TUNNEL,
    OldPorts,
    SPDYPorts,
    TunnelPorts,
    read_ports,
)
from twisted_exec.testing.kubelet_processes import (
    STDERR,
    STDOUT,
    ContainerLog,
    LocalProcess,
    LogOptions,
    LogReader,
)
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.tls.errors import VerificationError
from twisted_exec.tls.server import ServerTLS, peer_certificate, verify
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.stream_options import StreamOptions
from twisted_exec.wire.upgrade import (
    SPDY,
    check_websocket,
    negotiate,
    switching_protocols,
    tokens,
    values,
)

__all__ = [
    "AttachStream",
    "Container",
    "ContainerLog",
    "ExecStream",
    "Kubelet",
    "MainProcess",
    "Seen",
]
_REMEMBERED = 1000
_RUN_BYTES = 16 << 20
_STOP_SECONDS = 10.0
_LOOK_SECONDS = 0.005
_MESSAGE_BYTES = 1 << 20


@dataclass
class Container:
    """
    One container.

    :param command: its main command, for ``attach``; empty for none.
    :param tty: whether that has a terminal.
    :param environment: of its commands, added to that of this process.
    :param log: log of the container; the output of the main command is appended.
    :param previous: log of the previous container, if there was one.
    """

    command: Sequence[str] = ()
    tty: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"
    log: ContainerLog = field(default_factory=ContainerLog)
    previous: ContainerLog | None = None
    main: MainProcess | None = None

    def run(self, reactor: Any) -> None:
        """Start the main command, if there is one."""
        if self.command:
            self.main = MainProcess(self)
            self.start(reactor, self.main.process, self.command, stdin=True)

    def start(
        self, reactor: Any, process: LocalProcess, command: Sequence[str], *, stdin: bool
    ) -> None:
        process.start(
            reactor,
            command,
            stdin=stdin,
            environment=self.environment,
            directory=self.directory,
        )


class MainProcess:
    """A container's main command, whose input and output all attached clients share."""

    def __init__(self, container: Container) -> None:
        self._log = container.log
        self.process = LocalProcess(self, tty=container.tty)
        self.users: set[AttachStream] = set()

    def printed(self, channel: Channel, data: bytes) -> None:
        self._log.write(data, STDOUT if channel is Channel.STDOUT else STDERR)
        for each in list(self.users):
            each.printed(channel, data)

    def process_ended(self, ending: Ending) -> None:
        self._log.end()
        for each in list(self.users):
            each.process_ended(ending)

    def paced(self) -> None:
        """Follow the pace of the slowest attached client."""
        if any(each.full for each in self.users):
            self.process.pause()
        else:
            self.process.resume()


@implementer(IAttachment)
class _Stream:
    """
    A client's streams, connected to a process.

    :param over: called when the client has disconnected.
    :ivar full: the client has stopped reading.
    """

    process: LocalProcess
    transport: ConsoleServer
    full = False

    def __init__(self, options: StreamOptions, over: Callable[[Any], None]) -> None:
        self._options, self._over = options, over
        self._is_up = False

    def attached(self, transport: IAttachmentTransport) -> None:
        assert isinstance(transport, ConsoleServer)
        self.transport, self._is_up = transport, True
        self.begin()
        self.transport.registerProducer(self, True)

    def begin(self) -> None:
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        self.process.write(data)

    def window_changed(self, size: TerminalSize) -> None:
        self.process.resize(size)

    def input_ended(self) -> None:
        raise NotImplementedError

    def detached(self, reason: str) -> None:
        if self._is_up:
            self.left()
        self._over(self)

    def left(self) -> None:
        raise NotImplementedError

    def cut(self) -> None:
        if self._is_up:
            self.transport.cut()

    # The process's output.

    def printed(self, channel: Channel, data: bytes) -> None:
        if self._options.channels is None or channel not in self._options.channels:
            return
        if channel is Channel.STDERR:
            self.transport.write_error(data)
        else:
            self.transport.write(data)

    def process_ended(self, ending: Ending) -> None:
        self.transport.end(ending)

    # As the producer of the client's transport.

    def pauseProducing(self) -> None:
        self.full = True
        self.paced()

    def resumeProducing(self) -> None:
        self.full = False
        self.paced()

    def stopProducing(self) -> None:
        """Do nothing: ``detached`` follows."""

    def paced(self) -> None:
        raise NotImplementedError


class _ClientInput:
    def __init__(self, stream: _Stream) -> None:
        self.pauseProducing = stream.transport.pause_input
        self.resumeProducing = stream.transport.resume_input
        self.stopProducing = stream.transport.resume_input  # further input is dropped


class ExecStream(_Stream):
    """A client with a command of its own."""

    def __init__(
        self,
        reactor: Any,
        container: Container,
        command: Sequence[str],
        options: StreamOptions,
        over: Callable[[Any], None],
    ) -> None:
        super().__init__(options, over)
        self._reactor, self._container, self._command = reactor, container, command
        self.process = LocalProcess(self, tty=options.tty)

    def begin(self) -> None:
        takes = self._options.takes_input
        self._container.start(self._reactor, self.process, self._command, stdin=takes)
        if takes:
            self.process.register_input(_ClientInput(self))

    def input_ended(self) -> None:
        self.process.end_input()

    def left(self) -> None:
        self.process.hang_up()

    def paced(self) -> None:
        if self.full:
            self.process.pause()
        else:
            self.process.resume()


class AttachStream(_Stream):
    """A client of the main command, which continues when the client disconnects."""

    def __init__(
        self, main: MainProcess, options: StreamOptions, over: Callable[[Any], None]
    ) -> None:
        super().__init__(options, over)
        self._main, self.process = main, main.process

    def begin(self) -> None:
        if self.process.ended is not None:
            self.transport.end(Ending(COMPLETED))
        else:
            self._main.users.add(self)

    def input_ended(self) -> None:
        """Do nothing: other clients may still send input."""

    def left(self) -> None:
        self._main.users.discard(self)
        self._main.paced()

    def paced(self) -> None:
        self._main.paced()

    def process_ended(self, ending: Ending) -> None:
        super().process_ended(Ending(COMPLETED))  # the exit code concerns exec only


Pods = dict[tuple[str, str], dict[str, Container]]


@dataclass(frozen=True)
class Seen:
    """A received request; ``uri`` is the path with the query, ``headers`` are in order."""

    method: str
    uri: str
    headers: tuple[tuple[str, str], ...]


class Kubelet:
    """
    A kubelet double.

    :param pods: the containers of each Pod, by namespace and name; changed by :meth:`add` and
        :meth:`remove`.
    :param tls: serving certificate; ``None`` for plain HTTP.
    :param client_ca: PEM of the CAs of client certificates; requests without one get 401.  Empty
        disables authentication.
    :ivar seen: the latest 1000 requests, oldest first.
    """

    def __init__(
        self, reactor: Any, pods: Pods, *, tls: ServerTLS | None = None, client_ca: bytes = b""
    ) -> None:
        self.reactor, self.pods, self.client_ca = reactor, pods, client_ca
        self.seen: deque[Seen] = deque(maxlen=_REMEMBERED)
        self.streams: set[Any] = set()
        self.processes: set[LocalProcess] = set()
        self._tls = tls
        self._ports: list[IListeningPort] = []
        self._site = Site(_Resource(self), reactor)
        for containers in pods.values():
            self._run(containers)

    def add(self, namespace: str, name: str, containers: dict[str, Container]) -> None:
        """Add a Pod and start its containers."""
        self.pods[namespace, name] = containers
        self._run(containers)

    def remove(self, namespace: str, name: str) -> None:
        """Remove a Pod, kill its main processes and complete their logs."""
        for container in self.pods.pop((namespace, name)).values():
            if container.main is not None:
                container.main.process.kill()
            container.log.end()

    def remember(self, process: LocalProcess) -> None:
        """Kill a process when the kubelet stops, unless it ends before."""
        if len(self.processes) > _REMEMBERED:
            self.processes = {each for each in self.processes if each.ended is None}
        self.processes.add(process)

    def _run(self, containers: Mapping[str, Container]) -> None:
        for container in containers.values():
            container.run(self.reactor)
            if container.main is not None:
                self.remember(container.main.process)

    async def listen(self, description: str) -> IListeningPort:
        """Serve at a Twisted endpoint without TLS, such as ``tcp:0:interface=127.0.0.1``."""
        port = await server_endpoint(self.reactor, description, self._tls).listen(self._site)
        self._ports.append(port)
        return port

    async def stop(self) -> None:
        """Stop listening, and end connections and commands."""
        for port in self._ports:
            await _done(port.stopListening())
        self._site.drain()
        until = self.reactor.seconds() + _STOP_SECONDS
        while self._is_busy() and self.reactor.seconds() < until:
            for process in self.processes:
                process.kill()
            for each in list(self.streams):
                each.cut()
            for channel in list(self._site.connections):
                channel.transport.abortConnection()
            await deferLater(self.reactor, _LOOK_SECONDS)

    def _is_busy(self) -> bool:
        self.processes = {each for each in self.processes if each.ended is None}
        return bool(self.processes or self.streams or self._site.connections)


async def _done(result: Any) -> None:
    if isinstance(result, Deferred):
        await result


class _Resource(Dispatcher):
    def __init__(self, kubelet: Kubelet) -> None:
        super().__init__()
        self._kubelet = kubelet
        self._routes = routes = Routes()
        both = ("GET", "POST")
        for name, handler in (("exec", self._exec), ("attach", self._attach)):
            routes.add(both, f"/{name}/{{namespace}}/{{pod}}/{{container}}", handler)
            routes.add(both, f"/{name}/{{namespace}}/{{pod}}/{{uid}}/{{container}}", handler)
        routes.add(both, "/portForward/{namespace}/{pod}", self._port_forward)
        routes.add(both, "/portForward/{namespace}/{pod}/{uid}", self._port_forward)
        routes.add(("POST",), "/run/{namespace}/{pod}/{container}", self._run)
        routes.add(("POST",), "/run/{namespace}/{pod}/{uid}/{container}", self._run)
        routes.add(("GET",), "/containerLogs/{namespace}/{pod}/{container}", self._logs)
        routes.add(("GET",), "/healthz", self._healthz)

    async def dispatch(self, request: Request) -> None:
        headers = header_pairs(request.requestHeaders)
        pairs = tuple((name.decode(), value.decode("latin-1")) for name, value in headers)
        self._kubelet.seen.append(Seen(request.method.decode(), request.uri.decode(), pairs))
        try:
            self._authenticate(request)
            await self._routes.dispatch(request)
        except APIError as error:
            respond_text(request, error.code, error.message)
        except ConnectionDone:
            pass  # the client disconnected before its streams began

    def _authenticate(self, request: Request) -> None:
        if not self._kubelet.client_ca:
            return
        peer = peer_certificate(request.channel.transport)
        try:
            if peer is not None:
                verify(peer, self._kubelet.client_ca)
                return
        except VerificationError:
            pass
        raise Unauthorized("Unauthorized")

    # Handlers of requests.

    def _pod(self, names: Mapping[str, str], message: str) -> dict[str, Container]:
        pod = self._kubelet.pods.get((names["namespace"], names["pod"]))
        if pod is None:
            raise _missing(message)
        return pod

    def _container(self, names: Mapping[str, str]) -> Container:
        container = self._pod(names, "pod does not exist").get(names["container"])
        if container is None:
            raise _missing(f"container not found ({names['container']!r})")
        return container

    async def _healthz(self, request: Request, names: Mapping[str, str]) -> None:
        respond_text(request, 200, "ok")

    async def _exec(self, request: Request, names: Mapping[str, str]) -> None:
        options = _stream_options(request)
        container = self._container(names)
        command = [word.decode("utf-8", "surrogateescape") for word in _all(request, b"command")]
        over = self._kubelet.streams.discard
        stream = ExecStream(self._kubelet.reactor, container, command, options, over)
        self._serve(request, stream)
        self._kubelet.remember(stream.process)

    async def _attach(self, request: Request, names: Mapping[str, str]) -> None:
        options = _stream_options(request)
        container = self._container(names)
        if container.main is None:
            raise InternalError(f"container {names['container']!r} runs nothing to attach to")
        self._serve(request, AttachStream(container.main, options, self._kubelet.streams.discard))

    def _serve(self, request: Request, stream: ExecStream | AttachStream) -> None:
        self._kubelet.streams.add(stream)
        try:
            serve(
                request,
                stream,
                session=request.subject.session,
                user="",
                clock=self._kubelet.reactor,
            )
        except BaseException:
            self._kubelet.streams.discard(stream)
            raise

    async def _run(self, request: Request, names: Mapping[str, str]) -> None:
        container = self._container(names)
        command = b"".join(_all(request, b"cmd")[:1]).decode().split(" ")
        run = _Run()
        self._kubelet.remember(run.process)
        container.start(self._kubelet.reactor, run.process, command, stdin=False)
        ending = await run.done
        output = b"".join(run.output)
        if ending.is_success:
            respond(
                request, 200, output, "application/json"
            )  # the type is always JSON, as in a kubelet
            return
        message = ending.message or f"command {command[0]!r} exited with {ending.exit_code}"
        raise InternalError(f"{message}: {output.decode('utf-8', 'replace')}")

    # Logs.

    async def _logs(self, request: Request, names: Mapping[str, str]) -> None:
        options = LogOptions.of(request.args, datetime.now(UTC))
        pod = self._pod(names, f'pod "{names["pod"]}" does not exist')
        container = pod.get(names["container"])
        if container is None:
            where = f'"{names["container"]}" not found in pod "{names["pod"]}"'
            raise _missing(f"container {where}")
        log = container.previous if options.previous else container.log
        if log is None:
            where = f'"{names["container"]}" in pod "{names["pod"]}" not found'
            raise BadRequest(f"previous terminated container {where}")
        follows = options.follow and not options.previous
        await _LogResponse(request, log, LogReader(log, options), follows=follows).run()

    # Ports.

    async def _port_forward(self, request: Request, names: Mapping[str, str]) -> None:
        self._pod(names, "pod does not exist")
        if requested_protocol(request) == SPDY:
            self._spdy_ports(request, names["pod"])
        elif requested_protocol(request):
            self._socket_ports(request, names["pod"])
        else:
            raise BadRequest(UPGRADE_REQUIRED)

    def _spdy_ports(self, request: Request, pod: str) -> None:
        offered = values(header_pairs(request.requestHeaders), STREAM_PROTOCOL)
        if not offered:
            raise BadRequest(f"{STREAM_PROTOCOL.decode()} header is required")
        if negotiate(offered, [PORT_FORWARD]) is None:
            request.setHeader(b"X-Accepted-Stream-Protocol-Versions", PORT_FORWARD.encode())
            raise Forbidden(f"unable to negotiate protocol: server supports [{PORT_FORWARD}]")
        ports = SPDYPorts(self._kubelet.reactor, pod, self._kubelet.streams.discard)
        head = switching_protocols(SPDY, [(STREAM_PROTOCOL, PORT_FORWARD.encode())])
        take_over(request, ports, head)
        self._kubelet.streams.add(ports)

    def _socket_ports(self, request: Request, pod: str) -> None:
        headers = header_pairs(request.requestHeaders)
        try:
            check_websocket(request.method, headers)
        except RemoteProtocolError as problem:
            raise BadRequest(str(problem)) from None
        offered = values(headers, b"sec-websocket-protocol")
        chosen = negotiate(offered, [TUNNEL, *OLD_PROTOCOLS])
        if chosen is None and tokens(offered):
            raise Forbidden("no subprotocol in common")
        (key,) = values(headers, b"sec-websocket-key")
        socket = ServerSocket(key.decode("ascii"), chosen or "", {})
        kubelet = self._kubelet
        over = kubelet.streams.discard
        ports: TunnelPorts | OldPorts
        if chosen == TUNNEL:
            ports = TunnelPorts(kubelet.reactor, pod, socket, over)
        else:
            numbers, text = _numbers(request), chosen == OLD_PROTOCOLS[1]
            ports = OldPorts(kubelet.reactor, pod, socket, over, ports=numbers, in_base64=text)
        factory = server_factory(kubelet.reactor, _MESSAGE_BYTES)
        kubelet.streams.add(ports)
        take_over(request, start(socket, factory, ports, kubelet.reactor, _STOP_SECONDS))


class _Run:
    def __init__(self) -> None:
        self.output: list[bytes] = []
        self._room = _RUN_BYTES
        self.process = LocalProcess(self, tty=False)
        self.done: Deferred[Ending] = Deferred(lambda _: self.process.kill())

    def printed(self, channel: Channel, data: bytes) -> None:
        self.output.append(data[: self._room])
        self._room -= len(self.output[-1])

    def process_ended(self, ending: Ending) -> None:
        if not self.done.called:
            self.done.callback(ending)


class _LogResponse:
    def __init__(
        self, request: Request, log: ContainerLog, reader: LogReader, *, follows: bool
    ) -> None:
        self._log, self._reader, self._follows = log, reader, follows
        self._full = False
        self._answer = TextAnswer(request, self._pause, self._print)

    async def run(self) -> None:
        self._answer.begin()
        self._log.wait(self._print)
        try:
            self._print()
            await self._answer.done
        finally:
            self._log.forget(self._print)
            self._answer.release()

    def _pause(self) -> None:
        self._full = True

    def _print(self) -> None:
        self._full = False
        for text in self._reader.read():
            self._answer.write(text)
            if self._full:
                return
        if self._reader.exhausted or self._log.ended or not self._follows:
            self._answer.finish("complete")


def _missing(message: str) -> APIError:
    return NotFound("pods", "", message=message)


def _all(request: Request, name: bytes) -> list[bytes]:
    return list(request.args.get(name, ()))


def _stream_options(request: Request) -> StreamOptions:
    words = {b"input": Channel.STDIN, b"output": Channel.STDOUT, b"error": Channel.STDERR}
    if not any(_all(request, name)[:1] == [b"1"] for name in words):
        raise BadRequest("you must specify at least 1 of stdin, stdout, stderr")
    return StreamOptions.of(request.args)


def _numbers(request: Request) -> list[int]:
    try:
        return read_ports(_all(request, b"port"))
    except ValueError as problem:
        raise BadRequest(str(problem)) from None
