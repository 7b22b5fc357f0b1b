"""
Tests for :mod:`twisted_exec.iri.client` and :mod:`twisted_exec.iri.server`, over real sockets.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import tempfile
from typing import Any

import grpc
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred, gatherResults, maybeDeferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase
from zope.interface import implementer, implementer_only

from tests.chain import PATIENCE_SECONDS
from twisted_exec.api import status as api
from twisted_exec.iri import unix_gate
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.interfaces import IMachineLogs, IMachineRuntime
from twisted_exec.iri.protos import console_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.server import IRIServer
from twisted_exec.iri.target import TargetError
from twisted_exec.iri.unix_gate import UnixGate
from twisted_exec.tls.listening import BACKLOG

from .doubles import ScriptedRuntime


@implementer_only(IMachineRuntime)
class Foreign(ScriptedRuntime):
    """A runtime without our Log service."""


@implementer(IMachineRuntime, IMachineLogs)
class WithLogs:
    """A runtime that knows our Log, and nothing else of our service."""

    def log(self, request: console_pb2.LogRequest, **facts: str) -> Deferred[Any]:
        return succeed(console_pb2.LogResponse(url="http://127.0.0.1/log/token"))


class RPCCase(TestCase):
    """A server on a UNIX socket in a private directory."""

    def setUp(self) -> None:
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.path = os.path.join(self.directory, "iri.sock")
        self.target = f"unix://{self.path}"
        self.runtime = ScriptedRuntime()

    def serve(self, **options: Any) -> IRIServer:
        server = IRIServer(self.runtime, self.target, reactor, **options)
        self.server = server
        server.startService()
        self.addCleanup(lambda: server.stopService() if server.running else None)
        return server

    def gate(self) -> UnixGate:
        """Return the gate of the server that was made last."""
        return self.server._gate[1]  # Its clients are grpcio's, which cannot be told apart outside.

    def connect(self, **options: Any) -> IRIClient:
        # The time limits of the methods are over soon on a busy machine.
        client = IRIClient(self.target, reactor, **{"timeout_seconds": PATIENCE_SECONDS, **options})
        self.addCleanup(client.stopService)
        return client

    async def refusal(self, call: Deferred[Any]) -> api.APIError:
        """Return the error of a failing call."""
        try:
            answer = await call
        except api.APIError as error:
            return error
        self.fail(f"the call answered {answer!r}")


class CallTests(RPCCase):
    """Requests and answers of calls."""

    async def test_every_method(self) -> None:
        """Every method of the runtime can be called."""
        self.serve()
        client = self.connect()
        await client.version(pb.VersionRequest())
        await client.list_events(pb.ListEventsRequest())
        await client.list_machines(pb.ListMachinesRequest())
        await client.create_machine(pb.CreateMachineRequest())
        await client.delete_machine(pb.DeleteMachineRequest())
        await client.update_machine_annotations(pb.UpdateMachineAnnotationsRequest())
        await client.update_machine_power(pb.UpdateMachinePowerRequest())
        await client.attach_volume(pb.AttachVolumeRequest())
        await client.detach_volume(pb.DetachVolumeRequest())
        await client.update_volume(pb.UpdateVolumeRequest())
        await client.attach_network_interface(pb.AttachNetworkInterfaceRequest())
        await client.detach_network_interface(pb.DetachNetworkInterfaceRequest())
        await client.status(pb.StatusRequest())
        await client.exec(pb.ExecRequest())
        await client.log(console_pb2.LogRequest())
        await client.set_alerts(console_pb2.SetAlertsRequest())
        await client.list_matches(console_pb2.ListMatchesRequest())
        self.assertEqual(len({name for name, _, _ in self.runtime.calls}), 17)

    async def test_messages(self) -> None:
        """Requests and answers arrive unchanged."""
        machine = pb.Machine(spec=pb.MachineSpec(ignition_data=bytes(range(256)) * 4096))
        machine.metadata.labels["a"] = "b"
        self.runtime.answers["list_machines"] = lambda _: pb.ListMachinesResponse(
            machines=[machine]
        )
        self.serve()
        request = pb.ListMachinesRequest(filter=pb.MachineFilter(label_selector={"x": "ü"}))
        answer = await self.connect().list_machines(request)
        self.assertEqual(list(answer.machines), [machine])
        self.assertEqual(self.runtime.calls[0][1], request)

    async def test_exec_facts(self) -> None:
        """Exec carries user and session, in any alphabet; missing facts are empty."""
        self.serve()
        client = self.connect()
        await client.exec(pb.ExecRequest(machine_id="m"), user="Zoë\n", session="s")
        self.assertEqual(
            self.runtime.calls[0][2], {"user": "Zoë\n", "machine_uid": "", "session": "s"}
        )

    async def test_log_facts(self) -> None:
        """Log carries the same facts."""
        self.serve()
        request = console_pb2.LogRequest(machine_id="m")
        await self.connect().log(request, user="ann", machine_uid="u")
        self.assertEqual(
            self.runtime.calls,
            [("log", request, {"user": "ann", "machine_uid": "u", "session": ""})],
        )

    async def test_no_logs(self) -> None:
        """A runtime without the Log service answers 501."""
        self.runtime = Foreign()
        self.serve()
        found = await self.refusal(self.connect().log(console_pb2.LogRequest(machine_id="m")))
        self.assertEqual((found.code, found.reason), (501, "NotImplemented"))

    async def test_logs_without_alerts(self) -> None:
        """A runtime of an embedder may have logs and no alerts."""
        self.runtime = WithLogs()  # type: ignore[assignment]
        self.serve()
        client = self.connect()
        await client.log(console_pb2.LogRequest(machine_id="m"))
        found = await self.refusal(client.set_alerts(console_pb2.SetAlertsRequest()))
        self.assertEqual((found.code, found.reason), (501, "NotImplemented"))

    async def test_too_many_matches(self) -> None:
        """A runtime that lists more matches than any of ours is refused."""
        match = console_pb2.AlertMatch(number=1)
        self.runtime.answers["list_matches"] = lambda _: console_pb2.ListMatchesResponse(
            matches=[match] * 1001
        )
        self.serve()
        found = await self.refusal(self.connect().list_matches(console_pb2.ListMatchesRequest()))
        self.assertEqual(found.code, 502)

    async def test_errors(self) -> None:
        """Errors keep their kind, message and Retry-After."""
        self.serve()
        client = self.connect()
        for error in (
            api.NotFound("machines", "m", message='no machine "ü"'),
            api.AlreadyExists("machines", "m"),
            api.Conflict("busy"),
            api.BadRequest("bad"),
            api.Forbidden("no"),
            api.TooManyRequests("full", 7),
            api.NotImplementedByBackend("volumes are not offered"),
        ):

            def refuse(_: Any, error: api.APIError = error) -> None:
                raise error

            self.runtime.answers["version"] = refuse
            found = await self.refusal(client.version(pb.VersionRequest()))
            self.assertEqual(
                (found.code, found.reason, found.message, found.retry_after_seconds),
                (error.code, error.reason, error.message, error.retry_after_seconds),
            )

    async def test_bug(self) -> None:
        """
        An exception in the runtime is logged there; the client learns only that it is internal.
        """
        self.runtime.answers["version"] = lambda _: 1 // 0
        self.serve()
        found = await self.refusal(self.connect().version(pb.VersionRequest()))
        self.assertEqual(
            (found.code, found.message), (500, "internal error of the machine runtime")
        )
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    async def test_nonsense(self) -> None:
        """Undecodable bytes are a bad request, not a traceback."""
        self.serve()

        def send() -> tuple[Any, str]:
            with grpc.insecure_channel(self.target) as channel:
                call = channel.unary_unary("/machine.v1alpha1.MachineRuntime/Exec")
                try:
                    call(b"\xff\xff\xff", timeout=PATIENCE_SECONDS)
                except grpc.RpcError as error:
                    return error.code(), error.details()
            return None, ""

        found = await deferToThread(send)
        self.assertEqual(found, (grpc.StatusCode.INVALID_ARGUMENT, "not a ExecRequest"))

    async def test_many(self) -> None:
        """More concurrent calls than server threads are all answered."""
        self.serve()
        client = self.connect()
        calls = [client.version(pb.VersionRequest()) for _ in range(200)]
        self.assertEqual(len(await gatherResults(calls)), 200)


class TimeTests(RPCCase):
    """Time-outs and reconnecting."""

    async def test_25_deadline(self) -> None:
        """A runtime that does not answer in time is a gateway timeout."""
        waiting: Deferred[pb.VersionResponse] = Deferred()
        self.runtime.answers["version"] = lambda _: waiting
        self.serve()
        client = self.connect(timeout_seconds=0.3)
        found = await self.refusal(client.version(pb.VersionRequest()))
        self.assertEqual(found.code, 504)
        waiting.callback(pb.VersionResponse())

    async def test_cancelled(self) -> None:
        """Cancelling a call ends it at once."""
        reached: Deferred[None] = Deferred()
        waiting: Deferred[pb.VersionResponse] = Deferred()

        def answer(_: Any) -> Deferred[pb.VersionResponse]:
            reached.callback(None)
            return waiting

        self.runtime.answers["version"] = answer
        self.serve()
        call = self.connect().version(pb.VersionRequest())
        await reached
        call.cancel()
        with self.assertRaises(CancelledError):
            await call
        waiting.callback(pb.VersionResponse())

    async def test_nobody_there(self) -> None:
        """Without a runtime, a call fails at once and does not reveal the socket's path."""
        found = await self.refusal(self.connect().version(pb.VersionRequest()))
        self.assertEqual(found.code, 503)
        self.assertNotIn(self.path, found.message)

    async def test_restart(self) -> None:
        """A client reconnects by itself after a server restart."""
        client = self.connect()
        for _ in range(3):
            server = self.serve()
            await client.version(pb.VersionRequest())
            await server.stopService()
            found = await self.refusal(client.version(pb.VersionRequest()))
            self.assertEqual(found.code, 503)

    async def test_silent_peer(self) -> None:
        """The client replaces a connection on which calls time out."""
        waiting: list[Deferred[pb.VersionResponse]] = []

        def swallow(_: Any) -> Deferred[pb.VersionResponse]:
            waiting.append(Deferred())
            return waiting[-1]

        self.runtime.answers["version"] = swallow
        self.serve()
        client = self.connect(timeout_seconds=0.3)
        for _ in range(2):
            await self.refusal(client.version(pb.VersionRequest()))
        before = set(self.gate().open)
        del self.runtime.answers["version"]
        client._timeout_seconds = PATIENCE_SECONDS  # only the calls before are to time out
        await client.version(pb.VersionRequest())
        self.assertNotEqual(set(self.gate().open) - before, set())
        for one in waiting:
            one.callback(pb.VersionResponse())

    async def test_slow_part(self) -> None:
        """A runtime that itself reports timeouts is not silent: the connection stays."""

        def refuse(_: Any) -> None:
            raise api.GatewayTimeout("the hypervisor does not answer")

        self.runtime.answers["version"] = refuse
        self.serve()
        client = self.connect()
        opened = set()
        for _ in range(4):
            found = await self.refusal(client.version(pb.VersionRequest()))
            self.assertEqual(found.code, 504)
            opened |= set(self.gate().open)
        self.assertEqual(len(opened), 1)

    async def test_stop_frees(self) -> None:
        """A stopped server leaves no file behind."""
        server = self.serve()
        client = self.connect()
        await client.version(pb.VersionRequest())
        await server.stopService()
        self.assertEqual(os.listdir(self.directory), [])


