"""Memory of a share that only NVML reports."""

from divvy.agent.memory.unaccounted_memory import InNamespace, NvmlUse, beyond, outside, settled

FIRST, OTHER = InNamespace(11, 1), InNamespace(12, 1)


def test_counts_what_nvml_reports_above_the_slot() -> None:
    slots = {FIRST: (300, 0), OTHER: (0, 100)}
    uses = [NvmlUse(FIRST, 0, 450), NvmlUse(OTHER, 1, 80), NvmlUse(InNamespace(13, 1), 0, 999)]
    assert beyond(uses, slots, slots, 2) == {FIRST: (150, 0), OTHER: (0, 0)}


def test_counts_an_allocation_or_free_between_the_samples_once() -> None:
    use = [NvmlUse(FIRST, 0, 1000)]
    assert beyond(use, {FIRST: (0,)}, {FIRST: (900,)}, 1) == {FIRST: (100,)}
    assert beyond(use, {FIRST: (900,)}, {FIRST: (0,)}, 1) == {FIRST: (100,)}
    assert beyond(use, {}, {FIRST: (0,)}, 1) == {FIRST: (0,)}


def test_settles_only_what_two_samples_agree_on() -> None:
    assert settled({FIRST: (500, 20)}, {}) == {FIRST: (0, 0)}
    assert settled({FIRST: (500, 20)}, {FIRST: (150, 30)}) == {FIRST: (150, 20)}


def test_charges_memory_of_processes_without_a_slot() -> None:
    uses = [NvmlUse(FIRST, 0, 450), NvmlUse(OTHER, 1, 80), NvmlUse(OTHER, 0, 20)]
    assert outside(uses, {FIRST}, 2) == (20, 80)
    assert outside(uses, {FIRST, OTHER}, 2) == (0, 0)
