"""The page Traffic alone: who sends what to whom, and which fabric that needs; ``panel serve apps/traffic.py`` shows it."""

import sys
from pathlib import Path

if (root := str(Path(__file__).resolve().parent.parent)) not in sys.path:
    sys.path.insert(0, root)

from apps.shell import create

create("traffic").servable(title="CommCanary Lab: Traffic")
