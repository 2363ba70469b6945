"""Configurations of NVIDIA's plugin and of mig-parted (vectors A and H of the field notes)."""

import pytest

from divvy.model import InvalidValue, parse_cluster
from divvy.model.nvidia import (
    ImportResult,
    read_device_plugin,
    read_mig_parted,
    read_operator,
)
from divvy.model.resolution import offers

UUID = "GPU-0aba7cb2-1234-5678-9abc-def012345678"


def shared(**entry):
    return {"version": "v1", "sharing": {"timeSlicing": {"resources": [entry]}}}


def profile_of(value):
    pools = {"p": {"profile": "x"}}
    return parse_cluster({"profiles": {"x": value}, "pools": pools}).profiles["x"]


@pytest.mark.parametrize(
    "document", [None, {}, {"version": "v1"}, {"flags": {"migStrategy": "none"}}]
)
def test_imports_whole_gpus_when_nothing_is_shared(document):
    assert read_device_plugin(document, "a") == ImportResult({"a": {}})


def test_names_a_strategy_whose_layout_is_elsewhere():
    """The configuration of Deckhouse's mode MIG is this alone: whole GPUs are not what it means."""
    document = {"version": "v1", "flags": {"migStrategy": "mixed"}}
    (line,) = read_device_plugin(document, "MIG").left_out
    assert line.startswith("MIG: flags.migStrategy mixed: the profile is for GPUs without MIG")
    assert read_operator({"a": document}, parted(CUT), "mixed").left_out == ()


def test_writes_out_nvidias_defaults():
    assert read_device_plugin(shared(name="gpu", replicas=2), "a").profiles == {
        "a": {
            "timeSlicing": {
                "replicas": 2,
                "renameByDefault": False,
                "failRequestsGreaterThanOne": False,
            }
        }
    }


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"name": "valid"},
        {"name": "valid", "devices": "all"},
        {"name": "valid", "rename": "valid-shared"},
        {"name": "valid", "replicas": -1},
        {"name": "valid", "replicas": 0},
        {"name": "valid", "replicas": 1},
        {"name": "valid", "replicas": True},
        {"name": "$invalid$", "replicas": 2},
        {"name": "valid", "replicas": 2, "rename": "$invalid$"},
        {"name": "valid", "replicas": 2, "other": 1},
        *(
            {"name": "valid", "replicas": 2, "devices": devices}
            for devices in (
                "",
                "not-all",
                -2,
                "2.0",
                [-1],
                ["-1"],
                ["invalid-UUID"],
                ["GPU-UUID"],
                [],
            )
        ),
    ],
)
def test_refuses_sharing_entries_that_the_plugin_refuses(entry):
    with pytest.raises(InvalidValue):
        read_device_plugin(shared(**entry), "a")


@pytest.mark.parametrize(
    "devices",
    ["all", 2, [0], ["0"], ["0:0"], [UUID], [UUID.replace("GPU", "MIG")], [f"MIG-{UUID}/0/0"]],
)
def test_reads_device_lists_and_notes_that_the_plugin_ignores_them(devices):
    imported = read_device_plugin(shared(name="gpu", replicas=2, devices=devices), "a")
    assert "a" in imported.profiles
    # The plugin ignores them, so they are told instead of taken over.
    assert bool(imported.left_out) == (devices != "all")


@pytest.mark.parametrize(
    "document",
    [
        {"version": "v2"},
        [],
        {"sharing": {"timeSlicing": {"resources": []}}},
        {"sharing": {"timeSlicing": {"renameByDefault": True}}},
        {"sharing": {"mps": {"resources": [{"name": "gpu", "replicas": 1}]}}},
        {"flags": {"migStrategy": "both"}},
    ],
)
def test_refuses_configurations_that_the_plugin_refuses(document):
    with pytest.raises(InvalidValue):
        read_device_plugin(document, "a")


def test_imports_mps_as_mps():
    mps = {"resources": [{"name": "gpu", "replicas": 2}]}
    imported = read_device_plugin({"sharing": {"mps": mps}}, "a")
    assert imported.profiles["a"] == {
        "mps": {"replicas": 2, "renameByDefault": False, "failRequestsGreaterThanOne": True}
    }
    (note,) = imported.left_out
    assert "simulated driver only" in note
    (rule,) = profile_of(imported.profiles["a"]).rules
    (offer,) = offers(rule, 40960, None)
    assert (offer.sharing.memory_mib, offer.sharing.threads) == (20480, 50)
    mps["failRequestsGreaterThanOne"] = False
    more = read_device_plugin({"sharing": {"mps": mps}}, "a")
    assert more.profiles["a"]["mps"]["failRequestsGreaterThanOne"] is False


def test_cuts_replicas_to_what_mps_serves_with_a_note():
    mps = {"resources": [{"name": "gpu", "replicas": 60}]}
    imported = read_device_plugin({"sharing": {"mps": mps}}, "a")
    assert imported.profiles["a"]["mps"]["replicas"] == 48
    assert "60 replicas" in imported.left_out[0]


def test_lists_what_an_import_cannot_express():
    mig = {**shared(name="nvidia.com/mig-1g.5gb", replicas=2), "flags": {"failOnInitError": True}}
    imported = read_device_plugin(mig, "a")
    assert imported.profiles == {}
    assert any("flags.failOnInitError" in reason for reason in imported.left_out)
    assert any("mig-1g.5gb" in reason for reason in imported.left_out)


def parted(*entries):
    return {"version": "v1", "mig-configs": {"a": list(entries)}}


