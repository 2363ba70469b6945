"""The programs as they are installed: with the wheel alone, their packages may be missing.

Nothing that takes time to load is imported above ``main``, which ends an interrupt quietly.
"""

import os
import sys
from typing import NoReturn


def main() -> None:
    """Run the command line, or say which extra brings what it needs."""
    _open_closed_streams()
    try:
        _run()
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        sys.exit(130)  # INTERRUPTED of divvy.cli.exit_codes, whose module may not be loaded yet


def pulumi_plugin() -> None:
    """Run the plugin of the package divvy, which Pulumi starts, or say which extra brings it."""
    try:
        from divvy.components.provider import main as run  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        _exit_without(missing, "Pulumi's plugin of Divvy needs", "pulumi")
    run()


def _open_closed_streams() -> None:
    """Give standard streams that the caller closed (``>&-``) to /dev/null.

    Else the next file that is opened, such as a stack's state, becomes standard output.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _run() -> None:
    try:
        from divvy.cli.main import main as run  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        _exit_without(missing, "divvy's commands need", "cli")
    run()


def _exit_without(missing: ModuleNotFoundError, need: str, extras: str) -> NoReturn:
    if missing.name is None or missing.name.partition(".")[0] == "divvy":
        raise missing
    from divvy.version_info import install_command  # noqa: PLC0415

    sys.exit(f"error: {need} the package {missing.name}: {install_command(extras)}")


if __name__ == "__main__":
    main()
