"""Write the files that follow from the code: python -m docs.generate."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from divvy.model import gpu_models
from divvy.model.schema import cluster_schema
from divvy.stack.keys import CLUSTER
from docs.advise_page import advise_page
from docs.conformance_page import conformance_page, faults_page
from docs.dashboard import dashboard_page
from docs.field_page import field_page
from docs.fleets_page import fleets_page, fleets_plot
from docs.guarantees_page import guarantees_page
from docs.hardware_page import hardware_page
from docs.rights_table import security_page
from docs.user_roles import your_cluster_page

ROOT = Path(__file__).parents[1]

_INTRODUCTION = """\
# The stack file

One file per cluster, `stacks/Pulumi.<stack>.yaml`, says how every GPU is partitioned
and shared: that is its section `config: {divvy:cluster: …}`.
`divvy validate -s <stack>` checks a file, `divvy schema` prints the JSON Schema for
editors. This page is generated from the same types.

```yaml
# stacks/Pulumi.prod.yaml
config:
  divvy:cluster:
    profiles:
      whole: {}
      quarters:
        timeSlicing:
          replicas: 4
          memoryLimit: {limit: auto, action: prevent}
          compute: share
    pools:
      training:
        select: {node.kubernetes.io/instance-type: gpu-a100}
        hardware: {model: A100-SXM4-40GB, gpus: 4, count: 12}
        profile: whole
      notebooks:
        select: {node.kubernetes.io/instance-type: gpu-t4}
        hardware: {model: T4, gpus: 2, count: 3}
        profile: quarters
    change: {policy: wait, deadline: 1h}
    plugin:
      image: {registry: "registry.example", base: "registry.example/debian-python:bookworm"}
```

A **profile** is one rule or a list of rules. Each GPU of a node takes the first rule
that selects it; a GPU that no rule selects is advertised whole. A **pool** chooses
nodes by their labels and gives them a profile; the one pool without `select` is the
default for GPU nodes.

Two defaults differ from NVIDIA's on purpose. Replicas are called `nvidia.com/gpu.shared`. A
container may ask for one replica only, because two time slices give no more than one; with MPS
it may ask for several.
"""

_MODELS = """\
The data of each model, with its sources and its doubts, is in `divvy/model/gpu_models`. MIG
profiles that are *not published* exist, but no source tells their memory and SMs; Divvy does not
create them. Common other spellings are understood, such as `H100-80GB-HBM3` and the label's
`NVIDIA-H100-80GB-HBM3`. Any other NVIDIA GPU is offered whole or time-sliced, with what its driver
says of it: write its name and its `memory` for a plan (`{model: NVIDIA GeForce RTX 3090, memory:
24Gi, gpus: 4, count: 2}`), or leave `hardware` out. Its MIG geometry is not known, and the plan
says so.
"""


# Shown where the part is described; each is a whole, valid `profiles` or `pools`.
EXAMPLES = {
    "Rule": """\
profiles:
  whole: {}
  split:                                # each GPU takes the first rule that selects it
    - {devices: [0, 1], mig: {1g.5gb: 7}}
    - {devices: [2], timeSlicing: {replicas: 4}}
    - {}                                # the others, whole
""",
    "MigRule": """\
profiles:
  seven: {mig: {1g.5gb: 7}}
  one-name: {mig: {layout: {1g.5gb: 7}, strategy: single}}     # advertised as nvidia.com/gpu
  sliced: {mig: {3g.20gb: 2}, timeSlicing: {replicas: 4}}
""",
    "TimeSlicing": """\
profiles:
  turns: {timeSlicing: {replicas: 4}}
  watched: {timeSlicing: {replicas: 4, memoryLimit: auto}}
  shares: {timeSlicing: {replicas: 4, memoryLimit: {limit: auto, action: prevent}, compute: share}}
""",
    "Mps": """\
profiles:
  together: {mps: {replicas: 4}}        # a quarter of the memory and SMs for each process
  capped:                               # and of the memory for each container
    mps: {replicas: 4, memoryLimit: {limit: auto, action: prevent}}
