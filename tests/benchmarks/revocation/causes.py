"""
Withdrawals of rights that an API server or a poollet can observe.  Each opens sessions first.
"""

from __future__ import annotations

import os
import secrets
import signal
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tests import procfs
from tests.benchmarks.scale import Opening, open_all
from tests.flows.deployment import POOL, machine
from twisted_exec.tls.pki.authority import Authority
from twisted_exec.tls.pki.directory import CLIENT
from twisted_exec.tls.private_files import write_private
from twisted_exec.wire.resume import MARKS, RESUME_HEADER

from .arrangements import GROUP, MACHINES, READ_SECONDS, Arrangement, Behind, Request

SESSIONS = int(os.environ.get("SESSIONS", "1000"))
USERS = 12
OTHER_CA = "other-ca"
_AT_ONCE = 4
_LIFE_SECONDS = 20 + SESSIONS // 12
"""Of certificates and tokens that end: all sessions open before."""
_PATIENCE_SECONDS = 60.0

_COMPUTE = "/apis/compute.ironcore.dev/v1alpha1"
_MACHINES = f"{_COMPUTE}/namespaces/default/machines"
_RBAC_GROUP = "rbac.authorization.k8s.io"
_RBAC = f"/apis/{_RBAC_GROUP}/v1/namespaces/default"
_BINDING = f"{_RBAC}/rolebindings/{GROUP}"
_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
_SECRETS = "/api/v1/namespaces/kube-system/secrets"
_POLICIES = "/apis/console.twisted-exec.dev/v1alpha1/namespaces/default/consolepolicies"

_OPERATORS = {"kind": "Group", "name": GROUP, "apiGroup": _RBAC_GROUP}
_SERVICE_ACCOUNTS = {**_OPERATORS, "name": "system:serviceaccounts:default"}
_EDIT = {"kind": "ClusterRole", "name": "edit", "apiGroup": _RBAC_GROUP}
_CONSOLES = {
    "apiGroups": ["compute.ironcore.dev"],
    "resources": ["machines", "machines/exec"],
    "verbs": ["get", "create"],
}


@dataclass
class Withdrawal:
    """
    A right that is about to end.

    :param opened: the sessions that depend on it.
    :param send: withdraws it.
    :param end: when it ends by itself, in seconds since 1970; 0 if ``send`` ends it.
    :param signs: texts of which one shows a client that its right has ended.
    :param goes_on: the sessions do not end, so their clients do not close the connections.
    """

    opened: Sequence[Opening]
    send: Callable[[], object] = lambda: None
    end: float = 0.0
    signs: Sequence[bytes] = (b'"status":"Failure"', b'"status": "Failure"')
    goes_on: bool = False


