"""The layer order of the package, enforced on the source: imports are parsed, those inside functions too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "commcanary_lab"

#: A module may import from its own layer and from those before it.
LAYERS = (
    *("errors", "units", "limits", "files", "canonical", "number_text", "_allocator", "_callable", "_collector", "_shown"),
    *("trace", "layout", "importers", "inspect", "traffic", "canary", "simulate", "verify", "minimize", "export", "capture", "replay"),
    *("review", "workspace", "views", "api", "samples", "commands", "cli"),
)

#: The base nouns: they know each other, and nothing else of the package.
BASE = LAYERS[:10]

#: Extras: installed by choice, imported where they are used.
PLOTTING = {"panel", "panel_material_ui", "holoviews", "bokeh", "datashader", "param", "matplotlib"}
OPTIONAL = PLOTTING | {"torch", "dask", "distributed"}

#: Slow to import: simulate, compile and verify start without them.
SLOW_TO_IMPORT = {"pandas", "pyarrow", "jsonschema", "scipy"}


class Import(NamedTuple):
    """An imported module, and whether importing the importing module runs it."""

    name: str
    line: int
    at_start: bool


def imports(source: str, module: str, is_package: bool = False) -> Iterator[Import]:
    """Yield every import of a module's source: absolute names, wherever the statement stands."""
    yield from _imports(ast.parse(source), module if is_package else module.rpartition(".")[0], True)


def _imports(node: ast.AST, package: str, at_start: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, at_start) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            parent = package.rsplit(".", child.level - 1)[0] if child.level else ""
            base = ".".join(part for part in (parent, child.module) if part)
            # `from package import module` may name a module: both are meant
            yield from (Import(f"{base}.{alias.name}", child.lineno, at_start) for alias in child.names)
        elif isinstance(child, ast.Call) and _called(child) == "import_module":
            first = child.args[0] if child.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield Import(first.value, child.lineno, at_start)
            yield from _imports(child, package, at_start)
        else:
            inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or _only_for_types(child)
            yield from _imports(child, package, at_start and not inside)


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


def _only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


MODULES = modules()


def layer(name: str) -> str | None:
    """The layer of a module of the package; None for the package itself and for everything outside."""
    parts = name.split(".")
    return parts[1] if parts[0] == PACKAGE and len(parts) > 1 and parts[1] in LAYERS else None


def of(module: str, path: Path) -> list[Import]:
    return list(imports(path.read_text(), module, path.name == "__init__.py"))


@pytest.mark.parametrize(("module", "path"), MODULES, ids=[m for m, _ in MODULES])
def test_imports_go_down_only(module: str, path: Path) -> None:
    own = layer(module)
    if own is None:
        assert module == PACKAGE, f"{module} is in no layer: add it to LAYERS"
        return
    allowed = LAYERS if own in ("cli", "commands") else LAYERS[: LAYERS.index(own) + 1]
    if own in BASE:
        allowed = BASE
    wrong = [f"line {i.line}: {i.name}" for i in of(module, path) if layer(i.name) not in (None, *allowed)]
    assert not wrong, f"{module} ({own}) imports from a later layer"


@pytest.mark.parametrize(
    ("layer_name", "never"),
    [
        ("trace", {"canary", "importers", "simulate"}),
        ("simulate", {"verify", "minimize", "views"}),
        ("canary", {"simulate", "verify"}),
        ("traffic", {"canary", "simulate"}),
        ("verify", {"minimize", "review"}),
    ],
)
def test_promises_that_the_design_spells_out(layer_name: str, never: set[str]) -> None:
    for module, path in MODULES:
        if layer(module) == layer_name:
            assert not {layer(i.name) for i in of(module, path)} & never, module


def test_only_applications_import_views() -> None:
    for module, path in MODULES:
        if layer(module) not in (None, "views", "commands", "cli"):
            assert "views" not in {layer(i.name) for i in of(module, path)}, module


@pytest.mark.parametrize(("module", "path"), MODULES, ids=[m for m, _ in MODULES])
def test_extras_are_imported_where_they_are_used(module: str, path: Path) -> None:
    found = of(module, path)
    if layer(module) != "views":
        eager = {i.name.split(".")[0] for i in found if i.at_start} & OPTIONAL
        assert not eager, f"{module} imports {eager} when it is imported"
    if layer(module) not in ("views", "commands", "cli"):
        plots = {i.name.split(".")[0] for i in found} & PLOTTING
        assert not plots, f"{module} is not a view and imports {plots}"


def test_start_up_is_free_of_slow_imports() -> None:
    first = LAYERS[: LAYERS.index("verify") + 1]
    for module, path in MODULES:
        if layer(module) in first or layer(module) in ("cli", None):
            slow = {i.name.split(".")[0] for i in of(module, path) if i.at_start} & SLOW_TO_IMPORT
            assert not slow, f"{module} imports {slow} when it is imported"


def test_every_part_of_the_package_is_in_a_layer() -> None:
    parts = {p.stem for p in (ROOT / PACKAGE).iterdir() if (p.is_dir() and any(p.glob("*.py"))) or p.suffix == ".py"}
    assert parts - {"__init__"} <= set(LAYERS)


def test_the_parser_sees_every_form_of_import() -> None:
    source = """
import commcanary_lab.views.heatmap as h
from commcanary_lab import verify
from . import model
from ..canary.read import read_canary
if TYPE_CHECKING:
    import pandas
def f():
    from commcanary_lab.simulate.engine import run
    class A:
        import torch
    return import_module("commcanary_lab.replay")
try:
    import panel
except ImportError:
    pass
"""
    found = {(i.name, i.at_start) for i in imports(source, "commcanary_lab.trace.json_v1")}
    assert found == {
        ("commcanary_lab.views.heatmap", True),
        ("commcanary_lab.verify", True),
        ("commcanary_lab.trace.model", True),
        ("commcanary_lab.canary.read.read_canary", True),
        ("pandas", False),
        ("commcanary_lab.simulate.engine.run", False),
        ("torch", False),
        ("commcanary_lab.replay", False),
        ("panel", True),
    }
    assert {layer(name) for name, _ in found} == {"views", "verify", "trace", "canary", "simulate", "replay", None}
    assert next(imports("from . import model", "commcanary_lab.trace", is_package=True)).name == "commcanary_lab.trace.model"
