"""Run a Pulumi program against an engine: the process that holds the unmodified SDK.

Started as ``python <this file>``; it imports nothing of Divvy, so that it runs in the
program's own virtual environment. It loads the SDK at once, while the engine starts,
and learns the rest from the first line of its standard input (JSON).
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import re
import runpy
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

_LACKING = re.compile(r"The Pulumi CLI does not support (.+?)\. Please update the Pulumi CLI")
# What a short run makes stays until its end: looking for garbage is a tenth of its time.
gc.set_threshold(100_000)

import pulumi  # noqa: E402
import pulumi.runtime  # noqa: E402


def main() -> None:
    """Connect the SDK to the engine, run the program's ``__main__.py``, end with its result."""
    run_config = json.loads(sys.stdin.readline() or "null")
    if run_config is None:
        return  # the engine needs no program after all
    threading.Thread(target=_end_with_engine, daemon=True).start()
    folder = Path(run_config["main"])
    os.chdir(folder)
    sys.path[0] = str(folder)
    settings = pulumi.runtime.Settings(
        project=run_config["project"],
        stack=run_config["stack"],
        organization="organization",
        parallel=run_config["parallel"],
        dry_run=run_config["preview"],
        monitor=run_config["address"],
        engine=run_config["address"],
        root_directory=run_config["root"],
    )
    settings.engine = _WithoutDebug(settings.engine)
    pulumi.runtime.configure(settings)
    pulumi.runtime.set_all_config(run_config["config"], run_config["secret_keys"])
    program = str(folder / "__main__.py")

    def run() -> None:
        runpy.run_path(program, run_name="__main__")

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    failed = True
    try:
        loop.run_until_complete(pulumi.runtime.run_in_stack(run))
        failed = False
    except pulumi.RunError as error:
        pulumi.log.error(str(error))
    except BaseException as error:
        if not _registration(error):
            pulumi.log.error(_own_frames(error, folder))
    finally:
        # What still waits for the engine is of no use any more, and not worth a warning.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        loop.close()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(1 if failed else 0)


class _WithoutDebug:
    """The engine's service less the SDK's debug messages.

    The engine shows none of them, and they are most of all calls.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def Log(self, request: Any) -> None:  # noqa: N802 (the service's name)
        if request.severity:
            self._engine.Log(request)


def _end_with_engine() -> None:
    """Wait for the end of standard input: the engine holds its other end."""
    sys.stdin.read()
    os._exit(1)


def _registration(error: BaseException) -> bool:
    """Tell whether the error is the engine's own refusal coming back: it was told already."""
    import grpc  # noqa: PLC0415 (only on failure)

    while error is not None:
        if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
            return error.code() in (
                grpc.StatusCode.FAILED_PRECONDITION,  # how the engine refuses
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.CANCELLED,
            )
        if "resource monitor shut" in str(error) or "RegisterResource" in type(error).__name__:
            return True
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return False


def _own_frames(error: BaseException, folder: Path) -> str:
    """Format an error with the frames of the user's own files only."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(str(folder))
        and "site-packages" not in frame.filename
        and frame.filename != __file__
    ]
    lines = traceback.format_list(frames) if frames else []
    kind = "".join(traceback.format_exception_only(error)).strip()
    # The SDK takes every engine for the CLI; to update that would change nothing here.
    lacking = _LACKING.search(kind)
    if lacking:
        kind = f"divvy's embedded engine does not support {lacking[1]}"
    return "the program failed:\n" + "".join(lines) + kind


if __name__ == "__main__":
    main()
