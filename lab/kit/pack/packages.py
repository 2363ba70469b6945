"""The packages in the kit's Python: Divvy, and what its extras need, as they are installed here."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from conformance.image import lay_tinygrad
from divvy.bundled_sources import CONFORMANCE, PACKAGE
from lab.cluster.paths import LAB, REPOSITORY

_EXTRAS = ("agent", "cli", "verify")
# Secrets of a deployment and certificates of the lab, neither of which the kit has; tinygrad is
# laid out without the bindings that training on CUDA leaves alone.
_LEFT_OUT = {"cryptography", "tinygrad"}
_FILES_LEFT_OUT = ("__pycache__/", "/tests/", "/testing/")
# pytest colours its own output with one lexer; a lexer for each language there is fills 7 MB.
_LEXERS = "pygments/lexers/"
_NEEDED_LEXERS = {f"{_LEXERS}{name}.py" for name in ("__init__", "_mapping", "python", "diff")}


def lay_packages(site: Path) -> None:
    """Copy Divvy, its packages and the stand-ins of the tests that the kit uses to ``site``."""
    for name in sorted(_wanted()):
        _lay_distribution(name, site)
    lay_tinygrad(site)
    _lay_source(PACKAGE, site / "divvy", left_out=("share", "components", "pulumi", "api/*.proto"))
    _lay_source(CONFORMANCE, site / "divvy/share/conformance", left_out=("build",))
    (site / "divvy/share/requirements").mkdir()
    # `divvy verify` runs the suite from the folder around it, and so does the kit import it.
    (site / "share.pth").write_text("divvy/share\n")
    _lay_source(LAB / "kit", site / "lab/kit", left_out=("pack", "recorded"))
    for room in ("cluster", "fakes"):
        _lay_source(LAB / room, site / "lab" / room)
    shutil.copy(LAB / "__init__.py", site / "lab")


def _wanted() -> set[str]:
    """Return the distributions that the extras lead to, by their requirements."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    open_ones = [*project["dependencies"], *(extra for name in _EXTRAS for extra in extras[name])]
    wanted: set[str] = set()
    while open_ones:
        required = Requirement(open_ones.pop())
        name = required.name.lower().replace("_", "-")
        applies = required.marker is None or required.marker.evaluate({"extra": ""})
        if applies and name not in wanted | _LEFT_OUT:
            wanted.add(name)
            open_ones += distribution(name).requires or []
    return wanted


def _lay_distribution(name: str, site: Path) -> None:
    for file in distribution(name).files or ():
        path = file.as_posix()
        is_program = path.startswith("..") or path.endswith((".pth", ".pyi", "RECORD"))
        is_extra = any(part in f"/{path}" for part in _FILES_LEFT_OUT)
        is_lexer = path.startswith(_LEXERS) and path not in _NEEDED_LEXERS
        source = Path(str(file.locate()))
        if is_program or is_extra or is_lexer or not source.is_file():
            continue
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def _lay_source(source: Path, target: Path, left_out: Iterable[str] = ()) -> None:
    ignored = shutil.ignore_patterns("__pycache__", *left_out)
    shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)
