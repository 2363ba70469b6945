"""Continue a run of hours: what passed on this commit is not run again (make test-all CONTINUE=1).

The file that DIVVY_PASSED names has the tests that passed, a line each; it belongs to one commit.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

VARIABLE = "DIVVY_PASSED"


def pytest_configure() -> None:
    """Refuse a tree that is no commit: what has passed there may not pass here."""
    changed = subprocess.run(
        ["git", "status", "--porcelain"], capture_output=True, text=True, check=True
    ).stdout
    if changed:
        raise pytest.UsageError(f"a run is continued on a commit, and files differ:\n{changed}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has passed."""
    passed = set(_file().read_text().splitlines()) if _file().exists() else set()
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
    items[:] = [item for item in items if item.nodeid not in passed]


class _Outcomes:
    """The phases of the test that runs: it has passed if none of them failed."""

    def __init__(self) -> None:
        self.failed = False

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "setup":
            self.failed = False
        self.failed |= report.failed
        if report.when == "teardown" and not self.failed:
            _file().parent.mkdir(parents=True, exist_ok=True)
            with _file().open("a") as file:
                file.write(f"{report.nodeid}\n")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Note what passes, at once: the run may be ended at any instant."""
    session.config.pluginmanager.register(_Outcomes())


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """End well where all has passed before."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


def _file() -> Path:
    return Path(os.environ[VARIABLE])
