"""The page of `/docs`: the table of routes as plain HTML, which loads nothing from elsewhere."""

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from html import escape

from perdure.http import problems
from perdure.http.openapi import parameters_of
from perdure.http.table import Route

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1c2024 }
h1 { font-size: 1.4rem } section { border-top: 1px solid #d9dde1; padding: .8rem 0 }
code { font: 13px ui-monospace, monospace } .method { display: inline-block; width: 4.2rem; font-weight: 600 }
.scope { float: right; color: #60676f } p { margin: .2rem 0 .2rem 4.2rem } .errors { color: #60676f }
@media (prefers-color-scheme: dark) {
  body { background: #15181b; color: #e6e8ea } section { border-color: #33383d } .scope, .errors { color: #9aa1a9 } }
"""
_HASH = b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
PAGE_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'; base-uri 'none'"


def page(routes: Sequence[Route]) -> bytes:
    """The whole page."""
    body = "".join(map(_section, routes))
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    intro = 'Machine-readable: <a href="openapi.json">openapi.json</a>. Errors are application/problem+json.'
    return (
        f'<!doctype html><html lang="en"><head>{head}<title>Perdure: routes</title><style>{STYLE}</style></head>'
        f"<body><h1>Perdure</h1><p>{intro}</p>{body}</body></html>"
    ).encode()


def _section(route: Route) -> str:
    taken = [each["name"] for each in parameters_of(route) if each["in"] == "query"]
    fields = [] if route.body is None else list(route.body.__struct_fields__)
    errors = ", ".join(f"{problems.status_of(error)} {error.__name__}" for error in route.errors)
    lines = [f"<p>{escape(route.about)}</p>"]
    lines += [f"<p>query: <code>{escape(', '.join(taken))}</code></p>"] if taken else []
    lines += [f"<p>body: <code>{escape(', '.join(fields))}</code></p>"] if fields else []
    lines += [f'<p class="errors">{escape(errors)}</p>'] if errors else []
    head = f'<span class="method">{route.method}</span><code>{escape(route.path)}</code>'
    return f'<section>{head}<span class="scope">{route.scope}</span>{"".join(lines)}</section>'
