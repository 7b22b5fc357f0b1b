"""
Programs started with missing or wrong input: one line with the problem and the remedy, exit code 1,
no traceback, no hang, and no damaged files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sqlite3
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import TestCase

from tests import needs
from tests.chain import POOL, pki, reactor
from tests.storage.etcds import any_prefix, put_by_hand, shared
from tests.tiers import PROGRAMS
from twisted_exec.kube.kubeconfig.writer import write_kubeconfig
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.directory import PKI

from . import programs
from .deployment import CLASSES, pause

AT_ONCE = 3
NOWHERE = "/nonexistent/x"
ANY_PORT = "tcp:0:interface=127.0.0.1"

# What programs and Twisted say of themselves: their version, ports that open and close.
_OF_THEMSELVES = re.compile(r"\S+ \[(-|twisted\.[^\]]*|twisted_exec\.program\.start#info)\] ")

Change = Mapping[str, str | None]
"""Options given otherwise than they should be; ``None`` leaves one out."""


class StartCase(TestCase):
    """Starts programs that should refuse."""

    starts = PROGRAMS
    pki: PKI

    def setUp(self) -> None:
        self.directory = os.path.abspath(self.mktemp())
        os.makedirs(self.directory)
        self.pki = pki()
        self.turns = DeferredSemaphore(AT_ONCE)
        self.write("garbage", "this is no PEM, no YAML mapping and no database\n")

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def write(self, name: str, text: str) -> str:
        """Write a file atomically, because another program may be reading it."""
        Path(self.path(f"{name}.new")).write_text(text)
        os.replace(self.path(f"{name}.new"), self.path(name))
        return self.path(name)

    def open_directory(self, parent: str = "") -> str:
        """Create a world-writable directory with a file in it."""
        path = tempfile.mkdtemp(dir=parent or self.directory)
        Path(path, "something").write_text("here first")
        os.chmod(path, 0o777)
        return path

    def port_in_use(self) -> int:
        taken = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(taken.close)
        number: int = taken.getsockname()[1]
        return number

    def kubeconfig(self, server: str = "https://127.0.0.1:1", name: str = "kubeconfig") -> str:
        pair = self.pki.pair(f"poollet-{POOL}-client")
        path = self.path(name)
        write_kubeconfig(
            path,
            server=server,
            ca_pem=read_file(self.pki.serving_ca),
            certificate_pem=read_file(pair.certificate),
            key_pem=read_file(pair.key),
            user=POOL,
            replace=True,
        )
        return path

    async def last_words(
        self, argv: Sequence[str], env: Mapping[str, str], *, fork: bool = True
    ) -> list[str]:
        """Return the lines a program prints before it exits with 1, without the lines about itself."""
        program = programs.start(argv, env=env, fork=fork)
        self.addCleanup(program.stop, 9)
        late = reactor.callLater(600, os.kill, program.transport.pid, 9)  # type: ignore[union-attr]
        code = await program.ended
        if late.active():
            late.cancel()
        told = program.output.decode()
        self.assertEqual(code, 1, f"{' '.join(argv)}\n{told}")
        self.assertNotIn("Traceback", told)
        return [line for line in told.splitlines() if not _OF_THEMSELVES.match(line)]

    async def refuses(self, argv: Sequence[str], told: str, behind: str = "", **env: str) -> None:
        """The program prints one line; after the words ``behind`` the line contains ``told``."""
        lines = await self.last_words(argv, env)
        self.assertEqual(len(lines), 1, f"{' '.join(argv)}\n" + "\n".join(lines))
        self.assertIn(behind, lines[0])
        self.assertIn(told, lines[0].partition(behind)[2] if behind else lines[0])


class ProgramCase(StartCase):
    """
    A test case for one twistd plugin.

    :cvar plugin: its name.
    """

    plugin = ""

    def good(self) -> dict[str, str]:
        """Valid options of the program."""
        raise NotImplementedError

    def argv(self, change: Change | None = None) -> list[str]:
        options = {**self.good(), **(change or {})}
        given = [f"--{name}={value}" for name, value in options.items() if value is not None]
        return [programs.script("twistd"), "-n", "--pidfile=", self.plugin, *given]

    async def rows(self, *rows: tuple[Change, str]) -> None:
        """Check that each change to the valid options is refused with its message."""
        running = [
            self.turns.run(lambda one: self.refused(self.argv(one[0]), one[1]), row) for row in rows
        ]
        await gatherResults(running, consumeErrors=True)

    def refused(self, argv: Sequence[str], told: str) -> Deferred[None]:
        return Deferred.fromCoroutine(self.refuses(argv, told, f"{self.plugin}: "))

    def files(self, *options: str) -> list[tuple[Change, str]]:
        """Rows for a missing file and for an invalid file, for each option."""
        garbage = self.path("garbage")
        missing = f"cannot read {NOWHERE!r}: No such file or directory"
        return [
            *[({name: NOWHERE}, missing) for name in options],
            *[({name: garbage}, "") for name in options],
        ]


# A test case for the type checker only: the test runner must not run this class by itself.
_Program = ProgramCase if TYPE_CHECKING else object


class CommonRows(_Program):
    """Rows that apply to every program."""

    async def test_nothing_given(self) -> None:
        """Without options the program, started as users do, names the required options."""
        argv = [programs.script("twistd"), "-n", "--pidfile=", self.plugin]
        (line,) = await self.last_words(argv, {}, fork=False)
        missing = "(--[a-z-]+ is missing|required options are missing: --[a-z-]+)"
        pattern = rf"\A{self.plugin}: {missing}.*--help\Z"
        self.assertRegex(line, pattern)

    async def test_malformed_options(self) -> None:
        """Unknown options, surplus arguments and invalid times are refused."""
        argv = self.argv()
        running = [
            self.turns.run(self.refused, [*argv, more], told)
            for more, told in (
                ("--nonsense", "option --nonsense not recognized"),
                ("surplus", "'surplus' belongs to no option"),
                ("--drain-seconds", "requires argument"),
                ("--drain-seconds=soon", "--drain-seconds: 'soon' is no number of seconds"),
            )
        ]
        await gatherResults(running, consumeErrors=True)

    async def test_audit(self) -> None:
        """An audit log that cannot be written is refused."""
        told = "cannot write audit file {!r}: {} (check the path, or choose another)"
        await self.rows(
            ({"audit-log": NOWHERE}, told.format(NOWHERE, "No such file or directory")),
            ({"audit-log": self.directory}, told.format(self.directory, "Is a directory")),
            (
                {"audit-log": "/dev/zero"},
                "cannot write audit file '/dev/zero': not a regular file (give a file, - for standard "
                "output, or /dev/null to keep no records)",
            ),
        )


class APIServerTests(CommonRows, ProgramCase):
    """``exec-apiserver``."""

    plugin = "exec-apiserver"

    def good(self) -> dict[str, str]:
        serving, forwarding = self.pki.pair("apiserver"), self.pki.pair("apiserver-forwarding")
        return {
            "listen": ANY_PORT,
            "tls-cert-file": serving.certificate,
            "tls-private-key-file": serving.key,
            "client-ca-file": self.pki.client_ca,
            "machinepoollet-client-certificate": forwarding.certificate,
            "machinepoollet-client-key": forwarding.key,
            "machinepoollet-certificate-authority": self.pki.serving_ca,
            "storage": "memory",
            "audit-log": self.path("audit"),
        }

    async def test_files(self) -> None:
        """Missing and invalid certificates, keys and CAs are refused."""
        await self.rows(
            *self.files(
                "tls-cert-file",
                "tls-private-key-file",
                "client-ca-file",
                "machinepoollet-client-certificate",
                "machinepoollet-client-key",
                "machinepoollet-certificate-authority",
                "token-auth-file",
                "authentication-config",
            )
        )

    async def test_mismatched_keys(self) -> None:
        """A key that does not belong to its certificate is refused."""
        serving, forwarding = self.pki.pair("apiserver"), self.pki.pair("apiserver-forwarding")
        await self.rows(
            (
                {"tls-private-key-file": forwarding.key},
                f"private key {forwarding.key!r} does not belong to certificate "
                f"{serving.certificate!r}: give the pair that was issued together",
            ),
            (
                {"machinepoollet-client-key": serving.key},
                f"client key {serving.key!r} does not belong to client certificate",
            ),
        )

    async def test_address(self) -> None:
        """A port in use, another host's address and an invalid address are refused."""
        port = self.port_in_use()
        await self.rows(
            (
                {"listen": f"tcp:{port}:interface=127.0.0.1"},
                f"cannot listen on 127.0.0.1:{port}: Address already in use: "
                "free it, or choose another with --listen",
            ),
            (
                {"listen": "tcp:0:interface=192.0.2.1"},
                "cannot listen on 192.0.2.1:0: Cannot assign requested address: "
                "choose an address of this host with --listen",
            ),
            ({"listen": "tcp:99999"}, "--listen: 'tcp:99999': 99999 is no port from 0 to 65535"),
            ({"listen": "pigeon:1"}, "--listen: 'pigeon:1' is no listening address such as tcp:64"),
            ({"listen": "ssl:0"}, "--listen: listening address 'ssl:0': give a plain endpoint"),
            ({"listen": "unix:/nonexistent/x"}, "cannot listen on 'unix:/nonexistent/x': No such"),
        )

    async def test_store(self) -> None:
        """
        A store of a newer version, another program's file and an unusable path are refused
        unchanged.
        """
        newer = self.path("newer.db")
        with sqlite3.connect(newer) as database:
            database.execute("CREATE TABLE objects (future TEXT)")
            database.execute("PRAGMA user_version = 99")
        database.close()
        others = self.path("others.db")
        with sqlite3.connect(others) as database:
            database.execute("CREATE TABLE bookmarks (url TEXT)")
        database.close()
        kept = {path: read_file(path) for path in (newer, others, self.path("garbage"))}
        await self.rows(
            (
                {"storage": f"sqlite:{newer}"},
                f"the store {newer} was written by a newer version (schema 99, this program knows "
                "1): upgrade twisted-exec, or choose another file",
            ),
            ({"storage": f"sqlite:{others}"}, f"{others} is a database of another program"),
            ({"storage": f"sqlite:{self.path('garbage')}"}, "garbage cannot be used as a store"),
            ({"storage": f"sqlite:{self.directory}"}, f"cannot open the store {self.directory}"),
            ({"storage": "sqlite:/nonexistent/x"}, "cannot open the store /nonexistent/x: No such"),
            ({"storage": "etcd:x"}, "--storage: ca= is missing: the authority"),
        )
        self.assertEqual({path: read_file(path) for path in kept}, kept)

    async def test_etcd(self) -> None:
        """An etcd prefix with another program's keys is refused."""
        target = shared().target(any_prefix())
        await put_by_hand(target, f"{target.prefix}/pods/default/a")
        store = f"etcd:http://{target}?prefix={target.prefix}"
        told = (
            f"etcd's keys below '{target.prefix}' are another program's (such as '{target.prefix}/p"
        )
        await self.rows(({"storage": store}, told))

    test_etcd.skip = needs.etcd()  # type: ignore[attr-defined]

    async def test_store_in_use(self) -> None:
        """A second API server on the same file is refused; the first one is not disturbed."""
        store = f"sqlite:{self.path('objects.db')}"
        first = programs.start(self.argv({"storage": store}))
        self.addCleanup(first.stop)
        await first.until(rb"listens at")
        told = f"the store {self.path('objects.db')} is in use by another server: stop it, or"
        await self.rows(({"storage": store}, told), ({"storage": store}, told))
        self.assertIsNone(first.exit_code)
        await first.stop()
        second = programs.start(self.argv({"storage": store}))
        self.addCleanup(second.stop)
        await second.until(rb"listens at")


