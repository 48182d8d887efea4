"""The page Minimise alone: ddmin against behaviour search; ``panel serve apps/minimise.py`` shows it."""

import sys
from pathlib import Path

if (root := str(Path(__file__).resolve().parent.parent)) not in sys.path:
    sys.path.insert(0, root)

from apps.shell import create

create("minimise").servable(title="CommCanary Lab: Minimise")
