"""Names of templates say what was asked for, and nothing else is read as one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divvy.model.claim_names import (
    RESERVED_TYPES,
    SizedRequest,
    parse_template_name,
    template_name,
    type_of_product,
)

_TYPES = st.lists(
    st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True).filter(
        lambda text: text not in RESERVED_TYPES
    ),
    max_size=4,
    unique=True,
).map(lambda types: tuple(sorted(types)))
_REQUESTS = st.builds(
    SizedRequest,
    count=st.integers(1, 9999),
    amount=st.integers(1, 100),
    unit=st.sampled_from("mp"),
    cores=st.none() | st.integers(1, 100),
    use_types=_TYPES,
    no_types=_TYPES,
    tenant=st.none() | st.sampled_from(("prod", "team-7", *RESERVED_TYPES)),
)


@pytest.mark.parametrize(
    "types", [["b", "a"], ["a", "a"], [f"a{number:02}" for number in range(17)]]
)
@pytest.mark.parametrize("word", ["use", "no"])
def test_reads_no_template_name_that_the_mutation_would_not_write(
    word: str, types: list[str]
) -> None:
    assert parse_template_name(f"divvy-1x10m.{word}.{'.'.join(types)}") is None
    assert parse_template_name(f"divvy-1x10m.{word}.{'.'.join(sorted(set(types))[:16])}")


@given(_REQUESTS)
def test_parses_a_request_back_from_its_template_name(request_of: SizedRequest) -> None:
    assert parse_template_name(template_name(request_of)) == request_of


def test_names_the_template_for_whole_gpus_of_a_type() -> None:
    request_of = SizedRequest(2, 1, "g", use_types=("a100",))
    assert template_name(request_of) == "divvy-2x1g.use.a100"
    assert parse_template_name("divvy-2x1g.use.a100") == request_of


def test_spells_a_request_in_a_readable_template_name() -> None:
    request_of = SizedRequest(2, 3000, "m", 30, ("a100", "h100-pcie"), ("t4",), "prod")
    name = "divvy-2x3000m-30c.use.a100.h100-pcie.no.t4.tenant.prod"
    assert template_name(request_of) == name


@pytest.mark.parametrize(
    "name",
    [
        "mine",
        "divvy-",
        "divvy-2x3000",
        "divvy-0x3000m",
        "divvy-1x0m",
        "divvy-1x101p",
        "divvy-1x3000m-101c",
        "divvy-1x2g",
        "divvy-1x1g-30c",
        "divvy-1x3000m.use",
        "divvy-1x3000m.use.no.t4",
        "divvy-1x3000m.tenant.prod.dev",
        "divvy-1x3000m.tenant",
        "divvy-1x3000m.use.a100.tenant",
        # Whose shares these are, the policy over pods reads at the first of the two.
        "divvy-1x3000m.use.tenant.prod.tenant.dev",
        "divvy-1x3000m.tenant.tenant.dev",
        "divvy-1x3000m.no.t4.use.a100",
        "divvy-1x3000m.use.a100.use.t4",
        "divvy-1x3000m.a100",
        "divvy-1x3000m.use.A100",
    ],
)
def test_ignores_template_names_that_divvy_did_not_make(name: str) -> None:
    assert parse_template_name(name) is None


@pytest.mark.parametrize(
    ("product", "kind"),
    [
        ("NVIDIA A100-SXM4-40GB", "nvidia-a100-sxm4-40gb"),
        ("Tesla T4", "tesla-t4"),
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
    ],
)
def test_derives_the_type_from_a_product_name(product: str, kind: str) -> None:
    assert type_of_product(product) == kind
