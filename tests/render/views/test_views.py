"""The views of plan and diff tell the same, each in its own form."""

import io
import json
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console

from divvy.model import parse_cluster
from divvy.plan import diff, plan
from divvy.render.views.markdown import difference_markdown, plan_markdown
from divvy.render.views.page import difference_page, plan_page
from divvy.render.views.plan_json import (
    difference_document,
    difference_json,
    plan_document,
    plan_json,
)
from divvy.render.views.terminal import difference_text, plan_text
from tests.plan.stacks import example, planned, pool

PROFILES = {
    "slice-4": {"timeSlicing": {"replicas": 4}},
    "seven": {"mig": {"1g.5gb": 7}},
}
MIXED = plan(example("mixed"), "mixed")
BEFORE = planned(PROFILES, notebooks=pool("slice-4", 3))
AFTER = planned(PROFILES, notebooks=pool("seven", 3))
CHANGED = diff(BEFORE, AFTER)


def rendered(renderable, width=80, colour=False):
    out = io.StringIO()
    Console(
        file=out, width=width, force_terminal=colour, no_color=not colour, highlight=False
    ).print(renderable)
    return out.getvalue()


@pytest.mark.parametrize("name", ["cern", "mixed", "h200", "lab"])
def test_fits_80_columns_without_colour(name):
    text = rendered(plan_text(plan(example(name), name)))
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    for resource in plan(example(name), name).totals:
        assert resource in text


def test_renders_a_plan_for_the_terminal():
    text = rendered(plan_text(AFTER))
    assert [line.rstrip() for line in text.splitlines()][:9] == [
        "test: 1 pool, 3 nodes, 12 GPUs",
        "",
        "pool notebooks: 3 nodes × 4 × A100-SXM4-40GB, profile seven",
        "  GPU 0–3 ▕ 1g  ▏ 1g  ▏ 1g  ▏ 1g  ▏ 1g  ▏ 1g  ▏ 1g  ▏  ·  ▏",
        "  resource               per node     all  each device",
        "  nvidia.com/mig-1g.5gb        28      84  MIG 1g.5gb: 4,864 MiB, 14 SMs",
        "    memory hard, compute hard, faults isolated, nvidia-smi slice",
        "",
        "total",
    ]


def test_renders_a_diff_for_the_terminal():
    text = rendered(difference_text(CHANGED))
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    assert "nvidia.com/gpu.shared 48 0 -48" in words
    assert "nvidia.com/mig-1g.5gb 0 84 +84" in words
    assert "disruption GPUs must be idle: MIG mode is switched on and the GPU is reset" in words
    assert "no change" in rendered(difference_text(diff(BEFORE, BEFORE)))


def test_colours_a_diff_on_request():
    assert "\x1b[" in rendered(difference_text(CHANGED), colour=True)


def test_writes_a_plan_in_the_documented_json():
    document = json.loads(plan_json(MIXED))
    assert list(document) == ["cluster", "pools", "totals"]
    for pool_object in document["pools"]:
        keys = ["name", "count", "profile", "perNode", "devices", "claimable"]
        keys += ["notes", "overrides"]
        assert list(pool_object) == keys
        for node in (pool_object, *pool_object["overrides"].values()):
            for device in node["devices"]:
                keys = ["resource", "gpu", "kind", "memoryMiB", "sms", "guarantees"]
                assert list(device) == keys
                promises = ["memory", "compute", "faults", "nvidiaSmi"]
                assert list(device["guarantees"]) == promises
    assert document["totals"] == dict(MIXED.totals)
    assert list(document["pools"][0]["overrides"]) == ["h100-4"]
    kinds = {d["kind"] for p in document["pools"] for d in p["devices"]}
    assert kinds == {"gpu", "gpu-replica", "mig", "mig-replica"}


def test_omits_sms_of_a_card_without_data_in_json_and_notes_that_it_has_none():
    hardware = {"model": "Z9000", "memory": "24Gi", "gpus": 1, "count": 1}
    pools = {"new": {"select": {"a": "b"}, "profile": "whole", "hardware": hardware}}
    cluster = parse_cluster({"profiles": {"whole": {}}, "pools": pools})
    (pool,) = json.loads(plan_json(plan(cluster, "x")))["pools"]
    (device,) = pool["devices"]
    assert (device["memoryMiB"], device["sms"]) == (24_576, None)
    (note,) = pool["notes"]
    assert f"note: {note}"[:40] in rendered(plan_text(plan(cluster, "x")))


