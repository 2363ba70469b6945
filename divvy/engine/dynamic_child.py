"""Run the SDK's dynamic provider server until the engine is gone.

Started as ``python -u <this file> <descriptor>``; the engine holds the other end of that pipe,
so that its death, however sudden, ends this process too.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading


def _end_with_engine(descriptor: int) -> None:
    os.read(descriptor, 1)
    os._exit(0)


if __name__ == "__main__":
    pipe = int(sys.argv.pop())
    os.set_inheritable(pipe, False)
    # The program's own modules, not those beside this file.
    sys.path[0] = os.getcwd()  # noqa: PTH109 (a plain text is wanted)
    threading.Thread(target=_end_with_engine, args=(pipe,), daemon=True).start()
    runpy.run_module("pulumi.dynamic", run_name="__main__")
