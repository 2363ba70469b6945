"""The program `divvy` as it is installed: with the wheel alone, its packages may be missing.

Nothing that takes time to load is imported above ``main``, which ends an interrupt quietly.
"""

import os
import sys


def main() -> None:
    """Run the command line, or say which extra brings what it needs."""
    _open_closed_streams()
    try:
        _run()
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        sys.exit(130)  # INTERRUPTED of divvy.cli.errors, whose module may not be loaded yet


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
        if missing.name is None or missing.name.partition(".")[0] == "divvy":
            raise
        from divvy.distribution import install_command  # noqa: PLC0415

        needed = f"divvy's commands need the package {missing.name}"
        sys.exit(f"error: {needed}: {install_command('cli')}")
    run()
