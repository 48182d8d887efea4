"""The page Replay alone: the canary on real ranks; ``panel serve apps/replay.py`` shows it."""

import sys
from pathlib import Path

if (root := str(Path(__file__).resolve().parent.parent)) not in sys.path:
    sys.path.insert(0, root)

from apps.shell import create

create("replay").servable(title="CommCanary Lab: Replay")
