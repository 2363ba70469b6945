"""What a GPU offers to claims: devices, counters, sizes."""

import pytest

from divvy.model import gpu_model, gpu_models
from divvy.model.claim_devices import ClaimableGpu, ClaimDevice, claimable_gpu
from divvy.model.claims import Claims

UUID = "GPU-4E8ed327-4cc6-562c-b7c7-9518f6fd0d74"


def _gpu(claims: dict, model: str = "A100-SXM4-40GB") -> ClaimableGpu:
    known = gpu_model(model)
    return claimable_gpu(UUID, known.memory_mib, known, Claims.model_validate(claims))


def _device(gpu: ClaimableGpu, end: str) -> ClaimDevice:
    return next(device for device in gpu.devices if device.name.endswith(end))


def test_needs_no_counters_for_whole_gpus() -> None:
    gpu = _gpu({})
    assert gpu.counters is None
    (device,) = gpu.devices
    assert (device.kind, device.whole, device.share) == ("gpu", True, None)
    assert device.name == UUID.lower()


def test_offers_a_share_as_the_whole_gpu_unless_a_claim_requests_a_size() -> None:
    gpu = _gpu({"shares": {"memory": {"step": "256Mi"}, "max": 7}})
    assert gpu.counters is None
    (device,) = gpu.devices
    assert device.whole
    assert device.consumes is None
    assert device.share is not None
    assert device.share.memory_mib == device.share.default_mib == 40960
    assert (device.share.step_mib, device.share.default_cores, device.share.most) == (256, 100, 7)


@pytest.mark.parametrize("more", [{"tenants": ["prod"]}, {"mig": ["1g.5gb"]}, {}])
def test_consumes_all_counters_for_a_device_that_excludes_others(more: dict) -> None:
    shares = {"default": "10Gi"} if not more else {}
    gpu = _gpu({"shares": shares, **more})
    assert gpu.counters is not None
    for device in gpu.devices:
        if device.kind != "mig":
            assert device.consumes == gpu.counters
    assert [device.whole for device in gpu.devices if device.kind == "share"] == [False]


def test_gives_a_default_size_its_part_of_the_time() -> None:
    share = _device(_gpu({"shares": {"default": "10Gi"}}), "-share").share
    assert share is not None
    assert (share.default_mib, share.default_cores) == (10240, 25)


def test_offers_a_share_device_to_each_tenant() -> None:
    gpu = _gpu({"shares": {}, "tenants": ["prod", "dev"]})
    shares = [device for device in gpu.devices if device.kind == "share"]
    assert [share.tenant for share in shares] == ["prod", "dev"]
    assert all(share.name.endswith(f"-share-{share.tenant}") for share in shares)


def test_raises_the_sum_of_the_shares_by_oversubscription() -> None:
    share = _device(_gpu({"shares": {"memory": {"oversubscribe": 1.5}}}), "-share").share
    assert share is not None
    assert share.memory_mib == 61440


def test_orders_mig_placements_smallest_first_with_their_slices() -> None:
    gpu = _gpu({"mig": ["3g.20gb", "1g.5gb", "1g.5gb+me"]})
    names = [device.name.removeprefix(UUID.lower()) for device in gpu.devices]
    assert names[:3] == ["", "-mig-1g5gb-0", "-mig-1g5gb-1"]
    assert names[-2:] == ["-mig-3g20gb-0", "-mig-3g20gb-4"]
    assert gpu.counters is not None
    assert gpu.counters["compute-slices"] == 7
    large = _device(gpu, "-mig-3g20gb-4")
    assert large.consumes == {
        **{f"memory-slice-{number}": 1 for number in (4, 5, 6, 7)},
        "compute-slices": 3,
    }
    media = _device(gpu, "-mig-1g5gbme-2")
    assert media.consumes == {"memory-slice-2": 1, "compute-slices": 1, "media": 1}


def test_places_within_the_counters_and_names_every_device_once() -> None:
    for model in gpu_models().values():
        if model.mig is None:
            continue
        every = tuple(profile.name for profile in model.mig.profiles)
        claims = Claims.model_validate(
            {"shares": {}, "mig": every, "tenants": ["a" * 16, "b" * 16]}
        )
        gpu = claimable_gpu(UUID, model.memory_mib, model, claims)
        assert gpu.counters is not None
        assert len(gpu.counters) <= 32
        names = [device.name for device in gpu.devices]
        assert len(set(names)) == len(names)
        for device in gpu.devices:
            assert len(device.name) <= 63
            assert device.consumes is not None
            assert all(gpu.counters[key] >= value for key, value in device.consumes.items())


def test_counts_media_engines_if_a_profile_may_take_all() -> None:
    gpu = _gpu({"mig": ["1g.24gb", "1g.24gb+me.all", "1g.24gb-me"]}, "RTX-PRO-6000")
    assert gpu.counters is not None
    assert gpu.counters["media-engines"] == 4
    taken = {name: _device(gpu, f"-mig-{name}-3").consumes for name in ("1g24gb", "1g24gbmeall")}
    assert [counters and counters["media-engines"] for counters in taken.values()] == [1, 4]
    assert "media-engines" not in (_device(gpu, "-mig-1g24gb-me-3").consumes or {})
    assert "media-engines" not in (_gpu({"mig": ["1g.5gb"]}).counters or {})


def test_offers_gpu_and_share_on_a_model_without_mig() -> None:
    gpu = _gpu({"shares": {}, "mig": ["1g.5gb"]}, "T4")
    assert gpu.counters == {"whole": 1}
    assert [device.kind for device in gpu.devices] == ["gpu", "share"]


@pytest.mark.parametrize("more", [{}, {"default": "200Gi"}, {"default": "200Gi", "max": 2}])
@pytest.mark.parametrize("step", ["7681Mi", "15Gi", "100Gi"])
def test_offers_no_shares_on_a_gpu_smaller_than_two_steps(more: dict, step: str) -> None:
    gpu = _gpu({"shares": {"memory": {"step": step}, **more}}, "T4")
    assert [(device.kind, device.whole) for device in gpu.devices] == [("gpu", True)]
    apart = _gpu({"shares": {"memory": {"step": step}}, "tenants": ["prod"]}, "T4")
    assert [(device.kind, device.whole) for device in apart.devices] == [("gpu", True)]
