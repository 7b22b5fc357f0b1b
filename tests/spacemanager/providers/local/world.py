"""
The provider contract's world for local spaces: a directory and processes.

The processes here only report that they are ready, so that all cases run in seconds;
``tests.interop.space_local`` has the same world with real API servers.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from twisted.internet import reactor
from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.space_world import SpaceWorld
from tests.ports import reserved_port
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.spacemanager.interfaces import Access, ISpaceProvider, Physical
from twisted_exec.spacemanager.providers.local.processes import environment
from twisted_exec.spacemanager.providers.local.provider import LocalProvider
from twisted_exec.spacemanager.providers.local.records import Store, new_record
from twisted_exec.spacemanager.providers.local.space import ACCESS, KUBECONFIG, SpaceEnvironment

SMALL = f"""
import os, sys
os.setsid()
os.makedirs(sys.argv[1], exist_ok=True)
open(os.path.join(sys.argv[1], {KUBECONFIG!r}), "w").close()
sys.stdin.read()
"""
"""The program of a local space that serves nothing."""

NO_CREDENTIALS = "No credentials: the spaces are processes of the manager's own user."


class WatchedStore(Store):
    """A store whose changes can be held back."""

    def __init__(self, path: str, world: LocalWorld) -> None:
        super().__init__(path)
        self._world = world

    def step(self) -> None:
        self._world.step()


class LocalWorld(SpaceWorld):
    """
    :param directory: absolute path; it may not exist yet.
    :ivar without_sessions: the kubeconfigs with which sessions were ended, and the processes at that time.
    """

    title = ""
    cannot = {
        "revoked": NO_CREDENTIALS,
        "rotated": NO_CREDENTIALS,
        "forbidden": NO_CREDENTIALS,
        "nonsense": "No remote calls; a record that cannot be read affects one space only, which is Broken.",
        "stalled": "No remote calls.",
        "partial": "Both viewpoints are loopback of the same host and always appear together.",
        "parents": "It has no parents.",
        "works": "The processes of this trial serve nothing.",
    }
    list_calls = 0

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, "local", "default")
        self.providers: list[LocalProvider] = []
        self.means = self.make_means()
        self._enrol = self.means.enrol
        self._hidden = self._died = False
        self.without_sessions: list[tuple[str, list[int]]] = []
        self._calls = 0
        self._left: int | None = None
        self._lock = -1

    def make_means(self) -> SpaceEnvironment:
        """Return the environment for new spaces."""
        return SpaceEnvironment(
            reactor, time.time, self.words, environment(), self.enrol, self.end_sessions
        )

    def words(self, state: str, port: int) -> list[str]:
        return [sys.executable, "-I", "-S", "-c", SMALL, state, str(port)]

    def end_sessions(self, path: str) -> Deferred[None]:
        self.without_sessions.append((path, self.pids()))
        return fail(ServiceUnavailable("the process does not answer"))

    def enrol(self, path: str) -> Deferred[Access]:
        self._calls += 1
        if self._hidden:
            return fail(ServiceUnavailable("no kubeconfig is given out just now: wait"))
        return self.enrolled(path)

    def enrolled(self, path: str) -> Deferred[Access]:
        """Return a kubeconfig with a random token."""
        config = ClientConfig("https://127.0.0.1:1", token=uuid.uuid4().hex)
        return succeed(Access(written(config, "space"), time.time() + 365 * 86400))

    async def stop(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)

    def make(self) -> ISpaceProvider:
        made = LocalProvider(WatchedStore(self.path, self), self.means)
        self.providers.append(made)
        return made

    # Actions of other users.

    async def make_foreign(self, physical: Physical) -> None:
        os.makedirs(os.path.join(self.path, "records"), 0o700, exist_ok=True)
        os.chmod(self.path, 0o700)
        path = self.record(physical)
        with open(f"{path}.new", "w") as file:
            json.dump({"uid": new_record(physical.name, "").uid}, file)
        os.replace(f"{path}.new", path)

    async def vanish(self, physical: Physical) -> None:
        home = self.home(physical)
        os.unlink(self.record(physical))
        self.kill(home)
        shutil.rmtree(home, ignore_errors=True)

    async def wreck(self, physical: Physical) -> None:
        home = self.home(physical)
        os.replace(home, f"{home}-lost")
        shutil.rmtree(f"{home}-lost")
        self.kill(home)

    async def there(self) -> Sequence[Physical]:
        """Return the names of records, and the directories without a record."""
        if not os.path.isdir(os.path.join(self.path, "records")):
            return []
        names = [name[:-5] for name in os.listdir(os.path.join(self.path, "records"))]
        homes = {os.path.basename(self.home(Physical(name))) for name in names}
        stray = set(os.listdir(os.path.join(self.path, "spaces"))) - homes
        return sorted(map(Physical, [*names, *stray]))

    def record(self, physical: Physical) -> str:
        """The path of a record."""
        return os.path.join(self.path, "records", f"{physical.name}.json")

    def home(self, physical: Physical) -> str:
        """The path of a space's directory."""
        with open(self.record(physical)) as file:
            return os.path.join(self.path, "spaces", json.load(file)["uid"])

    def kill(self, home: str) -> None:
        """End the process of a space as an accident would."""
        for pid in self.pids():
            if home in command(pid):
                os.kill(pid, signal.SIGKILL)

    # Delays and outages.

    async def hold(self) -> None:
        for _ in range(self.means.slots.limit):
            await self.means.slots.acquire()

    async def release(self) -> None:
        for _ in range(self.means.slots.limit):
            self.means.slots.release()

    async def hide_access(self, physical: Physical) -> None:
        self._hidden = True
        os.unlink(os.path.join(self.home(physical), ACCESS))

    async def show_access(self, physical: Physical) -> None:
        self._hidden = False

    async def break_down(self) -> None:
        """Move the directory away or, before the first adaptor, lock it."""
        if self.providers:
            os.replace(self.path, f"{self.path}.away")
            return
        self._lock = os.open(os.path.join(self.path, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    async def come_back(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        else:
            os.replace(f"{self.path}.away", self.path)

    def calls(self) -> int:
        return self._calls

    def left(self) -> Sequence[str]:
        known = {space.pid for one in self.providers for space in one.spaces()}
        processes = [command(pid) for pid in self.pids() if pid not in known]
        return [*processes, *self.half_written()]

    def half_written(self) -> list[str]:
        """Return the temporary files of unfinished writes."""
        return [name for name in os.listdir(os.path.join(self.path, "records")) if name[0] == "."]

    def pids(self) -> list[int]:
        """Return the PIDs of all processes of this world."""
        found = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in found if self.path in command(pid)]

    # Killing the manager.

    async def die_after(self, steps: int) -> None:
        self._left, self._died = steps, False

    def died(self) -> bool:
        return self._died

    async def live(self) -> None:
        self._left = None

    def step(self) -> None:
        """Count a step before each change; fail if the manager is dead."""
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self._died = True
                raise ServiceUnavailable("the manager was killed: start another")


def command(pid: int) -> str:
    """The command line of a process, empty when it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


@contextmanager
def busy_port(case: SynchronousTestCase) -> Iterator[int]:
    """A port of 127.0.0.1 that is in use, and then free until the end of the test."""
    port = reserved_port(case)
    with socket.create_server(("127.0.0.1", port)):
        yield port
