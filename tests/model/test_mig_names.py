"""MIG profile names: the arithmetic and the form (vector G of the field notes)."""

import pytest

from divvy.model.mig_names import is_profile_name, profile_name, resource_part


@pytest.mark.parametrize(
    ("slices", "memory", "total", "expected"),
    [
        (1, 4864, 40960, "1g.5gb"),
        (3, 71168, 143771, "3g.71gb"),  # 141 · 4/8 = 70.5, away from zero
        (1, 22528, 183359, "1g.23gb"),  # 180 · 1/8 = 22.5
        (2, 46592, 189471, "2g.47gb"),  # 186 · 2/8 = 46.5
        (1, 5952, 24576, "1g.6gb"),
        (7, 81152, 81559, "7g.80gb"),
    ],
)
def test_rounds_gigabytes_half_away_from_zero(slices, memory, total, expected):
    assert profile_name(slices, memory, total) == expected


def test_appends_attributes_after_a_plus():
    assert profile_name(1, 4864, 40960, ("me",)) == "1g.5gb+me"
    assert profile_name(1, 24192, 97887, ("me.all",)) == "1g.24gb+me.all"
    assert profile_name(1, 24192, 97887, ("-me",)) == "1g.24gb-me"
    assert resource_part("1g.5gb+me") == "1g.5gb.me"
    assert resource_part("1g.24gb-me") == "1g.24gb-me"


@pytest.mark.parametrize(
    "name",
    [
        "1g.5gb",
        "1c.1g.5gb",
        "1g.5gb+me",
        "1c.1g.5gb-me",
        "1g.5gb+me.all",
        "1g.5gb+gfx",
        "0g.0gb",
        "10000g.500000gb",
        "1g.5gb+me,you,them",
    ],
)
def test_accepts_well_formed_profile_names(name):
    assert is_profile_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "bogus",
        "1g.5gbk",
        "1g.5",
        "g.5gb",
        "1g.gb",
        "1r.1g.5gb",
        "1c.f1g.5gb",
        "1g.5gb+me,me",
        "1g.5gb+",
        "1g.5gb +",
        "1g.5gb+ ,",
        "1g.5gb+,,",
        "1g.5gb+me,",
        "1g.5gb+2me",
        "1g.5gb*me",
        "1g.5gb+.all",
        "1g.5gb+all.",
        "1g.5gb+me-me",
        "1g .5gb",
        " 1g.5gb",
    ],
)
def test_refuses_malformed_profile_names(name):
    assert not is_profile_name(name)