""",
    "Pool": """\
pools:
  training:
    select: {node.kubernetes.io/instance-type: gpu-a100}
    hardware: {model: A100-SXM4-40GB, gpus: 4, count: 12}
    profile: whole
    overrides: {gpu-7: turns}           # one node of it
""",
    "Claims": """\
profiles:
  by-size: {claims: {shares: {}}}
  on-demand: {claims: {shares: {max: 8}, mig: [1g.5gb, 3g.20gb]}}
""",
}


def stack_file_page() -> str:
    """Return the reference of the stack file."""
    schema = cluster_schema()
    lines = [_INTRODUCTION, *_tables(CLUSTER, schema)]
    lines += ["", "## GPU models", "", _MODELS]
    lines += ["| `hardware.model` | memory | SMs | MIG profiles |", "|---|--:|--:|---|"]
    for model in gpu_models().values():
        names = [profile.name for profile in model.mig.profiles] if model.mig else []
        if model.mig_unpublished:
            names.append("*more, not published*" if names else "*not published*")
        profiles = ", ".join(names) or "–"
        lines.append(f"| `{model.name}` | {model.memory_mib:,} MiB | {model.sms} | {profiles} |")
    return "\n".join(lines) + "\n"


PAGES = {
    "divvy/render/objects/dashboard/divvy.json": dashboard_page,
    "docs/advise.md": advise_page,
    "docs/conformance-faults.md": faults_page,
    "docs/conformance.md": conformance_page,
    "docs/field.md": field_page,
    "docs/fleets.md": fleets_page,
    "docs/guarantees.md": guarantees_page,
    "docs/hardware.md": hardware_page,
    "docs/pictures/fleets.svg": fleets_plot,
    "docs/security.md": security_page,
    "docs/stack-file.md": stack_file_page,
    "docs/your-cluster.md": your_cluster_page,
}


def _tables(name: str, schema: dict[str, Any]) -> Iterator[str]:
    """Yield the table of a section and those of the parts it refers to."""
    parts: dict[str, Any] = schema.pop("$defs")
    yield from _table(name, schema)
    for part_name in _in_reading_order(parts):
        part = parts[part_name]
        if "oneOf" in part:
            part = next((form for form in part["oneOf"] if "properties" in form), part)
        if "properties" in part:
            yield ""
            yield from _table(part_name, part)


def _table(name: str, part: dict[str, Any]) -> Iterator[str]:
    yield f"## {name}"
    yield ""
    yield part.get("description", "").replace("\n", " ")
    yield ""
    if name in EXAMPLES:
        yield f"```yaml\n{EXAMPLES[name]}```"
        yield ""
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    for key, value in part["properties"].items():
        required = key in part.get("required", ())
        default = "required" if required else _default(value)
        meaning = value.get("description", "").replace("\n", " ").replace("|", "\\|")
        yield f"| `{key}` | {_type(value)} | {default} | {meaning} |"


def _default(value: dict[str, Any]) -> str:
    default = value.get("default")
    if default in (None, []):
        return "–"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        # A profile is one rule, or a list of them.
        return f"[{name}](#{'rule' if name == 'Profile' else name.lower()})"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in value:
            names = [
                _type(alternative)
                for alternative in value[key]
                if alternative.get("type") != "null"
            ]
            return " or ".join(dict.fromkeys(names))
    if "enum" in value:
        return " or ".join(f"`{item}`" for item in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    kind = value.get("type", "any")
    if kind == "array":
        return f"list of {_type(value['items'])}"
    if kind == "object":
        return f"mapping to {_type(value.get('additionalProperties', {}))}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _in_reading_order(parts: dict[str, Any]) -> list[str]:
    first = ["Profile", "Rule", "MigRule", "TimeSlicing", "Pool", "Hardware"]
    return sorted(parts, key=lambda name: first.index(name) if name in first else len(first))


def main() -> None:
    """Write every file."""
    for name, page in PAGES.items():
        (ROOT / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
