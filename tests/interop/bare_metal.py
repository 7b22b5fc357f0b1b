"""
Servers behind foreign BMCs: kubectl's way through API server, poollet and runtime with the driver ``redfish``.

sushy-emulator and metal-operator's mock have no console, and the peers with a console have no Redfish, so that most
machines here are two peers at one address; ``ipmi_sim`` then listens at the port of IPMI, which wants root.  Where a
peer without Redfish stands alone, the small BMC (:mod:`tests.runtimes.bmc`) describes it.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import yaml
from twisted.internet import reactor as _reactor
from twisted.internet.ssl import DefaultOpenSSLContextFactory
from twisted.internet.threads import deferToThread
from twisted.protocols.portforward import ProxyFactory
from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows import programs
from tests.flows.consoles import Screen, watch
from tests.flows.deployment import Deployment, machine, pause
from tests.ports import ReservedPorts
from tests.runtimes.bmc.server import PASSWORD, USER, SmallBMC
from tests.runtimes.peers import IPMISim, Sshd
from tests.tls.support import authority, server_identity, write
from twisted_exec.api.conditions import CONSOLE_LINE
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.kinds.events import EVENTS
from twisted_exec.testing.drivers import Far

reactor: Any = _reactor

PEERS, MOCK = os.environ.get("BMC_PEERS", ""), os.environ.get("METAL_OPERATOR_MOCK", "")
MACHINES = IRONCORE.workload
_NO_PEERS = None if PEERS else "BMC_PEERS names no environment with sushy-tools and websockify"
_IPMI_PORT = 623
_NO_PORT = None if os.geteuid() == 0 else "only root may listen at the port of IPMI"
_NSS_WRAPPER = "libnss_wrapper.so"
_BASIC = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


class BareMetalCase(TestCase):
    """
    A BMC, and a Machine ``m`` behind it in a deployment of three programs.

    :ivar host: an address of this host that no other test has.
    """

    timeout = 600

    def setUp(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="twisted-exec-test-")
        self.addCleanup(shutil.rmtree, self.directory, True)
        self.host = ".".join(["127", *(str(1 + secrets.randbelow(250)) for _ in range(3))])
        self.ports = ReservedPorts()
        self.addCleanup(self.ports.release)
        self.password = write(self.directory, "password", f"{PASSWORD}\n".encode())
        os.chmod(self.password, 0o600)
        self.ca = write(self.directory, "ca.pem", authority("serving").certificate_pem)
        identity = server_identity(self.host)
        self.pem = write(self.directory, "tls.pem", identity.certificate_pem + identity.key_pem)

    # Peers.

    def peer(self, *words: str) -> programs.Program:
        """Start a program of the environment with the peers."""
        program = programs.start([f"{PEERS}/bin/{words[0]}", *words[1:]], cwd=self.directory)
        self.addCleanup(program.stop)
        return program

    async def start_ipmi(self, host: str = "127.0.0.1", port: int = 0) -> IPMISim:
        ipmi = IPMISim(self.directory, host=host, port=port, password=PASSWORD)
        self.addCleanup(ipmi.stop)
        await ipmi.start()
        return ipmi

    def small_bmc(self, **console: object) -> SmallBMC:
        """A small BMC whose server has these in SerialConsole."""
        bmc = SmallBMC("websocket").start()
        self.addCleanup(bmc.stop)
        bmc.documents[bmc.system]["SerialConsole"] = console
        return bmc

    async def get(self, port: int, path: str) -> Any:
        """The document of a peer, past the runtime."""
        context = ssl.create_default_context(cafile=self.ca)
        request = Request(f"https://{self.host}:{port}{path}", headers={"Authorization": _BASIC})
        answer = await deferToThread(lambda: urlopen(request, context=context, timeout=60).read())
        return json.loads(answer)

    # The Machine.

    async def deploy(self, port: int, **keys: Any) -> None:
        """Start the programs, and create the Machine, without waiting for it."""
        metal = {
            "name": "metal",
            "driver": "redfish",
            "capabilities": {"cpu": "1", "memory": "1Gi"},
            "user": USER,
            "password_file": self.password,
            "ca": self.ca,
            "lines": {"m": {"host": self.host, "port": port}},
            **keys,
        }
        self.deployment = deployment = Deployment(f"{self.directory}/deployment")
        Path(deployment.path("runtime.yaml")).write_text(yaml.dump({"classes": [metal]}))
        self.addCleanup(deployment.stop)
        await deployment.start_api()
        await deployment.start_runtime()
        await deployment.start_poollet()
        await deployment.create_class("metal", "1Gi")
        made = machine("m", "metal")
        await deployment.client.create(MACHINES, made, namespace="default")

    async def running(self) -> dict[str, Any]:
        """Return the condition of the console's line, once the Machine is Running."""
        await self.deployment.machine_in_state("m", "Running")
        return await self.condition("True")

    async def condition(self, status: str, reason: str = "") -> dict[str, Any]:
        """Return the condition once it has this status and reason."""
        while True:
            found = await self.deployment.client.get(MACHINES, "m", "default")
            for each in found.get("status", {}).get("conditions", ()):
                is_so = each["status"] == status and each["reason"].startswith(reason)
                if each["type"] == CONSOLE_LINE and is_so:
                    self.assertNotIn(PASSWORD, json.dumps(found))
                    return dict(each)
            await pause()

    async def switch(self, power: str, state: str) -> None:
        """Change ``spec.power``, and wait for a state."""
        client = self.deployment.client
        await client.patch(MACHINES, "m", {"spec": {"power": power}}, namespace="default")
        await self.deployment.machine_in_state("m", state)

    async def echo(self, text: bytes) -> Screen:
        """Open the console, and see what is typed."""
        screen = await watch(self.deployment.admin, "m")
        self.addCleanup(screen.leave)
        await screen.ask(text, text)
        return screen

    async def events(self) -> set[str]:
        """The reasons of the Events of the Machine."""
        found = await self.deployment.client.list(EVENTS.resource, "default")
        return {each["reason"] for each in found["items"]}


