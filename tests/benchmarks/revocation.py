"""
From the withdrawal of a right to the last byte of its sessions: p50, p99 and the slowest of them.

``python -m tests.benchmarks revocation [CAUSE ...]`` opens 1 000 consoles (``SESSIONS`` may name
another number) of ten machines through API server and poollet, for each cause anew, and withdraws
the right.  The time of a session counts from the moment before the withdrawal is sent, or from the
end of the certificate, until its client has the status or has lost the connection.
"""

from __future__ import annotations

import http.client
import json
import os
import selectors
import signal
import ssl
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from twisted.internet.threads import deferToThread

from tests import procfs
from tests.flows.deployment import Deployment, run_reactor

from .scale import Opening, open_all

SESSIONS = int(os.environ.get("SESSIONS", "1000"))
MACHINES = 10
USERS = 12
GROUP = "operators"
_AT_ONCE = 4
_LONGEST_SECONDS = 20.0
_RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
_MACHINES = "/apis/compute.ironcore.dev/v1alpha1/namespaces/default/machines"
_LIMITS = ("--max-sessions=3000", "--max-sessions-per-user=3000")


class Chain:
    """A running deployment, and the ways to withdraw the rights of its users."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment, self._pki = deployment, deployment.pki
        self._admin = self._context("admin", ["system:masters"])
        self.tokens = deployment.path("tokens.csv")

    def _context(
        self, user: str = "", groups: Sequence[str] = (), life: timedelta | None = None
    ) -> ssl.SSLContext:
        tls = ssl.create_default_context(cafile=self._pki.serving_ca)
        if life is not None:
            issued = self._pki.authority("client-ca").issue_client(user, groups, life=life)
            path = self._deployment.path(f"{user}.pem")
            Path(path).write_bytes(issued.certificate_pem + issued.key_pem)
            tls.load_cert_chain(path)
        elif user:
            pair = self._pki.issue_user(user, groups, replace=True)
            tls.load_cert_chain(pair.certificate, pair.key)
        return tls

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request as the administrator."""
        line = http.client.HTTPSConnection("localhost", self._deployment.port, context=self._admin)
        headers = {"Content-Type": "application/json"}
        line.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = line.getresponse()
        data = answer.read()
        line.close()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {data[:300]!r}")
        return json.loads(data)

    def bind(self, *subjects: dict[str, str]) -> None:
        """Let some subjects use consoles."""
        for subject in subjects:
            subject.setdefault("apiGroup", "rbac.authorization.k8s.io")
            if subject["kind"] == "ServiceAccount":
                subject["apiGroup"] = ""
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
        self.request(
            "POST",
            _RBAC,
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "operators", "namespace": "default"},
                "roleRef": role,
                "subjects": list(subjects),
            },
        )

    def unbind(self) -> None:
        """Withdraw what :meth:`bind` has granted."""
        self.request("DELETE", f"{_RBAC}/operators")

    def open(self, contexts: Sequence[ssl.SSLContext], tokens: Sequence[str] = ()) -> list[Opening]:
        """Open all consoles."""

        def opening(number: int) -> Opening:
            path = f"{_MACHINES}/m{number % MACHINES}/exec"
            tls = contexts[number % len(contexts)]
            headers = ""
            if tokens:
                headers = f"Authorization: Bearer {tokens[number % len(tokens)]}\r\n"
            port = self._deployment.port
            return Opening(port, tls, path, number, headers=headers, greeting=b"\x82")

        opened = open_all(opening, SESSIONS, _AT_ONCE)
        refused = [each for each in opened if each.code != 101]
        if refused:
            raise RuntimeError(f"{len(refused)} consoles were refused: {refused[0].text}")
        return opened

    # The causes.  Each opens consoles and returns them with what withdraws the right.

    def binding(self) -> Cause:
        """A RoleBinding is deleted."""
        return self.open(self.certified()), self.unbind, time.time

    def certified(self) -> list[ssl.SSLContext]:
        """The contexts of users whom a RoleBinding lets use consoles."""
        self.bind({"kind": "Group", "name": GROUP})
        return [self._context(f"user-{number}", [GROUP]) for number in range(USERS)]

    def account(self) -> Cause:
        """A ServiceAccount is deleted."""
        self.request("POST", _ACCOUNTS, {"metadata": {"name": "robot", "namespace": "default"}})
        self.bind({"kind": "ServiceAccount", "name": "robot", "namespace": "default"})
        asked = {"spec": {"expirationSeconds": 3600}}
        token = self.request("POST", f"{_ACCOUNTS}/robot/token", asked)["status"]["token"]
        opened = self.open([self._context()], [token])
        return opened, lambda: self.request("DELETE", f"{_ACCOUNTS}/robot"), time.time

    def token_file(self) -> Cause:
        """The token file is replaced by one without these users."""
        self.bind({"kind": "Group", "name": GROUP})
        write_tokens(self.tokens, USERS)
        time.sleep(1.5)  # until it is read
        opened = self.open([self._context()], [f"token-{number}" for number in range(USERS)])
        return opened, lambda: write_tokens(self.tokens, 0), time.time

    def certificate(self) -> Cause:
        """The users' certificates end."""
        self.bind({"kind": "Group", "name": GROUP})
        began, life = time.time(), 20 + SESSIONS // 12
        users = [f"user-{number}" for number in range(USERS)]
        contexts = [self._context(user, [GROUP], timedelta(seconds=life)) for user in users]
        opened = self.open(contexts)
        end = float(int(began + life))
        if time.time() > end - 1:
            raise RuntimeError("opening took longer than the certificates are valid")
        return opened, lambda: None, lambda: end

    def machine(self) -> Cause:
        """The machines are deleted."""
        opened = self.open(self.certified())

        def delete() -> None:
            for number in range(MACHINES):
                self.request("DELETE", f"{_MACHINES}/m{number}")

        return opened, delete, time.time

    def stopped(self) -> Cause:
        """A RoleBinding is deleted while the poollet is stopped (SIGSTOP)."""
        opened = self.open(self.certified())

        def stop() -> None:
            self.pause_poollet()
            self.unbind()

        return opened, stop, time.time

    def machine_stopped(self) -> Cause:
        """The machines are deleted while the poollet is stopped (SIGSTOP)."""
        opened, delete, since = self.machine()

        def stop() -> None:
            self.pause_poollet()
            delete()

        return opened, stop, since

    def cpu(self) -> dict[str, float]:
        """Return the CPU time of each hop so far."""
        hops = {"API server": "api", "poollet": "poollet", "runtime": "runtime"}
        programs = {hop: getattr(self._deployment, name) for hop, name in hops.items()}
        return {hop: procfs.cpu_seconds(each.transport.pid) for hop, each in programs.items()}

    def pause_poollet(self) -> None:
        pid = self._deployment.poollet.transport.pid  # type: ignore[attr-defined]
        os.kill(pid, signal.SIGSTOP)

    def continue_poollet(self) -> None:
        pid = self._deployment.poollet.transport.pid  # type: ignore[attr-defined]
        os.kill(pid, signal.SIGCONT)


