"""The page Ablation alone: what each preserved mechanism does; ``panel serve apps/ablation.py`` shows it."""

import sys
from pathlib import Path

if (root := str(Path(__file__).resolve().parent.parent)) not in sys.path:
    sys.path.insert(0, root)

from apps.shell import create

create("ablation").servable(title="CommCanary Lab: Ablation")
