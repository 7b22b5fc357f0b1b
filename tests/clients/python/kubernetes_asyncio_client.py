"""
One column with ``kubernetes_asyncio``; see ``tests/clients/scripts.py`` for what it prints.

Its WebSockets request version 4 of the protocol, unless a default header names another one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.rest import ApiException
from kubernetes_asyncio.stream import WsApiClient
from kubernetes_asyncio.stream.ws_client import (
    ERROR_CHANNEL,
    RESIZE_CHANNEL,
    STDIN_CHANNEL,
    STDOUT_CHANNEL,
)

GROUP, VERSION, PLURAL = "compute.ironcore.dev", "v1alpha1", "machines"
NAMESPACE = os.environ["NAMESPACE"]
SECONDS = 120
END_OF_INPUT = b"\xff\0"


async def main() -> None:
    column, machine, mark = sys.argv[1:]
    await config.load_kube_config()
    way, _, what = column.partition("-")
    if way in ("end", "exit"):
        await {"end": end_of_input, "exit": exit_status}[way](what, machine, mark)
    elif column in WAYS:
        await talk(column, machine, mark)
    else:
        async with client.ApiClient() as api:
            await COLUMNS[column](api, machine, mark)


async def get(api: client.ApiClient, machine: str, mark: str) -> None:
    print("version", (await client.VersionApi(api).get_code()).git_version)
    print("groups", [each.name for each in (await client.ApisApi(api).get_api_versions()).groups])
    found = await client.CustomObjectsApi(api).list_namespaced_custom_object(
        GROUP, VERSION, NAMESPACE, PLURAL
    )
    for one in found["items"]:
        print("machine", one["metadata"]["name"], one["status"].get("state"))
    for pod in (await client.CoreV1Api(api).list_namespaced_pod(NAMESPACE)).items:
        print("pod", pod.metadata.name, pod.status.phase)


async def watch_(api: client.ApiClient, machine: str, mark: str) -> None:
    async with watch.Watch() as watcher:
        async for event in watcher.stream(
            client.CustomObjectsApi(api).list_namespaced_custom_object,
            *(GROUP, VERSION, NAMESPACE, PLURAL),
            field_selector=f"metadata.name={machine}",
            timeout_seconds=SECONDS,
        ):
            found = event["object"]["metadata"].get("labels", {}).get("tried")
            told = "watching" if event["type"] == "ADDED" else f"{event['type']} {found}"
            print(told, flush=True)
            if found == mark:
                return


def wanted(name: str, label: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Machine",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"a": label}},
        "spec": {"machineClassRef": {"name": "pty"}},
    }


async def apply(api: client.ApiClient, machine: str, mark: str) -> None:
    objects, name = client.CustomObjectsApi(api), f"{machine}-applied"
    where = (GROUP, VERSION, NAMESPACE, PLURAL)
    await objects.create_namespaced_custom_object(*where, wanted(name, "1"))
    await objects.patch_namespaced_custom_object(
        *where, name, wanted(name, "2"), _content_type="application/merge-patch+json"
    )


async def server_side_apply(api: client.ApiClient, machine: str, mark: str) -> None:
    # The dynamic client of the library returns a conflict as if it were the object.
    objects, name = client.CustomObjectsApi(api), f"{machine}-served"

    async def applied(label: str, manager: str, force: bool = False) -> None:
        await objects.patch_namespaced_custom_object(
            *(GROUP, VERSION, NAMESPACE, PLURAL, name, wanted(name, label)),
            field_manager=manager,
            force=force,
            _content_type="application/apply-patch+yaml",
        )

    await applied("1", "one")
    try:
        await applied("2", "two")
    except ApiException as error:
        print("conflict", error.status)
    await applied("2", "two", force=True)


async def can_i(api: client.ApiClient, machine: str, mark: str) -> None:
    attributes = client.V1ResourceAttributes(
        namespace=NAMESPACE, verb="create", group=GROUP, resource=PLURAL, subresource="exec"
    )
    spec = client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
    review = client.V1SelfSubjectAccessReview(spec=spec)
    found = await client.AuthorizationV1Api(api).create_self_subject_access_review(review)
    print(json.dumps(found.status.allowed))


async def logs(api: client.ApiClient, machine: str, mark: str) -> None:
    pods = client.CoreV1Api(api)
    async with watch.Watch() as watcher:
        async for line in watcher.stream(pods.read_namespaced_pod_log, machine, NAMESPACE):
            print(line, end="", flush=True)
            if f"{mark}42z" in line:
                return


# Consoles.

STREAMS: dict[str, Any] = {"stdin": True, "stdout": True, "stderr": False, "tty": True}


async def attach(api: WsApiClient, machine: str) -> Any:
    return await client.CoreV1Api(api).connect_get_namespaced_pod_attach(
        machine, NAMESPACE, container="console", _preload_content=False, **STREAMS
    )


async def exec_(api: WsApiClient, machine: str) -> Any:
    return await client.CoreV1Api(api).connect_get_namespaced_pod_exec(
        *(machine, NAMESPACE),
        command=["console"],
        container="console",
        _preload_content=False,
        **STREAMS,
    )


async def console(api: WsApiClient, machine: str) -> Any:
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/{PLURAL}/{machine}/exec"
    query = [(name, str(value).lower()) for name, value in STREAMS.items()]
    return await api.request(
        *("GET", api.configuration.host + path),
        query_params=query,
        headers=dict(api.default_headers),
        _preload_content=False,
    )


WAYS: Mapping[str, Callable[[WsApiClient, str], Awaitable[Any]]] = {
    "attach": attach,
    "exec": exec_,
    "console": console,
}


async def ask(way: str, machine: str, *sent: bytes, until: str = "") -> dict[str, Any]:
    """
    Send messages and show the output until a text was in it, or the end; return the status.

    The default header requests version 5, which can signal the end of input.
    """
    seen, status = "", b"{}"
    version = ("sec-websocket-protocol", "v5.channel.k8s.io")
    async with WsApiClient(None, *version) as api, await WAYS[way](api, machine) as socket:
        for each in sent:
            await socket.send_bytes(each)
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel == STDOUT_CHANNEL:
                sys.stdout.write(data.decode())
                seen = (seen + data.decode())[-4096:]
            elif channel == ERROR_CHANNEL:
                status = data
            if until and until in seen:
                return {}
    if until:
        raise SystemExit(f"the console ended without {until!r}")
    found: dict[str, Any] = json.loads(status)
    return found


def typed(text: str) -> bytes:
    return bytes([STDIN_CHANNEL]) + text.encode()


async def talk(way: str, machine: str, mark: str) -> None:
    await ask(way, machine, typed(f"echo {mark}$((6*7))z\n"), until=f"{mark}42z")


async def end_of_input(way: str, machine: str, mark: str) -> None:
    status = await ask(way, machine, typed(f"echo {mark}$((6*7))z\n"), END_OF_INPUT)
    print("\nstatus", status["status"])


async def resize(api: client.ApiClient, machine: str, mark: str) -> None:
    size = bytes([RESIZE_CHANNEL]) + json.dumps({"Width": 101, "Height": 31}).encode()
    question = typed(
        f"until [ \"$(stty size)\" = '31 101' ]; do sleep 0.1; done; echo {mark}$((6*7))z\n"
    )
    await ask("exec", machine, size, question, until=f"{mark}42z")


async def exit_status(way: str, machine: str, mark: str) -> None:
    status = await ask(way, machine, typed("exit 7\n"))
    print("\nexit", WsApiClient.parse_error_data(json.dumps(status)))


COLUMNS: dict[str, Callable[[client.ApiClient, str, str], Awaitable[None]]] = {
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
        asyncio.run(main())
    except ApiException as error:
        raise SystemExit(f"{error.status} {error.reason}\n{error.body}") from None
