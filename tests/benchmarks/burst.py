"""
Many consoles opened at once, on a host with a tenth of a core for each program.

API server, poollet and runtime are three processes, each in a control group of its own; the clients
are not slowed.  Most clients are one light process; some are stock kubectls (``kubectl attach``).  A
client waits as long as it takes, at most ten minutes.  Each line says how many consoles came up, how
long that took, why others did not, and the memory of the programs.  ``BURST_SHARE`` is the part of a
core, ``BURST_USERS`` the number of the light client's users.

``python -m tests.benchmarks burst [COUNT [KUBECTLS]]``, as root (control groups need it); without
numbers 300, and then 1 000 with 50 kubectls among them.
"""

from __future__ import annotations

import json
import os
import resource
import ssl
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from twisted.internet.threads import deferToThread

from tests import needs, procfs
from tests.flows import kubectls
from tests.flows.deployment import Deployment, run_reactor
from twisted_exec.api import kinds

from .ironcore import CHECKOUT
from .scale import Opening, open_all

SHARE = float(os.environ.get("BURST_SHARE", "0.1"))
USERS = int(os.environ.get("BURST_USERS", "1"))
MACHINES = 10
SECONDS = 600.0
HOPS = ("api", "poollet", "runtime")
_PERIOD_MICROSECONDS = 100_000
_SETTLE_SECONDS = 5.0
_GREETING = b"greeting"
_CLASSES = f"""
classes:
- name: shell
  driver: pty
  command: [/bin/sh, -c, "echo {_GREETING.decode()}; exec cat"]
  same_user: true
  capabilities: {{cpu: "1", memory: 64Mi}}
  quantity: {MACHINES}
"""
_GROUPS = Path("/sys/fs/cgroup")


