"""Who holds which GPU, in the terminal, on a page and as JSON."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from divvy.live.usage import Holding, ResourceUse, Usage, UsedGpu, UsedNode, UsingPod
from divvy.render.views.usage import usage_text
from divvy.render.views.usage_json import usage_json
from divvy.render.views.usage_page import usage_page, use_figure
from divvy.render.views.usage_words import age, first_sentence, gib, memory_words
from tests.render.views.test_views import rendered

POD = UsingPod("team", "train-7f9c", "Running", "", "2026-01-01T12:00:00Z", 90000.0)
MIG = Holding("1g.5gb", "nvidia.com/mig-1g.5gb", POD, "main", 1500, 4864)
NODE = UsedNode(
    "gpu-1",
    "research",
    "split",
    "NVIDIA-A100-SXM4-40GB",
    "Ready",
    gpu_count=2,
    gpus=(
        UsedGpu(0, "GPU-0", "A100", "Ready", "", 40960, 2140, None, (MIG,), {"1g.5gb": 2}),
        UsedGpu(1, "GPU-1", "A100", "Degraded", "XID 79", 40960, 20480, 35),
    ),
    resources=(ResourceUse("nvidia.com/mig-1g.5gb", 3, 1),),
)
WAITING = UsingPod(
    "team", "later", "Unschedulable", "0/1 nodes. no help", None, 65.0, ("nvidia.com/gpu ×1",)
)
USAGE = Usage("prod", "2026-01-02T12:00:00Z", (NODE,), (WAITING,))


def lines(usage, width=80):
    return [line.rstrip() for line in rendered(usage_text(usage), width).splitlines()]


def many(number):
    return replace(USAGE, nodes=tuple(replace(NODE, name=f"gpu-{at}") for at in range(number)))


def test_renders_the_terminal_view():
    assert lines(USAGE) == [
        "prod: 1 node, 2 GPUs, 22.1 of 80.0 GiB in use, 1 pod at 2026-01-02T12:00:00Z",
        "",
        "gpu-1: pool research, profile split, 2 × NVIDIA-A100-SXM4-40GB",
        "  GPU 0 ▕█▍                        ▏  2,140 of 40,960 MiB  util     –",
        "      1g.5gb  team/train-7f9c main  1,500 of 4,864 MiB  1d",
        "      free: 2 × 1g.5gb",
        "  GPU 1 ▕█████████████             ▏ 20,480 of 40,960 MiB  util  35 %",
        "      Degraded: XID 79",
        "  requested: nvidia.com/mig-1g.5gb 1 of 3",
        "",
        "waiting for a node",
        "  team/later  1m  nvidia.com/gpu ×1",
        "    Unschedulable: 0/1 nodes",
    ]


def test_shows_warnings_beside_the_holder():
    crashing = replace(POD, state="CrashLoopBackOff")
    holding = replace(MIG, pod=crashing, over_mib=174, cores=30)
    node = replace(NODE, gpus=(replace(NODE.gpus[0], holdings=(holding,)),))
    text = lines(replace(USAGE, nodes=(node,)), width=100)
    assert text[4].endswith("1,500 of 4,864 MiB, 30 % of time  1d")
    assert text[5].strip() == "174 MiB over its limit, CrashLoopBackOff"


def test_explains_unknown_usage_without_an_empty_bar():
    gpus = tuple(
        replace(gpu, used_mib=None, utilisation=None, holdings=(), free={}) for gpu in NODE.gpus
    )
    node = replace(NODE, unknown="no agent of Divvy runs on it", gpus=gpus, unplaced=(WAITING,))
    hidden = replace(node, resources=(ResourceUse("nvidia.com/gpu", 3, None),))
    text = lines(replace(USAGE, nodes=(hidden,), notes=("pods are forbidden",)))
    assert text[0].startswith("prod: 1 node, 2 GPUs, 1 pod at 2026")
    assert "note: pods are forbidden" in text
    assert "  use is not known: no agent of Divvy runs on it" in text
    assert "  GPU 0 ▕··························▏ – of 40,960 MiB  util     –" in text
    assert "  pods; which GPU each holds is not known" in text
    assert "  offered: nvidia.com/gpu 3" in text


def test_names_a_simulated_driver_everywhere():
    usage = replace(USAGE, nodes=(replace(NODE, simulated=True),))
    assert "simulated by Divvy: no GPU is behind these figures" in lines(usage)
    assert "Simulated by Divvy: no GPU is behind these figures." in usage_page(usage)
    assert json.loads(usage_json(usage))["nodes"][0]["simulated"] is True


def test_shows_twenty_nodes_in_full_and_more_in_one_line_each():
    assert "GPU 0" in rendered(usage_text(many(20)))
    assert "GPU 0" not in rendered(usage_text(many(21)))
    text = lines(many(21))
    assert text[2].split() == ["node", "GPUs", "memory", "GiB", "util", "pods", "state"]
    assert text[3].split() == [
        "gpu-0", "2", "▕███▍", "▏", "22.1", "of", "80.0", "35", "%", "1"
    ]  # fmt: skip
    assert len(text) < 21 + 8
    assert "<svg" in usage_page(many(20))
    page = usage_page(many(21))
    assert "<svg" not in page
    assert page.count("<meter") == 21
    assert "the memory of a node’s GPUs together" in page


@pytest.mark.parametrize("width", [60, 80, 120])
def test_fits_the_terminal_without_colour(width):
    long = replace(POD, name="evaluate-checkpoints-nightly-" + "x" * 60, reason="r" * 200)
    node = replace(NODE, gpus=(replace(NODE.gpus[0], holdings=(replace(MIG, pod=long),)),))
    for usage in (replace(USAGE, nodes=(node,)), many(30)):
        text = rendered(usage_text(usage), width)
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) <= width


def test_writes_every_figure_to_stable_json():
    document = json.loads(usage_json(USAGE))
    assert usage_json(USAGE) == usage_json(USAGE)
    (node,) = document["nodes"]
    gpu = node["gpus"][0]
    assert (gpu["memoryUsedMiB"], gpu["memoryTotalMiB"], gpu["utilisation"]) == (2140, 40960, None)
    assert gpu["holders"] == [
        {
            "device": "1g.5gb",
            "resource": "nvidia.com/mig-1g.5gb",
            "claim": "",
            "namespace": "team",
            "pod": "train-7f9c",
            "container": "main",
            "memoryUsedMiB": 1500,
            "memoryLimitMiB": 4864,
            "memoryOverLimitMiB": 0,
            "cores": None,
            "utilisation": None,
            "created": "2026-01-01T12:00:00Z",
            "ageSeconds": 90000,
            "state": "Running",
            "reason": "",
        }
    ]
    assert node["resources"] == {"nvidia.com/mig-1g.5gb": {"allocatable": 3, "requested": 1}}
    assert document["waiting"][0]["requests"] == ["nvidia.com/gpu ×1"]


def test_fills_a_bar_by_holders_others_and_free_memory():
    first, second = use_figure(NODE).bars
    assert [piece.kind for piece in first.pieces] == ["mig1", "shared", "free"]
    assert [piece.words for piece in first.pieces] == [
        "1g.5gb, team/train-7f9c: 1,500 of 4,864 MiB",
        "640 MiB used by holders together, and by the driver",
        "38,820 MiB not in use",
    ]
    assert [piece.label for piece in first.pieces] == ["", "", "38,820 MiB not in use"]
    assert sum(piece.width for piece in first.pieces) == pytest.approx(560)
    assert [piece.label for piece in second.pieces] == ["20,480 MiB", "20,480 MiB not in use"]
    unknown = replace(NODE, gpus=(replace(NODE.gpus[0], used_mib=None),))
    assert [piece.words for piece in use_figure(unknown).bars[0].pieces] == ["its use is not known"]


def test_keeps_a_bar_within_its_frame_when_more_is_used_than_exists():
    full = replace(NODE.gpus[0], used_mib=50000, total_mib=40960)
    bar = use_figure(replace(NODE, gpus=(full,))).bars[0]
    assert sum(piece.width for piece in bar.pieces) == pytest.approx(560)
    assert min(piece.width for piece in bar.pieces) > 0
    text = lines(replace(USAGE, nodes=(replace(NODE, gpus=(full,)),)))
    assert "▕██████████████████████████▏" in text[3]


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def test_escapes_hostile_names_in_every_view():
    bad = '[bold red]</title><script>alert(1)</script>"onload="x'
    pod = UsingPod(bad, bad, bad, bad, None, 1.0, (bad,))
    gpu = UsedGpu(0, bad, bad, bad, bad, 100, 50, 1, (Holding(bad, bad, pod, bad, 9),), {bad: 1})
    node = UsedNode(
        bad, bad, bad, bad, bad, bad, True, 1, bad, (gpu,), (ResourceUse(bad, 1, 1),), (pod,)
    )
    usage = Usage(bad, bad, (node,), (pod,), (bad,))
    for hostile in (usage, replace(usage, nodes=(node,) * 21)):
        text = rendered(usage_text(hostile), 400)
        assert "[bold red]" in text
        page = Tags()
        page.feed(usage_page(hostile))
        assert "script" not in {tag for tag, _ in page.tags}
        assert not any("onload" in attributes for _, attributes in page.tags)
        json.loads(usage_json(hostile))


def test_formats_ages_sizes_and_sentences():
    assert [age(seconds) for seconds in (None, 0, 59, 60, 7200, 90000)] == [
        "–", "0s", "59s", "1m", "2h", "1d"
    ]  # fmt: skip
    assert [gib(mib) for mib in (0, 512, 81559, 362496)] == ["0.0", "0.5", "79.6", "354"]
    assert memory_words(None, None) == "–"
    assert memory_words(1200, None) == "1,200 MiB"
    assert first_sentence("0/4 nodes are available: 1 x. no new claims.") == (
        "0/4 nodes are available: 1 x"
    )


def test_asks_whether_divvy_is_deployed_where_no_node_has_a_gpu() -> None:
    text = rendered(usage_text(Usage("prod", "now", (), (), ())))
    assert "no node offers a device or has an agent of Divvy: is it deployed?" in text
