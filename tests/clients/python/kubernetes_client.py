"""
One column with Python's ``kubernetes``; see ``tests/clients/scripts.py`` for what it prints.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from kubernetes import client, config, watch
from kubernetes.client.rest import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ConflictError
from kubernetes.stream import stream
from kubernetes.stream.ws_client import (
    ERROR_CHANNEL,
    RESIZE_CHANNEL,
    STDIN_CHANNEL,
    WSClient,
    websocket_call,
)

GROUP, VERSION, PLURAL = "compute.ironcore.dev", "v1alpha1", "machines"
NAMESPACE = os.environ["NAMESPACE"]
SECONDS = 120.0


def main() -> None:
    column, machine, mark = sys.argv[1:]
    config.load_kube_config()
    way, _, what = column.partition("-")
    if way in ("end", "exit"):
        {"end": end_of_input, "exit": exit_status}[way](what, machine, mark)
    elif column in WAYS:
        talk(column, machine, mark)
    else:
        COLUMNS[column](machine, mark)


def get(machine: str, mark: str) -> None:
    # Generated from kube-apiserver's OpenAPI, whose paths of discovery end with a slash.
    print("version", client.VersionApi().get_code().git_version)
    print("core", client.CoreApi().get_api_versions().versions)
    print("groups", [group.name for group in client.ApisApi().get_api_versions().groups])
    found = client.CustomObjectsApi().list_namespaced_custom_object(
        GROUP, VERSION, NAMESPACE, PLURAL
    )
    for one in found["items"]:
        print("machine", one["metadata"]["name"], one["status"].get("state"))
    for pod in client.CoreV1Api().list_namespaced_pod(NAMESPACE).items:
        print("pod", pod.metadata.name, pod.status.phase)


def watch_(machine: str, mark: str) -> None:
    events = watch.Watch().stream(
        client.CustomObjectsApi().list_namespaced_custom_object,
        *(GROUP, VERSION, NAMESPACE, PLURAL),
        field_selector=f"metadata.name={machine}",
        timeout_seconds=int(SECONDS),
    )
    for event in events:
        found = event["object"]["metadata"].get("labels", {}).get("tried")
        print("watching" if event["type"] == "ADDED" else f"{event['type']} {found}")
        if found == mark:
            return


def wanted(name: str, label: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Machine",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"a": label}},
        "spec": {"machineClassRef": {"name": "pty"}},
    }


def apply(machine: str, mark: str) -> None:
    api, name = client.CustomObjectsApi(), f"{machine}-applied"
    where = (GROUP, VERSION, NAMESPACE, PLURAL)
    api.create_namespaced_custom_object(*where, wanted(name, "1"))
    api.patch_namespaced_custom_object(*where, name, wanted(name, "2"))


def server_side_apply(machine: str, mark: str) -> None:
    dynamic, name = DynamicClient(client.ApiClient()), f"{machine}-served"
    machines = dynamic.resources.get(api_version=f"{GROUP}/{VERSION}", kind="Machine")

    def applied(label: str, manager: str, force: bool = False) -> None:
        machines.server_side_apply(
            body=wanted(name, label), field_manager=manager, force_conflicts=force
        )

    applied("1", "one")
    try:
        applied("2", "two")
    except ConflictError as error:
        print("conflict", error.status)
    applied("2", "two", force=True)


def can_i(machine: str, mark: str) -> None:
    attributes = client.V1ResourceAttributes(
        namespace=NAMESPACE, verb="create", group=GROUP, resource=PLURAL, subresource="exec"
    )
    spec = client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
    review = client.V1SelfSubjectAccessReview(spec=spec)
    found = client.AuthorizationV1Api().create_self_subject_access_review(review)
    print(json.dumps(found.status.allowed))


def logs(machine: str, mark: str) -> None:
    answer, seen = (
        client.CoreV1Api().read_namespaced_pod_log(
            machine, NAMESPACE, follow=True, _preload_content=False
        ),
        b"",
    )
    for piece in answer.stream(amt=None):
        sys.stdout.buffer.write(piece)
        seen = (seen + piece)[-4096:]
        if f"{mark}42z".encode() in seen:
            return


# Consoles.

STREAMS = {"stdin": True, "stdout": True, "stderr": False, "tty": True}


def attach(machine: str) -> WSClient:
    api = client.CoreV1Api()
    return stream(
        api.connect_get_namespaced_pod_attach,
        *(machine, NAMESPACE),
        container="console",
        _preload_content=False,
        **STREAMS,
    )


def exec_(machine: str) -> WSClient:
    api = client.CoreV1Api()
    return stream(
        api.connect_get_namespaced_pod_exec,
        *(machine, NAMESPACE),
        command=["console"],
        container="console",
        _preload_content=False,
        **STREAMS,
    )


def console(machine: str) -> WSClient:
    settings = client.Configuration.get_default_copy()
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/{PLURAL}/{machine}/exec"
    query = [(name, str(value).lower()) for name, value in STREAMS.items()]
    return websocket_call(
        settings, "get", settings.host + path, query_params=query, _preload_content=False
    )


WAYS: dict[str, Callable[[str], WSClient]] = {
    "attach": attach,
    "exec": exec_,
    "console": console,
}


def read_until(opened: WSClient, text: str | None) -> None:
    """Show what comes, until a text was in it, or the end."""
    seen = ""
    while opened.is_open():
        opened.update(timeout=SECONDS)
        piece = opened.read_stdout() if opened.peek_stdout() else ""
        sys.stdout.write(piece)
        seen = (seen + piece)[-4096:]
        if text is not None and text in seen:
            return
    if text is not None:
        raise SystemExit(f"the console ended without {text!r}")


def ask(opened: WSClient, mark: str) -> None:
    opened.write_stdin(f"echo {mark}$((6*7))z\n")
    read_until(opened, f"{mark}42z")


def talk(way: str, machine: str, mark: str) -> None:
    opened = WAYS[way](machine)
    ask(opened, mark)
    opened.close()


def end_of_input(way: str, machine: str, mark: str) -> None:
    opened = WAYS[way](machine)
    opened.write_stdin(f"echo {mark}$((6*7))z\n")
    opened.close_channel(STDIN_CHANNEL)
    read_until(opened, None)
    print("\nstatus", json.loads(opened.read_channel(ERROR_CHANNEL))["status"])


def resize(machine: str, mark: str) -> None:
    opened = exec_(machine)
    opened.write_channel(RESIZE_CHANNEL, json.dumps({"Width": 101, "Height": 31}))
    opened.write_stdin(
        f"until [ \"$(stty size)\" = '31 101' ]; do sleep 0.1; done; echo {mark}$((6*7))z\n"
    )
    read_until(opened, f"{mark}42z")
    opened.close()


def exit_status(way: str, machine: str, mark: str) -> None:
    opened = WAYS[way](machine)
    opened.write_stdin("exit 7\n")
    read_until(opened, None)
    print("\nexit", opened.returncode)


COLUMNS: dict[str, Callable[[str, str], None]] = {
    "get": get,
    "watch": watch_,
    "apply": apply,
    "server-side-apply": server_side_apply,
    "can-i": can_i,
    "logs": logs,
    "resize": resize,
}

if __name__ == "__main__":
    try:
        main()
    except ApiException as error:
        raise SystemExit(f"{error.status} {error.reason}\n{error.body}") from None
