"""The program `divvy` as it is installed: with the wheel alone, its packages may be missing."""

import sys


def main() -> None:
    """Run the command line, or say which extra brings what it needs."""
    try:
        from divvy.cli.main import main as run  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] == "divvy":
            raise
        sys.exit(
            f"error: divvy's commands need the package {missing.name}: pip install 'divvy[cli]'"
        )
    run()
