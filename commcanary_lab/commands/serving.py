"""The verb serve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb to the application."""
    app.command()(serve)


def serve(
    workspace: Annotated[Path, typer.Option("--workspace", help="Folder of traces and canaries.")] = Path("workspace"),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 5006,
    show: Annotated[bool, typer.Option("--show", help="Open a browser.")] = False,
) -> None:
    """Serve the workbench on 127.0.0.1."""
    import sys
    from importlib import import_module

    from commcanary_lab.errors import InputError, MissingExtraError

    root = Path(__file__).resolve().parents[2]
    if not (root / "apps" / "serving.py").exists():
        raise InputError("the workbench pages are not installed", file=str(root / "apps"), remedy="serve from a source checkout")
    sys.path.insert(0, str(root))
    try:
        import panel_material_ui  # noqa: F401
    except ImportError:
        raise MissingExtraError("the workbench needs panel", remedy="pip install 'commcanary-lab[workbench]'") from None
    import_module("apps.serving").serve(workspace, port=port, show=show)
