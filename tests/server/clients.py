"""Clients that others make of our openapi.json work: one in Python, one in TypeScript.

`make clients` installs the makers and runs this: each client starts a run, waits for its result and lists.
"""

import asyncio
import sys
from pathlib import Path

import aiohttp

from perdure import Perdure, workflow
from perdure.app.network.server import begin_server
from perdure.app.network.serving import ServerOptions
from tools import servers

PYTHON = """
import sys
from perdure_client import AuthenticatedClient
from perdure_client.api.runs import get_result, list_runs, start_run
from perdure_client.models import StartBody

url, key = sys.argv[1:]
with AuthenticatedClient(url, token=key, raise_on_unexpected_status=True) as client:
    run = start_run.sync(client=client, body=StartBody("clients_add", input_=[1, 2], id="py"))
    result = get_result.sync("py", client=client, wait=20)
    page = list_runs.sync(client=client, workflow="clients_add")
    print(run.id, result.result, [each.id for each in page.items])
"""
TYPESCRIPT = """
import createClient from "openapi-fetch";
import type { paths } from "./schema";

const [url, key] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl: url, headers: { authorization: `Bearer ${key}` } });
const made = await client.POST("/v1/runs", {
  body: { workflow: "clients_add", input: [1, 2], id: "ts", on_conflict: "return" },
});
const found = await client.GET("/v1/runs/{id}/result", { params: { path: { id: "ts" }, query: { wait: 20 } } });
const page = await client.GET("/v1/runs", { params: { query: { workflow: "clients_add" } } });
const ids: string[] = (page.data?.items ?? []).map((run) => run.id);
console.log(made.data?.id, found.data?.result, JSON.stringify(ids));
"""


@workflow
async def clients_add(one: int, other: int) -> int:
    return one + other


async def run(*words: str | Path, cwd: Path) -> str:
    process = await asyncio.create_subprocess_exec(*map(str, words), cwd=cwd, stdout=asyncio.subprocess.PIPE)
    told, _ = await process.communicate()
    if process.returncode:
        sys.exit(f"{words[0]} failed: {told.decode()}")
    return told.decode().strip()


async def main(tools: Path) -> None:
    folder = servers.folder(in_memory=True)
    async with Perdure(f"sqlite:///{folder}/clients.db", workflows=[clients_add]) as app:
        server, key = await begin_server(app, ServerOptions(listen="127.0.0.1:0"))
        try:
            async with aiohttp.ClientSession() as http, http.get(f"{server.url}/openapi.json") as answer:
                (folder / "openapi.json").write_bytes(await answer.read())
            assert key is not None
            print("Python:", await by_python(tools / "python", folder, server.url, key))
            print("TypeScript:", await by_typescript(tools / "npm", folder, server.url, key))
        finally:
            await server.end(1)


async def by_python(tools: Path, folder: Path, url: str, key: str) -> str:
    make = tools / "bin" / "openapi-python-client"
    await run(
        make, "generate", "--path", "openapi.json", "--meta", "none", "--output-path", "perdure_client", cwd=folder
    )
    (folder / "client.py").write_text(PYTHON)
    told = await run(tools / "bin" / "python", "client.py", url, key, cwd=folder)
    assert told == "py 3 ['py']", told
    return told


async def by_typescript(tools: Path, folder: Path, url: str, key: str) -> str:
    """Checked by the compiler, then run by node."""
    (folder / "node_modules").symlink_to(tools / "node_modules")
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "client.ts").write_text(TYPESCRIPT)
    # Else what has a default would have to be given.
    flag = "--default-non-nullable=false"
    await run("node_modules/.bin/openapi-typescript", "openapi.json", "-o", "schema.d.ts", flag, cwd=folder)
    options = [
        "--strict",
        "--skipLibCheck",
        "--target",
        "es2022",
        "--module",
        "es2022",
        "--moduleResolution",
        "bundler",
    ]
    await run("node_modules/.bin/tsc", *options, "--types", "node", "client.ts", cwd=folder)
    told = await run("node", "client.js", url, key, cwd=folder)
    assert told == 'ts 3 ["ts","py"]', told
    return told


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).absolute()))
