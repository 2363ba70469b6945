"""Every package that the code imports is declared where the code is installed."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = {
    *("divvy", "components", "conformance", "plugin_image"),
    *("lab", "release", "tests", "docs"),
}
# Folder → the extras that it may use.
ROOMS = {
    "divvy/model": (),
    "divvy/plan": (),
    "divvy/agent": ("agent",),
    "divvy/claim_templates": ("agent",),
    "divvy/kube": ("agent",),
    "divvy/stack": ("cli",),
    "divvy/render": ("cli",),
    "lab/cluster": ("cli",),
    "lab/setup": (),
    "divvy/deploy": ("cli",),
    "divvy/live": ("cli",),
    "divvy/cli": ("cli",),
    "components": ("cli", "pulumi"),
    "divvy/image": (),
    "divvy/pulumi_resources": ("cli", "pulumi"),
    "divvy/init": (),
    "conformance": ("verify", "cli"),
    "release": (),
    "lab": ("agent", "cli", "verify", "pulumi", "dev"),
    "tests": ("agent", "cli", "pulumi", "verify", "dev"),
    "docs": ("cli", "dev"),
}
# MkDocs loads it, in an environment of its own (requirements/docs.in).
OF_THE_SITE = "docs/site_pages.py"
# Part of pydantic, of the same version.
ALIASES = {"pydantic-core": "pydantic"}


def name_of(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower().replace(".", "-")


def declared(extra: str) -> set[str]:
    if extra == "dev":
        lines = (ROOT / "requirements/dev.in").read_text().splitlines()
        return {name_of(line) for line in lines if line and not line.startswith("#")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return {name_of(requirement) for requirement in listed}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names - OURS - sys.stdlib_module_names


@pytest.mark.parametrize("room", ROOMS)
def test_declares_every_import(room: str) -> None:
    distributions = packages_distributions()
    known = declared("").union(*map(declared, ROOMS[room]))
    for path in sorted({*(ROOT / room).rglob("*.py")} - {ROOT / OF_THE_SITE}):
        for name in imported(path):
            providers = {
                name_of(distribution).replace("_", "-") for distribution in distributions[name]
            }
            providers = {ALIASES.get(provider, provider) for provider in providers}
            assert providers & known, f"{path.relative_to(ROOT)} imports {name}"


def test_says_in_the_docs_why_each_package_is_needed() -> None:
    page = (ROOT / "docs/dependencies.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)` \| ([^|]+?) \|", page, re.MULTILINE))
    extras = ("agent", "cli", "pulumi", "verify")
    expected = {name: "–" for name in declared("")}
    for name in set().union(*map(declared, extras)) - expected.keys():
        expected[name] = ", ".join(extra for extra in extras if name in declared(extra))
    assert rows == expected


def test_ships_stubs_of_the_pinned_generator() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    (generator,) = [requirement for requirement in build if name_of(requirement) == "grpcio-tools"]
    assert f"{generator} " in (ROOT / "requirements/dev.txt").read_text()