def test_writes_the_same_json_every_time():
    assert plan_json(plan(example("mixed"), "mixed")) == plan_json(MIXED)


def test_writes_a_diff_in_the_documented_json():
    document = json.loads(difference_json(CHANGED))
    assert document == difference_document(CHANGED)
    (change,) = document["changes"]
    assert change["nodes"] == {"before": 3, "after": 3}
    assert change["profile"] == {"before": "slice-4", "after": "seven"}
    assert change["disruption"]["level"] == "GPUs must be idle"
    shared = change["resources"][0]
    assert shared["resource"] == "nvidia.com/gpu.shared"
    assert (shared["before"], shared["after"]) == (48, 0)
    assert shared["guarantees"]["after"] is None
    assert document["totals"]["nvidia.com/mig-1g.5gb"] == {"before": 0, "after": 84}


@pytest.mark.parametrize("text", [plan_markdown(MIXED), difference_markdown(CHANGED)])
def test_writes_complete_markdown_tables(text):
    columns = 0
    for line in text.splitlines():
        if not line.startswith("|"):
            columns = 0
            continue
        columns = columns or line.count("|")
        assert line.count("|") == columns, line
    assert text.count("```") % 2 == 0


def test_writes_what_a_reviewer_needs_into_the_markdown_of_a_diff():
    text = difference_markdown(CHANGED)
    assert "### Pool `notebooks`: 3 nodes, profile slice-4 → seven" in text
    assert "- GPU 0–3 ▕" in text
    assert "+ GPU 0–3 ▕ 1g  ▏" in text
    assert "**Disruption** GPUs must be idle" in text
    assert "| `nvidia.com/gpu.shared` | 48 | 0 | -48 | gone: memory none," in text
    assert "no change" in difference_markdown(diff(BEFORE, BEFORE))


class Page(HTMLParser):
    """Collects what the tests ask of a page."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.urls, self.pictures, self.words = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag not in ("meta", "rect", "path"):
            self.open.append(tag)
        if "id" in values:
            self.ids.append(values["id"])
        self.urls += [values[key] for key in ("src", "href") if key in values]
        if tag == "svg":
            self.pictures.append({"labels": values["aria-labelledby"].split(), "rects": []})
        if tag == "rect":
            self.pictures[-1]["rects"].append(values)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.mark.parametrize("text", [plan_page(MIXED), difference_page(CHANGED)])
def test_renders_well_formed_self_contained_accessible_pages(text):
    page = Page(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert page.urls == []
    assert not re.search(r"<script|@import|url\(|https?:", text)
    assert page.pictures
    for picture in page.pictures:
        assert set(picture["labels"]) <= set(page.ids)
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_draws_every_bar_as_long_as_the_card_has_slices():
    for picture in Page(plan_page(MIXED)).pictures:
        rows = {}
        for rect in picture["rects"]:
            rows.setdefault(rect["y"], []).append((float(rect["x"]), float(rect["width"])))
        for pieces in rows.values():
            position = 92.0
            for x, width in pieces:
                assert x == pytest.approx(position, abs=0.02)
                position += width
            assert position == pytest.approx(92.0 + 560.0, abs=0.05)


def test_draws_before_over_after_in_a_diff():
    text = difference_page(CHANGED)
    assert text.index(">before<") < text.index(">after<")
    assert "before, GPU 0–3: nvidia.com/gpu.shared, GPU shared by 4" in text


def test_escapes_names():
    assert "<i>" not in plan_page(plan(example("cern"), "<i>x</i>"))


def test_shows_a_pool_without_hardware_as_unknown():
    unknown = planned({"whole": {}}, a={"profile": "whole"})
    for text in (rendered(plan_text(unknown)), plan_markdown(unknown), plan_page(unknown)):
        assert "hardware unknown, profile whole" in text
    assert plan_document(unknown)["pools"][0]["count"] is None
