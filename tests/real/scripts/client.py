"""A client on the Python SDK, its 1.x or 2.x line, whichever is installed. It lists, calls, reads, and gets a progress and an
error, and prints what it saw as JSON.

    PLAN='{…}' python client.py legacy|auto|modern stdio COMMAND ARGUMENT…
    PLAN='{…}' python client.py legacy|auto|modern http|sse URL
"""

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack

import mcp
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

ERA, KIND, *TARGET = sys.argv[1:]
PLAN = json.loads(os.environ["PLAN"])
MODES = {"modern": "2026-07-28"}


def transport():
    if KIND == "stdio":
        return stdio_client(mcp.StdioServerParameters(command=TARGET[0], args=TARGET[1:]))
    return (sse_client if KIND == "sse" else streamable_http_client)(TARGET[0])


async def connected(stack):
    """A session, and the revision that it speaks."""
    if hasattr(mcp, "Client"):
        client = await stack.enter_async_context(mcp.Client(transport(), mode=MODES.get(ERA, ERA)))
        return client, client.protocol_version
    read, write, *_ = await stack.enter_async_context(transport())
    session = await stack.enter_async_context(mcp.ClientSession(read, write))
    return session, (await session.initialize()).protocolVersion


async def every(ask, member):
    """All pages of a list."""
    found, cursor = [], None
    while True:
        page = await (ask(cursor=cursor) if cursor else ask())
        found += getattr(page, member)
        cursor = getattr(page, "next_cursor", None) or getattr(page, "nextCursor", None)
        if not cursor:
            return found


def words(contents):
    return "".join(getattr(part, "text", "") or "" for part in contents)


async def failed(session):
    try:
        result = await session.call_tool(*PLAN["error"])
    except Exception as error:
        return {"code": getattr(getattr(error, "error", error), "code", None), "text": str(error)}
    return {"isError": bool(getattr(result, "is_error", None) or getattr(result, "isError", None)), "text": words(result.content)}


async def main():
    async with AsyncExitStack() as stack:
        session, revision = await connected(stack)
        tools = [tool.name for tool in await every(session.list_tools, "tools")]
        called = words((await session.call_tool(*PLAN["call"])).content)
        resources = await every(session.list_resources, "resources")
        uri = next(it.uri for it in resources if it.name.endswith(PLAN["resource"]))
        read = words((await session.read_resource(uri)).contents)
        steps = []

        async def progress(*step):
            steps.append(step)

        await session.call_tool(*PLAN["progress"], progress_callback=progress)
        seen = {"tools": tools, "called": called, "read": read, "progress": len(steps), "failed": await failed(session)}
        print(json.dumps(seen | {"revision": revision}))


asyncio.run(main())
