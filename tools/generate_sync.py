"""`make generate`: write the sync classes anew from the async ones.

In:   the source of the classes in TWINS.
Out:  generated.py: the same public methods, properties and docstrings, each waiting for its async original.
What cannot be carried over is an error here, not a gap there.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
TARGET = SOURCE / "perdure" / "app" / "sync" / "generated.py"

HEAD = '''"""Perdure and its handles for code that does not await.

Generated from the async classes by `make generate`; change those, not this.
"""

from __future__ import annotations
'''


@dataclass(frozen=True)
class Twin:
    """An async class, its sync twin, and what the twin is made of besides."""

    module: str
    name: str
    base: str
    doc: str
    # Methods that have no meaning in the twin.
    without: frozenset[str] = frozenset()
    # Where the twin keeps what it takes attributes from.
    holds: str = "_inner"

    @property
    def sync_name(self) -> str:
        return f"Sync{self.name}"


def noun(module: str, name: str, doc: str) -> Twin:
    """The twin of a noun of Perdure: an attribute with methods of its own, such as `app.namespaces`."""
    return Twin(module, name, f"SyncNoun[{name}]", f"{doc}, for code that does not await.")


TWINS = (
    noun("perdure.app.nouns.schedules", "Schedules", "The schedules of a namespace"),
    noun("perdure.app.nouns.outbox", "Outbox", "The sinks of a namespace"),
    noun("perdure.app.nouns.namespaces", "Namespaces", "The namespaces of a database"),
    noun("perdure.app.nouns.keys", "Keys", "The keys of a database"),
    noun("perdure.app.nouns.workers", "Workers", "The workers of a namespace"),
    noun("perdure.app.nouns.workers", "Queues", "The queues of a namespace"),
    Twin(
        "perdure.app.run",
        "Run",
        "SyncHandle[R_co]",
        "The handle of a run, for code that does not await: `id` is the caller's key, `run_id` is ours.\n\n"
        "Any thread may use it. It can be pickled, and works wherever a `Perdure(url).sync()` is open on the same "
        "database.",
    ),
    Twin(
        "perdure.app.perdure",
        "Perdure",
        "SyncApp",
        "A durable workflow engine for code that does not await: `with Perdure(url).sync() as app:`.\n\n"
        "The methods are those of Perdure, and wait. The engine runs on a thread of its own; any thread may use this.",
        frozenset({"asgi", "sync", "with_key"}),
        "_app",
    ),
)
BY_NAME = {twin.name: twin for twin in TWINS}
RENAMED = {"AsyncIterator": "Iterator"} | {twin.name: twin.sync_name for twin in TWINS}


class CannotCarryOver(Exception):
    """The generator does not know how to make this blocking; teach it, or write it in a way it knows."""


@dataclass
class Module:
    """What a module of the async classes imports and defines, by name."""

    tree: ast.Module
    imports: dict[str, str] = field(default_factory=dict)
    type_variables: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, name: str) -> "Module":
        found = cls(ast.parse((SOURCE / f"{name.replace('.', '/')}.py").read_text()))
        for node in found.tree.body:
            match node:
                case ast.ImportFrom(module=str(module), names=aliases):
                    found.imports |= {alias.asname or alias.name: module for alias in aliases}
                case ast.Assign(targets=[ast.Name(id)], value=ast.Call(func=ast.Name("TypeVar" | "ParamSpec" as kind))):
                    found.type_variables[id] = ast.unparse(node)
                    found.imports.setdefault(kind, "typing")
                case ast.ClassDef(name=defined):
                    found.imports[defined] = name
                case _:
                    pass
        return found

    def class_named(self, name: str) -> ast.ClassDef:
        return next(node for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name == name)


class Unquoting(ast.NodeTransformer):
    """Annotations without the quotes that stand around names not defined yet."""

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return unquoted(expression(node.value)) if isinstance(node.value, str) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        # The texts in Literal["..."] are no annotations.
        return node if ast.unparse(node.value) == "Literal" else self.generic_visit(node)


class Renaming(ast.NodeTransformer):
    """Annotations of the async classes as those of the sync ones."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(RENAMED.get(node.id, node.id), node.ctx)


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def unquoted(annotation: ast.expr) -> ast.expr:
    # Parsed anew: what a transformer is given is changed in place.
    changed = Unquoting().visit(expression(ast.unparse(annotation)))
    assert isinstance(changed, ast.expr)
    return changed


