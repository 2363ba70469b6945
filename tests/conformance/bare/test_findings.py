"""Several statements of one check: what the report then says."""

import pytest

from conformance.bare.findings import Findings
from conformance.evidence import Evidence


def test_passes_if_every_statement_holds() -> None:
    findings = Findings(evidence := Evidence(), simulated=False)
    findings.equal("GPUs", 2, 2)
    findings.tell("CUDA", "12.4")
    findings.table("figures", ("a", "b"), [("1", 0.12345)])
    findings.judge()
    assert (evidence.expected, evidence.actual) == ("GPUs: 2", "GPUs: 2")
    assert evidence.details == ["GPUs: 2 (expected 2)", "CUDA: 12.4", "figures:\na  b\n1  0.1235"]


def test_fails_by_the_statements_that_do_not_hold_alone() -> None:
    findings = Findings(evidence := Evidence(), simulated=False)
    findings.equal("GPUs", 2, 2)
    findings.holds("memory", False, "at most 5", 6)
    with pytest.raises(AssertionError, match="expected memory: at most 5, saw memory: 6"):
        findings.judge()
    assert evidence.details[-1] == "memory: 6 (expected at most 5): DOES NOT HOLD"


def test_only_tells_what_simulated_gpus_measure() -> None:
    findings = Findings(evidence := Evidence(), simulated=True)
    findings.measured("part", False, "at least 80%", "9%")
    findings.judge()
    assert evidence.details == ["part: 9% (simulated, which shows nothing)"]
    findings = Findings(Evidence(), simulated=False)
    findings.measured("part", False, "at least 80%", "9%")
    with pytest.raises(AssertionError, match="saw part: 9%"):
        findings.judge()
