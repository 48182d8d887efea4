"""``python -m commcanary_lab.capture``: what the recorder costs on this machine, as one line of JSON."""

import json
from dataclasses import asdict

from commcanary_lab.capture.overhead import measure

if __name__ == "__main__":
    result = measure()
    print(json.dumps({**asdict(result), "added_ns": result.added_ns}))