def renamed(annotation: ast.expr) -> str:
    return ast.unparse(Renaming().visit(unquoted(annotation)))


def twin_of(annotation: ast.expr) -> Twin | None:
    """The twin an annotation names, as in `Run[R]`."""
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    return BY_NAME.get(annotation.id) if isinstance(annotation, ast.Name) else None


def has_twin(annotation: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id in BY_NAME for node in ast.walk(annotation))


def bridged(annotation: ast.expr, value: str) -> str:
    """The expression for a value of this async type as its sync twin."""
    twin = twin_of(annotation)
    if twin is not None:
        return f"{twin.sync_name}(self._bridge, {value})"
    match annotation:
        case _ if not has_twin(annotation):
            return value
        case ast.BinOp(left=left, op=ast.BitOr(), right=right) if (one := twin_of(left)) and not has_twin(right):
            return f"{bridged(left, value)} if isinstance({value}, {one.name}) else {value}"
        case ast.Subscript(value=ast.Name("list"), slice=item):
            return f"[{bridged(item, 'item')} for item in {value}]"
        case _:
            raise CannotCarryOver(f"a {ast.unparse(annotation)}")


@dataclass
class Method:
    """A public method of an async class."""

    node: ast.FunctionDef | ast.AsyncFunctionDef
    overloads: list[ast.FunctionDef | ast.AsyncFunctionDef]
    # Whether the twin does not know the type of what it holds.
    is_untyped: bool = False

    @property
    def returns(self) -> ast.expr:
        if self.node.returns is None:
            raise CannotCarryOver(f"{self.node.name}(), which does not say what it returns")
        return unquoted(self.node.returns)

    @property
    def is_property(self) -> bool:
        return any(ast.unparse(decorator) == "property" for decorator in self.node.decorator_list)

    @property
    def is_iterator(self) -> bool:
        return ast.unparse(self.returns).startswith("AsyncIterator[")

    def text(self) -> Iterator[str]:
        for overload in self.overloads:
            yield "    @overload"
            yield f"    {signature(overload)} ..."
        if self.is_property:
            yield "    @property"
        yield f"    {signature(self.node)}"
        doc = ast.get_docstring(self.node, clean=False)
        if doc is not None:
            yield f'        """{doc}"""'
        yield from self._body()

    def _body(self) -> Iterator[str]:
        call = f"self._inner.{self.node.name}"
        if not self.is_property:
            call += f"({', '.join(arguments(self.node.args))})"
        if self.overloads:
            yield f"        work = {call}"
            call = "work"
        if self.is_iterator:
            yield f"        return self._bridge.iterate({call})"
            return
        if isinstance(self.node, ast.AsyncFunctionDef):
            call = f"self._bridge.wait({call})"
        if ast.unparse(self.returns) == "None":
            yield f"        {call}"
        elif isinstance(self.returns, ast.BinOp) and has_twin(self.returns):
            # Looked at before it is carried over, but called once.
            yield f"        found = {call}"
            yield f"        return {bridged(self.returns, 'found')}"
        elif self.is_untyped and not has_twin(self.returns):
            yield f"        found: {ast.unparse(self.returns)} = {call}"
            yield "        return found"
        else:
            yield f"        return {bridged(self.returns, call)}"


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    copied = ast.parse(ast.unparse(node.args).join(("def _(", "): ..."))).body[0]
    assert isinstance(copied, ast.FunctionDef)
    for argument in ast.walk(copied.args):
        if isinstance(argument, ast.arg) and argument.annotation is not None:
            argument.annotation = ast.parse(renamed(argument.annotation), mode="eval").body
    returns = "None" if node.returns is None else renamed(node.returns)
    return f"def {node.name}({ast.unparse(copied.args)}) -> {returns}:"


