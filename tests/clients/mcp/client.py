"""
The client of the Python SDK of MCP, run by the Python of an environment with it.

``python client.py SETTINGS`` connects as the JSON says, prints the tools, and then for each line of standard input, a
tool and its arguments, a line with the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import sys
from typing import Any

import httpx2  # type: ignore[import-not-found]
from mcp import Client, StdioServerParameters  # type: ignore[import-not-found]
from mcp.client.stdio import stdio_client  # type: ignore[import-not-found]
from mcp.client.streamable_http import (  # type: ignore[import-not-found]
    streamable_http_client,
)


async def main(settings: dict[str, Any]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        if "url" in settings:
            http = httpx2.AsyncClient(
                headers={"Authorization": f"Bearer {settings['token']}"},
                verify=ssl.create_default_context(cafile=settings["ca"]),
                timeout=300,
            )
            await stack.enter_async_context(http)
            transport = streamable_http_client(settings["url"], http_client=http)
        else:
            command, *arguments = settings["command"]
            transport = stdio_client(
                StdioServerParameters(command=command, args=arguments, env=settings["env"])
            )
        client = await stack.enter_async_context(Client(transport))
        listed = await client.list_tools()
        show(
            {
                "version": client.protocol_version,
                "tools": [
                    each.model_dump(by_alias=True, exclude_none=True) for each in listed.tools
                ],
            }
        )
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            tool, arguments = json.loads(line)
            result = await client.call_tool(tool, arguments)
            texts = [each.text for each in result.content]
            show({"error": bool(result.is_error), "texts": texts})


def show(value: object) -> None:
    print(f"MCP {json.dumps(value)}", flush=True)


asyncio.run(main(json.loads(sys.argv[1])))
