"""
One column with ``lightkube``; see ``tests/clients/scripts.py`` for what it prints.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from lightkube import ApiError, Client
from lightkube.generic_resource import GenericNamespacedResource, create_namespaced_resource
from lightkube.models.authorization_v1 import ResourceAttributes, SelfSubjectAccessReviewSpec
from lightkube.resources.authorization_v1 import SelfSubjectAccessReview
from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType

GROUP, VERSION, PLURAL = "compute.ironcore.dev", "v1alpha1", "machines"
NAMESPACE = os.environ["NAMESPACE"]

Machine = create_namespaced_resource(GROUP, VERSION, "Machine", PLURAL)


def main() -> None:
    column, machine, mark = sys.argv[1:]
    COLUMNS[column](Client(namespace=NAMESPACE), machine, mark)


def get(client: Client, machine: str, mark: str) -> None:
    for found in client.list(Machine):
        print("machine", found.metadata.name, (found.status or {}).get("state"))
    for pod in client.list(Pod):
        print("pod", pod.metadata.name, pod.status.phase)


def watch(client: Client, machine: str, mark: str) -> None:
    for event, found in client.watch(Machine, fields={"metadata.name": machine}):
        label = (found.metadata.labels or {}).get("tried")
        print("watching" if event == "ADDED" else f"{event} {label}", flush=True)
        if label == mark:
            return


def wanted(name: str, label: str) -> GenericNamespacedResource:
    body: dict[str, Any] = {
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"a": label}},
        "spec": {"machineClassRef": {"name": "pty"}},
    }
    return Machine.from_dict({"apiVersion": f"{GROUP}/{VERSION}", "kind": "Machine", **body})


def apply(client: Client, machine: str, mark: str) -> None:
    name = f"{machine}-applied"
    client.create(wanted(name, "1"))
    client.patch(Machine, name, wanted(name, "2"), patch_type=PatchType.MERGE)


def server_side_apply(client: Client, machine: str, mark: str) -> None:
    name = f"{machine}-served"
    client.apply(wanted(name, "1"), field_manager="one")
    try:
        client.apply(wanted(name, "2"), field_manager="two")
    except ApiError as error:
        print("conflict", error.status.code)
    client.apply(wanted(name, "2"), field_manager="two", force=True)


def can_i(client: Client, machine: str, mark: str) -> None:
    attributes = ResourceAttributes(
        namespace=NAMESPACE, verb="create", group=GROUP, resource=PLURAL, subresource="exec"
    )
    review = SelfSubjectAccessReview(
        spec=SelfSubjectAccessReviewSpec(resourceAttributes=attributes)
    )
    print(json.dumps(client.create(review).status.allowed))


def logs(client: Client, machine: str, mark: str) -> None:
    for line in client.log(machine, follow=True):
        print(line, end="", flush=True)
        if f"{mark}42z" in line:
            return


def typed(client: Client, machine: str, text: str) -> int:
    """Send text and its end to the console; print the output, and return the exit code."""
    done = client.exec(machine, container="console", command="console", stdin=text, stdout=True)
    print(done.stdout)
    return int(done.exit_code)


def exec_(client: Client, machine: str, mark: str) -> None:
    typed(client, machine, f"echo {mark}$((6*7))z\n")


def end_of_input(client: Client, machine: str, mark: str) -> None:
    if typed(client, machine, f"echo {mark}$((6*7))z\n") == 0:
        print("\nstatus Success")


def exit_status(client: Client, machine: str, mark: str) -> None:
    print("\nexit", typed(client, machine, "exit 7\n"))


COLUMNS: dict[str, Callable[[Client, str, str], None]] = {
    "get": get,
    "watch": watch,
    "apply": apply,
    "server-side-apply": server_side_apply,
    "can-i": can_i,
    "logs": logs,
    "exec": exec_,
    "end-exec": end_of_input,
    "exit-exec": exit_status,
}

if __name__ == "__main__":
    main()
