"""divvy advise from recordings: what it shows, writes and refuses, and what docs/advise.md says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import divvy.cli.advise
from divvy.advise.trace import Recording, heading, recording_text
from divvy.cli.main import app
from tests.cli.cluster_api import ClusterApi

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/advise.md").read_text()
DAY = 86_400
STACK = """\
# ours
config:
  divvy:cluster:
    profiles:
      whole: {}   # as bought
    pools:
      notebooks:
        select: {pool: notebooks}
        hardware: {model: A100-SXM4-40GB, gpus: 4, count: 3}
        profile: whole   # ask the team before you change it
      training:
        select: {pool: training}
        hardware: {model: A100-SXM4-40GB, gpus: 4, count: 3}
        profile: whole
"""


def pod(name: str, pool: str = "notebooks", **more: Any) -> dict[str, Any]:
    return {
        "namespace": "team",
        "pod": name,
        "node": "n",
        "pool": pool,
        "resource": "nvidia.com/gpu",
        "kind": "whole",
        "devices": 1,
        "begin": 0,
        "end": None,
        "givenMiB": 40960,
        "givenCores": 100,
        "peakMiB": 3072,
        "p95Cores": 10,
        "peakCores": 90,
        "waitedSeconds": 0,
        **more,
    }


NOTEBOOKS = [pod(f"notebook-{number}") for number in range(10)]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a project of one stack with a recording of two weeks, and work in it."""
    (tmp_path / "Pulumi.yaml").write_text("name: x\nruntime: python\n")
    (tmp_path / "Pulumi.prod.yaml").write_text(STACK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DIVVY_PROMETHEUS", raising=False)
    record(NOTEBOOKS)
    return tmp_path


def record(pods: Iterable[dict[str, Any]], days: float = 14) -> None:
    text = recording_text(Recording(heading("prod", 0, days * DAY), list(pods)))
    Path("week.jsonl").write_text(text)


def advise(*arguments: str, expect: int = 0) -> str:
    source = () if {"--from", "--prometheus"} & set(arguments) else ("--from", "week.jsonl")
    result = CliRunner().invoke(app, ["advise", "-s", "prod", *source, *arguments])
    assert result.exit_code == expect, result.output
    return result.stderr if expect == 1 else result.stdout


def document(*arguments: str, expect: int = 0) -> dict[str, Any]:
    return dict(json.loads(advise("-o", "json", *arguments, expect=expect)))


def test_shows_today_beside_the_best_and_what_to_do() -> None:
    text = advise("--pool", "notebooks")
    assert "pool notebooks: 3 nodes of 4 × A100-SXM4-40GB, profile whole, 10 pods" in text
    words = " ".join(text.split())
    assert "change it: with 7 × 1g.5gb the pods need 2 GPUs at the peak instead of 10" in words
    assert re.search(r"today: whole +10 +3 +0 ", text)
    assert re.search(r"→ 7 × 1g\.5gb +2 +1 +2 ", text)
    assert "10 pods then ask for nvidia.com/mig-1g.5gb instead of nvidia.com/gpu" in words
    assert "weaker: memory, compute, faults" in words
    assert max(map(len, text.splitlines())) <= 80


def test_prints_what_the_page_shows() -> None:
    end = 1_795_953_600
    begin = end - 14 * DAY
    mornings = [begin + day * DAY + 20 * 3600 for day in range(14)]
    record(
        [
            pod(f"notebook-{number}-{morning}", begin=morning, end=min(morning + 11 * 3600, end))
            for morning in mornings
            for number in range(10)
        ]
    )
    lines = Path("week.jsonl").read_text().splitlines()
    head = json.dumps(heading("prod", begin, end))
    Path("week.jsonl").write_text("\n".join((head, *lines[1:])))
    shown = [line.rstrip() for line in advise("--pool", "notebooks").splitlines()]
    assert "\n".join(("```", *shown, "```")) in PAGE


def test_advises_nothing_where_a_line_of_the_recording_cannot_be_read() -> None:
    """Its pod may have needed what the advice takes away."""
    record([*NOTEBOOKS, pod("later", kind="of a release to come")])
    before = Path("Pulumi.prod.yaml").read_text()
    text = " ".join(advise("--write", expect=2).split())
    assert "1 line of the recording cannot be read" in text
    assert "change it" not in text
    assert Path("Pulumi.prod.yaml").read_text() == before
    # An editor's empty line is no pod.
    record(NOTEBOOKS)
    with Path("week.jsonl").open("a") as file:
        file.write("\n")
    advise()


def test_each_view_tells_the_same() -> None:
    markdown, page = advise("-o", "md"), advise("-o", "html")
    (pool, training) = document()["pools"]
    for text in (markdown, page):
        assert pool["reason"] in text
        assert training["reason"] in text
    assert "| → 7 × 1g.5gb | 2 | 1 | 2 |" in markdown
    assert page.startswith("<!doctype html>")
    # A timeline: needed, given, offered before and after.
    assert len(re.findall(r'<path class="(needed|given|before|after)"', page)) >= 4
    assert "http" not in page.replace("http-equiv", "")
    best = pool["best"][pool["recommended"]]
    assert (pool["today"]["gpus"], best["gpus"], best["spareNodes"]) == (10, 2, 2)
    assert len(pool["timeline"]["neededGpus"]) == len(pool["timeline"]["givenGpus"])


def test_leaves_an_unused_pool_as_it_is() -> None:
    assert "leave it as it is: no pod held one of its GPUs" in " ".join(advise().split())


def test_writes_the_stack_file_with_its_comments(project: Path) -> None:
    result = CliRunner().invoke(
        app, ["advise", "-s", "prod", "--from", "week.jsonl", "--write", "--out", "advice.txt"]
    )
    assert result.exit_code == 0
    assert "pool notebooks has profile notebooks-advised; `divvy diff HEAD prod`" in result.stderr
    assert (project / "Pulumi.prod.yaml").read_text() == STACK.replace(
        "      whole: {}   # as bought\n",
        "      whole: {}   # as bought\n      notebooks-advised: {mig: {1g.5gb: 7}}\n",
    ).replace("profile: whole   # ask", "profile: notebooks-advised   # ask")
    # Then there is nothing better.
    assert [pool["recommended"] for pool in document()["pools"]] == [None, None]


def test_writes_nothing_where_nothing_is_better(project: Path) -> None:
    record([pod("train", peakMiB=40_000, p95Cores=99)])
    result = CliRunner().invoke(app, ["advise", "-s", "prod", "--from", "week.jsonl", "--write"])
    assert "nothing to write" in result.stderr
    assert (project / "Pulumi.prod.yaml").read_text() == STACK


def test_weaker_guarantees_have_to_be_allowed() -> None:
    allowed = ("--allow", "memory", "--allow", "compute", "--allow", "faults")
    (pool, _) = document(*allowed)["pools"]
    best = pool["best"][pool["recommended"]]
    assert best["gpus"] == 1
    assert best["allow"] == ["memory", "compute", "faults"]


def test_headroom_is_above_the_peak() -> None:
    # 3,072 MiB are in a 1g.5gb up to 58 % more.
    assert document("--headroom", "50")["pools"][0]["best"][0]["words"] == "7 × 1g.5gb"
    assert document("--headroom", "70")["pools"][0]["best"][0]["words"] != "7 × 1g.5gb"


def test_ends_with_2_where_the_answer_is_unknown() -> None:
    record(NOTEBOOKS, days=2)
    text = " ".join(advise(expect=2).split())
    assert "unknown: too little data: 2 d of 14 d are recorded" in text
    assert "--since 2880m takes this as enough" in text
    assert document("--since", "2880m")["pools"][0]["recommended"] == 0
    assert document("--since", "2d")["pools"][0]["recommended"] == 0
    record([{**known, "peakMiB": None} for known in NOTEBOOKS])
    assert "how much 10 pods of 10 used is unknown" in " ".join(advise(expect=2).split())


def test_names_pods_that_a_better_profile_would_refuse() -> None:
    record([*NOTEBOOKS, *(pod(f"n-{number}") for number in range(10)), pod("big", peakMiB=30_000)])
    assert "refused with 7 × 1g.5gb: team/big" in " ".join(advise().split())
    (pool, _) = document()["pools"]
    assert ["team/big"] in [option["refused"] for option in pool["best"]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--pool", "x"), "the stack file has no pool x; it has notebooks, training"),
        (("--since", "soon"), "--since is 'soon'; a duration such as 30s, 10m or 1m30s or 14d"),
        (("--from", "nope"), "cannot read nope"),
        (("--from", "Pulumi.yaml"), "Pulumi.yaml is not a recording: `divvy top --record FILE`"),
        (("--from", "week.jsonl", "--record", "x"), "--record keeps what Prometheus tells"),
        (("--prometheus", "there"), "a URL or NAMESPACE/SERVICE:PORT is expected"),
        (("--headroom", "-1"), "Invalid value for '--headroom'"),
        (("--allow", "all"), "Invalid value for '--allow'"),
    ],
)
def test_reports_each_mistake_in_one_sentence(
    arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ClusterApi().serve(monkeypatch, divvy.cli.advise)
    assert words in advise(*arguments, expect=1)


def test_wants_a_source() -> None:
    result = CliRunner().invoke(app, ["advise", "-s", "prod"])
    assert result.exit_code == 1
    assert "name a Prometheus with --prometheus, or a recording with --from" in result.stderr


def test_keeps_what_prometheus_told(monkeypatch: pytest.MonkeyPatch) -> None:
    ClusterApi().serve(monkeypatch, divvy.cli.advise)
    monkeypatch.setattr(
        divvy.cli.advise,
        "recorded_pods",
        lambda *_: Recording(heading("prod", 0, 14 * DAY), NOTEBOOKS),
    )
    queried = document("--prometheus", "http://prometheus", "--record", "kept.jsonl")
    assert document("--from", "kept.jsonl") == queried


def keys(of: object) -> set[str]:
    """Return all keys of a document, but those of the stack file."""
    if isinstance(of, dict):
        below = [keys(item) for key, item in of.items() if key != "profile"]
        return set(of).union(*below)
    return set().union(*map(keys, of)) if isinstance(of, list) else set()


def test_the_page_names_every_key_column_and_exit_code() -> None:
    section = PAGE[PAGE.index("## divvy advise -o json") :]
    unnamed = {key for key in keys(document()) if f"`{key}`" not in section}
    assert unnamed <= {"pools", "today", "best", "timeline"}
    for heading_words in ("GPUs", "nodes", "spare", "idle GPU h", "waiting"):
        assert f"`{heading_words}`" in PAGE
    lines = Path("week.jsonl").read_text().splitlines()
    for key in {*json.loads(lines[0]), *json.loads(lines[1])}:
        assert f"`{key}`" in PAGE
    command = typer.main.get_command(_app())
    assert all(f"`{name}`" in PAGE for option in command.params for name in option.opts[:1])


def _app() -> typer.Typer:
    only = typer.Typer(add_completion=False)
    only.command()(divvy.cli.advise.advise)
    return only
