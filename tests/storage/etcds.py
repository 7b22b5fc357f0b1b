"""
Real etcds: clusters of one or more members, on addresses of their own.

Each cluster has a random address of 127.0.0.0/8, so its ports collide with nobody's, and a
member that is started again is found where it was.
"""

from __future__ import annotations

import atexit
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from tests.runtimes.support import pause
from twisted_exec.storage.etcd.store import EtcdStorage
from twisted_exec.storage.etcd.target import Endpoint, EtcdTarget

_SECONDS = 60.0


async def until(true: Callable[[], object]) -> None:
    """Wait for a condition; fails after a minute."""
    end = reactor.seconds() + _SECONDS  # type: ignore[attr-defined]
    while not true():
        if reactor.seconds() > end:  # type: ignore[attr-defined]
            raise AssertionError("this has not come true within a minute")
        await pause()


class Member:
    """
    One process.

    :param flags: besides those that every member has.
    """

    def __init__(
        self,
        host: str,
        number: int,
        cluster: str,
        directory: Path,
        flags: Sequence[str],
        scheme: str,
        program: str,
    ) -> None:
        self.name = f"m{number}"
        self.data = directory / self.name
        self.endpoint = Endpoint(host, 2379 + 10 * number)
        client, peer = f"{scheme}://{self.endpoint}", f"http://{host}:{2380 + 10 * number}"
        self._command = [
            program,
            f"--name={self.name}",
            f"--data-dir={self.data}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={cluster}",
            "--logger=zap",
            "--log-level=error",
            *flags,
        ]
        self._log = directory / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin; whoever asks waits until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        """End at once, without a word."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Answer nothing, for now."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


class Etcds:
    """
    A cluster.

    :param members: how many.
    :param flags: for each.
    :param secure: listen with TLS; what that needs is in the flags.
    """

    def __init__(
        self,
        members: int = 1,
        flags: Sequence[str] = (),
        *,
        secure: bool = False,
        host: str = "",
        program: str = "etcd",
    ) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="etcds-"))
        self.host = host or loopback()
        cluster = ",".join(f"m{one}=http://{self.host}:{2380 + 10 * one}" for one in range(members))
        scheme = "https" if secure else "http"
        self.members = [
            Member(self.host, one, cluster, self.directory, flags, scheme, program)
            for one in range(members)
        ]
        self.secure = secure

    def start(self) -> None:
        """Start every member."""
        for member in self.members:
            member.start()

    def end(self) -> None:
        """Stop every member, and forget what they have."""
        for member in self.members:
            member.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def target(self, prefix: str = "/twisted-exec", **more: Any) -> EtcdTarget:
        """Where they are."""
        endpoints = tuple(member.endpoint for member in self.members)
        more.setdefault("compaction_seconds", 0.0)
        return EtcdTarget(endpoints, self.secure, prefix, **more)


def loopback() -> str:
    """An address of this host that nobody else uses."""
    return f"127.{random.randint(2, 250)}.{random.randint(0, 250)}.{random.randint(2, 250)}"


@cache
def shared(program: str = "etcd") -> Etcds:
    """One for all tests of this process that leave it as it is; each has a prefix of its own."""
    etcds = Etcds(program=program)
    etcds.start()
    atexit.register(etcds.end)
    return etcds


def any_prefix() -> str:
    """A prefix that no other test has."""
    return f"/test-{random.getrandbits(64):016x}"


class EtcdCase(TestCase):
    """Stores over etcds, which end with the test."""

    timeout = 120
    remembered = 20
    remembered_bytes = 20_000

    def cluster(self, members: int = 1, flags: Sequence[str] = (), **more: Any) -> Etcds:
        """A cluster of this test's own, started."""
        etcds = Etcds(members, flags, **more)
        self.addCleanup(etcds.end)
        etcds.start()
        return etcds

    def begin(self, target: EtcdTarget, **more: Any) -> EtcdStorage:
        """A store that is started, and perhaps not ready yet."""
        more = {"remembered": self.remembered, "remembered_bytes": self.remembered_bytes} | more
        storage = EtcdStorage(target, reactor, **more)
        storage.startService()
        self.addCleanup(storage.stopService)
        return storage

    async def open(self, target: EtcdTarget, **more: Any) -> EtcdStorage:
        """A store that is ready."""
        storage = self.begin(target, **more)
        await storage.when_ready()
        return storage


def outcome(work: Deferred[Any]) -> Deferred[Any]:
    """What comes of it, an exception included."""
    return work.addErrback(lambda failure: failure.value)
