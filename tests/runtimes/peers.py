"""
The other ends of lines: a console server in this process, and real ones as programs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.python.failure import Failure

from tests.flows.programs import Program, start
from twisted_exec.testing.drivers import Far, Peer

from .support import pause

reactor: Any = _reactor
SHOWN = Path(__file__).parents[2] / "docs" / "howto" / "console-servers"


class Ser2net:
    """
    A real ser2net with one line.

    Its device is a network port of RFC 2217 in this process, which accepts everything and echoes;
    :meth:`device` is all that it received.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._far = Far(os.path.join(directory, "device.sock"), _serial_device)
        self._program: Any = None

    @property
    def endpoint(self) -> str:
        return f"unix:{self._directory}/ser2net.sock"

    def device(self) -> bytes:
        """All that came to the device, in its newest connection."""
        return self._far.peer.got if self._far.peers else b""

    async def start(self) -> None:
        if self._far._port is None:
            self._far.listen()
        config = os.path.join(self._directory, "ser2net.yaml")
        with open(config, "w") as file:
            file.write(
                changed(
                    SHOWN / "ser2net.yaml",
                    ("tcp,10.0.0.5,7001", f"unix,{self._directory}/ser2net.sock"),
                    (
                        "serialdev,/dev/ttyUSB0,115200n81,local",
                        f"telnet(rfc2217),unix,{self._directory}/device.sock",
                    ),
                )
            )
        self._program = start(["ser2net", "-n", "-d", "-u", "-c", config])
        while not listens(os.path.join(self._directory, "ser2net.sock")):
            await pause()

    async def stop(self) -> None:
        if self._program is not None:
            await self._program.stop(signal.SIGKILL)  # asked kindly, it takes four seconds
            self._program = None
        await self._far.vanish()
        for name in ("ser2net.sock", "device.sock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._directory, name))


def listens(path: str) -> bool:
    """Return whether a program listens at a UNIX socket, whose file exists a moment earlier."""
    accepts = "00010000"  # __SO_ACCEPTCON in the column Flags, see proc_net(5)
    fields = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return any(each[3] == accepts and each[-1] == path for each in fields)


_COMMAND = re.compile(
    rb"\xff(?:\xff|[\xfb-\xfe](?P<option>.)|\xfa.(?P<setting>.)(?P<value>.*?)\xff\xf0|[\xf0-\xf9])",
    re.DOTALL,
)
"""A command of telnet: an escaped byte, an option, a setting of RFC 2217, or another one."""


def _serial_device(peer: Peer, data: bytes) -> None:
    """Says DO to RFC 2217, confirms each setting, and echoes text."""
    data, text = peer.rest + data, b""
    while data:
        plain = data.partition(b"\xff")[0]
        text, data = text + plain, data[len(plain) :]
        command = _COMMAND.match(data)
        if command is None:
            break  # the rest of it comes later, if there is any
        data = data[command.end() :]
        if command[0] == b"\xff\xff":
            text += command[0]
        elif command[0] == b"\xff\xfb\x2c":
            peer.says(b"\xff\xfd\x2c")
        elif command["setting"]:
            confirmed = bytes((command["setting"][0] + 100,)) + command["value"]
            peer.says(b"\xff\xfa\x2c" + confirmed + b"\xff\xf0")
    peer.rest = data
    if text:
        peer.says(text)


class Conserver:
    """
    A real conserver, with one console.

    :ivar far: the telnet port that the console is; it echoes.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.far = Far("", _echo_text)
        self.port = 0
        self._program: Program | None = None

    def log(self) -> str:
        """The log of the console, with attachments and BREAK."""
        with open(os.path.join(self._directory, "mail-1.log"), errors="replace") as file:
            return file.read()

    async def start(self) -> None:
        config = os.path.join(self._directory, "conserver.cf")
        with open(config, "w") as file:
            file.write(
                changed(
                    SHOWN / "conserver.cf",
                    ("/etc/conserver/conserver.passwd", "/dev/null"),
                    ("/var/log/conserver", self._directory),
                    ("conserver.lab", "localhost"),
                    ("10.0.0.8", "127.0.0.1"),
                    ("10.0.0.6", "127.0.0.1"),
                    ("port 7001", f"port {self.far.listen_tcp()}"),
                )
            )
        self._program = start(["conserver", "-C", config, "-M", "127.0.0.1", "-p", "0", "-v"])
        await self._program.until(rb"group #1 pid \d+ on port")
        assert self._program.transport is not None
        while not (result := ports_of(self._program.transport.pid)):
            await pause()
        (self.port,) = result
        while not self.far.peers:
            await pause()

    async def stop(self) -> None:
        if self._program is not None:
            await self._program.stop()
        await self.far.vanish()


def ports_of(pid: int) -> list[int]:
    """On which TCP ports of IPv4 a process listens, as proc(5) tells."""
    links = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    expected = []
    with open(f"/proc/{pid}/net/tcp") as file:
        for line in file.readlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in links:
                expected.append(int(local.partition(":")[2], 16))
    return expected


def changed(path: Path, *changes: tuple[str, str]) -> str:
    """A file that the how-to shows, with places of this test."""
    text = path.read_text()
    for example, ours in changes:
        assert example in text, example
        text = text.replace(example, ours)
    return text


class Sshd:
    """
    A real OpenSSH server on loopback, with a host key of its own, for one key of our own user.

    It is started for each connection, as by inetd, so that the port is ours, and free.

    :ivar options: lines of its configuration, which come before the others.
    :ivar environment: further variables of the servers.
    """

    def __init__(self, directory: str) -> None:
        self.directory = os.path.join(directory, "ssh")
        self.options = ""
        self.environment: dict[str, str] = {}
        self._socket = socket.socket()
        self._programs: list[Program] = []

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    @property
    def port(self) -> int:
        number: int = self._socket.getsockname()[1]
        return number

    def start(self) -> None:
        os.mkdir(self.directory)
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)  # which Debian makes when it boots
        for name in ("host", "user"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(name)], check=True
            )
        with open(self.path("config"), "w") as file:
            file.write(self.options + _SSHD.format(directory=self.directory))
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen()
        self._socket.setblocking(False)
        self.know("host")
        reactor.addReader(self)

    def know(self, name: str) -> None:
        """Write the key of this name down as the host's."""
        with open(self.path(f"{name}.pub")) as file:
            key = file.read()
        with open(self.path("known_hosts"), "w") as file:
            file.write(f"[127.0.0.1]:{self.port} {key}")

    def log(self) -> str:
        """The log of the servers."""
        try:
            with open(self.path("log")) as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def fileno(self) -> int:
        return self._socket.fileno()

    def logPrefix(self) -> str:
        return "sshd"

    def doRead(self) -> None:
        with contextlib.suppress(BlockingIOError):
            connection, _ = self._socket.accept()
            program = shutil.which("sshd") or ""
            words = [program, "-i", "-f", self.path("config"), "-E", self.path("log")]
            process = Program(words)
            self._programs.append(process)
            number = connection.fileno()
            reactor.spawnProcess(
                process,
                program,
                words,
                env={**os.environ, **self.environment},
                childFDs={0: number, 1: number, 2: "r"},
            )
            connection.close()

    def connectionLost(self, reason: Failure) -> None:
        """It listens until it is stopped."""

    async def stop(self) -> None:
        reactor.removeReader(self)
        self._socket.close()
        for program in self._programs:
            await program.stop()


_SSHD = """
HostKey {directory}/host
AuthorizedKeysFile {directory}/user.pub
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PidFile none
LogLevel DEBUG1
SetEnv SHLVL=2
"""
# By the last line bash takes itself for one that was started by another, and leaves out its user's
# start-up file, which may take as long as it likes.


class IPMISim:
    """
    A real ``ipmi_sim``: a BMC on loopback, whose serial port is a telnet port of this process.

    :param port: 0 for a free one.
    :param password: of the user ``admin``.
    :ivar far: the other end of that port.
    """

    def __init__(
        self,
        directory: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        password: str = "secret-canary",
    ) -> None:
        self.directory = os.path.join(directory, "ipmi")
        self.far = Far("", _echo_text)
        self.host, self.port, self.password = host, port, password
        self._program: Program | None = None

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    async def start(self) -> None:
        if not os.path.exists(self.path("state")):
            os.makedirs(self.path("state"))
            # It tells its clients the port that its file has, so that 0 is none.
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
                free.bind((self.host, self.port))
                self.port = free.getsockname()[1]
            self._write(self.far.listen_tcp())
        await self._run()

    async def _run(self) -> None:
        words = ["-c", self.path("lan.conf"), "-f", self.path("commands"), "-s", self.path("state")]
        self._program = start(["ipmi_sim", *words, "-n"])
        existing = len(self.far.peers)
        while len(self.far.peers) == existing:
            await pause()

    async def restart(self) -> None:
        """It forgets its sessions."""
        assert self._program is not None
        await self._program.stop()
        await self._run()

    def _write(self, serial: int) -> None:
        document = {
            "directory": self.directory,
            "host": self.host,
            "port": self.port,
            "serial": serial,
            "password": self.password,
        }
        for name, text in (("lan.conf", _LAN), ("commands", _BMC), ("chassis", _CHASSIS)):
            with open(self.path(name), "w") as file:
                file.write(text.format(**document))
        os.chmod(self.path("chassis"), 0o700)
        with open(self.path("password"), "w") as file:
            file.write(f"{self.password}\n")

    @property
    def power(self) -> str:
        """The power commands to the chassis, in order: ``0`` for off, ``1`` for on, ``s`` for soft."""
        try:
            with open(self.path("told")) as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def set_power(self, on: bool) -> None:
        with open(self.path("power"), "w") as file:
            file.write("1" if on else "0")

    async def stop(self) -> None:
        if self._program is not None:
            await self._program.stop()
            self._program = None
        await self.far.vanish()


def _echo_text(peer: Peer, data: bytes) -> None:
    """A machine that echoes; telnet's commands are not answered."""
    text = re.sub(rb"\xff[\xfb-\xfe].|\xff[\xf0-\xfa]", b"", data, flags=re.DOTALL)
    if text:
        peer.says(text)


_LAN = """name "sim"
set_working_mc 0x20
startlan 1
  addr {host} {port}
  priv_limit admin
  allowed_auths_callback none md2 md5 straight
  allowed_auths_user none md2 md5 straight
  allowed_auths_operator none md2 md5 straight
  allowed_auths_admin none md2 md5 straight
  guid a123456789abcdefa123456789abcdef
endlan
sol "telnet:127.0.0.1:{serial}" 115200
chassis_control "{directory}/chassis"
user 1 true "" "test" user 10 none md2 md5 straight
user 2 true "admin" "{password}" admin 10 none md2 md5 straight
"""

_BMC = """mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
mc_enable 0x20
"""

# Called as: get power, or: set power 1, or: set shutdown 1.
_CHASSIS = """#!/bin/sh
cd {directory} || exit 1
case "$1 $2" in
"get power") echo "power:$(cat power 2>/dev/null || echo 0)" ;;
"set power") printf %s "$3" >power; printf %s "$3" >>told ;;
"set shutdown") printf s >>told; test -e stubborn || printf 0 >power ;;
esac
"""
