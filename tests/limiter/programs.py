"""Programs in C that tests run with the limiter's libraries."""

import subprocess
from pathlib import Path

from lab.target import CC


def compiled(source: str, folder: Path, *options: str) -> Path:
    """Compile a file of this folder and return the program or library."""
    target = folder / source.removesuffix(".c")
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", *options]
    sources = [Path(__file__).with_name(source)]
    subprocess.run([CC, *flags, "-o", target, *sources, "-ldl", "-lpthread"], check=True)
    return target
