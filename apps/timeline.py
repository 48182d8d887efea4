"""The page Timeline alone: collectives in time; ``panel serve apps/timeline.py`` shows it."""

import sys
from pathlib import Path

if (root := str(Path(__file__).resolve().parent.parent)) not in sys.path:
    sys.path.insert(0, root)

from apps.shell import create

create("timeline").servable(title="CommCanary Lab: Timeline")