class PoolletTests(CommonRows, ProgramCase):
    """``exec-poollet``."""

    plugin = "exec-poollet"

    def good(self) -> dict[str, str]:
        serving = self.pki.pair(f"poollet-{POOL}")
        return {
            "kubeconfig": self.kubeconfig(),
            "machine-pool-name": POOL,
            "machine-runtime-endpoint": "unix:///nonexistent/iri.sock",
            "listen": ANY_PORT,
            "tls-cert-file": serving.certificate,
            "tls-private-key-file": serving.key,
            "requestheader-client-ca-file": self.pki.forwarding_ca,
            "requestheader-allowed-names": "exec-apiserver",
            "runtime-ca-file": self.pki.serving_ca,
            "audit-log": self.path("audit"),
        }

    async def test_kubeconfig(self) -> None:
        """A kubeconfig that is missing, damaged or without the requested context is refused."""
        garbage = self.path("garbage")
        broken = self.write("broken", "clusters: [\n")
        empty = self.write("empty", "kind: Config\n")
        good = self.kubeconfig()
        await self.rows(
            ({"kubeconfig": NOWHERE}, f"no kubeconfig: {NOWHERE} does not exist"),
            ({"kubeconfig": self.directory}, f"{self.directory}: Is a directory"),
            ({"kubeconfig": garbage}, f"{garbage}: not a kubeconfig: a mapping is expected"),
            ({"kubeconfig": broken}, f"{broken}: not YAML: line 2, column 1: "),
            ({"kubeconfig": empty}, f"{empty}: "),
            ({"context": "other"}, f'{good}: no context "other"'),
        )

    async def test_files(self) -> None:
        """Missing and invalid certificates, keys and CAs are refused."""
        await self.rows(
            *self.files(
                "tls-cert-file",
                "tls-private-key-file",
                "client-ca-file",
                "requestheader-client-ca-file",
                "runtime-ca-file",
            ),
            (
                {"tls-private-key-file": self.pki.pair("apiserver").key},
                f"private key {self.pki.pair('apiserver').key!r} does not belong to certificate",
            ),
        )

    async def test_addresses(self) -> None:
        """A port in use and invalid or insecure endpoints of the runtime are refused."""
        port = self.port_in_use()
        endpoint = "machine-runtime-endpoint"
        await self.rows(
            (
                {"listen": f"tcp:{port}:interface=127.0.0.1"},
                f"cannot listen on 127.0.0.1:{port}: Address already in use: "
                "free it, or choose another with --listen",
            ),
            ({endpoint: None}, f"--{endpoint} is missing"),
            ({"listen": "tcp:x"}, "--listen: 'tcp:x' is no listening address such as tcp:6443"),
            ({endpoint: "pigeon://x"}, f"--{endpoint}: 'pigeon://x' is neither unix:///absolute/"),
            ({endpoint: "unix:x"}, f"--{endpoint}: 'unix:x': the path of a UNIX socket must be"),
            ({endpoint: "dns:///host:1"}, "dns:///host:1: TCP needs mutual TLS"),
            ({"machine-pool-name": "Pool A"}, "--machine-pool-name 'Pool A': lower case letters"),
            ({"requestheader-allowed-names": None}, "--requestheader-client-ca-file and --request"),
        )

    async def test_alone(self) -> None:
        """
        A poollet without runtime and API server waits, warns once about each, and can be stopped.
        """
        factory = Factory.forProtocol(HangsUp)
        factory.connections = 0  # type: ignore[attr-defined]
        port: Any = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(factory)
        self.addCleanup(port.stopListening)
        server = f"https://127.0.0.1:{port.getHost().port}"
        directory = tempfile.mkdtemp(prefix="exec-")
        self.addCleanup(shutil.rmtree, directory)
        target = f"unix://{directory}/iri.sock"
        change = {
            "kubeconfig": self.kubeconfig(server, "other"),
            "machine-runtime-endpoint": target,
        }
        program = programs.start(self.argv(change))
        self.addCleanup(program.stop)
        while factory.connections < 12:  # type: ignore[attr-defined]
            await pause()
        await program.stop()
        told = program.output.decode()
        self.assertNotIn("Traceback", told)
        warnings = [line.partition("] ")[2] for line in told.splitlines() if "#warn]" in line]
        self.assertEqual(len(warnings), len(set(warnings)), told)
        for wanted in (f"the machine runtime at {target} cannot be reached", server):
            self.assertTrue([line for line in warnings if wanted in line], told)