class Slowed:
    """
    A control group whose processes get a part of a core.

    :raises OSError: this process may make none.
    """

    def __init__(self, name: str, pid: int, share: float) -> None:
        quota = str(int(share * _PERIOD_MICROSECONDS))
        version_1 = _GROUPS / "cpu"
        self._group = (version_1 if version_1.is_dir() else _GROUPS) / name
        self._group.mkdir()
        if version_1.is_dir():
            self._write("cpu.cfs_period_us", str(_PERIOD_MICROSECONDS))
            self._write("cpu.cfs_quota_us", quota)
        else:
            self._write("cpu.max", f"{quota} {_PERIOD_MICROSECONDS}")
        self._write("cgroup.procs", str(pid))

    def _write(self, file: str, value: str) -> None:
        (self._group / file).write_text(value)

    def remove(self) -> None:
        """Give its processes all of the processors again."""
        for pid in (self._group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                (self._group.parent / "cgroup.procs").write_text(pid)
        self._group.rmdir()


def light_client(config: dict[str, Any]) -> None:
    """Open consoles at once; report, and keep them open until standard input ends."""
    users = []
    for certificate, key in config["users"]:
        tls = ssl.create_default_context(cafile=config["ca"])
        tls.load_cert_chain(certificate, key)
        users.append(tls)

    def opening(number: int) -> Opening:
        path = kinds.MACHINES.resource.path("default", f"vm-{number % MACHINES}", "exec")
        tls = users[number % len(users)]
        return Opening(config["port"], tls, path, 0, greeting=_GREETING)

    count = config["count"]
    opened = open_all(opening, count, count, seconds=SECONDS)
    print(json.dumps([(each.code, each.seconds, each.text) for each in opened]), flush=True)
    sys.stdin.read()
    print(sum(1 for each in opened if each.code == 101 and each.is_open()), flush=True)


class Burst:
    """One burst against one deployment."""

    def __init__(self, deployment: Deployment, count: int, kubectls: int) -> None:
        self._deployment, self._light, self._count = deployment, count - kubectls, kubectls
        self._kubectls: list[subprocess.Popen[bytes]] = []

    def run(self) -> None:
        """Open everything, wait, and report."""
        groups, before = self._slow(), self._resident()
        began = time.monotonic()
        try:
            client = self._start_light()
            env = os.environ | {"KUBECONFIG": self._deployment.admin}
            files = [self._start_kubectl(number, env) for number in range(self._count)]
            assert client.stdout is not None and client.stdin is not None
            results = json.loads(client.stdout.readline())
            light = time.monotonic() - began
            codes = Counter(self._kubectl_result(files[at], at, began) for at in range(self._count))
            seconds = time.monotonic() - began
            time.sleep(_SETTLE_SECONDS)
            client.stdin.close()
            still = int(client.stdout.readline())
            client.wait()
            self._report(results, light, still, codes, seconds, before)
        finally:
            for group in groups:
                group.remove()
            for each in self._kubectls:
                each.kill()
                each.wait()

    def _slow(self) -> list[Slowed]:
        return [
            Slowed(f"burst-{os.getpid()}-{hop}", getattr(self._deployment, hop).pid, SHARE)
            for hop in HOPS
        ]

    def _resident(self) -> dict[str, int]:
        return {hop: procfs.resident_bytes(getattr(self._deployment, hop).pid) for hop in HOPS}

    def _start_light(self) -> subprocess.Popen[bytes]:
        pki = self._deployment.pki
        pairs = [pki.pair(f"user-light-{number}") for number in range(USERS)]
        config = {
            "port": self._deployment.port,
            "ca": pki.serving_ca,
            "users": [(pair.certificate, pair.key) for pair in pairs],
            "count": self._light,
        }
        path = os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")])
        return subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.burst", json.dumps(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path.rstrip(os.pathsep)},
        )

    def _start_kubectl(self, number: int, env: dict[str, str]) -> Path:
        said = Path(self._deployment.path(f"kubectl-{number}"))
        with said.open("wb") as file:
            argv = [kubectls.found()["kubectl"], "attach", "-i", f"vm-{number % MACHINES}"]
            self._kubectls.append(
                subprocess.Popen(
                    argv, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT, env=env
                )
            )
        return said

    def _kubectl_result(self, said: Path, number: int, began: float) -> str:
        kubectl = self._kubectls[number]
        while kubectl.poll() is None:
            if _GREETING in said.read_bytes():
                return "opened"
            if time.monotonic() - began > SECONDS:
                return "no answer"
            time.sleep(0.1)
        return said.read_text(errors="replace").strip()[-150:] or f"exit {kubectl.returncode}"

    def _report(
        self,
        results: list[tuple[int, float, str]],
        light: float,
        still: int,
        kubectl: Counter[str],
        seconds: float,
        before: dict[str, int],
    ) -> None:
        took = sorted(each for code, each, _ in results if code == 101)
        half = took[len(took) // 2] if took else 0.0
        print(
            f"{len(results)} light clients: {len(took)} opened, {still} of them open at the end; "
            f"median {half:.1f} s, all after {light:.1f} s"
        )
        why = Counter(_why(code, text) for code, _, text in results if code != 101)
        for reason, number in why.most_common(8):
            print(f"  {number} x {reason}")
        if self._count:
            print(f"{self._count} kubectls, all after {seconds:.1f} s:")
        for reason, number in kubectl.most_common(8):
            print(f"  {number} x {reason}")
        grown = ", ".join(
            f"{hop} {size / 2**20:.0f} MiB (+{(size - before[hop]) / 2**20:.0f})"
            for hop, size in self._resident().items()
        )
        print(f"memory: {grown}", flush=True)


def _why(code: int, text: str) -> str:
    if '"message"' in text:
        text = json.loads(text[text.index("{") :])["message"] if "{" in text else text
    return f"{code} {text[-160:]!r}"


def main(directory: Path, *numbers: str) -> None:
    """Run the bursts."""
    if needs.kubectl() is not None or os.geteuid() != 0:
        print("burst: needs kubectl, and root for control groups; nothing is measured.")
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count, *rest = [int(each) for each in numbers] or [0]
    bursts = [(count, rest[0] if rest else 0)] if count else [(300, 0), (1000, 50)]

    async def work() -> None:
        for number, (size, stock) in enumerate(bursts):
            deployment = Deployment(str(directory / str(number)))
            try:
                Path(deployment.path("runtime.yaml")).write_text(_CLASSES)
                await deployment.start_api()
                await deployment.start_runtime()
                await deployment.start_poollet()
                await deployment.create_class("shell", "64Mi")
                for at in range(USERS):
                    deployment.pki.issue_user(f"light-{at}", ["system:masters"])
                for at in range(MACHINES):
                    await deployment.create_machine(f"vm-{at}", "shell")
                print(f"{size} at once, {SHARE:g} of a core for each program", flush=True)
                await deferToThread(Burst(deployment, size, stock).run)
            finally:
                await deployment.stop()

    run_reactor(work)


if __name__ == "__main__":
    light_client(json.loads(sys.argv[1]))
