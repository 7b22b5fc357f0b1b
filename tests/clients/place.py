"""
Where a row is tried: a whole chain on this host, and for each client a shell of its own.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from dataclasses import dataclass

import yaml
from twisted.internet import reactor

from tests.flows import programs
from tests.flows.consoles import Screen, watch
from tests.flows.deployment import pause
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.kube.kubeconfig.writer import write_kubeconfig
from twisted_exec.tls.pki.directory import open_pki

NAMESPACE = "default"
PATIENCE_SECONDS = 150
"""For one answer: a client's start alone may take long where many run at once."""

MACHINES = kinds.MACHINES.resource

_READY = rb"Ready. In another terminal, type:\n\n.*\n.*\n.*\nkubectl console \S+\n"


class Chain:
    """
    ``exec-standalone`` in a directory of its own.

    :ivar admin: path of the kubeconfig of a user who may do everything.
    :ivar nobody: of one who may do nothing.
    :ivar token: a bearer token of a user who may do everything.
    """

    admin: str
    nobody: str
    client: KubeClient
    pool = "local"

    def __init__(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="twisted-exec-clients-")
        self.token = secrets.token_urlsafe()
        self._program: programs.Program | None = None

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    async def start(self) -> None:
        with open(self.path("tokens.csv"), "w") as file:
            # Of the kubeconfig's user: who watches a client would otherwise keep it from typing.
            file.write(f"{self.token},admin,1,system:masters\n")
        self._program = programs.twistd(
            "exec-standalone",
            *("--port", "0", "--state-dir", "state", "--token-auth-file", "tokens.csv"),
            *("--drain-seconds", "0"),
            cwd=self.directory,
        )
        await self._program.until(_READY, seconds=PATIENCE_SECONDS)
        self.admin = self.path("state/admin.kubeconfig")
        self.client = KubeClient(load(self.admin), reactor)
        self.nobody = self._kubeconfig("nobody")

    def _kubeconfig(self, user: str) -> str:
        pki = open_pki(self.path("state/pki"))
        pair = pki.issue_user(user, [])
        path = self.path(f"{user}.kubeconfig")
        write_kubeconfig(
            path,
            server=self.server,
            ca_pem=_read(pki.serving_ca),
            certificate_pem=_read(pair.certificate),
            key_pem=_read(pair.key),
            user=user,
        )
        return path

    @property
    def server(self) -> str:
        """The API server's URL."""
        with open(self.admin) as file:
            return str(yaml.safe_load(file)["clusters"][0]["cluster"]["server"])

    @property
    def ca(self) -> str:
        """Path of the CA of the API server's certificate."""
        return open_pki(self.path("state/pki")).serving_ca

    async def place(self, name: str) -> Place:
        """Make a shell for one client."""
        body = machine(name, machinePoolRef={"name": self.pool})
        await self.client.create(MACHINES, body, NAMESPACE)
        home = self.path(name)
        os.mkdir(home)
        place = Place(self, name, home)
        await place.runs()
        return place

    async def stop(self) -> None:
        if hasattr(self, "client"):
            await self.client.close()
        if self._program is not None:
            await self._program.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def machine(name: str, **spec: object) -> Object:
    """A Machine as a user writes it; without a pool it does not run."""
    return {
        "apiVersion": MACHINES.api_version,
        "kind": "Machine",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"machineClassRef": {"name": "pty"}, **spec},
    }


@dataclass(frozen=True)
class Place:
    """
    One client's own.

    :param machine: the name of its shell.
    :param home: a directory for its files.
    """

    chain: Chain
    machine: str
    home: str

    def file(self, name: str, content: object) -> str:
        """Write an object for the client; the path."""
        path = os.path.join(self.home, name)
        with open(path, "w") as file:
            yaml.safe_dump(content, file)
        return path

    async def object(self, name: str) -> Object:
        """A Machine as it is now."""
        return await self.chain.client.get(MACHINES, name, NAMESPACE)

    async def label(self, value: str) -> None:
        """Change the machine, so that whoever watches it sees something."""
        body = {"metadata": {"labels": {"tried": value}}}
        await self.chain.client.patch(MACHINES, self.machine, body, NAMESPACE)

    async def runs(self) -> None:
        """Fires once the machine runs."""
        while (await self.object(self.machine)).get("status", {}).get("state") != "Running":
            await pause()

    async def company(self) -> Screen:
        """Another viewer whom the shell answers; one that is just started again is waited for."""
        while True:
            try:
                screen = await watch(self.chain.admin, self.machine)
                await answers(screen)
                return screen
            except (APIError, Ended) as error:
                if isinstance(error, APIError) and error.code not in (429, 503):
                    raise
                await pause()


class Ended(Exception):
    """The session was over before the shell answered."""


async def answers(screen: Screen) -> None:
    """
    The shell is there and answers a viewer.

    :raises Ended: the session is over.
    """
    mark = secrets.token_hex(4)
    try:
        await screen.ask(question(mark), answer(mark), seconds=PATIENCE_SECONDS)
    except AssertionError:
        if screen.ended.called:
            raise Ended() from None
        raise


def question(mark: str) -> bytes:
    """A line whose echo is not its answer."""
    return f"echo {mark}$((6*7))z\n".encode()


def answer(mark: str) -> bytes:
    """What the shell prints for it."""
    return f"{mark}42z".encode()


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
