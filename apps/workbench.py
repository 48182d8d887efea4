"""The workbench app; ``panel serve apps/workbench.py`` or ``commcanary-lab serve`` show it."""

import sys
from pathlib import Path

if (root := str(Path(__file__).resolve().parent.parent)) not in sys.path:
    sys.path.insert(0, root)

from apps.shell import create

create().servable(title="CommCanary Lab")
