"""The page Overview alone: what lies in the workspace, and what is open; ``panel serve apps/overview.py`` shows it."""

import sys
from pathlib import Path

if (root := str(Path(__file__).resolve().parent.parent)) not in sys.path:
    sys.path.insert(0, root)

from apps.shell import create

create("overview").servable(title="CommCanary Lab: Overview")
