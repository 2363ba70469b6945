"""Wrong stack files, each with words of the messages it gets."""

HARDWARE = "{model: A100-SXM4-40GB, gpus: 4, count: 2}"


def _stack(profiles: str, pools: str = "", more: str = "") -> str:
    pools = pools or f"main: {{hardware: {HARDWARE}, profile: p}}"
    return f"profiles:\n{_indented(profiles)}\npools:\n{_indented(pools)}\n{more}".rstrip() + "\n"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.strip().splitlines())


def _pool(name: str, rest: str) -> str:
    return f"{name}: {{{rest}}}"


# Between the words of several messages in a title.
SEPARATOR = " · "
# (words of its messages, the divvy:cluster value, the paths of the problems it has to name)
WRONG: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("profiles: is missing", "{}\n", ("profiles", "pools")),
    (
        "512 or less is expected",
        _stack("p: {timeSlicing: {replicas: 8000}}"),
        ("profiles.p.timeSlicing.replicas",),
    ),
    (
        "is not a valid label key",
        _stack("p: {}", more="observability: {networkPolicy: {team/: x}}"),
        ("observability.networkPolicy.team/",),
    ),
    (
        "unknown key; did you mean",
        _stack("p: {timeslicing: {replicas: 4}}", more="drivers: {}"),
        ("profiles.p.timeslicing", "drivers"),
    ),
    (
        "a whole number is expected · text is expected; put it in quotes",
        _stack(
            "p: {timeSlicing: {replicas: 1, renameByDefault: maybe, memoryLimit: 6GB}}",
            "main:\n"
            "  hardware: {model: 100, gpus: many, count: -1}\n"
            "  profile: p\n"
            "  runtime: {name: podman}\n",
            "change: {policy: kill, deadline: 10}\nhealth: {ignoreXids: [x]}",
        ),
        (
            "profiles.p.timeSlicing.replicas",
            "profiles.p.timeSlicing.renameByDefault",
            "profiles.p.timeSlicing.memoryLimit",
            "pools.main.hardware.model",
            "pools.main.hardware.gpus",
            "pools.main.hardware.count",
            "pools.main.runtime.name",
            "change.policy",
            "change.deadline",
            "health.ignoreXids[0]",
        ),
    ),
    (
        "has no placement on",
        _stack("p: {mig: {4g.20gb: 1, 3g.20gb: 1, 2g.10gb: 1}}"),
        ("profiles.p.mig",),
    ),
    (
        "but a card holds at most",
        _stack("p:\n- {devices: [0], mig: {1g.5gb: 8}}\n- {mig: {1g.5gb+me: 2}}"),
        ("profiles.p[0].mig", "profiles.p[1].mig"),
    ),
    (
        "has no MIG profile",
        _stack("p: {mig: {3g.40gb: 2}}"),
        ("profiles.p.mig.3g.40gb",),
    ),
    ("is not a MIG profile name", _stack("p: {mig: {3g20gb: 2}}"), ("profiles.p.mig.3g20gb",)),
    (
        "has no MIG; models with MIG",
        _stack(
            "p: {mig: {1g.5gb: 7}}", "main: {hardware: {model: T4, gpus: 2, count: 1}, profile: p}"
        ),
        ("profiles.p.mig",),
    ),
    *(
        (
            "cannot hold on GB10",
            _stack(
                f"p: {profile}",
                "main: {hardware: {model: GB10, gpus: 1, count: 1}, profile: p}",
            ),
            (keys,),
        )
        for profile, keys in (
            (
                "{timeSlicing: {replicas: 4, memoryLimit: {limit: 4Gi, action: prevent}}}",
                "profiles.p.timeSlicing.memoryLimit",
            ),
            (
                "{mps: {replicas: 4, memoryLimit: {limit: 4Gi, action: prevent}}}",
                "profiles.p.mps.memoryLimit",
            ),
            ("{claims: {shares: {}}}", "profiles.p.claims.shares"),
        )
    ),
    (
        "fits no GPU model",
        _stack("p: {}\nspare: {mig: {7g.40gb: 1, 1g.5gb: 1}}"),
        ("profiles.spare.mig",),
    ),
    (
        "single makes all devices of a node nvidia.com/gpu, but GPU 2 of the node is whole",
        _stack(
            "p:\n"
            "- {devices: [0, 1], mig: {layout: {1g.5gb: 7}, strategy: single}}\n"
            "- {devices: [2, 3]}"
        ),
        ("profiles.p[0].mig.strategy",),
    ),
    (
        "single makes all devices of a node nvidia.com/gpu, but the node has",
        _stack("p: {mig: {layout: {3g.20gb: 1, 2g.10gb: 1}, strategy: single}}"),
        ("profiles.p.mig.strategy",),
    ),
    (
        "nvidia.com/gpu would mean a whole GPU",
        _stack("p:\n- {devices: [0], timeSlicing: {replicas: 4, renameByDefault: false}}\n- {}"),
        ("profiles.p[1]",),
    ),
    (
        "nvidia.com/gpu would mean a whole 1g.5gb MIG device · write `strategy: mixed` for the MIG",
        _stack(
            "p: {}\nq: {mig: {layout: {1g.5gb: 7}, strategy: single}}",
            f"main: {{hardware: {HARDWARE}, profile: p, overrides: {{node-1: q}}}}",
        ),
        ("profiles.q",),
    ),
    (
        "nvidia.com/gpu.shared would mean 1/8 of a GPU",
        _stack(
            "p: {timeSlicing: {replicas: 4}}\nq: {timeSlicing: {replicas: 8}}",
            f"main: {{hardware: {HARDWARE}, profile: p, overrides: {{node-1: q}}}}",
        ),
        ("profiles.q",),
    ),
    (
        "only one pool can be the default for GPU nodes · can select the same node as pool",
        _stack(
            "p: {}",
            "a: {select: {kind: gpu}, profile: p}\n"
            "b: {select: {kind: gpu, team: x}, profile: p}\n"
            "c: {profile: p}\n"
            "d: {profile: p}",
        ),
        ("pools.b.select", "pools.d"),
    ),
    (
        "which does not exist; did you mean · unknown GPU model",
        _stack(
            "slice-4: {timeSlicing: {replicas: 4}}\nsome: [{devices: [0, 4]}]",
            f"a: {{select: {{k: a}}, hardware: {HARDWARE}, profile: slice4}}\n"
            f"b: {{select: {{k: b}}, hardware: {HARDWARE}, "
            "profile: some, overrides: {n: none}}\n"
            "c: {select: {k: c}, hardware: {model: A100-SXM-40GB, gpus: 4, count: 1}, "
            "profile: some}",
        ),
        (
            "pools.a.profile",
            "pools.b.overrides.n",
            "pools.c.hardware.model",
            "profiles.some.devices",
        ),
    ),
    (
        "are not known; offer it whole or with timeSlicing",
        _stack(
            "p: {mig: {1g.12gb: 7}}",
            "a: {select: {k: a}, hardware: {model: H20, gpus: 8, count: 1}, profile: p}\n"
            "b: {select: {k: b}, hardware: {model: Z1, memory: 24Gi, gpus: 1, count: 1}, "
            "profile: p}",
        ),
        ("profiles.p.mig",),
    ),
    (
        "is 24576 MiB, and T4 has 15360; leave it out",
        _stack("p: {}", "a: {hardware: {model: T4, memory: 24Gi, gpus: 1, count: 1}, profile: p}"),
        ("pools.a.hardware.memory",),
    ),
    (
        "is auto; a size such as 24Gi is expected",
        _stack("p: {}", "a: {hardware: {model: Z1, memory: auto, gpus: 1, count: 1}, profile: p}"),
        ("pools.a.hardware.memory",),
    ),
    (
        "raise hardware.count or remove overrides · a node belongs to one pool",
        _stack(
            "p: {}",
            "a: {select: {k: a}, hardware: {model: T4, gpus: 1, count: 1}, profile: p,\n"
            "    overrides: {n1: p, n2: p}}\n"
            "b: {select: {k: b}, profile: p, overrides: {n1: p}}",
        ),
        ("pools.a.overrides", "pools.b.overrides.n1"),
    ),
    (
        "is never reached",
        _stack("p:\n- {}\n- {devices: [0], mig: {1g.5gb: 7}}"),
        ("profiles.p[1]",),
    ),
    (
        "is not a pool name · is not a resource name",
        _stack(
            "no spaces: {}\np: {timeSlicing: {replicas: 2, resourceName: kubernetes.io/gpu}}",
            f"Main: {{select: {{a b: c}}, hardware: {HARDWARE}, profile: p}}",
            "namespace: Divvy\ndevices: [{resource: hca, paths: [/dev/x]}]",
        ),
        (
            "profiles.no spaces",
            "pools.Main",
            "pools.Main.select.a b",
            "profiles.p.timeSlicing.resourceName",
            "namespace",
            "devices[0].resource",
        ),
    ),
    (
        "a size such as 6Gi or 512Mi, or auto, is expected · warn, enforce or prevent is expected",
        _stack("p: {timeSlicing: {replicas: 2, memoryLimit: {limit: 5Gx, action: kill}}}"),
        (
            "profiles.p.timeSlicing.memoryLimit.limit",
            "profiles.p.timeSlicing.memoryLimit.action",
        ),
    ),
    (
        "the last replicas would not get theirs · which the limiter divides",
        _stack(
            "p: {timeSlicing: {replicas: 4, memoryLimit: {limit: 20Gi, action: prevent}}}\n"
            "q: {timeSlicing: {replicas: 4, memoryLimit: auto, compute: share}}\n"
            "r: {timeSlicing: {replicas: 101, memoryLimit: {limit: auto, action: prevent},\n"
            "  compute: cap}}\n"
            "s: {mig: {1g.5gb: 7}, timeSlicing: {replicas: 2, compute: share,\n"
            "  memoryLimit: {limit: auto, action: prevent}}}",
        ),
        (
            "profiles.p.timeSlicing.memoryLimit",
            "profiles.q.timeSlicing",
            "profiles.r.timeSlicing",
            "profiles.s",
        ),
    ),
    (
        "which needs the limiter · 1.0 or more is expected",
        _stack(
            "p: {timeSlicing: {replicas: 4, memoryLimit: {limit: auto, oversubscribe: 2}}}\n"
            "q: {timeSlicing: {replicas: 4, memoryLimit: {limit: auto, action: prevent,\n"
            "  oversubscribe: 0.5}}}",
        ),
        (
            "profiles.p.timeSlicing.memoryLimit",
            "profiles.q.timeSlicing.memoryLimit.oversubscribe",
        ),
    ),
    (
        "puts what does not fit into host memory · `oversubscribe: 2` at most",
        _stack(
            "p:\n"
            "- {devices: [0], timeSlicing: {replicas: 4, memoryLimit:\n"
            "    {limit: 20Gi, action: prevent, oversubscribe: 1.5}}}\n"
            "- {devices: [1], timeSlicing: {replicas: 2, resourceName: half, memoryLimit:\n"
            "    {limit: auto, action: prevent, oversubscribe: 3}}}",
        ),
        (
            "profiles.p[0].timeSlicing.memoryLimit",
            "profiles.p[1].timeSlicing.memoryLimit",
        ),
    ),
    (
        "an image by digest · is older than minVersion",
        _stack(
            "p: {mig: {1g.5gb: 7}, timeSlicing: {replicas: 2, memoryLimit: 5Gi}}",
            more='driver: {version: 510.47.03, minVersion: "535.104"}\n'
            "plugin: {image: {registry: r, reference: x}}",
        ),
        ("profiles.p.timeSlicing.memoryLimit", "driver.version", "plugin.image.reference"),
    ),
    (
        "on nodes for linux/arm64, and the agent's image is built for",
        _stack(
            "p: {}",
            "main: {hardware: {model: GH200, gpus: 1, count: 4}, profile: p}",
            "plugin: {image: {registry: registry.example/gpus, base: registry.example/base}}",
        ),
        ("pools.main.hardware.model",),
    ),
    (
        "has `claims` and `mig` · uses the device plugin, but another rule has `claims`",
        _stack(
            "p:\n- {devices: [0], claims: {}}\n- {timeSlicing: {replicas: 4}}\n"
            "q: {claims: {}, mig: {1g.5gb: 7}}"
        ),
        ("profiles.p[1]", "profiles.q"),
    ),
    (
        "keeps shares of tenants apart, and there are no shares · not a multiple of the step",
        _stack(
            "p: {claims: {shares: {default: 50Gi}, mig: [1g.10gb, 3g.40gb]}}\n"
            "q: {claims: {tenants: [prod]}}\n"
            "r: {claims: {shares: {memory: {step: 3Gi}, default: 4Gi}, mig: [small]}}\n"
            "s: {claims: {shares: {memory: {step: 21Gi}}}}",
            f"main: {{hardware: {HARDWARE}, profile: p, overrides: {{gpu-1: s}}}}",
        ),
        (
            "profiles.p.claims.mig",
            "profiles.p.claims.shares.default",
            "profiles.q.claims.tenants",
            "profiles.r.claims.mig",
            "profiles.r.claims.shares.default",
            "profiles.s.claims.shares.memory.step",
        ),
    ),
    (
        "64 or less is expected · names 1g.5gb twice",
        _stack(
            "p: {claims: {shares: {memory: {step: auto, oversubscribe: 0.5}, max: 100, "
            "default: half}, mig: [1g.5gb, 1g.5gb], tenants: [Prod]}}"
        ),
        (
            "profiles.p.claims.shares.memory.step",
            "profiles.p.claims.shares.memory.oversubscribe",
            "profiles.p.claims.shares.max",
            "profiles.p.claims.shares.default",
            "profiles.p.claims.mig",
            "profiles.p.claims.tenants",
        ),
    ),
    (
        "every resource needs a name of its own",
        _stack(
            "p: {claims: {shares: {}}}",
            more="names: {gpu: nvidia.com/gpu.shared, memory: gpumem, cores: nvidia.com/gpucores, "
            "memoryPercentage: nvidia.com/gpucores}",
        ),
        ("names.gpu", "names.memory", "names.cores"),
    ),
    (
        "is also used for MIG devices · is also used for the replicas",
        _stack(
            "p: {claims: {shares: {}, mig: [1g.5gb]}}\n"
            "q: {timeSlicing: {replicas: 4, resourceName: nvidia.com/slices}}",
            more="names: {memory: nvidia.com/mig-1g.5gb, cores: nvidia.com/slices}",
        ),
        ("names.memory", "names.cores"),
    ),
)
