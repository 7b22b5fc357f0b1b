"""
Ask a real kube-apiserver what it answers to ``tests/apiserver/apply_scenarios.py``.

``python -m tests.captures.apply.record https://127.0.0.1:6443 TOKEN > kube-apiserver-1.33.1.json``

The server must be one that nobody needs: each scenario removes what it made.
It needs our kinds as custom resources; ``--crds`` prints them for ``kubectl apply -f -``.
"""

from __future__ import annotations

import json
import ssl
import sys
import time
import urllib.error
import urllib.request
from typing import Any

from tests.apiserver.apply_scenarios import SCENARIOS, Step
from tests.apiserver.recorded import Answer, Steps, answer_of
from twisted_exec.api import kinds
from twisted_exec.api.schema import Schema


def definition(kind: kinds.Kind) -> dict[str, Any]:
    """One of our kinds as a CustomResourceDefinition."""
    resource = kind.resource
    plain: Schema = {"type": "string"}
    properties = {"apiVersion": plain, "kind": plain, "metadata": {"type": "object"}, **kind.schema}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}} if kind.has_status else {},
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "required": list(kind.required),
                "properties": properties,
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "plural": resource.plural,
                "singular": kind.singular,
                "kind": resource.kind,
                "listKind": kind.list_kind,
            },
            "versions": [version],
        },
    }


class Server:
    """The real one."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        # A scratch server on loopback with a certificate of its own making.
        self._context = ssl._create_unverified_context()

    def ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        """One request."""
        request = urllib.request.Request(self._url + path, body, method=method)
        request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        for name, value in headers.items():
            request.add_unredirected_header(name, value)
        try:
            with urllib.request.urlopen(request, context=self._context) as response:
                return Answer(response.status, json.loads(response.read()), response.headers)
        except urllib.error.HTTPError as error:
            return Answer(error.code, json.loads(error.read()), error.headers)

    def step(self, step: Step, raw: bytes) -> Answer:
        """A scenario's step."""
        return self.ask(
            step.method,
            step.path,
            raw,
            {"Content-Type": step.content_type, "User-Agent": step.agent},
        )

    def sweep(self, steps: list[Step]) -> None:
        """Remove what a scenario may have made."""
        for collection in sorted({_collection(step.path) for step in steps}):
            listed = self.ask("GET", collection, None, {}).document
            for item in listed["items"]:
                metadata = item["metadata"]
                if metadata.get("labels", {}).get("kubernetes.io/bootstrapping"):
                    continue
                if metadata["name"] in ("default",) or metadata["name"].startswith("kube-"):
                    continue
                one = f"{collection}/{metadata['name']}"
                if metadata.get("finalizers"):
                    free = json.dumps({"metadata": {"finalizers": None}}).encode()
                    self.ask("PATCH", one, free, {"Content-Type": "application/merge-patch+json"})
                self.ask("DELETE", one, None, {})
                if collection.endswith("/namespaces"):
                    # Nobody else finalizes them when kube-apiserver runs alone.
                    item["spec"]["finalizers"] = []
                    final = json.dumps(item).encode()
                    self.ask("PUT", f"{one}/finalize", final, {"Content-Type": "application/json"})


def _collection(path: str) -> str:
    parts = path.partition("?")[0].split("/")
    names = (
        "leases",
        "machines",
        "machinepools",
        "machineclasses",
        "roles",
        "rolebindings",
        "clusterroles",
    )
    for index, part in enumerate(parts):
        if part in names or (part == "namespaces" and index >= len(parts) - 2):
            return "/".join(parts[: index + 1])
    raise ValueError(path)


def main() -> None:
    if sys.argv[1] == "--crds":
        found = [
            definition(kind) for kind in (kinds.MACHINES, kinds.MACHINEPOOLS, kinds.MACHINECLASSES)
        ]
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}))
        return
    server = Server(*sys.argv[1:3])
    recorded: dict[str, Any] = {}
    for name, steps in SCENARIOS.items():
        if len(sys.argv) > 3 and name not in sys.argv[3:]:
            continue
        server.sweep(steps)
        running = Steps()
        recorded[name] = []
        for step in steps:
            time.sleep(1.02 - time.time() % 1)  # each step in a second of its own
            running.begin(time.time())
            answer = server.step(step, running.raw(step))
            running.ended(answer)
            recorded[name].append(answer_of(answer, running))
        server.sweep(steps)
    json.dump(recorded, sys.stdout, indent=1, sort_keys=True)


if __name__ == "__main__":
    main()
