"""The page Review alone: may this change be rolled out; ``panel serve apps/review.py`` shows it."""

import sys
from pathlib import Path

if (root := str(Path(__file__).resolve().parent.parent)) not in sys.path:
    sys.path.insert(0, root)

from apps.shell import create

create("review").servable(title="CommCanary Lab: Review")
