"""A pool's profile is changed in a stack file, and every other character stays."""

from typing import Any

import pytest

from divvy.stack.edit import with_profile
from divvy.stack.errors import StackError
from divvy.stack.file import StackFile

SEVEN = {"mig": {"1g.5gb": 7}}
RULES = [{"devices": [0], "mig": {"1g.5gb": 7}}, {"timeSlicing": {"replicas": 4}}]
BLOCK = """\
# ours
config:
  divvy:cluster:
    profiles:
      whole: {}   # as bought
      split:
        - {devices: [0], mig: {3g.20gb: 2}}
        # the others are whole
        - {}
        # end of split

    # pools
    pools:
      a: {profile: "whole", select: {pool: a}}  # A
      b:
        profile: split # B
"""


def edited(text: str, profile: Any, pool: str = "a") -> tuple[str, str]:
    file, name = with_profile(StackFile("f.yaml", text, "f"), pool, profile, "a-advised")
    return file.text, name


def test_adds_a_profile_after_the_last_one_and_keeps_all_comments() -> None:
    text, name = edited(BLOCK, SEVEN)
    assert name == "a-advised"
    assert text == BLOCK.replace(
        "        # end of split\n",
        "        # end of split\n      a-advised: {mig: {1g.5gb: 7}}\n",
    ).replace('{profile: "whole", select', "{profile: a-advised, select")


def test_writes_rules_below_each_other() -> None:
    text, _ = edited(BLOCK, RULES, "b")
    assert (
        "      a-advised:\n"
        "        - {devices: [0], mig: {1g.5gb: 7}}\n"
        "        - {timeSlicing: {replicas: 4}}\n\n"
    ) in text
    assert "profile: a-advised # B" in text


def test_takes_a_profile_of_the_file_that_is_the_same() -> None:
    text, name = edited(BLOCK.replace("whole: {}", "seven: {mig: {1g.5gb: 7}}"), SEVEN)
    assert name == "seven"
    assert "advised" not in text


def test_takes_another_name_where_one_is_taken() -> None:
    text, name = edited(BLOCK.replace("whole: {}", "a-advised: {}"), SEVEN)
    assert name == "a-advised-2"
    assert "a-advised-2: {mig: {1g.5gb: 7}}" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("profiles: {whole: {}}", "profiles: {whole: {}, a-advised: {mig: {1g.5gb: 7}}}"),
        ("profiles: {whole: {},}", "profiles: {whole: {},a-advised: {mig: {1g.5gb: 7}}}"),
        (
            "profiles: {\n      whole: {} }  # p",
            "profiles: {\n      whole: {}, a-advised: {mig: {1g.5gb: 7}}}  # p",
        ),
        (
            "profiles:\n      whole: {}\n      # not used yet\n",
            "profiles:\n      whole: {}\n      a-advised: {mig: {1g.5gb: 7}}\n"
            "      # not used yet\n",
        ),
    ],
)
def test_edits_other_ways_of_writing(before: str, after: str) -> None:
    def text(profiles: str, name: str) -> str:
        pools = f"pools:\n      a: {{profile: {name}}}\n"
        return f"config:\n  divvy:cluster:\n    {pools}    {profiles}"

    assert edited(text(before, "whole"), SEVEN)[0] == text(after, "a-advised")


def test_ends_a_last_line_that_has_no_end() -> None:
    text = BLOCK.replace("    # pools\n", "").replace("\n    pools", "    pools")
    pools, profiles = text.index("    pools:"), text.index("    profiles:")
    turned = text[:profiles] + text[pools:] + text[profiles:pools].rstrip()
    assert edited(turned, SEVEN)[0] == (
        turned.replace('"whole", select', "a-advised, select")
        + "\n      a-advised: {mig: {1g.5gb: 7}}\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        BLOCK.replace('"whole", sel', "&name whole, sel").replace("split # B", "*name"),
        BLOCK.replace('{profile: "whole",', "{<<: {profile: whole},"),
    ],
    ids=("alias", "merge"),
)
def test_says_what_to_write_where_it_cannot_write_it(text: str) -> None:
    """Anchors and merge keys: what would mean something else is not written."""
    with pytest.raises(StackError, match=r"add below `profiles`: a-advised: {mig: {1g\.5gb: 7}}"):
        edited(text, SEVEN)
