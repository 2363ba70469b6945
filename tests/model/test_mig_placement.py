"""The placement search against a brute-force oracle over the guide's tables."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divvy.model import NoPlacement, Placement, gpu_model, nearest_layouts, place
from tests.model import published_tables

CARDS = sorted(published_tables.PRINTED)
A100 = gpu_model("A100-SXM4-40GB").mig


@st.composite
def card_and_layout(draw):
    card = draw(st.sampled_from(CARDS))
    names = [row[0] for row in published_tables.rows(card)]
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=8))
    return card, {name: chosen.count(name) for name in dict.fromkeys(chosen)}


@settings(max_examples=150)
@given(card_and_layout())
def test_accepts_a_layout_exactly_if_it_has_a_placement(drawn):
    card, layout = drawn
    try:
        placed = place(gpu_model(card).mig, layout)
    except NoPlacement:
        assert not published_tables.is_feasible(card, layout)
        return
    assert published_tables.is_feasible(card, layout)
    _check(card, layout, placed)


@pytest.mark.parametrize("card", CARDS)
def test_places_exactly_the_oracles_feasible_layouts(card):
    mig = gpu_model(card).mig
    every = published_tables.feasible_layouts(card)
    largest = {name: row[2] + 1 for row in published_tables.rows(card) for name in [row[0]]}
    for layout in every:
        assert place(mig, dict(layout)) is not None
    # Just outside the set, one instance more than any layout of it.
    for layout, name in ((dict(layout), name) for layout in every for name in largest):
        more = {**layout, name: layout.get(name, 0) + 1}
        if tuple((n, more[n]) for n in largest if more.get(n)) not in every:
            with pytest.raises(NoPlacement):
                place(mig, more)


@settings(max_examples=60)
@given(card_and_layout(), st.randoms(use_true_random=False))
def test_keeps_existing_instances_in_place(drawn, random):
    card, layout = drawn
    mig = gpu_model(card).mig
    try:
        placed = place(mig, layout)
    except NoPlacement:
        return
    fixed = [placement for placement in placed if random.random() < 0.5]
    again = place(mig, layout, fixed)
    assert set(fixed) <= set(again)
    _check(card, layout, again)


def _check(card, layout, placed):
    table = published_tables.spans(card)
    taken = 0
    for placement in placed:
        mask = ((1 << placement.size) - 1) << placement.start
        assert mask in table[placement.profile]
        assert not mask & taken
        taken |= mask
    counts = [placement.profile for placement in placed]
    assert {name: counts.count(name) for name in layout} == layout
    assert list(placed) == sorted(placed)


def test_proves_a_refusal_by_what_takes_every_place():
    with pytest.raises(NoPlacement) as refusal:
        place(A100, {"3g.20gb": 1, "4g.20gb": 1, "2g.10gb": 1})
    assert str(refusal.value) == (
        "3g.20gb needs memory slices 0–3 or 4–7; both are taken: 0–3 by 4g.20gb, 4–5 by 2g.10gb"
    )


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ({"1g.5gb": 8}, "at most 7"),
        ({"1g.5gb+me": 2}, "only one instance of a card has the media extensions"),
        ({"9g.90gb": 1}, "no MIG profile 9g.90gb; it has 1g.5gb, 1g.5gb+me"),
        ({"7g.40gb": 1, "1g.5gb": 1}, "0–7 by 7g.40gb"),
        # Summing slices would let this pass: 4 + 2 + 1 = 7.
        ({"3g.20gb": 1, "2g.10gb": 2, "1g.5gb": 1}, "taken"),
    ],
)
def test_explains_a_refused_layout(layout, words):
    assert not published_tables.is_feasible("A100-SXM4-40GB", layout)
    with pytest.raises(NoPlacement, match=words.replace("+", r"\+")):
        place(A100, layout)


def test_refuses_media_extensions_of_two_sizes_together():
    with pytest.raises(NoPlacement, match="both need the media extensions"):
        place(gpu_model("A30").mig, {"1g.6gb+me": 1, "2g.12gb+me": 1})


def test_lets_one_instance_take_all_media_engines():
    mig = gpu_model("RTX-PRO-6000").mig
    assert len(place(mig, {"1g.24gb+me.all": 1, "1g.24gb-me": 3})) == 4
    with pytest.raises(NoPlacement, match=r"1 × 1g\.24gb\+me\.all and 1 × 1g\.24gb take 5 media"):
        place(mig, {"1g.24gb+me.all": 1, "1g.24gb": 1})


def test_refuses_a_layout_blocked_by_an_instance_that_must_stay():
    with pytest.raises(NoPlacement, match=r"3g\.20gb needs memory slices 0–3 or 4–7"):
        place(
            A100,
            {"1g.5gb": 2, "3g.20gb": 2},
            [Placement(0, 1, "1g.5gb"), Placement(4, 1, "1g.5gb")],
        )
    with pytest.raises(NoPlacement, match="exist and must stay"):
        place(A100, {"2g.10gb": 1}, [Placement(0, 1, "1g.5gb")])


def test_suggests_the_nearest_layouts_that_fit():
    wanted = {"4g.20gb": 1, "3g.20gb": 1, "2g.10gb": 1}
    near = nearest_layouts(A100, wanted)
    assert near[0] == {"4g.20gb": 1, "3g.20gb": 1}
    for layout in near:
        assert published_tables.is_feasible("A100-SXM4-40GB", dict(layout))
