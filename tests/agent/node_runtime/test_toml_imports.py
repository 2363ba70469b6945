"""An entry is put into imports, and not a byte beside it is another."""

from __future__ import annotations

import tomllib

import pytest

from divvy.agent.node_runtime.toml_imports import with_import


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 'imports = ["x"]\n'),
        ("version = 2\n", 'imports = ["x"]\nversion = 2\n'),
        ("# a\r\nversion = 2\r\n", 'imports = ["x"]\r\n# a\r\nversion = 2\r\n'),
        ("imports = []\n", 'imports = ["x"]\n'),
        ('imports = ["a"]\n', 'imports = ["a", "x"]\n'),
        ('imports = ["a",]\n', 'imports = ["a", "x"]\n'),
        ('"imports" = ["a"]', '"imports" = ["a", "x"]'),
        (
            'imports = [\n  "a", # keep ] this\n  # "off",\n]\nversion = 2\n',
            'imports = [\n  "a", "x" # keep ] this\n  # "off",\n]\nversion = 2\n',
        ),
        ("imports = [\n  'a#]'   # last\n]\n", "imports = [\n  'a#]', \"x\"   # last\n]\n"),
        (
            'a = """\nimports = ["no"]\n"""\nimports = ["yes"]\n',
            'a = """\nimports = ["no"]\n"""\nimports = ["yes", "x"]\n',
        ),
        (
            "[plugins.p]\nimports = ['theirs']\n",
            "imports = [\"x\"]\n[plugins.p]\nimports = ['theirs']\n",
        ),
        (
            "a = [[1], [2]]\nb = {imports = [1]}\nimports=['q']#end",
            "a = [[1], [2]]\nb = {imports = [1]}\nimports=['q', \"x\"]#end",
        ),
    ],
)
def test_adds_nothing_but_the_import(before: str, after: str) -> None:
    assert with_import(before, "x") == after
    wanted = tomllib.loads(before)
    assert tomllib.loads(after) == {**wanted, "imports": [*wanted.get("imports", []), "x"]}