class SushyTests(BareMetalCase):
    """sushy-emulator, which has power, and neither sessions nor consoles; and ``ipmi_sim`` for the console."""

    skip = _NO_PEERS or _NO_PORT or needs.ipmi()

    async def test_power_and_console(self) -> None:
        """A server that is off is taken as it is; it is switched on and off, and its console opens by IPMI."""
        hashed = "import bcrypt, sys; print(bcrypt.hashpw(sys.argv[1].encode(), bcrypt.gensalt(4)).decode())"
        line = subprocess.check_output([f"{PEERS}/bin/python", "-c", hashed, PASSWORD], text=True)
        users = write(self.directory, "users", f"{USER}:{line}".encode())
        config = (
            f"SUSHY_EMULATOR_AUTH_FILE = {users!r}\nSUSHY_EMULATOR_STATE_DIR = {self.directory!r}\n"
        )
        path = write(self.directory, "sushy.conf", config.encode())
        port = self.ports.add(self.host)
        tls = (f"--ssl-certificate={self.pem}", f"--ssl-key={self.pem}")
        sushy = self.peer(
            *("sushy-emulator", "--fake", f"--config={path}", f"-i{self.host}", f"-p{port}", *tls)
        )
        await sushy.until(rb"Running on https")
        await self.start_ipmi(self.host, _IPMI_PORT)
        row = {"name": "sushy", "manufacturer": ["sushy*"], "transports": ["ipmi"], "source": "-"}
        quirks = write(self.directory, "quirks.yaml", json.dumps({"quirks": [row]}).encode())
        await self.deploy(port, login="basic", power=True, quirks=quirks)
        condition = await self.running()
        self.assertEqual(condition["reason"], "IPMI")
        self.assertIn("the server is off", condition["message"])
        (member,) = (await self.get(port, "/redfish/v1/Systems"))["Members"]
        system = member["@odata.id"]
        self.assertEqual((await self.get(port, system))["PowerState"], "Off")
        await self.switch("Off", "Shutdown")
        await self.switch("On", "Running")
        self.assertEqual((await self.get(port, system))["PowerState"], "On")
        await self.echo(b"hello")
        await self.switch("Off", "Shutdown")
        self.assertEqual((await self.get(port, system))["PowerState"], "Off")
        self.assertNotIn(b"401", sushy.output)


