"""Run the SDK's dynamic provider server until the engine is gone.

Started as ``python -u <this file>``; the engine holds the other end of standard
input, so that its death, however sudden, ends this process too.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading


def _end_with_engine() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    # The program's own modules, not those beside this file.
    sys.path[0] = os.getcwd()  # noqa: PTH109 (a plain text is wanted)
    threading.Thread(target=_end_with_engine, daemon=True).start()
    runpy.run_module("pulumi.dynamic", run_name="__main__")