@pytest.mark.parametrize("document", [None, {"version": "v1"}])
def test_accepts_an_empty_mig_parted_file(document):
    assert read_mig_parted(document) == ImportResult()


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"version": "v2"},
        {"version": "v1", "other": {}},
        {"version": "v1", "mig-configs": {}},
        parted(),
        parted({"devices": "all", "mig-enabled": True}),
        parted({"devices": "bogus", "mig-enabled": False}),
        parted({"devices": {}, "mig-enabled": False}),
        parted({"devices": "all"}),
        parted({"devices": "all", "mig-enabled": False, "mig-devices": {"1g.5gb": 1}}),
        parted({"devices": "all", "mig-enabled": True, "mig-devices": {"bogus": 1}}),
        parted({"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": -1}}),
        parted({"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 0}}),
        parted({"devices": "all", "mig-enabled": False, "other": 1}),
        parted({"devices": "all", "mig-enabled": False, "device-filter": "A100"}),
    ],
)
def test_refuses_files_that_mig_parted_refuses(document):
    with pytest.raises(InvalidValue):
        read_mig_parted(document)


def test_imports_mig_configs_as_profiles():
    document = {
        "version": "v1",
        "mig-configs": {
            "disabled": [{"devices": "all", "mig-enabled": False}],
            "mix": [
                {
                    "devices": "all",
                    "mig-enabled": True,
                    "mig-devices": {"1g.5gb": 3, "2g.10gb": 2},
                }
            ],
            "balanced": [
                {
                    "device-filter": ["0x20B210DE", "0x233010DE", "0xFFFF10DE"],
                    "devices": "all",
                    "mig-enabled": True,
                    "mig-devices": {"1g.10gb": 2},
                }
            ],
            "last-wins": [
                {"devices": "all", "mig-enabled": False},
                {"devices": [0], "mig-enabled": True, "mig-devices": {"7g.40gb": 1}},
            ],
            "empty": [{"devices": "all", "mig-enabled": True, "mig-devices": {}}],
        },
    }
    imported = read_mig_parted(document)
    cut = {"mig": {"1g.10gb": 2}}
    assert imported.profiles == {
        "disabled": {},
        "mix": {"mig": {"1g.5gb": 3, "2g.10gb": 2}},
        "balanced": [
            {"devices": "A100-SXM4-80GB", **cut},
            {"devices": "H100-SXM5-80GB", **cut},
        ],
        "last-wins": [{"devices": [0], "mig": {"7g.40gb": 1}}, {}],
    }
    assert imported.left_out == (
        "balanced[0]: no known GPU model has the PCI id 0xFFFF10DE",
        "empty[0]: MIG mode without instances has no counterpart",
    )


def test_renames_one_of_two_imported_profiles_of_the_same_name():
    both = ImportResult({"a": {}}).joined(ImportResult({"a": {"mig": {"1g.5gb": 7}}}))
    assert list(both.profiles) == ["a", "a-2"]
    assert both.left_out


MPS = {"sharing": {"mps": {"resources": [{"name": "gpu", "replicas": 4}]}}}
WHOLE = {"devices": "all", "mig-enabled": False}
CUT = {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}


def test_imports_mps_of_the_gpus_that_a_layout_leaves_whole():
    imported = read_operator({"a": MPS}, parted(WHOLE))
    assert imported == read_device_plugin(MPS, "a")
    assert imported.profiles["a"]["mps"]["replicas"] == 4
    some = parted({**CUT, "devices": [0]}, {**WHOLE, "devices": [1]})
    assert read_operator({"a": MPS}, some).profiles["a"] == [
        {"devices": [0], "mig": {"1g.5gb": 7}},
        {"devices": [1], **imported.profiles["a"]},
    ]


@pytest.mark.parametrize(
    ("resource", "strategy"), [("mig-1g.5gb", "mixed"), ("gpu", "single")], ids=["mixed", "single"]
)
def test_says_that_mps_of_mig_devices_is_not_imported(resource, strategy):
    mps = {"sharing": {"mps": {"resources": [{"name": resource, "replicas": 2}]}}}
    imported = read_operator({"a": mps}, parted(CUT), strategy)
    assert "timeSlicing" not in imported.profiles["a"]
    assert imported.left_out == ("a: sharing.mps of MIG devices has no counterpart",)


@pytest.mark.parametrize("layout", [WHOLE, CUT], ids=["whole", "cut"])
def test_lists_what_is_lost_of_a_configuration_beside_a_layout(layout):
    sliced = shared(name="nvidia.com/gpu", replicas=2, devices=[0])
    sliced["sharing"]["other"] = {}
    imported = read_operator(
        {"a": {**sliced, "flags": {"failOnInitError": True}, "more": 1}}, parted(layout)
    )
    assert imported.left_out == (
        "a: more has no counterpart",
        "a: flags.failOnInitError has no counterpart",
        "a: sharing.other has no counterpart",
        "a: sharing.timeSlicing: devices of nvidia.com/gpu is left out: NVIDIA's plugin ignores it",
    )


def test_reads_the_strategy_of_a_configuration_beside_its_layout():
    plugin = {**shared(name="gpu", replicas=2), "flags": {"migStrategy": "single"}}
    imported = read_operator({"a": plugin, "b": plugin}, parted(CUT), "single")
    assert imported.profiles["a"]["mig"] == {"layout": {"1g.5gb": 7}, "strategy": "single"}
    (alone,) = imported.left_out
    assert alone.startswith("b: flags.migStrategy single belongs to a MIG layout here")
    (lost, _) = read_operator({"a": plugin, "b": plugin}, parted(CUT), "mixed").left_out
    assert lost.startswith("a: flags.migStrategy single belongs to a MIG layout here")


def test_shares_the_devices_of_a_layout():
    plugin = shared(name="mig-1g.5gb", replicas=2)
    imported = read_operator({"a": plugin}, parted(CUT))
    assert imported.profiles["a"]["timeSlicing"]["replicas"] == 2
    assert imported.left_out == ()
