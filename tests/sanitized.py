"""Test files again, with libraries under the address and undefined-behaviour sanitizers."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from lab.cluster.paths import REPOSITORY

RUNTIMES = ("libasan.so", "libubsan.so")


def run_sanitized(files: Iterable[Path], left_out: Iterable[str], **environment: str) -> None:
    """Run test files but for tests whose names contain a word that is left out."""
    paths = [
        subprocess.run(
            ["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in RUNTIMES
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-x"]
    command += ["-k", f"not ({' or '.join(left_out)})", *map(str, files)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env={
            "PATH": "/usr/bin:/bin",
            "LD_PRELOAD": " ".join(paths),
            # Python keeps what it has to the end; that is no leak of ours.
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
            "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
            **environment,
        },
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
