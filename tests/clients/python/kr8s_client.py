"""
One column with ``kr8s``; see ``tests/clients/scripts.py`` for what it prints.

The library requests version 4 of the protocol, in which it sends no input: its ``exec`` only reads.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import kr8s
from kr8s.asyncio.objects import Pod, new_class

GROUP, VERSION, PLURAL = "compute.ironcore.dev", "v1alpha1", "machines"
NAMESPACE = os.environ["NAMESPACE"]
STDIN, STDOUT, STATUS, END = b"\0", 1, 3, b"\xff\0"

Machine = new_class(kind="Machine", version=f"{GROUP}/{VERSION}", namespaced=True, plural=PLURAL)
Review = new_class(
    kind="SelfSubjectAccessReview",
    version="authorization.k8s.io/v1",
    namespaced=False,
    plural="selfsubjectaccessreviews",
)


async def main() -> None:
    column, machine, mark = sys.argv[1:]
    api = await kr8s.asyncio.api()
    way, _, what = column.partition("-")
    if way in ("end", "exit"):
        await {"end": end_of_input, "exit": exit_status}[way](api, what, machine, mark)
    else:
        await COLUMNS[column](api, machine, mark)


async def get(api: Any, machine: str, mark: str) -> None:
    print("version", (await api.version())["gitVersion"])
    async for found in Machine.list(namespace=NAMESPACE, api=api):
        print("machine", found.name, found.status.get("state"))
    async for pod in Pod.list(namespace=NAMESPACE, api=api):
        print("pod", pod.name, pod.status.phase)


async def watch(api: Any, machine: str, mark: str) -> None:
    found = await Machine.get(machine, namespace=NAMESPACE, api=api)
    # The watch begins after the version that was read.
    print("watching", flush=True)
    async for event, changed in found.async_watch():
        label = changed.labels.get("tried")
        print(event, label, flush=True)
        if label == mark:
            return


async def apply(api: Any, machine: str, mark: str) -> None:
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Machine",
        "metadata": {
            "name": f"{machine}-applied",
            "namespace": NAMESPACE,
            "labels": {"a": "1"},
        },
        "spec": {"machineClassRef": {"name": "pty"}},
    }
    applied = Machine(body, api=api)
    await applied.create()
    await applied.patch({"metadata": {"labels": {"a": "2"}}})


async def can_i(api: Any, machine: str, mark: str) -> None:
    attributes = {
        "namespace": NAMESPACE,
        "verb": "create",
        "group": GROUP,
        "resource": PLURAL,
        "subresource": "exec",
    }
    review = Review({"metadata": {"name": ""}, "spec": {"resourceAttributes": attributes}}, api=api)
    await review.create()
    print(json.dumps(review.status.allowed))


async def logs(api: Any, machine: str, mark: str) -> None:
    pod = await Pod.get(machine, namespace=NAMESPACE, api=api)
    async for line in pod.logs(follow=True):
        print(line, flush=True)
        if f"{mark}42z" in line:
            return


class Shown(io.RawIOBase):
    """Prints what comes, and leaves once a text was in it."""

    def __init__(self, text: str) -> None:
        self._text, self._seen = text.encode(), b""

    def write(self, data: Any) -> int:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        self._seen = (self._seen + data)[-4096:]
        if self._text and self._text in self._seen:
            os._exit(0)
        return len(data)


async def exec_(api: Any, machine: str, mark: str) -> None:
    pod = await Pod.get(machine, namespace=NAMESPACE, api=api)
    # Without input it would end as soon as the console is quiet.
    await pod.exec(["console", "--read-only"], container="console", stdout=Shown(f"{mark}42z"))


async def ask(api: Any, machine: str, text: str, end: bool = False) -> tuple[str, Any]:
    """Send text to ``machines/exec``; return the output and the status, if it ends."""
    seen = ""
    async with api.open_websocket(
        version=f"{GROUP}/{VERSION}",
        url=f"{PLURAL}/{machine}/exec",
        namespace=NAMESPACE,
        subprotocols=("v5.channel.k8s.io",),
        params={"stdin": "true", "stdout": "true", "tty": "true"},
    ) as socket:
        await socket.send_bytes(STDIN + text.encode())
        if end:
            await socket.send_bytes(END)
        while True:
            message = await socket.receive_bytes()
            if message[0] == STATUS:
                return seen, json.loads(message[1:])
            if message[0] == STDOUT:
                sys.stdout.write(message[1:].decode())
                seen += message[1:].decode()
            if not end and text.startswith("echo ") and f"{text[5:].partition('$')[0]}42z" in seen:
                return seen, None


async def console(api: Any, machine: str, mark: str) -> None:
    await ask(api, machine, f"echo {mark}$((6*7))z\n")


async def end_of_input(api: Any, way: str, machine: str, mark: str) -> None:
    _, status = await ask(api, machine, f"echo {mark}$((6*7))z\n", end=True)
    print("\nstatus", status["status"])


async def exit_status(api: Any, way: str, machine: str, mark: str) -> None:
    _, status = await ask(api, machine, "exit 7\n")
    print("\nexit", status["details"]["causes"][0]["message"])


COLUMNS: dict[str, Callable[[Any, str, str], Awaitable[None]]] = {
    "get": get,
    "watch": watch,
    "apply": apply,
    "can-i": can_i,
    "exec": exec_,
    "logs": logs,
    "console": console,
}

if __name__ == "__main__":
    asyncio.run(main())