class MetalOperatorTests(BareMetalCase):
    """The mock of metal-operator, which announces IPMI; TLS is ours."""

    skip = (None if MOCK else "METAL_OPERATOR_MOCK is not set") or _NO_PORT or needs.ipmi()

    async def test_power_and_console(self) -> None:
        """The console is found and opened, and the mock's power follows the Machine's."""
        plain = self.ports.add()
        mock = programs.start([MOCK, f"-addr=127.0.0.1:{plain}"], cwd=self.directory)
        self.addCleanup(mock.stop)
        await mock.until(rb"Started mock server")
        context = DefaultOpenSSLContextFactory(self.pem, self.pem)
        front = reactor.listenSSL(0, ProxyFactory("127.0.0.1", plain), context, interface=self.host)
        self.addCleanup(front.stopListening)
        port = front.getHost().port
        await self.start_ipmi(self.host, _IPMI_PORT)
        await self.deploy(port, login="basic", power=True)
        condition = await self.running()
        self.assertEqual(condition["reason"], "IPMI")
        self.assertIn("not vendor-ssh: ", condition["message"])
        await self.echo(b"hello")
        (member,) = (await self.get(port, "/redfish/v1/Systems"))["Members"]
        for power, state in (("Off", "Shutdown"), ("On", "Running")):
            await self.switch(power, state)
            self.assertEqual((await self.get(port, member["@odata.id"]))["PowerState"], power)


class IPMITests(BareMetalCase):
    """``ipmi_sim``, which has one console; the small BMC announces it."""

    skip = needs.ipmi()

    async def start(self, **keys: Any) -> tuple[IPMISim, SmallBMC]:
        ipmi = await self.start_ipmi()
        bmc = self.small_bmc(IPMI={"ServiceEnabled": True, "Port": ipmi.port})
        self.host = "127.0.0.1"
        self.ipmi = ipmi
        return ipmi, bmc

    def other(self, ipmi: IPMISim) -> programs.Program:
        """Another client of the console."""
        words = ("-I", "lanplus", "-H", ipmi.host, "-p", str(ipmi.port), "-U", USER)
        other = programs.terminal(
            ["ipmitool", *words, "-f", self.password, "sol", "activate"], TERM="dumb"
        )
        self.addCleanup(other.stop)
        return other

    async def test_restarted(self) -> None:
        """A BMC that forgets its sessions is a gap; the console comes back."""
        ipmi, bmc = await self.start()
        await self.deploy(bmc.port)
        self.assertEqual((await self.running())["reason"], "IPMI")
        screen = await self.echo(b"hello")
        await ipmi.restart()
        await screen.until(rb"was lost")
        await screen.until(rb"line is back")
        await screen.ask(b"again", b"again")

    async def test_taken(self) -> None:
        """Another client's console is a condition, and stays that client's."""
        ipmi, bmc = await self.start()
        other = self.other(ipmi)
        await other.until(rb"SOL Session operational")
        await self.deploy(bmc.port)
        condition = await self.condition("False", "ConsoleTaken")
        self.assertIn("steal: true", condition["message"])
        other.type(b"mine")
        await other.until(rb"mine")
        other.type(b"\r~.")
        await other.ended
        await self.running()
        await self.echo(b"hello")

    async def test_steal(self) -> None:
        """With ``steal`` it is ended, and an Event says so."""
        ipmi, bmc = await self.start()
        other = self.other(ipmi)
        await other.until(rb"SOL Session operational")
        await self.deploy(bmc.port, steal=True)
        await self.running()
        await self.echo(b"hello")
        while "ConsoleReleased" not in await self.events():
            await pause()


class PasswordSshd(Sshd):
    """A server with a user of its own, who has a password and gets one command."""

    def __init__(self, directory: str, command: str) -> None:
        super().__init__(directory)
        self.options = (
            f"PasswordAuthentication yes\nPermitRootLogin yes\nForceCommand {command}\n"
            "PubkeyAuthentication no\n"
        )

    def start(self) -> None:
        super().start()
        hashed = subprocess.check_output(["openssl", "passwd", "-6", PASSWORD], text=True).strip()
        ids = f"{os.getuid()}:{os.getgid()}"
        for name, line in (
            ("passwd", f"{USER}:{hashed}:{ids}::{self.directory}:/bin/sh\n"),
            ("group", f"{USER}:x:{os.getgid()}:\n"),
        ):
            write(self.directory, name, line.encode())
        with open("/etc/passwd") as real, open(self.path("passwd"), "a") as file:
            file.write(real.read())  # sshd itself looks for its own user, and for sshd's
        self.environment = {
            "LD_PRELOAD": _NSS_WRAPPER,
            "NSS_WRAPPER_PASSWD": self.path("passwd"),
            "NSS_WRAPPER_GROUP": self.path("group"),
        }


