"""The page about `divvy advise`, with its options as the command has them."""

from collections.abc import Iterator

import typer

from divvy.cli.advise import advise

_PAGE = """\
# Which profile would your pods need

```sh
divvy advise -s prod --prometheus monitoring/prometheus:web
```

looks at the pods of the last 14 days: what each held, the most that it used, and when. It replays them, in their order,
on other profiles of their pool, and says how many GPUs each profile takes at the peak, and who would notice. Nothing is
sent anywhere, and nothing is changed.

```
prod: 14 d until 2026-11-29 12:00 UTC, with 20 % of memory above each pod's peak

pool notebooks: 3 nodes of 4 × A100-SXM4-40GB, profile whole, 140 pods
change it: with 7 × 1g.5gb the pods need 2 GPUs at the peak instead of 10, 2 of
3 nodes could go, and no guarantee gets weaker
  profile            GPUs  nodes  spare  idle GPU h  waiting  pods affected
  today: whole         10      3      0       3,854        –  –
  → 7 × 1g.5gb          2      1      2       1,166        –  –
  on demand: 1g.5gb     2      1      2       1,166        –  –
  8 limited shares      2      1      2       1,166        –  weaker: memory,
                                                              compute, faults
  profile: {mig: {1g.5gb: 7}}
  140 pods then ask for nvidia.com/mig-1g.5gb instead of nvidia.com/gpu
note: 140 pods took more of a GPU's time in bursts than they would have
```

| shown | meaning |
|---|---|
| `GPUs`, `nodes` | what the pods need at the peak, so that none of them waits; `divvy fit`'s packing has put the busiest moment on these nodes |
| `spare` | nodes of the pool that could go |
| `idle GPU h` | hours of the GPUs that stay, less what the pods needed of them: of memory or of compute, whichever is more |
| `waiting` | pods that would find no device when they come, and the longest wait |
| `refused` | pods that no device of the profile holds; a candidate that refuses pods is never recommended |
| `killed` | pods that could be on one GPU with others so that its memory is not enough: replicas without limits; never recommended either |
| `slowed` | pods whose compute, in more than 5 % of their time, was more than they would have |
| `weaker` | guarantees that some pods would lose; only `--allow` makes it a recommendation |

The names of these pods follow the table; `-o json` has all of them. `-o html` has a timeline of what the pods needed and
were given, against what the pool offers before and after.

## What is compared

* whole GPUs; replicas with and without limits; MIG layouts, alike on all GPUs of a node or mixed, also with whole GPUs
  beside them; shares by size and MIG on demand ([claims](claims.md)).
* **Headroom**: a pod needs its peak of memory and 20 % more (`--headroom`), but never more than it had, and the 95th
  percentile of its compute. A pod with several whole GPUs keeps whole GPUs.
* **Guarantees are kept.** Memory, compute and faults of each pod are guaranteed as the pool's profile does today, or
  better ([guarantees](guarantees.md)). A GPU of its own and a MIG device of its own count the same: both have their memory
  and SMs to themselves. Whoever has MIG keeps it.
* Where several profiles need as few GPUs, the one comes first that changes least: the same on all GPUs, without claims,
  and with the resource that pods ask for already.
* **It is left as it is** unless a profile takes fewer GPUs at the peak, or lets fewer pods wait.

Not looked at: CPU, host memory, node selectors and affinity of pods; bandwidth; MPS and replicas of MIG devices as
candidates. `divvy fit` checks manifests against the new file before you deploy it.

## What is unknown

What was not measured counts with all that the pod was given, and the advice says how many pods that are. If that is most
of the GPUs' time, and nothing is recommended, the answer is *unknown*: so it is where

* less than half of `--since` is recorded;
* pods have replicas without a `memoryLimit`, whose use no driver tells;
* the stack file does not say a pool's `hardware`.

A pod that was out of sight for more than a tenth of its life may have used more than was seen. One whose agent ended with
it may have run until the agent came back.

## From a recording

`divvy top -s prod --record week.jsonl` adds what it sees to a file, at each look while it runs, or once with `--once`,
as from a cron job each minute. `divvy advise --record FILE` keeps what Prometheus told.

```sh
divvy advise -s prod --from week.jsonl --since 7d
```

The file has one JSON object a line. The first has `divvyRecording` (the version of the format, 1), `cluster`, `begin`,
`end` and `gaps`, in Unix seconds; each other is a pod: `namespace`, `pod`, `node`, `pool`, `resource` (`claims` for
claims), `kind` (`whole`, `mig`, `share`), `devices`, `begin`, `end` (`null`: it runs), `givenMiB` and `givenCores` of each
device, `peakMiB`, `p95MiB`, `p50Cores`, `p95Cores` and `peakCores` (per cent of a GPU), `waitedSeconds`, `unseenSeconds`.
What is `null` or missing is unknown. Other keys are kept.

Prometheus needs the agents' metrics (`observability.serviceMonitor`); the recording rules (`observability.alerts`) tell
how long pods waited.

## The change

`--write` gives the pools what is recommended: a profile of the file that is the same, or a new one, `POOL-advised`. All
else in the file stays as it is, comments too. It is a change like any other: `divvy diff HEAD prod` shows it, `divvy
validate` and a review follow, and `divvy up` waits for the pods that hold the GPUs. `hardware.count` stays: take nodes
away when they are empty.

## Options

{options}

| exit code | means |
|---|---|
| 0 | there is an answer for every pool: change it, or leave it as it is |
| 1 | an error |
| 2 | for some pool the answer is unknown |

It needs the rights of [`divvy top`](top.md#what-it-may-read) to reach a Prometheus behind the API server
(`services/proxy`), and none with a URL or a recording.

## divvy advise -o json

Keys may be added, but are never removed. `null` means unknown.

| key | meaning |
|---|---|
| `cluster`, `begin`, `end`, `headroom`, `notes` | the stack; the time, in Unix seconds; memory above a peak, as a part of it |
| `pools[]` | `pool`, `profile`, `model`, `nodes`, `gpusPerNode`, `pods`, `podsNotMeasured`; `unknown`: why there is no answer, empty if there is one; `reason`; `recommended`: its number in `best`, `null` to leave the pool as it is; `notes` |
| `pools[].today`, `pools[].best[]` | `words`, `profile` as a stack file has it, `gpus`, `nodes`, `spareNodes`, `idleGpuHours`; names of pods: `refused`, `killed`, `slowed`, `waitingSeconds` by name (`null`: for ever); `allow`: what `--allow` would have to name; `lost` and `gained`: `guarantee`, `before`, `after`, `pods`; `requests`: `before`, `after`, `pods`; `notes` |
| `pools[].timeline` | `begin`, `stepSeconds`, `neededGpus` and `givenGpus` of each step, at most |
"""


def advise_page() -> str:
    """Return the page."""
    return _PAGE.replace("{options}", "\n".join(_options()))


def _options() -> Iterator[str]:
    app = typer.Typer()
    app.command()(advise)
    yield "| option | default | does |"
    yield "|---|---|---|"
    for option in typer.main.get_command(app).params:
        if "--install-completion" in option.opts or "--show-completion" in option.opts:
            continue
        default = option.default
        shown = "–" if default in (None, False) or callable(default) else f"`{default}`"
        names = ", ".join(f"`{name}`" for name in option.opts)
        yield f"| {names} | {shown} | {getattr(option, 'help', '')} |"