class HangsUp(Protocol):
    """A server that closes every connection."""

    factory: Any
    transport: Any

    def connectionMade(self) -> None:
        self.factory.connections += 1
        self.transport.loseConnection()


BROKER_KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: b
clusters: [{name: b, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: broker, user: {token: secret}}]
contexts: [{name: b, context: {cluster: b, user: broker}}]
"""


class RuntimeTests(CommonRows, ProgramCase):
    """``exec-runtime``."""

    plugin = "exec-runtime"

    def setUp(self) -> None:
        super().setUp()
        self.sockets = tempfile.mkdtemp(prefix="exec-")
        self.addCleanup(shutil.rmtree, self.sockets)
        self.runs = 0
        self.serving = self.pki.issue_runtime("host-a", ["127.0.0.1"], replace=True)

    def good(self) -> dict[str, str]:
        self.runs += 1  # two concurrent runs share no files
        return {
            "config": self.write("runtime.yaml", CLASSES),
            "iri-listen": f"unix://{self.sockets}/{self.runs}/iri.sock",
            "state-dir": self.path(f"state-{self.runs}"),
            "audit-log": self.path("audit"),
        }

    async def test_config(self) -> None:
        """A configuration that is missing, not YAML or invalid is refused."""
        broken = self.write("broken.yaml", "classes: [\n")
        odd = self.write("odd.yaml", CLASSES.replace("driver: pty", "driver: ptty"))
        key = self.write("key.yaml", CLASSES.replace("same_user:", "sameuser:"))
        garbage = self.path("garbage")
        await self.rows(
            ({"config": NOWHERE}, f"cannot read {NOWHERE}: No such file or directory"),
            ({"config": garbage}, f"{garbage} must be a mapping"),
            ({"config": broken}, f"{broken}: not YAML: line 2, column 1: "),
            (
                {"config": odd},
                f"{odd}: classes[0] (shell): there is no driver 'ptty'; did you mean pty?",
            ),
            ({"config": key}, f"{key}: classes[0] (shell): "),
        )

    async def test_interface(self) -> None:
        """An IRI address that cannot be served, or not securely, is refused."""
        shared, listen = self.open_directory(self.sockets), "iri-listen"
        port, runtime = self.port_in_use(), self.serving
        mutual = {
            listen: f"dns:///127.0.0.1:{port}",
            "iri-ca-file": self.pki.client_ca,
            "iri-cert-file": runtime.certificate,
            "iri-private-key-file": runtime.key,
            "iri-client-names": "compute.ironcore.dev:system:machinepool:pool-a",
        }
        await self.rows(
            ({listen: None}, "--iri-listen is missing"),
            (
                {listen: "pigeon://x"},
                f"--{listen}: 'pigeon://x' is neither unix:///absolute/path nor",
            ),
            ({listen: "unix:x"}, f"--{listen}: 'unix:x': the path of a UNIX socket must be abso"),
            ({listen: f"unix:///{'x' * 110}"}, "the path of a UNIX socket has at most 107 bytes"),
            (
                {listen: f"unix://{shared}/iri.sock"},
                f"directory {shared!r} is open to other users (mode 777): if all files in it are "
                f"yours, type: chmod 700 {shared}; otherwise name a directory that does not exist",
            ),
            ({listen: "dns:///127.0.0.1:0"}, "dns:///127.0.0.1:0: TCP needs mutual TLS"),
            ({**mutual, "iri-client-names": None}, "--iri-client-names is missing: the common"),
            ({**mutual, "iri-ca-file": None}, "--iri-ca-file, --iri-cert-file and --iri-private"),
            ({**mutual, "iri-cert-file": NOWHERE}, f"cannot read {NOWHERE}: No such file"),
            (
                {**mutual, "iri-private-key-file": self.pki.pair("apiserver").key},
                "does not belong to certificate",
            ),
            (
                mutual,
                f"cannot listen on 127.0.0.1:{port}: the address is in use or not this host's: "
                "free it, or choose another with --iri-listen",
            ),
        )
        self.assertEqual(stat.S_IMODE(os.stat(shared).st_mode), 0o777)

    async def test_streams(self) -> None:
        """A streaming address that cannot be served, or not securely, is refused."""
        port, listen = self.port_in_use(), "streaming-listen"
        tls = {
            "tls-cert-file": self.serving.certificate,
            "tls-private-key-file": self.serving.key,
        }
        await self.rows(
            (
                {listen: f"tcp:{port}:interface=127.0.0.1", **tls},
                f"cannot listen on 127.0.0.1:{port}: Address already in use: "
                "free it, or choose another with --streaming-listen",
            ),
            ({listen: "pigeon:1", **tls}, f"--{listen}: 'pigeon:1' is no listening address"),
            (
                {listen: "tcp:0"},
                "tcp:0: without a certificate consoles are served on loopback only",
            ),
            ({listen: "tcp:0", **tls}, "tcp:0: a server on all addresses needs a base URL"),
            ({listen: ANY_PORT, **tls, "tls-private-key-file": None}, "--tls-cert-file and --tls-"),
            (
                {listen: ANY_PORT, **tls, "tls-cert-file": NOWHERE},
                f"cannot read {NOWHERE!r}: No such file or directory",
            ),
            (
                {listen: ANY_PORT, **tls, "tls-private-key-file": self.pki.pair("apiserver").key},
                "does not belong to certificate",
            ),
            (
                {listen: "unix:x"},
                f"--{listen}: 'unix:x': the path of a UNIX socket must be absolute",
            ),
        )

    async def test_state(self) -> None:
        """
        A state directory that is open to others, unusable or used by another runtime is refused.
        """
        shared = self.open_directory()
        first = programs.start(self.argv({"state-dir": self.path("mine")}))
        self.addCleanup(first.stop)
        await first.until(rb"RuntimeHost#info\]")
        await self.rows(
            ({"state-dir": shared}, f"directory {shared!r} is open to other users (mode 777)"),
            ({"state-dir": self.path("garbage")}, f"{self.path('garbage')!r} is not a directory"),
            ({"state-dir": "/proc/x"}, "cannot use directory '/proc/x'"),
            (
                {"state-dir": self.path("mine")},
                f"another runtime uses the state directory {self.path('mine')}: stop it, or choose "
                "another",
            ),
        )
        self.assertIsNone(first.exit_code)


class BrokerTests(CommonRows, ProgramCase):
    """``exec-broker``."""

    plugin = "exec-broker"

    def setUp(self) -> None:
        super().setUp()
        self.sockets = tempfile.mkdtemp(prefix="exec-")
        self.addCleanup(shutil.rmtree, self.sockets)
        self.runs = 0

    def good(self) -> dict[str, str]:
        self.runs += 1  # two concurrent runs share no files
        return {
            "kubeconfig": self.write("broker.kubeconfig", BROKER_KUBECONFIG),
            "namespace": "site-a",
            "source-cluster-name": "site-a",
            "iri-listen": f"unix://{self.sockets}/{self.runs}/iri.sock",
            "state-dir": self.path(f"state-{self.runs}"),
            "audit-log": self.path("audit"),
        }

    async def test_target(self) -> None:
        """A missing or invalid kubeconfig and invalid names are refused."""
        await self.rows(
            ({"kubeconfig": NOWHERE}, f"no kubeconfig: {NOWHERE} does not exist"),
            ({"kubeconfig": self.path("garbage")}, self.path("garbage")),
            ({"namespace": "Site A"}, "--namespace 'Site A': "),
            ({"source-cluster-name": None}, "--source-cluster-name is missing: the prefix of"),
            ({"source-cluster-name": "system"}, "'system' is not a valid name of a cluster"),
            ({"dialect": "klingon"}, "--dialect: there is no dialect 'klingon': choose one of"),
        )

    async def test_tokens(self) -> None:
        """A missing or short token key is refused, and so are consoles without encryption."""
        short = self.write("short.key", "secret")
        told = f"cannot read {NOWHERE!r}: No such file or directory"
        await self.rows(
            ({"token-key-file": NOWHERE}, told),
            ({"token-key-file": short}, "the token key has fewer than 32 bytes: make it with"),
            ({"base-url": "http://192.0.2.1:1"}, "without TLS consoles are served on loopback"),
            ({"streaming-listen": "tcp:0"}, "without a certificate consoles are served on"),
        )


class NodeServerTests(CommonRows, ProgramCase):
    """``exec-nodeserver``."""

    plugin = "exec-nodeserver"

    def good(self) -> dict[str, str]:
        serving = self.pki.pair("apiserver")
        leaf = {"name": "one", "kubeconfig": {"file": self.kubeconfig(name="leaf")}}
        return {
            "kubeconfig": self.kubeconfig(),
            "leaves": self.write("leaves.yaml", json.dumps({"leaves": [leaf]})),
            "listen": ANY_PORT,
            "health-listen": ANY_PORT,
            "node-address": "127.0.0.1",
            "tls-cert-file": serving.certificate,
            "tls-private-key-file": serving.key,
            "client-ca-file": self.pki.client_ca,
            "audit-log": self.path("audit"),
        }

    async def test_certificates(self) -> None:
        """
        A missing certificate, another certificate's key and an unusable directory are refused.
        """
        told = f"cannot read {NOWHERE!r}: No such file or directory"
        none = {"tls-cert-file": None, "tls-private-key-file": None}
        other = self.pki.pair("apiserver-forwarding").key
        await self.rows(
            ({"tls-cert-file": NOWHERE}, f"no serving certificate: {told}"),
            ({"tls-private-key-file": other}, "no serving certificate: private key"),
            ({"client-ca-file": NOWHERE}, f"--client-ca-file: {told}"),
            ({**none, "cert-dir": f"{self.path('garbage')}/x"}, "Not a directory"),
        )

    async def test_addresses(self) -> None:
        """A port in use and a malformed address are refused with the name of the option."""
        port = self.port_in_use()
        told = f"cannot listen on 127.0.0.1:{port}: Address already in use: free it, or choose"
        await self.rows(
            *(
                ({name: f"tcp:{port}:interface=127.0.0.1"}, f"{told} another with --{name}")
                for name in ("listen", "health-listen")
            ),
            *(
                ({name: "foo"}, f"--{name}: 'foo' is no listening address such as tcp:6443")
                for name in ("listen", "health-listen")
            ),
        )

    async def test_leaves(self) -> None:
        """A missing or invalid leaves file is refused."""
        await self.rows(
            ({"leaves": NOWHERE}, f"cannot read {NOWHERE}: No such file or directory"),
            ({"leaves": self.path("garbage")}, self.path("garbage")),
        )


class StandaloneTests(StartCase):
    """
    ``exec-standalone`` detects problems while it starts, so earlier log lines precede the error.
    """

    def state(self, name: str) -> str:
        """Create a private state directory."""
        path = self.path(name)
        os.makedirs(path, 0o700)
        return path

    async def refused(self, state: str, told: str, port: int = 0) -> None:
        argv = [programs.script("twistd"), "-n", "--pidfile=", "exec-standalone"]
        lines = await self.last_words([*argv, f"--port={port}", f"--state-dir={state}"], {})
        last = [line for line in lines if "#info] " not in line]
        self.assertEqual(len(last), 1, lines)
        self.assertIn(told, last[0].partition("exec-standalone: ")[2])
        self.assertFalse(os.path.exists(os.path.join(state, "admin.kubeconfig")))

    async def test_state(self) -> None:
        """A state directory that is unusable, not private or has unusable contents is refused."""
        shared, newer = self.open_directory(), self.state("newer")
        with sqlite3.connect(os.path.join(newer, "objects.db")) as database:
            database.execute("PRAGMA user_version = 99")
        database.close()
        Path(newer, "storage").write_text("sqlite:objects.db\n")
        audit, damaged, link = self.state("audit"), self.state("damaged"), self.path("link")
        os.mkdir(os.path.join(audit, "audit.jsonl"))
        shutil.copytree(self.pki.directory, os.path.join(damaged, "pki"))
        Path(damaged, "pki", "ca.key").write_text("no key")
        os.symlink(audit, link)
        rows = (
            (shared, f"--state-dir: directory {shared!r} is open to other users (mode 777): if"),
            (self.path("garbage"), "garbage' is not a directory"),
            (link, "is a symbolic link: give the directory itself"),
            (newer, "objects.db was written by a newer version (schema 99, this program knows 1)"),
            (audit, "audit.jsonl': Is a directory"),
            (damaged, f'CA key "{damaged}/pki/ca.key" holds no usable PEM private key'),
        )

        def row(state: str, told: str) -> Deferred[None]:
            return Deferred.fromCoroutine(self.refused(state, told))

        await gatherResults([self.turns.run(row, *each) for each in rows], consumeErrors=True)

    async def test_port_in_use(self) -> None:
        """A port in use is refused with the option that chooses another."""
        port = self.port_in_use()
        told = f"cannot listen on 127.0.0.1:{port}: Address already in use: free it, or choose "
        await self.refused(self.state("state"), f"{told}another with --port", port)


class UserEndTests(StartCase):
    """``kubectl-console`` and ``twisted-exec``."""

    async def each(self, program: str, *rows: tuple[Sequence[str], str], **env: str) -> None:
        """
        Check that each command line is refused with its message and prints nothing to standard
        output.
        """

        def row(arguments: Sequence[str], told: str) -> Deferred[None]:
            argv = [programs.script(program), *arguments]
            return Deferred.fromCoroutine(self.refuses(argv, told, **env))

        running = [self.turns.run(row, arguments, told) for arguments, told in rows]
        await gatherResults(running, consumeErrors=True)

    async def test_console_options(self) -> None:
        """Invalid command lines are refused."""
        kubeconfig = f"--kubeconfig={self.kubeconfig()}"
        await self.each(
            "kubectl-console",
            ([], "kubectl console: give the NAME of a machine, or select machines with -l or"),
            (["vm", "--nonsense"], "unrecognized arguments: --nonsense"),
            (
                ["vm", "vm-2"],
                "unrecognized arguments: vm-2; give one NAME or KIND/NAME; -l and --all",
            ),
            (["vm", kubeconfig, "--linger=x"], 'argument --linger: "x" is no duration such as'),
            (["vm", kubeconfig, "--timeout=nan"], '--timeout: "nan" is no duration such as'),
            (["vm", kubeconfig, "--escape=Ctrl"], "argument --escape: "),
        )

    async def test_kubeconfig(self) -> None:
        """A kubeconfig that is missing, damaged or leads to no server is refused."""
        garbage, broken = self.path("garbage"), self.write("broken", "clusters: [\n")
        good = self.kubeconfig()
        other_ca = Path(good).read_text().replace("127.0.0.1:1", "127.0.0.1:x")
        await self.each(
            "kubectl-console",
            (["vm"], f"no kubeconfig: {NOWHERE} does not exist; set KUBECONFIG or give --kubecon"),
            (["vm", "--kubeconfig", garbage], f"{garbage}: not a kubeconfig: a mapping is"),
            (["vm", "--kubeconfig", broken], f"{broken}: not YAML: line 2, column 1: "),
            (["vm", "--kubeconfig", self.directory], f"{self.directory}: Is a directory"),
            (["vm", "--kubeconfig", good, "--context", "y"], f'{good}: no context "y"'),
            (["vm", "--kubeconfig", good], "cannot reach https://127.0.0.1:1: connection refused"),
            (["vm", "--kubeconfig", self.write("url", other_ca)], "127.0.0.1:x"),
            KUBECONFIG=NOWHERE,
        )

    async def test_no_home(self) -> None:
        """Without any kubeconfig, the message names the places that were searched."""
        await self.each(
            "kubectl-console",
            (["vm"], f"no kubeconfig: {self.directory}/.kube/config does not exist; set"),
            KUBECONFIG="",
            HOME=self.directory,
        )

    async def test_twisted_exec(self) -> None:
        """``twisted-exec`` without a command, or with an impossible one, is refused."""
        made, nowhere = self.pki.directory, "/nonexistent"
        await self.each(
            "twisted-exec",
            ([], "twisted-exec: the following arguments are required: COMMAND; see twisted-exec"),
            (["frob"], 'twisted-exec: there is no command "frob"; there are pki, '),
            (["pki"], "twisted-exec pki: the following arguments are required: COMMAND; see"),
            (["pki", "init", made], 'ca.crt" exists already: give --force to replace it'),
            (["pki", "init", "/proc/x"], "cannot use directory '/proc/x'"),
            (
                ["pki", "user", nowhere, "--user", "ann"],
                f'"{nowhere}" is no PKI directory (ca.crt is missing): make one with "twisted-exec '
                f'pki init {nowhere}"',
            ),
            (["pki", "user", made, "--user", "../ann"], 'user name "../ann": letters, digits and'),
            (
                ["pki", "poollet", made, "--pool", "p" * 40, "--name", "x"],
                "has 40 characters; a certificate has room for",
            ),
        )