Cause = tuple[list[Opening], Callable[[], object], Callable[[], float]]
CAUSES = {
    "binding": Chain.binding,
    "account": Chain.account,
    "token-file": Chain.token_file,
    "certificate": Chain.certificate,
    "stopped": Chain.stopped,
    "machine": Chain.machine,  # the last one: the machines are gone then
    "machine-stopped": Chain.machine_stopped,  # only by name, for the same reason
}


def write_tokens(path: str, users: int) -> None:
    """Replace the token file as administrators and Kubernetes do: by a rename."""
    lines = [f"token-{number},user-{number},u{number},{GROUP}\n" for number in range(users)]
    with open(path + ".new", "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write("".join(lines) or "nobody,nobody,n\n")
    os.rename(path + ".new", path)


def watch(opened: Sequence[Opening], ends: dict[int, float], ready: Callable[[], None]) -> None:
    """Note when each session has ended: its status has come, or the connection is lost."""
    selector = selectors.DefaultSelector()
    for number, each in enumerate(opened):
        selector.register(each.descriptor, selectors.EVENT_READ, (number, each))
    ready()
    deadline = time.time() + _LONGEST_SECONDS + SESSIONS // 10
    first = 0.0
    while len(ends) < len(opened) and time.time() < deadline:
        for key, _ in selector.select(0.2):
            number, each = key.data
            if has_ended(each):
                ends[number] = time.time()
                first = first or ends[number]
                selector.unregister(key.fd)
                each.close()
        if first and time.time() > first + _LONGEST_SECONDS:
            break
    selector.close()


def has_ended(session: Opening) -> bool:
    assert session.line is not None
    try:
        while data := session.line.recv(65536):
            if b'"status":"Failure"' in data or b'"status": "Failure"' in data:
                return True
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return False
    except OSError:
        pass
    return True


def measure(chain: Chain, cause: str) -> None:
    """Open all sessions, withdraw their right, and print the times."""
    from threading import Event, Thread

    opened, withdraw, since = CAUSES[cause](chain)
    time.sleep(2)  # lets the reviews of new sessions settle
    ends: dict[int, float] = {}
    ready = Event()
    watching = Thread(target=watch, args=(opened, ends, ready.set))
    watching.start()
    ready.wait()
    began, cpu = since(), chain.cpu()
    withdraw()
    watching.join()
    spent = {hop: seconds - cpu[hop] for hop, seconds in chain.cpu().items()}
    times = sorted(end - began for end in ends.values())
    for each in opened:
        each.close()
    if cause in ("stopped", "machine-stopped"):
        chain.continue_poollet()
    if cause not in ("binding", "stopped", "account"):
        chain.unbind()
    if cause == "account":
        chain.unbind()
    if not times:
        print(f"{cause:12} no session has ended")
        return
    p50, p99 = (times[min(len(times) - 1, int(len(times) * part))] for part in (0.5, 0.99))
    missing = f"; {len(opened) - len(times)} have not ended" if len(times) < len(opened) else ""
    print(
        f"{cause:12} {len(times)} sessions: p50 {p50:.2f} s, p99 {p99:.2f} s, "
        f"p100 {times[-1]:.2f} s{missing}; CPU "
        + ", ".join(f"{hop} {seconds:.2f} s" for hop, seconds in spent.items()),
        flush=True,
    )


def signing_key(path: str) -> str:
    """Write a key for tokens of ServiceAccounts."""
    key = ec.generate_private_key(ec.SECP256R1())
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)
    return path


def main(directory: Path, *causes: str) -> None:
    """Run the whole benchmark."""

    async def measured() -> None:
        deployment = Deployment(str(directory))
        tokens = deployment.path("tokens.csv")
        write_tokens(tokens, 0)
        key = signing_key(deployment.path("accounts.key"))
        try:
            await deployment.start_api(
                f"--token-auth-file={tokens}",
                "--service-account-issuer=https://bench.example",
                f"--service-account-signing-key-file={key}",
                *_LIMITS,
            )
            await deployment.start_runtime(*_LIMITS)
            await deployment.start_poollet(*_LIMITS)
            await deployment.create_class("shell", "64Mi")
            for number in range(MACHINES):
                await deployment.create_machine(f"m{number}", "shell")
            await deferToThread(measure_all, Chain(deployment))
        finally:
            await deployment.stop()

    def measure_all(chain: Chain) -> None:
        for cause in causes or tuple(CAUSES)[:-1]:
            measure(chain, cause)

    run_reactor(measured)
