"""Tables in the look of the theme, with right-aligned figures and a download."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

from commcanary_lab.views.extra import material, panel

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TableColumn", "download", "table"]

_CSS = """
:host { width: calc(100% + 16px) !important; max-width: none !important; --cl-d: var(--mui-palette-divider, #e1e6ec);
  --cl-t: var(--mui-palette-text-primary, #18212d);
  --cl-m: var(--mui-palette-text-secondary, #56616f); --cl-p: var(--mui-palette-background-paper, #fff); }
.tabulator { font-family: Roboto, 'Helvetica Neue', Arial, sans-serif; font-size: 13px; font-variant-numeric: tabular-nums;
  border: 0 !important; background: transparent !important; color: var(--cl-t) !important; }
.tabulator .tabulator-header { background: transparent !important; border-bottom: 1px solid var(--cl-d) !important;
  color: var(--cl-m) !important; font-weight: 500; }
.tabulator .tabulator-header .tabulator-col, .tabulator .tabulator-header .tabulator-headers { background: transparent !important;
  border-right: 0 !important; }
.tabulator .tabulator-header .tabulator-col .tabulator-col-content { padding: 5px 14px 5px 8px !important; }
.tabulator .tabulator-header .tabulator-col-title { font-size: 12px; font-weight: 500; color: var(--cl-m) !important;
  white-space: normal !important; }
.tabulator .tabulator-cell, .tabulator .tabulator-cell * { font-size: 13px !important; line-height: 18px; }
.tabulator .tabulator-tableholder, .tabulator .tabulator-table { background: transparent !important; color: var(--cl-t) !important; }
.tabulator-row, .tabulator-row.tabulator-row-even { background: transparent !important;
  border-bottom: 1px solid var(--cl-d) !important; border-top: 0 !important; color: var(--cl-t) !important; min-height: 30px !important; }
.tabulator-row:hover { background: color-mix(in srgb, var(--cl-t) 5%, transparent) !important; }
.tabulator-row .tabulator-cell { border-right: 0 !important; padding: 6px 14px 6px 8px !important; color: var(--cl-t) !important;
  height: 30px !important; }
.tabulator .tabulator-footer { background: transparent !important; border-top: 0 !important; color: var(--cl-m) !important;
  padding: 6px 0 0 !important; font-weight: 400; }
.tabulator .tabulator-footer .tabulator-page { color: var(--cl-m) !important; background: transparent !important;
  border: 1px solid var(--cl-d) !important; border-radius: 6px !important; padding: 2px 8px !important; margin: 0 2px !important;
  font-size: 12px; }
.tabulator .tabulator-footer .tabulator-page.active { color: var(--cl-t) !important; border-color: var(--cl-m) !important; }
.tabulator .tabulator-footer .tabulator-page:disabled { opacity: .35; }
.tabulator .tabulator-footer:has(.tabulator-pages > .tabulator-page:only-child) { display: none; }
.tabulator .tabulator-placeholder { color: var(--cl-m); }
.tabulator .tabulator-placeholder .tabulator-placeholder-contents { color: var(--cl-m) !important; font-weight: 400 !important;
  font-size: 13px !important; white-space: normal; }
.tabulator .tabulator-col .tabulator-col-sorter { opacity: 0; right: 0 !important; }
.tabulator .tabulator-col:hover .tabulator-col-sorter, .tabulator .tabulator-col[aria-sort=ascending] .tabulator-col-sorter,
  .tabulator .tabulator-col[aria-sort=descending] .tabulator-col-sorter { opacity: .8; }
.tabulator .tabulator-header .tabulator-col .tabulator-col-title { padding-right: 0 !important; }
"""


#: Drawn, not a letter of an icon font: a notebook that loads nothing from outside has no such font.
_DOWNLOAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="currentColor">'
    '<path d="M5 20h14v-2H5v2zM19 9h-4V3H9v6H5l7 7 7-7z"/></svg>'
)


@dataclass(frozen=True)
class TableColumn:
    """How a column is shown.

    Parameters
    ----------
    title : str
        Its head, with the unit where cells have none.
    formatter : object, optional
        A cell formatter; text is shown as plain text.
    width : int, optional
        Minimum width, pixels.
    right : bool
        Right aligned.
    grow : int
        Share of spare width.
    """

    title: str
    formatter: Any = None
    width: int = 80
    right: bool = False
    grow: int = 1


def table(
    frame: pd.DataFrame, columns: Mapping[str, TableColumn], *, page_size: int = 12, empty: str = "Nothing to show.", **params: Any
) -> Any:
    """Return a sortable, paginated table.

    Parameters
    ----------
    frame : DataFrame
        The rows; columns that `columns` does not name are left out.
    columns : mapping of str to TableColumn
        Columns in order.
    page_size : int
        Rows per page.
    empty : str
        What an empty table says.
    """
    shown = frame[list(columns)]
    settings = {
        "columnDefaults": {"resizable": True, "headerSortTristate": False, "vertAlign": "middle"},
        "columns": [
            {
                "field": name,
                "minWidth": c.width,
                "widthGrow": c.grow,
                "hozAlign": "right" if c.right else "left",
                "headerHozAlign": "right" if c.right else "left",
            }
            for name, c in columns.items()
        ],
        "placeholder": empty,
    }
    options = {
        "show_index": False,
        "disabled": True,
        "selectable": False,
        "layout": "fit_columns",
        "sizing_mode": "stretch_width",
        "pagination": "local" if len(shown) > page_size else None,
        "page_size": page_size,
        "titles": {name: c.title for name, c in columns.items()},
        "formatters": {name: c.formatter or {"type": "plaintext"} for name, c in columns.items()},
        "text_align": {name: "right" if c.right else "left" for name, c in columns.items()},
        "header_align": {name: "right" if c.right else "left" for name, c in columns.items()},
        "configuration": settings,
        "stylesheets": [_CSS],
        "margin": (0, -8, 0, -8),  # cells have padding: text lines up with the title of the card
        "theme": "simple",
        **params,
    }
    return panel().widgets.Tabulator(shown, **options)


def download(content: Callable[[], str], filename: str, label: str = "CSV") -> Any:
    """Return a button that downloads text made when it is pressed."""
    return material().FileDownload(
        callback=lambda: StringIO(content()),
        filename=filename,
        label=label,
        variant="text",
        size="small",
        icon=_DOWNLOAD,
        margin=(-4, -6, 0, 0),
        width=72,
        align="start",
        description=f"Download {filename}",
    )
