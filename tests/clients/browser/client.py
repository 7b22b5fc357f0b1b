"""
One column over a WebSocket as a page in a browser opens it; see ``tests/clients/scripts.py``.

A page can set no header: it names the subprotocols that it speaks, its user's token among
them, and the browser adds the page's origin and shows no certificate.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import sys
from urllib.parse import urlencode

# Not websockets.sync: it reads and writes TLS in two threads at once, and hangs now and then.
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

STDIN, STDOUT, ERROR, RESIZE = b"\0", 1, 3, b"\4"
END_OF_STDIN = b"\xff\0"
SECONDS = 120.0
PAGE = "https://page.example"
PROTOCOL = "v5.channel.k8s.io"
TEXT = "binary.k8s.io"
PROTOCOLS = {"logs": TEXT, "watch": TEXT}

NAMESPACE = os.environ["NAMESPACE"]
STREAMS = [("stdin", "true"), ("stdout", "true"), ("tty", "true")]
WAYS = {
    "attach": ("/api/v1/namespaces/{}/pods/{}/attach", STREAMS),
    "exec": ("/api/v1/namespaces/{}/pods/{}/exec", [*STREAMS, ("command", "console")]),
    "console": ("/apis/compute.ironcore.dev/v1alpha1/namespaces/{}/machines/{}/exec", STREAMS),
    "logs": ("/api/v1/namespaces/{}/pods/{}/log", [("follow", "true")]),
    "watch": ("/apis/compute.ironcore.dev/v1alpha1/namespaces/{}/machines", [("watch", "true")]),
}


async def main() -> None:
    column, machine, mark = sys.argv[1:]
    what, _, way = column.rpartition("-")
    async with opened(way if way in WAYS else "exec", machine) as socket:
        assert socket.subprotocol == PROTOCOLS.get(way, PROTOCOL), socket.subprotocol
        if way == "logs":
            await logs(socket, mark)
        elif way == "watch":
            await watch(socket, machine, mark)
        elif what == "end":
            await end_of_input(socket, mark)
        elif what == "exit":
            await exit_status(socket)
        elif way == "resize":
            await resize(socket, mark)
        else:
            await ask(socket, mark)


def opened(way: str, machine: str) -> connect:
    path, query = WAYS[way]
    token = base64.urlsafe_b64encode(os.environ["TOKEN"].encode()).decode().rstrip("=")
    server = os.environ["SERVER"].replace("https://", "wss://")
    return connect(
        server + path.format(NAMESPACE, machine) + "?" + urlencode(query),
        subprotocols=[
            f"base64url.bearer.authorization.k8s.io.{token}",
            PROTOCOLS.get(way, PROTOCOL),
        ],
        origin=PAGE,
        ssl=ssl.create_default_context(cafile=os.environ["CA"]),
        compression=None,
        proxy=None,
        open_timeout=SECONDS,
    )


async def read(socket: ClientConnection, text: bytes | None) -> dict[str, object]:
    """Show what comes, until a text was in it, or the end; the status, if it came."""
    seen, status = b"", b""
    while text is None or text not in seen:
        try:
            message = await asyncio.wait_for(socket.recv(), SECONDS)
        except ConnectionClosed:
            break
        assert isinstance(message, bytes), message
        if message[0] == STDOUT:
            sys.stdout.buffer.write(message[1:])
            seen = (seen + message[1:])[-4096:]
        elif message[0] == ERROR:
            status += message[1:]
    else:
        return {}
    if text is not None:
        raise SystemExit(f"the console ended without {text!r}: {status!r}")
    sys.stdout.flush()
    assert socket.close_code == 1000, socket.close_code
    return dict(json.loads(status))


async def logs(socket: ClientConnection, mark: str) -> None:
    seen = b""
    while f"{mark}42z".encode() not in seen:
        message = await asyncio.wait_for(socket.recv(), SECONDS)
        assert isinstance(message, bytes), message
        sys.stdout.buffer.write(message)
        sys.stdout.flush()
        seen = (seen + message)[-4096:]


async def watch(socket: ClientConnection, machine: str, mark: str) -> None:
    label = None
    while label != mark:
        event = json.loads(await asyncio.wait_for(socket.recv(), SECONDS))
        metadata = event["object"]["metadata"]
        if metadata["name"] == machine:
            label = metadata.get("labels", {}).get("tried")
            print("watching" if event["type"] == "ADDED" else f"{event['type']} {label}")


async def ask(socket: ClientConnection, mark: str) -> None:
    await socket.send(STDIN + f"echo {mark}$((6*7))z\n".encode())
    await read(socket, f"{mark}42z".encode())


async def end_of_input(socket: ClientConnection, mark: str) -> None:
    await socket.send(STDIN + f"echo {mark}$((6*7))z\n".encode())
    await socket.send(END_OF_STDIN)
    status = await read(socket, None)
    print("\nstatus", status["status"])


async def resize(socket: ClientConnection, mark: str) -> None:
    await socket.send(RESIZE + b'{"Width":101,"Height":31}\n')
    line = f"until [ \"$(stty size)\" = '31 101' ]; do sleep 0.1; done; echo {mark}$((6*7))z\n"
    await socket.send(STDIN + line.encode())
    await read(socket, f"{mark}42z".encode())


async def exit_status(socket: ClientConnection) -> None:
    await socket.send(STDIN + b"exit 7\n")
    status = await read(socket, None)
    assert status["reason"] == "NonZeroExitCode", status
    details = status["details"]
    assert isinstance(details, dict)
    print("\nexit", details["causes"][0]["message"])


if __name__ == "__main__":
    asyncio.run(main())