class Chain:
    """The users of a running chain, and the ways to withdraw their rights."""

    def __init__(self, arrangement: Arrangement) -> None:
        self._to = arrangement

    def causes(self) -> dict[str, Callable[[], AbstractContextManager[Withdrawal]]]:
        """Return the causes that can be observed in the arrangement, in the order to measure them."""
        of_own_users: dict[str, Callable[[], AbstractContextManager[Withdrawal]]] = {
            "account": self.account,
            "bootstrap": self.bootstrap,
            "token-file": self.token_file,
            "drive": self.drive,
        }
        return {
            "role": self.role,
            "binding": self.binding,
            "stopped": self.stopped,
            "resumable": self.resumable,
            "resumable-stopped": self.resumable_stopped,
            **(of_own_users if not isinstance(self._to, Behind) else {}),
            "token": self.token,
            "certificate": self.certificate,
            "ca": self.ca,
            "policy": self.policy,
            "label": self.label,
            "pool": self.pool,
            "machine": self.machine,
            "machine-stopped": self.machine_stopped,
        }

    def cpu(self) -> dict[str, float]:
        """Return the CPU time of each hop so far."""
        return {hop: procfs.cpu_seconds(pid) for hop, pid in self._to.hops.items()}

    def _open(
        self,
        contexts: Sequence[ssl.SSLContext],
        tokens: Sequence[str] = (),
        ports: Sequence[int] = (),
        query: str = "",
        *,
        resumes: bool = False,
    ) -> list[Opening]:
        """
        Open all consoles.

        :param ports: if they are not those that users connect to.
        :param query: of each request; without one the sessions take no input.
        :param resumes: the clients can resume their sessions, as ours can.
        """
        ports = ports or self._to.ports

        def opening(number: int) -> Opening:
            path = f"{_MACHINES}/m{number % MACHINES}/exec{query}"
            headers = f"{RESUME_HEADER}: {MARKS}\r\n" if resumes else ""
            if tokens:
                headers += f"Authorization: Bearer {tokens[number % len(tokens)]}\r\n"
            tls, port = contexts[number % len(contexts)], ports[number // USERS % len(ports)]
            return Opening(port, tls, path, number, headers=headers, greeting=b"\x82")

        opened = open_all(opening, SESSIONS, _AT_ONCE)
        refused = [each for each in opened if each.code != 101]
        if refused:
            raise RuntimeError(f"{len(refused)} consoles were refused: {refused[0].text}")
        return opened

    def _certified(self, authority: str = CLIENT, end: float = 0.0) -> list[ssl.SSLContext]:
        users = [f"user-{number}" for number in range(USERS)]
        return [self._to.context(user, [GROUP], authority, end) for user in users]

    @contextmanager
    def _created(self, collection: str, document: dict[str, Any]) -> Iterator[Request]:
        """An object, and the request that deletes it; it is deleted in the end."""
        self._to.request("POST", collection, document)
        deletion = ("DELETE", f"{collection}/{document['metadata']['name']}", None)
        try:
            yield deletion
        finally:
            self._to.requests(deletion, missing=True)

    def _bound(
        self, *subjects: dict[str, str], role: dict[str, str] = _EDIT, name: str = GROUP
    ) -> AbstractContextManager[Request]:
        """Give subjects a role, by default of users who may use consoles."""
        document = {
            "apiVersion": f"{_RBAC_GROUP}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": "default"},
            "roleRef": role,
            "subjects": list(subjects or [_OPERATORS]),
        }
        return self._created(f"{_RBAC}/rolebindings", document)

    def _policy(self, tier: str) -> AbstractContextManager[Request]:
        """A ConsolePolicy that refuses sessions at machines of a tier."""
        document = {
            "apiVersion": "console.twisted-exec.dev/v1alpha1",
            "kind": "ConsolePolicy",
            "metadata": {"name": "tickets", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"tier": tier}}, "reason": "Required"},
        }
        return self._created(_POLICIES, document)

    def _label(self, tier: str | None) -> None:
        labels = {"metadata": {"labels": {"tier": tier}}}
        names = [f"m{number}" for number in range(MACHINES)]
        self._to.requests(*(("PATCH", f"{_MACHINES}/{name}", labels) for name in names))

    # The causes

    @contextmanager
    def role(self) -> Iterator[Withdrawal]:
        """A Role is deleted."""
        document = {
            "apiVersion": f"{_RBAC_GROUP}/v1",
            "kind": "Role",
            "metadata": {"name": "consoles", "namespace": "default"},
            "rules": [_CONSOLES],
        }
        with (
            self._created(f"{_RBAC}/roles", document) as deletion,
            self._bound(role=_role("consoles")),
        ):
            opened = self._open(self._certified())
            yield Withdrawal(opened, lambda: self._to.requests(deletion))

    @contextmanager
    def binding(self, *, resumes: bool = False) -> Iterator[Withdrawal]:
        """A RoleBinding is deleted."""
        with self._bound() as deletion:
            opened = self._open(self._certified(), resumes=resumes)
            yield Withdrawal(opened, lambda: self._to.requests(deletion))

    def resumable(self) -> AbstractContextManager[Withdrawal]:
        """A RoleBinding of users is deleted whose clients can resume their sessions."""
        return self.binding(resumes=True)

    @contextmanager
    def resumable_stopped(self) -> Iterator[Withdrawal]:
        """The same while the poollet is stopped."""
        with self.resumable() as withdrawal, self._stopping(withdrawal):
            yield withdrawal

    @contextmanager
    def stopped(self) -> Iterator[Withdrawal]:
        """A RoleBinding is deleted while the poollet is stopped (SIGSTOP)."""
        with self.binding() as withdrawal, self._stopping(withdrawal):
            yield withdrawal

    @contextmanager
    def _stopping(self, withdrawal: Withdrawal) -> Iterator[None]:
        """Stop the poollet just before the withdrawal, until the end."""
        poollet, withdraw = self._to.hops["poollet"], withdrawal.send

        def send() -> None:
            os.kill(poollet, signal.SIGSTOP)
            withdraw()

        withdrawal.send = send
        try:
            yield
        finally:
            os.kill(poollet, signal.SIGCONT)

    @contextmanager
    def account(self) -> Iterator[Withdrawal]:
        """A ServiceAccount is deleted."""
        account = {"metadata": {"name": "robot", "namespace": "default"}}
        subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
        with self._created(_ACCOUNTS, account) as deletion, self._bound(subject):
            request = {"spec": {"expirationSeconds": 3600}}
            answer = self._to.request("POST", f"{_ACCOUNTS}/robot/token", request)
            opened = self._open([self._to.context()], [answer["status"]["token"]])
            yield Withdrawal(opened, lambda: self._to.requests(deletion))

    @contextmanager
    def bootstrap(self) -> Iterator[Withdrawal]:
        """The Secret of a bootstrap token is deleted."""
        name, secret = secrets.token_hex(3), secrets.token_hex(8)
        document = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"bootstrap-token-{name}", "namespace": "kube-system"},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {
                "token-id": name,
                "token-secret": secret,
                "usage-bootstrap-authentication": "true",
            },
        }
        subject = {**_OPERATORS, "name": "system:bootstrappers"}
        with self._created(_SECRETS, document) as deletion, self._bound(subject):
            opened = self._open([self._to.context()], [f"{name}.{secret}"])
            yield Withdrawal(opened, lambda: self._to.requests(deletion))

    @contextmanager
    def token_file(self) -> Iterator[Withdrawal]:
        """The token file is replaced by a file without the users."""
        lines = [f"token-{number},user-{number},u{number},{GROUP}\n" for number in range(USERS)]
        self._to.write_file("tokens.csv", "".join(lines).encode())
        time.sleep(READ_SECONDS)
        with self._bound():
            opened = self._open([self._to.context()], [line.split(",")[0] for line in lines])
            yield Withdrawal(
                opened, lambda: self._to.write_file("tokens.csv", b"nobody,nobody,n\n")
            )

    @contextmanager
    def drive(self) -> Iterator[Withdrawal]:
        """The right to drive ends, and the sessions go on as observers."""
        rights = {"observers": "observe", "drivers": "drive"}
        with ExitStack() as stack:
            for name, verb in rights.items():
                stack.enter_context(self._created(f"{_RBAC}/roles", _console_role(name, verb)))
            stack.enter_context(self._bound(role=_role("observers")))
            deletion = stack.enter_context(self._bound(role=_role("drivers"), name="drivers"))
            query = "?stdin=true&stdout=true&tty=true"
            opened = self._open(self._certified(), query=query)
            signs = [b"from now on "]
            yield Withdrawal(opened, lambda: self._to.requests(deletion), signs=signs, goes_on=True)

    @contextmanager
    def token(self) -> Iterator[Withdrawal]:
        """The users' tokens end: of an identity provider, or of ServiceAccounts of a host."""
        with self._bound(_OPERATORS, _SERVICE_ACCOUNTS):
            end = float(int(time.time()) + _LIFE_SECONDS)
            tokens = [self._to.token(f"user-{number}", end) for number in range(USERS)]
            opened = self._open([self._to.context()], tokens, self._to.own_ports)
            yield _ending(opened, end)

    @contextmanager
    def certificate(self) -> Iterator[Withdrawal]:
        """The users' certificates end."""
        with self._bound():
            end = float(int(time.time()) + _LIFE_SECONDS)
            contexts = self._certified(end=end)
            yield _ending(self._open(contexts, ports=self._to.own_ports), end)

    @contextmanager
    def ca(self) -> Iterator[Withdrawal]:
        """The CA of the users' certificates is removed from the trusted ones."""
        pair = self._to.pki.pair(OTHER_CA)
        authority = Authority.create("other CA")
        write_private(pair.certificate, authority.certificate_pem)
        write_private(pair.key, authority.key_pem)
        self._to.trust(CLIENT, OTHER_CA)
        time.sleep(READ_SECONDS)
        with self._bound():
            opened = self._open(self._certified(OTHER_CA), ports=self._to.own_ports)
            yield Withdrawal(opened, lambda: self._to.trust(CLIENT))

    @contextmanager
    def policy(self) -> Iterator[Withdrawal]:
        """A ConsolePolicy is created, and selects the machines."""
        self._label("gold")
        with ExitStack() as stack, self._bound():
            opened = self._open(self._certified())
            yield Withdrawal(opened, lambda: stack.enter_context(self._policy("gold")))

    @contextmanager
    def label(self) -> Iterator[Withdrawal]:
        """The machines get a label that a ConsolePolicy selects."""
        self._label(None)
        with self._policy("gold"), self._bound():
            opened = self._open(self._certified())
            yield Withdrawal(opened, lambda: self._label("gold"))

    @contextmanager
    def pool(self) -> Iterator[Withdrawal]:
        """The pool of the machines is deleted; its poollet creates it again."""
        path = f"{_COMPUTE}/machinepools/{POOL}"
        with self._bound():
            opened = self._open(self._certified())
            yield Withdrawal(opened, lambda: self._to.request("DELETE", path))
        self._until("the pool is there again", lambda: self._has_status(path))

    @contextmanager
    def machine(self) -> Iterator[Withdrawal]:
        """The machines are deleted."""
        names = [f"m{number}" for number in range(MACHINES)]
        deletions = [("DELETE", f"{_MACHINES}/{name}", None) for name in names]
        with self._bound():
            opened = self._open(self._certified())
            yield Withdrawal(opened, lambda: self._to.requests(*deletions))
        self._until("the machines are gone", lambda: not self._states())
        made = [("POST", _MACHINES, machine(name, "shell")) for name in names]
        self._to.requests(*made)
        running = ["Running"] * MACHINES
        self._until("the machines run again", lambda: self._states() == running)

    @contextmanager
    def machine_stopped(self) -> Iterator[Withdrawal]:
        """The machines are deleted while the poollet is stopped."""
        with self.machine() as withdrawal, self._stopping(withdrawal):
            yield withdrawal

    def _has_status(self, path: str) -> bool:
        (pool,) = self._to.requests(("GET", path, None), missing=True)
        return pool["kind"] != "Status" and bool(pool.get("status", {}).get("addresses"))

    def _states(self) -> list[str]:
        items = self._to.request("GET", _MACHINES)["items"]
        return [each.get("status", {}).get("state", "") for each in items]

    def _until(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}: not within {_PATIENCE_SECONDS:g} s")
            time.sleep(0.2)


def _role(name: str) -> dict[str, str]:
    return {"kind": "Role", "name": name, "apiGroup": _RBAC_GROUP}


def _console_role(name: str, verb: str) -> dict[str, Any]:
    rules = [
        {"apiGroups": ["compute.ironcore.dev"], "resources": ["machines"], "verbs": ["get"]},
        {"apiGroups": ["compute.ironcore.dev"], "resources": ["machines/console"], "verbs": [verb]},
    ]
    return {
        "apiVersion": f"{_RBAC_GROUP}/v1",
        "kind": "Role",
        "metadata": {"name": name, "namespace": "default"},
        "rules": rules,
    }


def _ending(opened: Sequence[Opening], end: float) -> Withdrawal:
    if time.time() > end - 1:
        raise RuntimeError("the sessions took longer to open than their credentials are valid")
    return Withdrawal(opened, end=end)
