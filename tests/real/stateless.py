"""A server of the Python SDK that asks, tells how far it is, and changes; over stdio, or over HTTP at the port given."""

import sys
from pathlib import Path
from typing import Annotated

import anyio

from mcp.server.mcpserver import Context, Elicit, ListRoots, MCPServer, Resolve
from mcp_types import ListRootsResult
from pydantic import BaseModel

server = MCPServer("python", instructions="ask me")


class Name(BaseModel):
    name: str


def who() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


def roots() -> ListRoots:
    return ListRoots()


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
def greet(name: Annotated[Name, Resolve(who)], where: Annotated[ListRootsResult, Resolve(roots)]) -> str:
    return f"hello {name.name} of {len(where.roots)} roots"


@server.tool()
async def walk(context: Context) -> str:
    for step in range(3):
        await context.report_progress(step + 1, 3, f"step {step + 1}")
    return "there"


@server.tool()
async def change(context: Context) -> str:
    await context.notify_tools_changed()
    await context.notify_resource_updated("test://one")
    return "changed"


@server.tool()
async def revision(context: Context) -> str:
    return str(context.protocol_version)


@server.tool()
async def hang(file: str) -> str:
    Path(file).write_text("begun")
    try:
        await anyio.sleep_forever()
    finally:
        Path(file).write_text("cancelled")


@server.resource("test://one")
def one() -> str:
    return "one"


if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run()