class SocketTests(RPCCase):
    """Access to the UNIX socket."""

    async def test_private(self) -> None:
        """Only this user may use the socket and grpcio's own socket behind it."""
        port, _ = self.serve()._gate  # Linux does not tell the backlog of a UNIX socket.
        self.assertEqual(port.backlog, BACKLOG)
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(self.path + ".d").st_mode & 0o777, 0o700)

    def test_makes_directory(self) -> None:
        """A missing directory is created for this user only."""
        self.target = f"unix://{self.directory}/new/iri.sock"
        self.serve()
        self.assertEqual(os.stat(f"{self.directory}/new").st_mode & 0o777, 0o700)

    def test_open_directory(self) -> None:
        """A directory open to other users is refused, with a hint to use chmod."""
        with open(os.path.join(self.directory, "planted"), "w"):
            os.chmod(self.directory, 0o755)
        with self.assertRaises(TargetError) as caught:
            self.serve()
        self.assertIn("chmod 700", str(caught.exception))

    def test_in_use(self) -> None:
        """A second server on the same path is refused and does not disturb the first."""
        self.serve()
        with self.assertRaises(CannotListenError) as caught:
            IRIServer(self.runtime, self.target, reactor).startService()
        self.assertEqual(caught.exception.port, self.path)
        self.assertIn("it is in use by another process", str(caught.exception))
        self.assertTrue(os.path.exists(self.path + ".d"))

    def test_taken(self) -> None:
        """If another process takes the path just before, the error names it, and nothing stays behind."""

        class Taken:
            """The reactor; another process is faster."""

            def __getattr__(self, name: str) -> Any:
                return getattr(reactor, name)

            def listenUNIX(self, path: str, *_: Any, **__: Any) -> None:
                raise CannotListenError(
                    None, path, OSError(errno.EADDRINUSE, "Address already in use")
                )

        with self.assertRaises(CannotListenError) as caught:
            IRIServer(self.runtime, self.target, Taken()).startService()
        self.assertEqual(caught.exception.port, self.path)
        self.assertFalse(os.path.exists(self.path + ".d"))

    async def test_stale(self) -> None:
        """The server replaces stale sockets of a killed one."""
        for path in (self.path, self.path + ".d/s"):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with socket.socket(socket.AF_UNIX) as left:
                left.bind(path)
        self.serve()
        await self.connect().version(pb.VersionRequest())

    def test_not_a_socket(self) -> None:
        """The server refuses to replace a regular file."""
        with open(self.path, "w"):
            pass
        with self.assertRaises(TargetError):
            self.serve()

    async def test_stranger(self) -> None:
        """
        The server drops connections of users that are not allowed, by the kernel's peer
        credentials.
        """
        self.serve()
        self.patch(unix_gate, "peer_uid", lambda _: os.getuid() + 1)
        found = await self.refusal(self.connect().version(pb.VersionRequest()))
        self.assertEqual(found.code, 503)
        self.assertEqual(self.runtime.calls, [])

    async def test_named_user(self) -> None:
        """With allowed users, the socket is open to all and peer credentials decide."""
        os.chmod(self.directory, 0o711)
        self.serve(allowed_uids=[os.getuid() + 1])
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o666)
        await self.connect().version(pb.VersionRequest())

    async def test_client_checks_owner(self) -> None:
        """A client refuses a socket in a world-writable directory."""
        self.serve()
        os.chmod(self.directory, 0o777)
        found = await self.refusal(self.connect().version(pb.VersionRequest()))
        self.assertEqual(found.code, 503)
        self.assertEqual(self.runtime.calls, [])

    async def test_leaves_nothing(self) -> None:
        """Reconnecting clients leak no file descriptors."""
        self.serve()
        client = self.connect()
        await client.version(pb.VersionRequest())
        await maybeDeferred(client.stopService)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            await client.version(pb.VersionRequest())
            await maybeDeferred(client.stopService)
        gate = self.gate()
        # Threads of gRPC close their ends of the connections.
        while gate.open or len(os.listdir("/proc/self/fd")) > before + 2:
            await _turn()


def _turn() -> Deferred[None]:
    turned: Deferred[None] = Deferred()
    reactor.callLater(0.01, turned.callback, None)  # type: ignore[attr-defined]
    return turned
