"""The page Canary alone: the program, its error bounds and its verification; ``panel serve apps/canary.py`` shows it."""

import sys
from pathlib import Path

if (root := str(Path(__file__).resolve().parent.parent)) not in sys.path:
    sys.path.insert(0, root)

from apps.shell import create

create("canary").servable(title="CommCanary Lab: Canary")
