#!/usr/bin/env python3
"""Build the sample workspace that `make demo` serves: the bundled traces, canaries compiled from them, two reports to
compare, and the evidence of two campaigns.

    python data/make_workspace.py DIR

Files that exist are replaced only when their content differs; other files in DIR are left alone. The same samples always give
the same bytes. The workbench adds the same samples to an empty workspace.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from commcanary_lab.errors import LabError
from commcanary_lab.samples import fill


def main() -> int:
    """Build the workspace named on the command line."""
    parser = argparse.ArgumentParser(description="Build the sample workspace.")
    parser.add_argument("directory", type=Path)
    target: Path = parser.parse_args().directory
    try:
        written = fill(target, replace=True)
    except (LabError, OSError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 3
    print(f"{target}: {sum(1 for p in target.iterdir() if not p.name.startswith('.'))} artifacts, {written} files written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
