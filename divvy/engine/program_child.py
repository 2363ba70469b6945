"""Run a Pulumi program against an engine: the process that holds the unmodified SDK.

Started as ``python <this file> <descriptor>``; it imports nothing of Divvy, so that it runs in the
program's own virtual environment. It loads the SDK at once, while the engine starts. The
socket whose descriptor is its argument gives it the run (a line of JSON); it answers with what
the program declares, before the SDK has registered any of it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import re
import runpy
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LACKING = re.compile(r"The Pulumi CLI does not support (.+?)\. Please update the Pulumi CLI")
# A short run needs no garbage collection, which would take a tenth of its time.
gc.set_threshold(100_000)

import pulumi  # noqa: E402
import pulumi.runtime  # noqa: E402


def main() -> None:
    """Connect the SDK to the engine, run the program's ``__main__.py``, end with its result."""
    engine = socket.socket(fileno=int(sys.argv[1]))
    engine.set_inheritable(False)
    stream = engine.makefile("rwb")
    run_config = json.loads(stream.readline() or "null")
    if run_config is None:
        return  # the engine needs no program after all
    threading.Thread(target=_end_with_engine, args=(stream,), daemon=True).start()
    del sys.argv[1:]
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

    raised: list[BaseException] = []

    def run() -> None:
        resources: list[dict[str, Any]] = []
        declared: list[dict[str, Any]] | None = None
        pulumi.runtime.register_stack_transformation(lambda args: resources.append(_declared(args)))
        try:
            runpy.run_path(program, run_name="__main__")
            declared = resources
        except BaseException as error:
            raised.append(error)
            raise
        finally:
            # Registrations begin when this function has returned. They wait for the engine's
            # decision, and the SDK for them, also in a program that has failed.
            stream.write(json.dumps(declared).encode() + b"\n")
            stream.flush()

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    failed = True
    try:
        loop.run_until_complete(pulumi.runtime.run_in_stack(run))
        failed = False
    except BaseException as error:
        # What the program itself has raised, before what the SDK raises because of it.
        cause = raised[0] if raised else error
        if isinstance(cause, pulumi.RunError):
            pulumi.log.error(str(cause))
        # A terminal interrupts this process beside the engine's, which says so.
        elif not isinstance(cause, KeyboardInterrupt) and not _registration(cause):
            pulumi.log.error(_own_frames(cause, folder))
    finally:
        # Tasks that still wait for the engine are abandoned: no warnings about them.
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


def _declared(args: Any) -> dict[str, Any]:
    """Return what a resource declares, by names only."""
    options = {name: value for name, value in vars(args.opts).items() if value}
    # The SDK merges two resources' options into an empty binding.
    if "hooks" in options and not any(vars(options["hooks"]).values()):
        del options["hooks"]
    metadata = _entries(args.props.get("metadata"))
    return {
        "type": args.type_,
        "name": args.name,
        "options": sorted(options),
        "inputs": sorted(key for key, value in args.props.items() if value is not None),
        "metadata": sorted(metadata),
        "annotations": sorted(_entries(metadata.get("annotations"))),
        "aliases": sorted(_aliases(args)),
        "component": not isinstance(args.resource, pulumi.CustomResource),
    }


def _entries(value: Any) -> dict[str, Any]:
    """Return the entries of a mapping or an input type, none while it is not known."""
    if isinstance(value, dict):
        return {key: entry for key, entry in value.items() if isinstance(key, str)}
    known = getattr(value, "__dict__", None)
    return {} if known is None or isinstance(value, pulumi.Output) else dict(known)


def _aliases(args: Any) -> Iterator[str]:
    """Yield a text for each alias that is a URN, or a plain name under the same parent."""
    for alias in args.opts.aliases or ():
        if isinstance(alias, str):
            yield alias
        elif isinstance(alias.name, str) and alias.parent is ...:
            kind = alias.type_ if isinstance(alias.type_, str) else args.type_
            parent = args.opts.parent
            below = f" below {parent._name}" if parent is not None else ""
            yield f"{kind}::{alias.name}{below}"


def _end_with_engine(stream: Any) -> None:
    """Wait until the engine closes its end of the socket."""
    stream.read()
    os._exit(1)


def _registration(error: BaseException) -> bool:
    """Tell whether the error is the engine's own refusal coming back, which is reported already."""
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
