"""
Send the scenarios of ``tests/apiserver/apply_scenarios.py`` to a real kube-apiserver, which
serves our kinds as custom resources.

``python -m tests.interop.kube_apiserver > tests/captures/kube-apiserver-1.33.1-apply.json``
records its answers, which ``tests/apiserver/test_service_apply.py`` compares.  That takes five minutes:
each request has a second of its own, so that a time identifies its request.
"""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.apiserver.apply_scenarios import SCENARIOS, Step
from tests.apiserver.recorded import RECORDED, Answer, Steps, alike, answer_of
from tests.interop.programs import free_port
from twisted_exec.api import kinds
from twisted_exec.api.kinds import crds

TOKEN = "recorder"
START_SECONDS = 120
CUSTOM = (kinds.MACHINES, kinds.MACHINEPOOLS, kinds.MACHINECLASSES)
_COLLECTIONS = ("leases", "roles", "rolebindings", "clusterroles", "namespaces")


class KubeAPIServer:
    """
    kube-apiserver and etcd on loopback, in a directory of their own.

    :param options: of kube-apiserver, besides those that it cannot do without.
    """

    def __init__(self, *options: str) -> None:
        self._options = options
        self._directory = Path(tempfile.mkdtemp(prefix="kube-apiserver-"))
        self._running: list[subprocess.Popen[bytes]] = []
        # These programs do not accept port 0; a race for the ports is unlikely.
        self._port, self._store, self._peers = (free_port() for _ in range(3))
        # A scratch server with a certificate of its own making.
        self._context = ssl._create_unverified_context()

    def start(self) -> None:
        """Returns when it answers and knows our kinds."""
        store, peers = (f"http://127.0.0.1:{port}" for port in (self._store, self._peers))
        self._run(
            "etcd",
            "--data-dir=etcd",
            f"--listen-client-urls={store}",
            f"--advertise-client-urls={store}",
            f"--listen-peer-urls={peers}",
        )
        self._write("tokens.csv", f"{TOKEN},recorder,1,system:masters\nacting,actor,2\n")
        self._make_key()
        self._run(
            str(needs.kube_apiserver_program()),
            f"--etcd-servers={store}",
            f"--secure-port={self._port}",
            "--bind-address=127.0.0.1",
            "--cert-dir=certificates",
            "--token-auth-file=tokens.csv",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://nobody.example",
            "--service-account-key-file=accounts.key",
            "--service-account-signing-key-file=accounts.key",
            "--service-cluster-ip-range=10.0.0.0/24",
            *self._options,
        )
        self._until("/readyz")
        for kind in CUSTOM:
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            made = self.ask("POST", path, json.dumps(_definition(kind)).encode())
            assert made.code == 201, made.document
            collection = kind.resource.path("default" if kind.resource.namespaced else "")
            self._until(collection)

    @property
    def url(self) -> str:
        """The base URL of the server."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def authority(self) -> bytes:
        """The CA of its serving certificate, as PEM."""
        return (self._directory / "certificates" / "apiserver.crt").read_bytes()

    def stop(self) -> None:
        """End both and forget everything."""
        for process in reversed(self._running):
            process.terminate()
            process.wait(30)
        shutil.rmtree(self._directory)

    def _run(self, *argv: str) -> None:
        with open(self._directory / f"{len(self._running)}.log", "wb") as log:
            process = subprocess.Popen(argv, cwd=self._directory, stdout=log, stderr=log)
        self._running.append(process)

    def _write(self, name: str, text: str) -> None:
        (self._directory / name).write_text(text)

    def _make_key(self) -> None:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        key = rsa.generate_private_key(65537, 2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        self._write("accounts.key", pem.decode())

    def _until(self, path: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and all(each.poll() is None for each in self._running):
            try:
                if self.ask("GET", path).code == 200:
                    return
            except OSError:
                pass  # it does not listen yet
            time.sleep(0.5)
        logs = [log.read_text()[-2000:] for log in sorted(self._directory.glob("*.log"))]
        raise AssertionError(f"{path} was not there in {START_SECONDS} s: {logs}")

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = "application/json",
        agent: str = "recorder",
    ) -> Answer:
        """One request."""
        url = self.url + path
        request = urllib.request.Request(url, body, method=method)
        told = {"Content-Type": content_type, "User-Agent": agent}
        for name, value in (told | {"Authorization": f"Bearer {TOKEN}"}).items():
            request.add_unredirected_header(name, value)
        try:
            with urllib.request.urlopen(request, context=self._context, timeout=60) as response:
                return Answer(response.status, _document(response.read()), response.headers)
        except urllib.error.HTTPError as error:
            return Answer(error.code, _document(error.read()), error.headers)

    def play(self, steps: list[Step]) -> list[dict[str, Any]]:
        """The answers to a scenario, of which nothing is left afterwards."""
        running, answers = Steps(), []
        for step in steps:
            time.sleep(1.02 - time.time() % 1)
            running.begin(time.time())
            answer = self.ask(
                step.method, step.path, running.raw(step), step.content_type, step.agent
            )
            running.ended(answer)
            answers.append(answer_of(answer, running))
        for collection in sorted({_collection(step.path) for step in steps}):
            self._sweep(collection)
        return answers

    def _sweep(self, collection: str) -> None:
        for item in self.ask("GET", collection).document["items"]:
            name, labels = item["metadata"]["name"], item["metadata"].get("labels", {})
            if "kubernetes.io/bootstrapping" in labels or name.startswith(("default", "kube-")):
                continue
            one = f"{collection}/{name}"
            free = json.dumps({"metadata": {"finalizers": None}}).encode()
            self.ask("PATCH", one, free, "application/merge-patch+json")
            self.ask("DELETE", one)
            if collection.endswith("/namespaces"):
                # The controller that would do this runs elsewhere.
                item["spec"]["finalizers"] = []
                del item["metadata"]["resourceVersion"]
                self.ask("PUT", f"{one}/finalize", json.dumps(item).encode())


def _definition(kind: kinds.Kind) -> dict[str, Any]:
    """Return the CustomResourceDefinition without columns, which no scenario needs."""
    return crds.definition(replace(kind, columns=()))


def _document(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return {"message": raw.decode("utf-8", "replace")}


def _collection(path: str) -> str:
    """The collection of an object's path."""
    parts = path.partition("?")[0].split("/")
    plurals = [*_COLLECTIONS, *(kind.resource.plural for kind in CUSTOM)]
    last = max(index for index, part in enumerate(parts) if part in plurals)
    return "/".join(parts[: last + 1])


class RecordedTests(SynchronousTestCase):
    """The record is what it answers."""

    timeout = 900
    skip = needs.kube_apiserver()

    def test_record(self) -> None:
        """Scenario by scenario."""
        server = KubeAPIServer()
        self.addCleanup(server.stop)
        server.start()
        for name, steps in SCENARIOS.items():
            for number, answer in enumerate(server.play(steps)):
                told = f"{name}, step {number}"
                self.assertEqual(_lasting(answer), _lasting(RECORDED[name][number]), told)


def _lasting(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the reproducible part of an answer: quoted objects contain UIDs and versions."""
    told = alike(answer)
    if "patch: Invalid value" in told.get("message", ""):
        return {"code": told["code"], "reason": told["reason"]}
    return told


def main() -> None:
    server = KubeAPIServer()
    try:
        server.start()
        recorded = {name: server.play(steps) for name, steps in SCENARIOS.items()}
        json.dump(recorded, sys.stdout, indent=1, sort_keys=True)
        print()
    finally:
        server.stop()


if __name__ == "__main__":
    main()