def arguments(given: ast.arguments) -> Iterator[str]:
    """How to pass on what a function was given."""
    yield from (argument.arg for argument in [*given.posonlyargs, *given.args][1:])
    if given.vararg is not None:
        yield f"*{given.vararg.arg}"
    yield from (f"{argument.arg}={argument.arg}" for argument in given.kwonlyargs)
    if given.kwarg is not None:
        yield f"**{given.kwarg.arg}"


def methods(source: ast.ClassDef, twin: Twin) -> Iterator[Method]:
    overloads: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
    for node in source.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        if any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list):
            overloads.append(node)
        elif node.name not in twin.without:
            yield Method(node, overloads, is_untyped=twin.holds != "_inner")
            overloads = []


def attributes(source: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """The public attributes that `__init__` sets, with the annotations of the parameters of their names."""
    init = next(node for node in source.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    annotations = {
        argument.arg: argument.annotation
        for argument in [*init.args.args, *init.args.kwonlyargs]
        if argument.annotation
    }
    for node in ast.walk(init):
        match node:
            case ast.Attribute(value=ast.Name("self"), attr=name, ctx=ast.Store()) if not name.startswith("_"):
                if name not in annotations:
                    raise CannotCarryOver(f"the attribute {source.name}.{name}, which is no parameter")
                yield name, renamed(annotations[name])
            case _:
                pass


def class_text(twin: Twin, source: ast.ClassDef) -> str:
    lines = [f"class {twin.sync_name}({twin.base}):", f'    """{indented(twin.doc)}"""']
    for name, annotation in attributes(source):
        value = f"self.{twin.holds}.{name}"
        lines += ["", "    @property", f"    def {name}(self) -> {annotation}:", f"        return {value}"]
    for method in methods(source, twin):
        lines += ["", *method.text()]
    return "\n".join(lines)


def indented(doc: str) -> str:
    first, *rest = doc.split("\n")
    if not rest:
        return first
    return "\n".join([first, *(f"    {line}" if line else "" for line in rest), "    "])


def names_in(text: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(text)))
    # A parameter may have the name of something that the async class imports.
    own = {node.arg for node in nodes if isinstance(node, ast.arg)}
    return {node.id for node in nodes if isinstance(node, ast.Name)} - own


def preamble(classes: str, modules: list[Module]) -> str:
    """The imports and type variables that the classes need."""
    homes = {"Iterator": "collections.abc"}
    homes |= dict.fromkeys(("SyncHandle", "SyncApp", "SyncNoun"), "perdure.app.sync.bridge")
    variables: dict[str, str] = {}
    for module in modules:
        homes |= module.imports
        variables |= module.type_variables
    used = names_in(classes)
    needed = [text for name, text in sorted(variables.items()) if name in used]
    used |= names_in("\n".join(needed))
    wanted: dict[str, set[str]] = {}
    for name in used & homes.keys():
        wanted.setdefault(homes[name], set()).add(name)
    imports = [f"from {home} import {', '.join(sorted(names))}" for home, names in sorted(wanted.items())]
    return "\n".join([*imports, "", *needed])


def generated() -> str:
    """The text of sync.py as it should be now."""
    modules = {twin.module: Module.read(twin.module) for twin in TWINS}
    classes = "\n\n\n".join(class_text(twin, modules[twin.module].class_named(twin.name)) for twin in TWINS)
    return formatted(f"{HEAD}\n{preamble(classes, list(modules.values()))}\n\n\n{classes}\n")


def formatted(text: str) -> str:
    for command in (["check", "--quiet", "--select", "I", "--fix"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    TARGET.write_text(generated())
