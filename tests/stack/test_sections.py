"""A section of a stack file is read with every error at once, each with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from divvy.stack.errors import StackError
from divvy.stack.file import StackFile, read_path
from divvy.stack.sections import InvalidStack, read_cluster
from lab.cluster.section import read_lab

CLUSTER = """\
config:
  divvy:cluster:
    profiles: {whole: {}}
    pools: {all: {profile: whole}}
"""


def file(text: str) -> StackFile:
    return StackFile("x.yaml", text, "x")


def test_reports_problems_in_line_order() -> None:
    wrong = CLUSTER.replace("profile: whole", "profile: hole").replace("{}", "{mig: {'3': 0}}")
    with pytest.raises(InvalidStack) as refused:
        read_cluster(file(wrong))
    assert str(refused.value).splitlines() == [
        "x.yaml has 1 error:",
        "  line 3: profiles.whole.mig.3: is 0",
        "      1 or more is expected",
    ] or str(refused.value).startswith("x.yaml has 2 errors:\n  line 3: ")


def test_reports_a_duplicate_key_among_the_other_errors() -> None:
    twice = CLUSTER.replace("{whole: {}}", "{whole: {}, whole: {}}").replace("all:", "All:")
    with pytest.raises(InvalidStack) as refused:
        read_cluster(file(twice))
    assert str(refused.value).splitlines() == [
        "x.yaml has 2 errors:",
        "  line 3: profiles.whole: is defined twice (again in line 3)",
        "      keep one",
        "  line 4: pools.All: is not a pool name",
        "      1 to 40 lowercase letters, digits and '-', with a letter or digit at both ends",
    ]


@pytest.mark.parametrize("read", [read_cluster, read_lab])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("config: {}\n", "x.yaml has no `config: {divvy:"),
        ("[]\n", "x.yaml is not a mapping"),
        ("config: [\n", "x.yaml is not YAML: line 2: "),
    ],
)
def test_reports_the_same_mistake_alike_from_every_reader(read, text: str, words: str) -> None:
    with pytest.raises(StackError) as refused:
        read(file(text))
    assert str(refused.value).startswith(words)


@pytest.mark.parametrize(
    ("text", "line", "remedy"),
    [
        ("config:\n  a: {\n  b: {c: 1}\nd: 2\n", 4, "a flow mapping that begins in line 2"),
        ("config:\n\ta: 1\n", 2, "indent with spaces, not with tabs"),
        ("config:\n  a: @b\n", 2, "put a value that begins with @, ` or % in quotes"),
        ("config:\n  a: b: {c: 1}\n", 2, "put `{key: value}` in braces, or on a line"),
    ],
)
def test_says_how_to_write_what_is_not_yaml(text: str, line: int, remedy: str) -> None:
    with pytest.raises(StackError, match=f"x.yaml is not YAML: line {line}: .*{remedy}"):
        read_cluster(file(text))


def test_refuses_a_duplicate_section() -> None:
    both = CLUSTER + "  divvy:cluster:\n    profiles: {}\n"
    with pytest.raises(
        InvalidStack, match=r"config.divvy:cluster: is defined twice \(again in line"
    ):
        read_cluster(file(both))


def test_names_an_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"cannot read .*no\.yaml: No such file or directory"):
        read_path(tmp_path / "no.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff")
    with pytest.raises(StackError, match=r"bytes\.yaml is not text in UTF-8"):
        read_path(tmp_path / "bytes.yaml")


def test_refuses_a_mapping_as_a_key() -> None:
    with pytest.raises(StackError, match="is not YAML"):
        read_cluster(file("config:\n  divvy:cluster: {? {a: 1} : b}\n"))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            CLUSTER + "pools:\n  more: {profile: whole}\n",
            ["line 5: pools: is at the wrong level", "write it below `config: divvy:cluster:`"],
        ),
        (
            CLUSTER + "  pools:\n    more: {profile: whole}\n",
            ["line 5: config.pools: is at the wrong level", "write it below `divvy:cluster:`"],
        ),
        (
            CLUSTER + "plugin: {}\n",
            ["line 5: plugin: is at the wrong level", "write it below `config: divvy:cluster:`"],
        ),
        (
            CLUSTER + "  divvy:pools: {}\n",
            [
                "line 5: config.divvy:pools: is at the wrong level",
                "write it below `divvy:cluster:`, as `pools:`",
            ],
        ),
        (
            CLUSTER + "divvy:lab: {nodes: []}\n",
            ["line 5: divvy:lab: is at the wrong level", "write it below `config:`"],
        ),
        (
            CLUSTER + "confg: {}\n",
            ["line 5: confg: is not a key of a stack file", "did you mean config?"],
        ),
        (
            CLUSTER + "zzz: {}\n",
            [
                "line 5: zzz: is not a key of a stack file",
                "known: config, environment, secretsprovider, encryptedkey, encryptionsalt",
            ],
        ),
        (
            CLUSTER.replace("divvy:cluster", "divvy:clutser"),
            ["line 2: config.divvy:clutser: nothing reads it", "did you mean divvy:cluster?"],
        ),
        (
            CLUSTER + '"\\e[2J": {}\n',
            [
                r"line 5: '\x1b[2J': is not a key of a stack file",
                "known: config, environment, secretsprovider, encryptedkey, encryptionsalt",
            ],
        ),
        (
            CLUSTER + "  divvy:zzz: 1\n",
            ["line 5: config.divvy:zzz: nothing reads it", "known: divvy:cluster, divvy:lab"],
        ),
    ],
)
def test_refuses_a_key_that_nothing_reads(text: str, lines: list[str]) -> None:
    expected = ["x.yaml has 1 error:", f"  {lines[0]}", f"      {lines[1]}"]
    with pytest.raises(StackError) as refused:
        read_cluster(file(text))
    assert str(refused.value).splitlines() == expected


def test_reports_a_misplaced_key_beside_the_other_errors() -> None:
    with pytest.raises(InvalidStack) as refused:
        read_cluster(file("pools: {}\n" + CLUSTER.replace("profile: whole", "profile: hole")))
    assert [line[:9] for line in str(refused.value).splitlines() if line.startswith("  line")] == [
        "  line 1:",
        "  line 5:",
    ]


def test_accepts_keys_of_pulumi_and_other_programs() -> None:
    pulumi = "environment: [base]\nsecretsprovider: passphrase\nencryptionsalt: v1\n"
    read_cluster(file(pulumi + CLUSTER + "  aws:region: eu-west-1\n  owner: me\n"))