def no_wrapper() -> str | None:
    """Why a user with a password cannot be had here, or ``None``."""
    places = (f"lib*/{_NSS_WRAPPER}", f"lib/*/{_NSS_WRAPPER}")
    has_wrapper = any(any(Path("/usr").glob(place)) for place in places)
    return None if has_wrapper else f"there is no {_NSS_WRAPPER} (libnss-wrapper)"


class SSHTests(BareMetalCase):
    """A real OpenSSH server with the password of one user, and the shell of an iDRAC as the forced command."""

    skip = needs.sshd() or needs.openssl() or no_wrapper()

    def setUp(self) -> None:
        super().setUp()
        self.host = "127.0.0.1"
        self.typed = os.path.join(self.directory, "typed")
        command = f"{sys.executable} {Path(__file__).with_name('bmc_shell.py')} {self.typed}"
        self.sshd = PasswordSshd(self.directory, command)
        self.sshd.start()
        self.addCleanup(self.sshd.stop)
        self.bmc = SmallBMC("dell").start()
        self.addCleanup(self.bmc.stop)
        network = self.bmc.documents["/redfish/v1/Managers/iDRAC.Embedded.1/NetworkProtocol"]
        network["SSH"] = {"Port": self.sshd.port, "ProtocolEnabled": True}

    async def start(self, **keys: Any) -> None:
        await self.deploy(
            self.bmc.port,
            known_hosts=self.sshd.path("known_hosts"),
            transports=["vendor-ssh"],
            **keys,
        )

    async def test_console(self) -> None:
        """The password opens the console, and keys that would leave it are dropped."""
        await self.start()
        condition = await self.running()
        self.assertEqual(condition["reason"], "VendorSSH")
        screen = await self.echo(b"hello")
        await screen.ask(b"\x1c", rb"dropped")
        await screen.ask(b"still", rb"still")
        self.assertEqual(Path(self.typed).read_bytes(), b"connect com2\r")
        self.assertNotIn(b"racadm", screen.output)

    async def test_other_host(self) -> None:
        """A server with another host key gets no password."""
        self.sshd.know("user")
        await self.start()
        condition = await self.condition("False", "NoConsole")
        self.assertIn("Host key verification failed", condition["message"])
        self.assertNotIn("password", self.sshd.log())


class WebsockifyTests(BareMetalCase):
    """
    websockify as a whole BMC: TLS, basic authentication, documents as files, and a serial line at its WebSocket.
    """

    skip = _NO_PEERS

    async def test_console(self) -> None:
        """The console opens; its end is a gap; a wrong password is no console."""
        far = Far("", greeting=b"login: ")
        serial = far.listen_tcp()
        self.addCleanup(far.vanish)
        port = self.ports.add(self.host)
        self.write_documents()
        socket = self.peer(
            *("websockify", f"--cert={self.pem}", "--ssl-only", "--web=web", "--web-auth"),
            *("--auth-plugin=BasicHTTPAuth", f"--auth-source={USER}:{PASSWORD}"),
            *(f"{self.host}:{port}", f"127.0.0.1:{serial}"),
        )
        await socket.until(rb"proxying from")
        await self.deploy(port, login="basic")
        self.assertEqual((await self.running())["reason"], "WebSocket")
        screen = await self.echo(b"hello")
        far.peer.transport.loseConnection()
        await screen.until(rb"was lost")
        await screen.until(rb"line is back")
        await screen.ask(b"again", rb"again")

    def write_documents(self) -> None:
        root = Path(self.directory, "web/redfish/v1")
        root.mkdir(parents=True)
        console = {"WebSocket": {"ServiceEnabled": True, "ConsoleURI": "/serial"}}
        systems, system = "/redfish/v1/systems.json", "/redfish/v1/system.json"
        for name, document in (
            ("index.html", {"Id": "RootService", "Systems": {"@odata.id": systems}}),
            ("systems.json", {"Members": [{"@odata.id": system}]}),
            ("system.json", {"Id": "1", "PowerState": "On", "SerialConsole": console}),
        ):
            (root / name).write_text(json.dumps(document))
