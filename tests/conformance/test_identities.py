"""Records without what tells whose GPUs they are."""

from conformance.catalogue import CATALOGUE
from conformance.evidence import Evidence
from conformance.report.identities import without_identities
from conformance.report.report import Record

UUID = "GPU-7ed1bb58-a770-5c68-b716-b7cea2e2ec2e"


def test_hides_whose_gpus_a_check_used() -> None:
    evidence = Evidence(UUID, f"MIG-{UUID[4:]}", UUID, [UUID], {"GB/s": 1.0})
    record = Record(CATALOGUE["BARE-02"], "host", "failed", f"{UUID} is lost", evidence, 1.0)
    hidden = without_identities(record)
    assert UUID[4:] not in str(hidden)
    assert (hidden.reason, hidden.evidence.actual) == ("GPU-… is lost", "MIG-…")
    assert hidden.evidence.figures == {"GB/s": 1.0}
