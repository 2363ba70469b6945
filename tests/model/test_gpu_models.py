"""The data of the GPU models against the vendor's tables."""

import pynvml
import pytest

from divvy.model import UnknownGpuModel, gpu_model, gpu_models, model_of_product
from tests.model import published_tables

WITH_MIG = sorted(published_tables.PRINTED)


def test_knows_every_card_of_the_guide():
    assert set(gpu_models()) == set(published_tables.CARDS), (
        "type the numbers of a new model in tests/model/published_tables.py, from its sources"
    )
    assert {name for name, model in gpu_models().items() if model.mig} == set(WITH_MIG)
    unpublished = {name for name, model in gpu_models().items() if model.mig_unpublished}
    assert unpublished == published_tables.UNPUBLISHED


@pytest.mark.parametrize("card", sorted(published_tables.CARDS))
def test_describes_a_card_like_the_guide(card):
    model = gpu_model(card)
    assert published_tables.CARDS[card] == (
        model.architecture,
        model.compute_capability,
        model.memory_mib,
        model.sms,
        model.pci_device_id,
        model.pci_subsystem_id,
        model.power_limit_w,
        model.sm_clock_mhz,
        model.memory_clock_mhz,
        model.nvlinks,
    )
    assert set(model.pci_device_ids) == published_tables.DEVICE_IDS[card]
    assert model.sources
    for product in model.products:
        assert model_of_product(product, model.memory_mib) is model


@pytest.mark.parametrize("card", WITH_MIG)
def test_lists_the_mig_profiles_that_the_card_prints(card):
    mig = gpu_model(card).mig
    assert mig is not None
    rows = [
        (
            profile.name,
            profile.profile_id,
            profile.max_count,
            float(f"{profile.memory_mib / 1024:.2f}"),
            profile.sms,
            profile.copy_engines,
            profile.decoders,
            profile.jpegs,
            profile.ofas,
        )
        for profile in mig.profiles
    ]
    assert rows == published_tables.rows(card)
    for profile in mig.profiles:
        starts, size = published_tables.PLACES[card][profile.profile_id]
        assert (set(profile.starts), profile.memory_slices) == (starts, size)
        assert profile.nvml_profile == published_tables.NVML[card][profile.profile_id]
        assert profile.compute_slices == int(profile.name[0])
        rest = profile.name.partition("gb")[2]
        assert profile.attributes == ((rest.removeprefix("+"),) if rest else ())
        # Cards with a display have as many encoders as decoders, the others none.
        assert profile.encoders == (profile.decoders if card in published_tables.DECODERS else 0)
        # Cards hand memory out in such steps; with them two decimals of GiB mean one number.
        assert profile.memory_mib % 64 == 0
    assert (mig.memory_slices, mig.compute_slices) == published_tables.SLICES[card]
    architecture = gpu_model(card).architecture
    assert (mig.mode_needs_reset, mig.mode_survives_reboot) == published_tables.MODES[architecture]


def test_numbers_mig_profiles_as_nvml_does():
    words = {1: "1_SLICE", 2: "2_SLICE", 3: "3_SLICE", 4: "4_SLICE", 7: "7_SLICE"}
    for model in gpu_models().values():
        for profile in model.mig.profiles if model.mig else ():
            ends = {"me": "_REV1", "gfx": "_GFX", "me.all": "_ALL_ME", "-me": "_NO_ME"}
            suffix = "".join(ends[attribute] for attribute in profile.attributes)
            if not suffix and profile.compute_slices == 1 and profile.memory_slices == 2:
                suffix = "_REV2"
            name = f"NVML_GPU_INSTANCE_PROFILE_{words[profile.compute_slices]}{suffix}"
            assert profile.nvml_profile == getattr(pynvml, name), (model.name, profile.name)


def test_finds_a_model_by_each_of_its_spellings():
    assert gpu_model("a100-40gb") is gpu_model("A100-SXM4-40GB")
    assert gpu_model("NVIDIA-H100-80GB-HBM3").name == "H100-SXM5-80GB"


def test_finds_a_model_by_every_name_of_its_file():
    for model in gpu_models().values():
        for name in (model.name, *model.spellings, *model.products):
            label = "-".join(name.split())
            assert gpu_model(name) is gpu_model(label) is gpu_model(label.lower()) is model


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA-H200-NVL", "H200"),
        ("GH200 480GB", "GH200-96GB"),
        ("NVIDIA A800-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX-PRO-6000"),
        ("tesla_t4", "T4"),
    ],
)
def test_finds_a_model_as_drivers_and_labels_write_it(name, expected):
    assert gpu_model(name).name == expected


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("H2000", "did you mean H200?"),
        ("A100-40", "did you mean A100-SXM4-40GB?"),
        ("H200-NV", "did you mean H200?"),
        ("a100", "did you mean A100-SXM4-40GB or A100-SXM4-80GB?"),
    ],
)
def test_names_the_nearest_models_for_an_unknown_one(name, nearest):
    with pytest.raises(UnknownGpuModel) as refusal:
        gpu_model(name)
    assert nearest in str(refusal.value)


def test_maps_a_device_id_to_one_model():
    ids = [device for model in gpu_models().values() for device in model.pci_device_ids]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("product", "memory", "expected"),
    [
        ("NVIDIA A100-SXM4-40GB", 40960, "A100-SXM4-40GB"),
        ("A100-SXM4-40GB", 40536, "A100-SXM4-40GB"),
        ("NVIDIA A100 80GB PCIe", 81920, "A100-SXM4-80GB"),
        ("Tesla T4", 15109, "T4"),
        ("NVIDIA A100-SXM4-40GB", 81920, None),
        ("NVIDIA NONE-24GB", 24576, None),
    ],
)
def test_finds_the_model_of_a_drivers_product_name(product, memory, expected):
    model = model_of_product(product, memory)
    assert (model.name if model else None) == expected
