"""The verdict in words, and that no view cuts it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from divvy.plan import Difference, diff
from divvy.plan.review.object_changes import ObjectChanges
from divvy.plan.review.review import Review
from divvy.render.views.markdown import MAX_COMMENT, difference_markdown, review_markdown
from divvy.render.views.page import difference_page
from divvy.render.views.plan_json import difference_document
from divvy.render.views.terminal import difference_text
from divvy.render.views.verdict import effect_words, verdict_words
from tests.plan.stacks import planned, pool
from tests.render.views.test_views import rendered

PROFILES = {
    **{f"share-{replicas}": {"timeSlicing": {"replicas": replicas}} for replicas in range(2, 160)},
    "whole": {},
    "seven": {"mig": {"1g.5gb": 7}},
}


def dangerous(policy: str = "evict", harmless: int = 150) -> Difference:
    """Return a diff of many harmless changes, none like another, and one that evicts."""
    names = [f"harmless-{number:03}" for number in range(harmless)]
    before = {name: pool(f"share-{number + 2}", 2) for number, name in enumerate(names)}
    after = {name: pool(f"share-{number + 3}", 2) for number, name in enumerate(names)}
    sides = (
        planned(PROFILES, **before, training=pool("whole", 100, gpus=8)),
        planned(PROFILES, **after, training=pool("seven", 100, gpus=8)),
    )
    return diff(sides[0], replace(sides[1], policy=policy))


def test_reports_no_resource_as_gone_that_claims_still_serve() -> None:
    profiles = {"whole": {}, "by-size": {"claims": {"shares": {}}}}
    before, after = (planned(profiles, training=pool(name, 2)) for name in ("whole", "by-size"))
    effects = effect_words(diff(before, after))
    assert not [effect for effect in effects if "any more" in effect]
    (back,) = (effect for effect in effect_words(diff(after, before)) if "any more" in effect)
    assert back.startswith("no node offers nvidia.com/gpu.shared any more")


@pytest.mark.parametrize(
    ("policy", "consequence"),
    [
        ("evict", "pods that hold them are EVICTED"),
        ("wait", "each change waits until the pods that hold them end"),
        ("never", "GPUs that a pod holds keep their layout"),
    ],
)
def test_reports_what_the_policy_does_to_gpus_that_must_be_idle(
    policy: str, consequence: str
) -> None:
    assert verdict_words(dangerous(policy, harmless=1)) == (
        f"800 GPUs on 100 nodes must be idle; {consequence}: pool training"
    )


def test_names_gpus_that_the_plan_does_not_show() -> None:
    profiles = {**PROFILES, "lab": {}}, {**PROFILES, "lab": {"mig": {"1g.5gb": 7}}}
    before = planned(profiles[0], a=pool("seven", 2))
    assert verdict_words(diff(before, planned(profiles[1], a=pool("seven", 2)))) == (
        "GPUs that the plan does not show must be idle; each change waits until the pods that hold "
        "them end: nodes whose label chooses profile lab"
    )
    both = verdict_words(diff(before, planned(profiles[1], a=pool("whole", 2))))
    assert both.startswith("8 GPUs on 2 nodes and GPUs that the plan does not show must be idle; ")
    assert both.endswith(": pool a; nodes whose label chooses profile lab")


def test_leads_with_the_end_of_mps_clients() -> None:
    plan = planned({"p": {"mps": {"replicas": 4}}}, a=pool("p"))
    restart = ObjectChanges(
        updated=("DaemonSet divvy-agent",), restarted=("DaemonSet divvy-agent",)
    )
    difference = diff(plan, plan, restart)
    assert verdict_words(difference) == (
        "No node offers anything else; the agents restart, and what runs as a client of MPS ENDS: "
        "restart those pods"
    )
    assert f"🛑 **{verdict_words(difference)}**" in difference_markdown(difference)


def test_says_that_the_agents_restart_though_no_node_offers_anything_else() -> None:
    """As after a change of `driver.root`."""
    plan = planned({"p": {}}, a=pool("p"))
    restart = ObjectChanges(
        updated=("DaemonSet divvy-agent",), restarted=("DaemonSet divvy-agent",)
    )
    assert verdict_words(diff(plan, plan, restart)) == (
        "No node offers anything else, and no running pod is touched; Divvy's own pods restart"
    )


def test_leads_the_comment_before_the_dangerous_section() -> None:
    text = difference_markdown(dangerous())
    assert len(text) < MAX_COMMENT
    lines = [line for line in text.splitlines() if line]
    assert lines[1] == f"🛑 **{verdict_words(dangerous())}**"
    first = next(line for line in lines if line.startswith("### "))
    assert first.startswith("### Pool `training`: 100 nodes")
    assert "more** are not shown here" in text


def test_leads_every_other_view() -> None:
    difference = dangerous(harmless=2)
    words = verdict_words(difference)
    terminal = " ".join(rendered(difference_text(difference)).split())
    assert terminal.index(words) < terminal.index("pool training:")
    page = difference_page(difference)
    assert page.index(words) < page.index("<main>")
    assert difference_document(difference)["verdict"]["words"] == words


def test_reports_which_resources_and_profile_names_go() -> None:
    profiles = {name: rules for name, rules in PROFILES.items() if name != "whole"}
    before = planned(PROFILES, a=pool("whole"))
    (gone, names) = effect_words(diff(before, planned(profiles, a=pool("seven"))))
    assert gone == "no node offers nvidia.com/gpu any more: pods that request it stay pending"
    assert names.startswith("profiles that go: whole; a node whose label divvy.gpu/profile names")


def test_lists_the_objects_that_change() -> None:
    changes = ObjectChanges(
        ("Role a",), (), ("ConfigMap b", "DaemonSet c"), effects=("agents restart",)
    )
    plan = planned(PROFILES, a=pool("whole"))
    difference = diff(plan, plan, changes)
    objects = "objects: 1 created (Role a), 2 updated (ConfigMap b, DaemonSet c)"
    assert effect_words(difference) == ("agents restart", objects)
    assert "objects only" in difference_markdown(difference)
    assert "✅ **No node offers anything else" in difference_markdown(difference)


def test_summarises_many_stacks_in_their_comment() -> None:
    stacks = tuple(replace(dangerous(), after=f"stack-{number}") for number in range(12))
    same = diff(planned(PROFILES, a=pool("whole")), planned(PROFILES, a=pool("whole")))
    text = review_markdown(Review((*stacks, same), ("old",), {}))
    assert len(text.encode()) < MAX_COMMENT
    assert text.startswith("## GPU topology: 13 of 14 stacks change")
    for number in range(12):
        assert f"* 🛑 `stack-{number}`: 800 GPUs on 100 nodes must be idle" in text
        assert f"`test` → `stack-{number}`" in text
    assert "* 🛑 `old`: the stack file is deleted" in text
    assert "* unchanged: test" in text
    assert text.count("### Pool `training`") == 12
