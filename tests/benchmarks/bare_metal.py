"""
A runtime with the consoles of 200 small BMCs, and a console by each way beside the program that people use for it.

First the cost of an idle rack, and the sessions at its BMCs before and after a ``kill -9`` of the runtime.  Then a key
and 10 MB (1 MB by IPMI) through a console of the runtime, by each transport, beside a bare WebSocket, ``ssh`` and
``ipmitool sol``.  ``BMCS`` may name another number, and words one of the two parts, ``rack`` and ``transports``.  The peers are in a process of their own,
``python -m tests.benchmarks.bare_metal NUMBER DIRECTORY``; the last ones need the programs of the interop suite
``bare_metal``, and are left out without them.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import grpc
import yaml

from tests import needs, procfs
from tests.contracts.machine_runtime import machine
from tests.runtimes.bmc.server import PASSWORD, SESSIONS, USER
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.revisions import revision

from .console import Console
from .terminal import Terminal

BMCS = int(os.environ.get("BMCS", "200"))
KEYS, BULK_BYTES, SLOW_BYTES = 500, 10_000_000, 1_000_000
PARTS = ("rack", "transports")
_IDLE_SECONDS = 30.0
_FLOOD = b"F"
_PIECE = b"x" * 3999 + b"\n"
_SHELL = f"""\
import os, tty
tty.setraw(0)
while data := os.read(0, 4096):
    if data[-1:] != {_FLOOD!r}:
        os.write(1, data)
        continue
    left = memoryview({_PIECE!r} * {BULK_BYTES // len(_PIECE)})
    while left:
        left = left[os.write(1, left):]
"""


# The peers, in a process of their own.


def _peers(count: int, directory: str) -> None:
    """Print a JSON line with the ports, and one with the sessions and logins for each line of input."""
    from twisted.internet import reactor, stdio
    from twisted.internet.defer import Deferred
    from twisted.protocols.basic import LineReceiver

    from tests.interop.bare_metal import PasswordSshd, no_wrapper
    from tests.runtimes.bmc.server import SmallBMC
    from tests.runtimes.peers import IPMISim

    def flood(data: bytes) -> Iterator[bytes]:
        return iter([_PIECE] * (BULK_BYTES // len(_PIECE)) if data == _FLOOD else [data])

    bmcs = [SmallBMC("websocket").start() for _ in range(count)]
    bmcs[0].console.answer = flood
    ports: dict[str, Any] = {"racks": [each.port for each in bmcs], "pin": bmcs[0].pin}

    class Questions(LineReceiver):
        delimiter = b"\n"

        def lineReceived(self, line: bytes) -> None:
            found = [sum(len(each.sessions) for each in bmcs), sum(each.logins for each in bmcs)]
            print(json.dumps(found), flush=True)

    async def begin() -> None:
        if not (needs.sshd() or no_wrapper()):
            script = Path(directory, "shell.py")
            script.write_text(_SHELL)
            sshd = PasswordSshd(directory, f"{sys.executable} {script}")
            sshd.start()
            bmc = SmallBMC("openbmc").start()
            facts = bmc.documents["/redfish/v1/Systems/System_0"]["SerialConsole"]["SSH"]
            facts["Port"] = sshd.port
            ports["ssh"] = [bmc.port, sshd.port]
        if not needs.ipmi():
            ipmi = IPMISim(directory, password=PASSWORD)
            ipmi.far._answer = lambda peer, data: (
                peer.says(_PIECE * (SLOW_BYTES // len(_PIECE)))
                if _FLOOD in data
                else peer.says(data)
                if data.isascii()
                else None
            )
            await ipmi.start()
            at_end = lambda: Deferred.fromCoroutine(ipmi.stop())  # noqa: E731
            reactor.addSystemEventTrigger("before", "shutdown", at_end)  # type: ignore[attr-defined]
            bmc = SmallBMC("websocket").start()
            bmc.documents[bmc.system]["SerialConsole"] = {"IPMI": {"Port": ipmi.port}}
            ports["ipmi"] = [bmc.port, ipmi.port]
        print(json.dumps(ports), flush=True)
        stdio.StandardIO(Questions())

    reactor.callWhenRunning(lambda: Deferred.fromCoroutine(begin()))  # type: ignore[attr-defined]
    reactor.run()  # type: ignore[attr-defined]


# The runtime.


class _Runtime:
    """An ``exec-runtime`` with all lines, and its machines."""

    def __init__(self, scratch: Path, lines: dict[str, Any], **keys: Any) -> None:
        self._scratch = scratch
        password = scratch / "password"
        password.write_text(f"{PASSWORD}\n")
        password.chmod(0o600)
        metal = {
            "name": "metal",
            "driver": "redfish",
            "capabilities": {"cpu": "1", "memory": "1Gi"},
            "user": USER,
            "password_file": str(password),
            "lines": lines,
            **keys,
        }
        (scratch / "runtime.yaml").write_text(yaml.dump({"classes": [metal]}))
        self.start()

    def start(self) -> None:
        target = f"unix://{self._scratch}/iri.sock"
        words = ["-n", "--pidfile=", "exec-runtime", f"--config={self._scratch}/runtime.yaml"]
        words += [f"--iri-listen={target}", f"--state-dir={self._scratch}/state"]
        twistd = os.path.join(os.path.dirname(sys.executable), "twistd")
        with open(self._scratch / "runtime.log", "ab") as log:
            self.process = subprocess.Popen([twistd, *words], stdout=log, stderr=log)
        self._channel = grpc.insecure_channel(target)
        try:
            grpc.channel_ready_future(self._channel).result(60)
        except grpc.FutureTimeoutError:
            sys.exit((self._scratch / "runtime.log").read_text()[-2000:])

    def call(self, name: str, request: Any) -> Any:
        known = revision("ironcore").call(name)
        return self._channel.unary_unary(
            known.path,
            request_serializer=known.encode_request,
            response_deserializer=known.decode_response,
        )(request)

    def open(self, names: Collection[str]) -> float:
        """Create machines, as a poollet does; return the seconds until all consoles are open."""
        began = time.monotonic()
        for name in names:
            self.call("create_machine", pb.CreateMachineRequest(machine=machine(name, "metal")))
        while True:
            machines = self.call("list_machines", pb.ListMachinesRequest()).machines
            conditions = [c for each in machines for c in each.status.machine_conditions]
            is_open = [c for c in conditions if c.type == "ConsoleLine" and c.status == "True"]
            self.ids = {
                each.metadata.labels[IRONCORE.name_label]: each.metadata.id for each in machines
            }
            if len(is_open) == len(names):
                return time.monotonic() - began
            time.sleep(0.2)

    def console(self, name: str) -> Console:
        url = urlsplit(self.call("exec", pb.ExecRequest(machine_id=self.ids[name])).url)
        line = socket.socket(socket.AF_UNIX)
        line.connect(unquote(url.netloc))
        return Console(line, "localhost", url.path)

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait()
        self._channel.close()


# What is measured.


def _figures(console: Any, total: int) -> tuple[float, float]:
    """Return the median of a key's way there and back in ms, and MB/s of output."""
    times = []
    for number in range(KEYS):
        mark = b"abcdefghij"[number % 10 : number % 10 + 1]
        began = time.perf_counter()
        console.type(mark)
        console.until(mark)
        times.append(time.perf_counter() - began)
    size = total // len(_PIECE) * len(_PIECE)
    began = time.perf_counter()
    console.type(_FLOOD)
    console.count(size)
    return statistics.median(times) * 1e3, size / (time.perf_counter() - began) / 1e6


class _Bare(Console):
    """A bare WebSocket."""

    input = output = b""


def _terminal(argv: Sequence[str], up: bytes, **environment: str) -> Terminal:
    """Start a client; return it once its console is open."""
    terminal = Terminal(argv, **environment)
    if up:
        terminal.until(up)
    time.sleep(1)
    return terminal


def _bare_websocket(port: int) -> Console:
    context = ssl._create_unverified_context()
    body = json.dumps({"UserName": USER, "Password": PASSWORD}).encode()
    request = urllib.request.Request(f"https://127.0.0.1:{port}{SESSIONS}", body, method="POST")
    with urllib.request.urlopen(request, context=context) as answer:
        token = answer.headers["X-Auth-Token"]
    line = context.wrap_socket(socket.create_connection(("127.0.0.1", port)))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return _Bare(line, f"127.0.0.1:{port}", "/console", f"X-Auth-Token: {token}\r\n")


def main(scratch: Path, *parts: str) -> None:
    words = [sys.executable, "-m", "tests.benchmarks.bare_metal", str(BMCS), str(scratch)]
    peers = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert peers.stdin is not None and peers.stdout is not None
    try:
        ports = json.loads(peers.stdout.readline())

        def ask() -> tuple[int, int]:
            peers.stdin.write(b"\n")
            peers.stdin.flush()
            found, logins = json.loads(peers.stdout.readline())
            return found, logins

        if "rack" in (parts or PARTS):
            _rack(scratch, ports, ask)
        if "transports" in (parts or PARTS):
            _transports(scratch, ports)
    finally:
        peers.terminate()
        peers.wait()


def _rack(scratch: Path, ports: dict[str, Any], ask: Callable[[], tuple[int, int]]) -> None:
    directory = scratch / "rack"
    directory.mkdir(mode=0o700)
    lines = {f"m-{at}": _line(port) for at, port in enumerate(ports["racks"])}
    runtime = _Runtime(directory, lines, pin=ports["pin"])
    pid = runtime.process.pid
    size = procfs.own_bytes(pid)
    cpu, began = procfs.cpu_seconds(pid), time.monotonic()
    runtime.open(lines)
    spent = procfs.cpu_seconds(pid) - cpu
    print(f"{len(lines)} consoles: open after {time.monotonic() - began:.1f} s, CPU {spent:.1f} s")
    print(f"  {_shown(ask())}")
    before = procfs.cpu_seconds(pid)
    time.sleep(_IDLE_SECONDS)
    idle = (procfs.cpu_seconds(pid) - before) / _IDLE_SECONDS
    held = (procfs.own_bytes(pid) - size) / len(lines) / 1024
    print(
        f"  idle: {idle:.2%} of a core, {procfs.resident_bytes(pid) >> 20} MiB, {held:.0f} KiB each"
    )
    runtime.end(signal.SIGKILL)
    print(f"  after kill -9: {_shown(ask())}")
    runtime.start()
    print(f"  started again: consoles open after {runtime.open(lines):.1f} s; {_shown(ask())}")
    runtime.end(signal.SIGKILL)
    runtime.start()
    began = time.monotonic()
    while ask()[0]:
        time.sleep(0.5)
    seconds = time.monotonic() - began
    print(f"  killed, and started again without machines: after {seconds:.0f} s {_shown(ask())}")
    runtime.open(lines)
    began = time.monotonic()
    runtime.end(signal.SIGTERM)
    print(f"  open again, and stopped in {time.monotonic() - began:.1f} s: {_shown(ask())}")


def _shown(found: tuple[int, int]) -> str:
    return f"{found[0]} sessions at the BMCs, {found[1]} logins so far"


def _line(port: int) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": port}


def _transports(scratch: Path, ports: dict[str, Any]) -> None:
    directory = scratch / "transports"
    directory.mkdir(mode=0o700)
    lines = {"websocket": _line(ports["racks"][0])}
    for name in ("ssh", "ipmi"):
        if name in ports:
            lines[name] = {**_line(ports[name][0]), "transports": [name]}
    known = f"{scratch}/ssh/known_hosts"
    runtime = _Runtime(directory, lines, pin=ports["pin"], known_hosts=known)
    password = f"{directory}/password"
    askpass = directory / "askpass"
    askpass.write_text(f"#!/bin/sh\ncat {password}\n")
    askpass.chmod(0o700)
    runtime.open(lines)
    ours: dict[str, tuple[float, float]] = {}
    for name in lines:
        console = runtime.console(name)
        ours[name] = _figures(console, SLOW_BYTES if name == "ipmi" else BULK_BYTES)
        console.close()
    runtime.end(signal.SIGTERM)
    bare: dict[str, Callable[[], Any]] = {"websocket": lambda: _bare_websocket(ports["racks"][0])}
    if "ssh" in ports:
        words = ["ssh", "-F", "none", "-o", f"UserKnownHostsFile={known}", "-e", "none", "-tt"]
        words += [
            "-o",
            "NumberOfPasswordPrompts=1",
            "-p",
            str(ports["ssh"][1]),
            f"{USER}@127.0.0.1",
        ]
        bare["ssh"] = lambda: _terminal(
            words, b"", SSH_ASKPASS=str(askpass), SSH_ASKPASS_REQUIRE="force"
        )
    if "ipmi" in ports:
        tool = ["ipmitool", "-I", "lanplus", "-H", "127.0.0.1", "-p", str(ports["ipmi"][1])]
        tool += ["-U", USER, "-f", password, "sol"]
        subprocess.run([*tool, "deactivate"], stderr=subprocess.DEVNULL)
        bare["ipmi"] = lambda: _terminal([*tool, "activate"], b"operational")
    for name, opened in bare.items():
        console = opened()
        key, rate = _figures(console, SLOW_BYTES if name == "ipmi" else BULK_BYTES)
        console.close()
        print(
            f"{name:10} a key: {ours[name][0]:7.2f} ms, bare {key:7.2f} ms, ratio {ours[name][0] / key:5.2f}; "
            f"output: {ours[name][1]:6.2f} MB/s, bare {rate:6.2f} MB/s, ratio {ours[name][1] / rate:5.2f}"
        )


if __name__ == "__main__":
    _peers(int(sys.argv[1]), sys.argv[2])
