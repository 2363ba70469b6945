"""The rows of the product file: each state has its evidence, and nothing is claimed beyond it."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.catalogue import CATALOGUE
from divvy.reports.product import REQUIREMENTS, Row, product_file, product_rows
from tests.reports.documents import document, record

# Every check that names a row, as a sound cluster with all kinds of sharing passes them.
NAMED = [check for check in CATALOGUE.values() if check.cncf and check.id[:4] != "BARE"]
SOUND = [record("passed", "n1", check) for check in NAMED]


def row(report: dict[str, Any], identity: str) -> Row:
    return next(
        product_row
        for product_row in product_rows(report)
        if product_row.requirement.id == identity
    )


def without(*identities: str) -> list[Any]:
    return [outcome for outcome in SOUND if outcome.check.id not in identities]


def test_passes_every_row_by_the_checks_that_name_it() -> None:
    assert {product_row.state for product_row in product_rows(document(*SOUND))} == {"pass"}
    for requirement in REQUIREMENTS:
        named = {check.id for check in NAMED if requirement.id in check.cncf}
        assert set(requirement.needed) <= named
        assert set(row(document(*SOUND), requirement.id).identities) == named


@pytest.mark.parametrize("check", NAMED, ids=lambda check: check.id)
def test_fails_only_its_rows_by_each_check(check: Any) -> None:
    broken = document(*without(check.id), record("failed", "n2", check))
    for product_row in product_rows(broken):
        named = product_row.requirement.id in check.cncf
        assert (product_row.state, f"{check.id} failed" == product_row.reason) == (
            ("fail", True) if named else ("pass", False)
        )


def test_counts_only_failures_of_simulated_gpus_for_hardware() -> None:
    simulated = document(*SOUND, simulated=True)
    assert {product_row.state for product_row in product_rows(simulated)} == {"unknown"}
    assert {entry["status"] for area in product_file(simulated)["spec"].values()
            for entry in area} == {""}  # fmt: skip
    bad = document(*without("OBS-01"), record("failed", "n", CATALOGUE["OBS-01"]), simulated=True)
    assert row(bad, "accelerator_metrics").state == "fail"


@pytest.mark.parametrize("missed", ["option", "not made"])
def test_leaves_a_row_open_whose_check_was_not_made(missed: Any) -> None:
    held = record("skipped", "n1:gpu", CATALOGUE["ISO-04"], reason="held by a/b", missed=missed)
    verdict = row(document(*without("ISO-04"), held), "gpu_sharing")
    assert (verdict.state, verdict.reason) == (
        "unknown", "ISO-04 was not made for n1:gpu: held by a/b"
    )  # fmt: skip
    absent = record("skipped", "n1", CATALOGUE["ISO-04"], missed="not applicable")
    assert row(document(*without("ISO-04"), absent), "gpu_sharing").state == "pass"


def test_counts_whole_gpus_as_no_sharing() -> None:
    whole = without("ISO-04", "ISO-05", "ISO-10", "CLM-02")
    verdict = row(document(*whole), "gpu_sharing")
    assert verdict.state == "unknown"
    assert "PLUG-02" in verdict.identities


def test_proves_no_row_by_a_selection_and_marks_a_sample() -> None:
    chosen = {**document(*SOUND), "only": ["--select=ISO"]}
    assert row(chosen, "secure_accelerator_access").state == "unknown"
    sample = {**document(*SOUND), "only": ["--sample=2"]}
    assert row(sample, "accelerator_metrics").reason.endswith(", of a part: --sample=2")


def test_writes_the_programmes_format_with_the_evidence_of_each_row() -> None:
    more = [record("passed", f"n{number}", CATALOGUE["OBS-01"]) for number in range(2, 8)]
    product = product_file(document(*SOUND, *more, kubernetes="v1.37.2"))
    assert product["metadata"] == {"kubernetesVersion": "v1.37"}
    assert list(product["spec"]) == ["accelerators", "observability", "security"]
    (metrics,) = product["spec"]["observability"]
    assert list(metrics) == ["id", "level", "status", "evidence", "notes"]
    assert (metrics["id"], metrics["level"], metrics["status"]) == (
        "accelerator_metrics", "MUST", "Implemented"
    )  # fmt: skip
    assert metrics["evidence"][0] == "file://junit.xml#OBS-01"
    assert "OBS-01 passed: n1, n2, n3, n4 and 3 more" in metrics["notes"].splitlines()
