"""Every spelling of GPU types is taken as it was meant or refused in a sentence, as fit says."""

from __future__ import annotations

import pytest

from divvy.model import parse_cluster
from divvy.model.claim_names import parse_template_name
from divvy.plan.fit.sizes import read_sizes
from tests.render.objects.claims.api_server import GPU, MEMORY, NO, USE, ApiServer, Limits, pod
from tests.render.objects.claims.conftest import CLUSTER

pytestmark = pytest.mark.lab
TYPES_OF = {
    "A100": ("a100",),
    " a100 ": ("a100",),
    "\tA100\n": ("a100",),
    "\u00a0A100": ("a100",),
    "A100,,a100, ,": ("a100",),
    "NVIDIA A100-SXM4-40GB": ("nvidia-a100-sxm4-40gb",),
    "nvidia_a100.sxm4/40gb": ("nvidia-a100-sxm4-40gb",),
    "NVIDIA (A100)": ("nvidia-a100",),
    "sxm4,40GB": ("40gb", "sxm4"),
    "": (),
    " , ,": (),
}
ODD = (
    *("*", "A100*", ".*", "^A100", "A100$", "A100|T4", "A100;T4", "-", "-a100", "a100-", "(A100)"),
    *("A100\nT4", "A100\u200b", "\u0410100", "\uff21100", "\U0001f600", "\x00", "\x7f", "\\n"),
    *("A100' || true || '", '"A100"', "${A100}", "%s", "use", "No", " TENANT ", "a100,tenant,dev"),
    *("A100," * 17, "A100\u2028T4", "e\u0301"),
)
WAYS: tuple[Limits, ...] = ({GPU: 1}, {MEMORY: 5})


@pytest.mark.parametrize("annotation", [USE, NO])
@pytest.mark.parametrize("limits", WAYS)
def test_reads_types_in_every_spelling(server: ApiServer, limits: Limits, annotation: str) -> None:
    for spelling, types in TYPES_OF.items():
        asking = pod(limits, annotations={annotation: spelling})
        answer = server.dry_run(asking)
        assert answer.refusal == "", spelling
        requests = [parse_template_name(name) for name in answer.templates.values()]
        named = [
            request.use_types if annotation == USE else request.no_types
            for request in requests
            if request
        ]
        # A whole GPU of any type stays a resource.
        assert named == ([] if limits == {GPU: 1} and not types else [types]), spelling
        sizes = read_sizes(asking["spec"], asking["metadata"], parse_cluster(CLUSTER), {})
        assert sizes.refused == ""
        predicted = [
            request.use_types if annotation == USE else request.no_types
            for request in sizes.requests
        ]
        assert predicted == named


@pytest.mark.parametrize("annotation", [USE, NO])
@pytest.mark.parametrize("limits", WAYS)
def test_refuses_an_invalid_type_name_in_one_sentence(
    server: ApiServer, limits: Limits, annotation: str
) -> None:
    for spelling in ODD:
        asking = pod(limits, annotations={annotation: spelling})
        refusal = server.dry_run(asking).refusal
        assert refusal.startswith(("the annotation", "the annotations name")), spelling
        assert len(refusal) < 250, spelling
        assert "\n" not in refusal, spelling
        fitted = read_sizes(asking["spec"], asking["metadata"], parse_cluster(CLUSTER), {})
        assert fitted.refused.startswith("it would be refused: "), spelling


@pytest.mark.parametrize("named", [(USE,), (USE, NO)])
def test_shortens_a_long_name_in_the_message(server: ApiServer, named: tuple[str, ...]) -> None:
    for limits in WAYS:
        annotations = dict.fromkeys(named, "x" * 60_000)
        refusal = server.dry_run(pod(limits, annotations=annotations)).refusal
        assert refusal.startswith("the annotation")
        assert len(refusal) < 400


@pytest.mark.parametrize("limits", [{"nvidia.com/mig-1g.5gb": 1}, {"nvidia.com/gpu.shared": 1}])
def test_leaves_resources_without_types_alone(server: ApiServer, limits: Limits) -> None:
    answer = server.dry_run(pod(limits, annotations={USE: "A100"}))
    assert answer.templates == {}
    assert set(answer.resources()[0]["limits"]) == set(limits)
