"""The page Ranking alone: which configuration is better; ``panel serve apps/ranking.py`` shows it."""

import sys
from pathlib import Path

if (root := str(Path(__file__).resolve().parent.parent)) not in sys.path:
    sys.path.insert(0, root)

from apps.shell import create

create("ranking").servable(title="CommCanary Lab: Ranking")
