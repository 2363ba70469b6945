"""Ask one library, in a process of its own: a wrong answer of a driver may end it.

``python -m lab.kit.answers KIND LIBRARY FILE INDEX [CALL…]``: the index is that of the GPU for
NVML, and the calls are left out.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lab.kit.answers import cuda, nvml
from lab.kit.answers.recording import Recording

if __name__ == "__main__":
    kind, library, place, index, *left_out = sys.argv[1:]
    recording = Recording(Path(place), left_out)
    if kind == "nvml":
        nvml.record(library, recording, int(index))
    else:
        cuda.record(library, recording)
