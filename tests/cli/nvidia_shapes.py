"""Files in which NVIDIA's configurations are kept, in the forms that others have published.

Each with the profiles that `divvy import gpu-operator` makes of it.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

GPU = "nvidia.com/gpu"
_OFF = {"renameByDefault": False, "failRequestsGreaterThanOne": False}


def slices(replicas: int) -> dict[str, Any]:
    """Return the profile of shared GPUs, with NVIDIA's defaults."""
    return {"timeSlicing": {"replicas": replicas, **_OFF}}


def plugin(replicas: int = 0, **more: Any) -> str:
    """Return a configuration of the device plugin as text."""
    shared = {"timeSlicing": {"resources": [{"name": GPU, "replicas": replicas}]}}
    return yaml.safe_dump({"version": "v1", **({"sharing": shared} if replicas else {}), **more})


def parted(**layouts: dict[str, int]) -> str:
    """Return a configuration of mig-parted as text; without instances MIG is off."""
    configs = {
        name.replace("_", "-"): [
            {"devices": "all", "mig-enabled": bool(layout)}
            | ({"mig-devices": layout} if layout else {})
        ]
        for name, layout in layouts.items()
    }
    return yaml.safe_dump({"version": "v1", "mig-configs": configs})


def config_map(name: str = "c", **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "gpu-operator"},
        "data": {key.replace("__", "."): text for key, text in data.items()},
    }


def listed(*items: Any, kind: str = "List") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "items": list(items)}


def values(
    sharing: dict[str, str] | None = None, mig: str = "", strategy: str = "mixed", **more: Any
) -> dict[str, Any]:
    """Return values of the operator's chart with inline data."""
    chart: dict[str, Any] = {"driver": {"enabled": False}, "mig": {"strategy": strategy}, **more}
    if sharing:
        config = {"create": True, "name": "s", "default": "any", "data": sharing}
        chart["devicePlugin"] = {"enabled": True, "config": config}
    if mig:
        config = {"create": True, "name": "m", "data": {"config.yaml": mig}}
        chart["migManager"] = {"enabled": True, "config": config}
    return chart


SEVEN = parted(seven={"1g.5gb": 7}, off={})
SEVEN_PROFILES: dict[str, Any] = {"seven": {"mig": {"1g.5gb": 7}}, "off": {}}
SINGLE = {"seven": {"mig": {"layout": {"1g.5gb": 7}, "strategy": "single"}}, "off": {}}
DAEMON_SET = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "plugin"},
    "spec": {"template": {"spec": {"containers": [{"name": "main", "image": "plugin"}]}}},
}
_RELEASE = {
    "apiVersion": "helm.toolkit.fluxcd.io/v2",
    "kind": "HelmRelease",
    "metadata": {"name": "h"},
}
_KUSTOMIZATION = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
_APPLICATION = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Application",
    "metadata": {"name": "g"},
}
_PLUGIN_CHART = {
    "runtimeClassName": "nvidia",
    "gfd": {"enabled": True},
    "config": {"default": "shared", "map": {"shared": plugin(6), "whole": plugin()}},
}
_PLUGIN_PROFILES = {"shared": slices(6), "whole": {}}
_FILTERED = {
    "version": "v1",
    "mig-configs": {
        "balanced": [
            {
                "device-filter": ["0x20B010DE"],
                "devices": "all",
                "mig-enabled": True,
                "mig-devices": {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},
            }
        ]
    },
}
_SPLIT = {
    "version": "v1",
    "mig-configs": {
        "split": [
            {"devices": [0], "mig-enabled": True, "mig-devices": {"3g.40gb": 2}},
            {"devices": [1, 2, 3], "mig-enabled": False},
        ]
    },
}
_MPS = {
    "version": "v1",
    "sharing": {"mps": {"renameByDefault": True, "resources": [{"name": GPU, "replicas": 10}]}},
}
_MPS_PROFILE = {
    "mps": {"replicas": 10, "renameByDefault": True, "failRequestsGreaterThanOne": True}
}
_BOTH = {"four": {**slices(4)}, **SEVEN_PROFILES}

# The file's documents, or its text, and the profiles.
SHAPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "plugin": (plugin(4), {"file": slices(4)}),
    "plugin, nothing shared": (plugin(), {"file": {}}),
    "plugin, mps": ([_MPS], {"file": _MPS_PROFILE}),
    "plugin as JSON": (json.dumps(yaml.safe_load(plugin(4))), {"file": slices(4)}),
    "mig-parted": (SEVEN, SEVEN_PROFILES),
    "mig-parted, split": (
        [_SPLIT],
        {
            "split": [
                {"devices": [0], "mig": {"3g.40gb": 2}},
                {"devices": [1, 2, 3]},
            ]
        },
    ),
    "mig-parted, by model": (
        [_FILTERED],
        {
            "balanced": {
                "devices": "A100-SXM4-40GB",
                "mig": {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},
            }
        },
    ),
    "mig-parted, keys that are booleans": (
        "version: v1\nmig-configs:\n  off: [{devices: all, mig-enabled: false}]\n"
        "  y: [{devices: all, mig-enabled: false}]\n",
        {"false": {}, "true": {}},
    ),
    "config map": ([config_map(four=plugin(4))], {"four": slices(4)}),
    "config map of two": (
        [config_map(four=plugin(4), whole=plugin())],
        {"four": slices(4), "whole": {}},
    ),
    "config map of mig-parted": ([config_map(config__yaml=SEVEN)], SEVEN_PROFILES),
    "both config maps": (
        [config_map("s", four=plugin(4)), config_map("m", config__yaml=SEVEN)],
        _BOTH,
    ),
    "list of both": (
        [listed(config_map("s", four=plugin(4)), config_map("m", config__yaml=SEVEN))],
        _BOTH,
    ),
    "config map list": (
        [listed(config_map(four=plugin(4)), kind="ConfigMapList")],
        {"four": slices(4)},
    ),
    "config map and daemon set": ([config_map(four=plugin(4)), DAEMON_SET], {"four": slices(4)}),
    "config maps of a namespace": (
        [
            listed(
                config_map("clients", clients__yaml="version: v1\nsystemd-services: [a.service]\n"),
                config_map("sharing", four=plugin(4)),
                config_map("entry", entrypoint__sh="#!/bin/sh\nexec toolkit\n"),
                config_map("kube-root-ca.crt", ca__crt="-----BEGIN CERTIFICATE-----\nMIIB\n"),
            )
        ],
        {"four": slices(4)},
    ),
    "data of a config map": (
        [{"four": plugin(4), "whole": plugin()}],
        {"four": slices(4), "whole": {}},
    ),
    "operator's values": ([values({"four": plugin(4)}, SEVEN)], _BOTH),
    "operator's values, single": ([values(mig=SEVEN, strategy="single")], SINGLE),
    "values and config map": (
        [{"mig": {"strategy": "single"}}, config_map(config__yaml=SEVEN)],
        SINGLE,
    ),
    "values of a chart around the operator's": (
        [{"global": {"team": "a"}, "gpu-operator": values({"four": plugin(4)}, SEVEN)}],
        _BOTH,
    ),
    "values of the plugin's chart": ([_PLUGIN_CHART], _PLUGIN_PROFILES),
    "values of a chart around the plugin's": (
        [{"nvidia-device-plugin": _PLUGIN_CHART}],
        _PLUGIN_PROFILES,
    ),
    "helm release": ([{**_RELEASE, "spec": {"values": _PLUGIN_CHART}}], _PLUGIN_PROFILES),
    "helm release of the operator": (
        [{**_RELEASE, "spec": {"interval": "5m", "values": values({"four": plugin(4)}, SEVEN)}}],
        _BOTH,
    ),
    "application": (
        [
            {
                **_APPLICATION,
                "spec": {"source": {"helm": {"valuesObject": values({"four": plugin(4)}, SEVEN)}}},
            }
        ],
        _BOTH,
    ),
    "application with text": (
        [
            {
                **_APPLICATION,
                "spec": {"source": {"helm": {"values": yaml.safe_dump(_PLUGIN_CHART)}}},
            }
        ],
        _PLUGIN_PROFILES,
    ),
    "kustomization": (
        [{**_KUSTOMIZATION, "helmCharts": [{"name": "p", "valuesInline": _PLUGIN_CHART}]}],
        _PLUGIN_PROFILES,
    ),
    "cluster policy and config map": (
        [
            {
                "apiVersion": "nvidia.com/v1",
                "kind": "ClusterPolicy",
                "metadata": {"name": "cluster-policy"},
                "spec": {
                    "mig": {"strategy": "single"},
                    "migManager": {"config": {"name": "m", "default": "seven"}},
                    "driver": {"enabled": True},
                },
            },
            config_map("m", config__yaml=SEVEN),
        ],
        SINGLE,
    ),
}


def _secret_free(name: str, **data: str) -> dict[str, Any]:
    """Return a ConfigMap as a server prints it, with what it adds."""
    shown = config_map(name, **data)
    shown["metadata"] |= {
        "creationTimestamp": "2026-02-03T04:05:06Z",
        "resourceVersion": "4711",
        "uid": "7c1f2d1e-3a55-4d0b-9d60-0123456789ab",
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"meta.helm.sh/release-name": "gpu-operator"},
    }
    return shown


def _with_last_applied(name: str, **data: str) -> dict[str, Any]:
    shown = _secret_free(name, **data)
    applied = json.dumps(config_map(name, **data))
    shown["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = applied
    return shown


_FULL_FLAGS = {
    "migStrategy": "none",
    "failOnInitError": True,
    "nvidiaDriverRoot": "/",
    "plugin": {
        "passDeviceSpecs": False,
        "deviceListStrategy": "envvar",
        "deviceIDStrategy": "uuid",
    },
    "gfd": {"oneshot": False, "sleepInterval": "60s", "outputFile": "/features.d/gfd"},
}
_EMPTY_SHARING = {"version": "v1", "sharing": {"timeSlicing": {}}}
_RENAMED = {
    "version": "v1",
    "sharing": {
        "timeSlicing": {
            "renameByDefault": True,
            "failRequestsGreaterThanOne": False,
            "resources": [{"name": "gpu", "replicas": 12, "devices": "all"}],
        }
    },
}
_RENAMED_PROFILE = {
    "timeSlicing": {
        "replicas": 12,
        "renameByDefault": True,
        "failRequestsGreaterThanOne": False,
    }
}
_TABBED = json.dumps(yaml.safe_load(plugin(4)), indent="\t")

# More forms: what people print, keep in repositories, and hand to charts around charts.
SHAPES |= {
    "plugin, all flags": (plugin(4, flags=_FULL_FLAGS), {"file": slices(4)}),
    "plugin, empty sharing": ([_EMPTY_SHARING], {"file": {}}),
    "plugin, short name and options": ([_RENAMED], {"file": _RENAMED_PROFILE}),
    "plugin, resources of the node": (
        plugin(4, resources={"gpus": [{"pattern": "*", "name": GPU}]}),
        {"file": slices(4)},
    ),
    "plugin as JSON with tabs": (_TABBED, {"file": slices(4)}),
    "plugin, byte order mark": ("\ufeff" + plugin(4), {"file": slices(4)}),
    "config map with what was applied": (
        [_with_last_applied("c", four=plugin(4))],
        {"four": slices(4)},
    ),
    "immutable config map": (
        [{**config_map(four=plugin(4)), "immutable": True}],
        {"four": slices(4)},
    ),
    "list in a list": ([listed(listed(config_map(four=plugin(4))))], {"four": slices(4)}),
    "values by environment": (
        [{"environments": {"prod": {"values": [_PLUGIN_CHART]}}}],
        _PLUGIN_PROFILES,
    ),
    "application of several sources": (
        [
            {
                **_APPLICATION,
                "spec": {"sources": [{"helm": {"valuesObject": _PLUGIN_CHART}}, {"ref": "v"}]},
            }
        ],
        _PLUGIN_PROFILES,
    ),
    "kustomization that makes a config map": (
        [
            {
                **_KUSTOMIZATION,
                "patches": [{"patch": yaml.safe_dump(config_map(four=plugin(4)))}],
            }
        ],
        {"four": slices(4)},
    ),
}

_BOTH_VALUES = values({"four": plugin(4)}, SEVEN)
_VALUES_TEXT = yaml.safe_dump(_BOTH_VALUES)
_PER_CARD = {
    "a100-40gb": {
        "version": "v1",
        "flags": {"migStrategy": "mixed"},
        "sharing": {
            "timeSlicing": {
                "resources": [
                    {"name": GPU, "replicas": 8},
                    {"name": "nvidia.com/mig-1g.5gb", "replicas": 2},
                    {"name": "nvidia.com/mig-3g.20gb", "replicas": 3},
                ]
            }
        },
    },
    "tesla-t4": yaml.safe_load(plugin(4)),
}
_PER_CARD_TEXTS = {name: yaml.safe_dump(config) for name, config in _PER_CARD.items()}
_CLUSTER_POLICY = {
    "apiVersion": "nvidia.com/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "gpu-cluster-policy"},
    "spec": {
        "mig": {"strategy": "mixed"},
        "devicePlugin": {"enabled": True, "config": {"name": "s", "default": "four"}},
        "migManager": {"enabled": True, "config": {"name": "m", "default": "off"}},
    },
}


def _custom(api: str, kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "gpu"}, "spec": spec}


# In the objects and files of those who deploy charts: GitOps, fleets, operators, generators.
SHAPES |= {
    "config map by card": (
        [config_map("time-slicing-config-fine", **_PER_CARD_TEXTS)],
        {"a100-40gb": slices(8), "tesla-t4": slices(4)},
    ),
    "cluster policy and both config maps": (
        [
            listed(
                _CLUSTER_POLICY,
                config_map("s", four=plugin(4)),
                config_map("m", config__yaml=SEVEN),
            )
        ],
        _BOTH,
    ),
    "plugin's chart below another name, with fallbacks": (
        [
            {
                "nvdp": {
                    "config": {
                        "map": {"default": plugin(), "shared": plugin(6)},
                        "default": "default",
                        "fallbackStrategies": ["named", "single"],
                    },
                    "gfd": {"enabled": True},
                    "nfd": {"enableNodeFeatureApi": True},
                }
            }
        ],
        {"default": {}, "shared": slices(6)},
    ),
    "helm release with values from a config map": (
        [
            {
                **_RELEASE,
                "spec": {"valuesFrom": [{"kind": "ConfigMap", "name": "gpu-values"}]},
            },
            config_map("gpu-values", values__yaml=_VALUES_TEXT),
        ],
        _BOTH,
    ),
    "helm release with values from a secret": (
        [
            {**_RELEASE, "spec": {"valuesFrom": [{"kind": "Secret", "name": "gpu-values"}]}},
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "gpu-values"},
                "stringData": {"values.yaml": _VALUES_TEXT},
            },
        ],
        _BOTH,
    ),
    "application set": (
        [
            _custom(
                "argoproj.io/v1alpha1",
                "ApplicationSet",
                generators=[{"list": {"elements": [{"cluster": "a"}]}}],
                template={
                    "metadata": {"name": "gpu-a"},
                    "spec": {
                        "sources": [
                            {"chart": "gpu-operator", "helm": {"values": _VALUES_TEXT}},
                            {"repoURL": "https://git.example.com/x", "ref": "values"},
                        ]
                    },
                },
            )
        ],
        _BOTH,
    ),
    "helm chart inflation generator": (
        [
            {
                "apiVersion": "builtin",
                "kind": "HelmChartInflationGenerator",
                "metadata": {"name": "gpu"},
                "name": "gpu-operator",
                "repo": "https://helm.ngc.nvidia.com/nvidia",
                "valuesInline": _BOTH_VALUES,
            }
        ],
        _BOTH,
    ),
    "resource list of a kustomize function": (
        [
            {
                "apiVersion": "config.kubernetes.io/v1",
                "kind": "ResourceList",
                "items": [config_map(four=plugin(4)), DAEMON_SET],
            }
        ],
        {"four": slices(4)},
    ),
    "terraform, helm release": (
        json.dumps({"resource": {"helm_release": {"gpu": {"values": [_VALUES_TEXT]}}}}),
        _BOTH,
    ),
    "terraform, config map": (
        json.dumps(
            {
                "resource": {
                    "kubernetes_config_map": {
                        "c": {"metadata": {"name": "c"}, "data": {"four": plugin(4)}}
                    }
                }
            }
        ),
        {"four": slices(4)},
    ),
    "yamlencode": (json.dumps(_BOTH_VALUES, indent=2), _BOTH),
    "k3s chart": (
        [
            _custom(
                "helm.cattle.io/v1",
                "HelmChart",
                repo="https://helm.ngc.nvidia.com/nvidia",
                chart="gpu-operator",
                targetNamespace="gpu-operator",
                valuesContent=_VALUES_TEXT,
            )
        ],
        _BOTH,
    ),
    "k3s chart configuration": (
        [_custom("helm.cattle.io/v1", "HelmChartConfig", valuesContent=_VALUES_TEXT)],
        _BOTH,
    ),
    "fleet.yaml": (
        [
            {
                "defaultNamespace": "gpu-operator",
                "helm": {"chart": "gpu-operator", "values": _BOTH_VALUES},
                "targetCustomizations": [{"name": "edge", "helm": {"values": {"logLevel": 2}}}],
            }
        ],
        _BOTH,
    ),
    "fleet bundle": (
        [
            _custom(
                "fleet.cattle.io/v1alpha1",
                "Bundle",
                helm={"values": values(mig=SEVEN)},
                resources=[
                    {"name": "c.yaml", "content": yaml.safe_dump(config_map(four=plugin(4)))}
                ],
            )
        ],
        _BOTH,
    ),
    "helmfile": (
        [
            {
                "repositories": [{"name": "nvidia", "url": "https://helm.ngc.nvidia.com/nvidia"}],
                "releases": [
                    {"name": "gpu", "chart": "nvidia/gpu-operator", "values": [_BOTH_VALUES]}
                ],
            }
        ],
        _BOTH,
    ),
    "timoni bundle": (
        [
            {
                "bundle": {
                    "apiVersion": "v1alpha1",
                    "name": "gpu",
                    "instances": {"plugin": {"namespace": "gpu", "values": _PLUGIN_CHART}},
                }
            }
        ],
        _PLUGIN_PROFILES,
    ),
    "objects by name, as CUE and Jsonnet export them": (
        json.dumps({"configMap": {"plugin": config_map(four=plugin(4))}, "daemonSet": DAEMON_SET}),
        {"four": slices(4)},
    ),
    "OLM subscription, policy and config map": (
        [
            _custom(
                "operators.coreos.com/v1alpha1",
                "Subscription",
                channel="stable",
                name="gpu-operator-certified",
                config={"env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]},
            ),
            _CLUSTER_POLICY,
            config_map("s", four=plugin(4)),
            config_map("m", config__yaml=SEVEN),
        ],
        _BOTH,
    ),
    "crossplane release": (
        [_custom("helm.crossplane.io/v1beta1", "Release", forProvider={"values": _BOTH_VALUES})],
        _BOTH,
    ),
    "crossplane object": (
        [
            _custom(
                "kubernetes.crossplane.io/v1alpha2",
                "Object",
                forProvider={"manifest": config_map(four=plugin(4))},
            )
        ],
        {"four": slices(4)},
    ),
    "manifest work": (
        [
            _custom(
                "work.open-cluster-management.io/v1",
                "ManifestWork",
                workload={"manifests": [config_map(four=plugin(4)), DAEMON_SET]},
            )
        ],
        {"four": slices(4)},
    ),
    "configuration policy": (
        [
            _custom(
                "policy.open-cluster-management.io/v1",
                "ConfigurationPolicy",
                **{
                    "object-templates": [
                        {
                            "complianceType": "musthave",
                            "objectDefinition": config_map(four=plugin(4)),
                        }
                    ]
                },
            )
        ],
        {"four": slices(4)},
    ),
    "cluster resource set": (
        [
            _custom(
                "addons.cluster.x-k8s.io/v1beta1",
                "ClusterResourceSet",
                resources=[{"kind": "ConfigMap", "name": "gpu"}],
            ),
            config_map("gpu", gpu__yaml=yaml.safe_dump(config_map(four=plugin(4)))),
        ],
        {"four": slices(4)},
    ),
    "cluster profile": (
        [
            _custom(
                "config.projectsveltos.io/v1beta1",
                "ClusterProfile",
                helmCharts=[{"chartName": "nvidia/gpu-operator", "values": _VALUES_TEXT}],
            )
        ],
        _BOTH,
    ),
    "helm template's output": (
        "---\n# Source: nvidia-device-plugin/templates/configmap.yml\n"
        + yaml.safe_dump(config_map("nvidia-device-plugin-configs", four=plugin(4)))
        + "---\n# Source: nvidia-device-plugin/templates/daemonset.yml\n"
        + yaml.safe_dump(DAEMON_SET),
        {"four": slices(4)},
    ),
    "values with anchors": (
        "devicePlugin:\n  config:\n    default: four\n    data:\n      four: &text |\n"
        + "".join(f"        {line}\n" for line in plugin(4).splitlines())
        + "      again: *text\n",
        {"four": slices(4), "again": slices(4)},
    ),
    "mig-parted, filter as text": (
        [
            {
                "version": "v1",
                "mig-configs": {
                    "balanced": [
                        {**_FILTERED["mig-configs"]["balanced"][0], "device-filter": "0x20B010DE"}
                    ]
                },
            }
        ],
        {
            "balanced": {
                "devices": "A100-SXM4-40GB",
                "mig": {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},
            }
        },
    ),
}

# Files without a profile, and words that say why.
NOTHING: dict[str, tuple[Any, str]] = {
    "cluster policy alone": (
        [
            {
                "apiVersion": "nvidia.com/v1",
                "kind": "ClusterPolicy",
                "metadata": {"name": "p"},
                "spec": {"devicePlugin": {"config": {"name": "sharing", "default": "four"}}},
            }
        ],
        "devicePlugin: config is in the ConfigMap sharing; import that, too",
    ),
    "kustomization of files": (
        [{**_KUSTOMIZATION, "resources": ["a.yaml"]}],
        "Kustomization: is no configuration",
    ),
    "words": ("just words", "is no configuration; version, flags, sharing or mig-configs"),
    "empty": ("", "the files hold no configuration of NVIDIA's tools"),
    "another chart": ([{"image": {"tag": "1"}, "replicas": 2}], "is no configuration"),
    "too many replicas": (plugin(16384), "replicas: is 16384; 512 or less is expected"),
    "compute instances": (
        parted(cut={"1c.3g.40gb": 6}),
        "the compute instances 1c.3g.40gb have no counterpart",
    ),
    "profiles of no model": (parted(cut={"3g.77gb": 2}), "fits no GPU model: none has 3g.77gb"),
    "mps of mig": (
        [
            {
                "version": "v1",
                "sharing": {
                    "mps": {"resources": [{"name": "nvidia.com/mig-1g.5gb", "replicas": 7}]}
                },
            }
        ],
        "which NVIDIA's plugin refuses: MPS cannot share MIG devices",
    ),
    "mps with mixed": (
        [{**_MPS, "flags": {"migStrategy": "mixed"}}],
        "is together with flags.migStrategy mixed, which NVIDIA's plugin refuses",
    ),
    "names of resources": (
        [
            {
                "version": "v1",
                "resources": {"gpus": [{"pattern": "*A100*", "name": "a100"}]},
                "sharing": {"timeSlicing": {"resources": [{"name": "a100", "replicas": 4}]}},
            }
        ],
        "nvidia.com/a100 × 4 shares nothing: NVIDIA's plugin ignores the names in `resources`",
    ),
    "helm release whose values are elsewhere": (
        [{**_RELEASE, "spec": {"valuesFrom": [{"kind": "ConfigMap", "name": "gpu-values"}]}}],
        "HelmRelease h: is no configuration",
    ),
    "application whose values are elsewhere": (
        [
            {
                **_APPLICATION,
                "spec": {"source": {"helm": {"valueFiles": ["$values/gpu.yaml"]}}},
            }
        ],
        "Application g: is no configuration",
    ),
    "application with a parameter": (
        [
            {
                **_APPLICATION,
                "spec": {
                    "source": {
                        "helm": {"parameters": [{"name": "mig.strategy", "value": "single"}]}
                    }
                },
            }
        ],
        "Application g: is no configuration",
    ),
    "config map generator of files": (
        [{**_KUSTOMIZATION, "configMapGenerator": [{"name": "c", "files": ["four.yaml"]}]}],
        "Kustomization: is no configuration",
    ),
    "config map generator of literals": (
        [
            {
                **_KUSTOMIZATION,
                "configMapGenerator": [{"name": "c", "literals": [f"four={plugin(4)}"]}],
            }
        ],
        "literals",
    ),
    "helmfile of files": (
        [{"releases": [{"name": "gpu", "chart": "nvidia/gpu-operator", "values": ["a.yaml"]}]}],
        "is no configuration",
    ),
    "config map of binary data": (
        [{**config_map(), "data": None, "binaryData": {"four": "dmVyc2lvbjogdjEK"}}],
        "data is",
    ),
    "secret": (
        [
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "s"},
                "data": {"values.yaml": "ZGV2aWNlUGx1Z2luOiB7fQo="},
            }
        ],
        "Secret s: is no configuration",
    ),
    "HAMi's devices": (
        [
            config_map(
                "hami-scheduler-device",
                config__yaml="nvidia:\n  resourceCountName: nvidia.com/gpu\n"
                "  deviceSplitCount: 10\n  deviceMemoryScaling: 1\n",
            )
        ],
        "is no configuration",
    ),
    "HAMi's values": (
        [{"devicePlugin": {"deviceSplitCount": 10, "deviceCoreScaling": 1}, "scheduler": {}}],
        "is no configuration",
    ),
    "GPUCluster": (
        [_custom("nvidia.com/v1alpha1", "GPUCluster", draDriver={"gpus": {"enabled": True}})],
        "GPUCluster gpu: is no configuration",
    ),
    "OLM subscription": (
        [
            _custom(
                "operators.coreos.com/v1alpha1",
                "Subscription",
                channel="stable",
                config={"env": [{"name": "A", "value": "b"}]},
            )
        ],
        "Subscription gpu: is no configuration",
    ),
    "EKS, node group": (
        [
            {
                "apiVersion": "eksctl.io/v1alpha5",
                "kind": "ClusterConfig",
                "metadata": {"name": "c"},
                "managedNodeGroups": [
                    {"name": "gpu", "labels": {"nvidia.com/device-plugin.config": "four"}}
                ],
            }
        ],
        "ClusterConfig c: is no configuration",
    ),
    "EKS, settings of Bottlerocket": (
        [
            _custom(
                "karpenter.k8s.aws/v1",
                "EC2NodeClass",
                userData="[settings.kubelet-device-plugins.nvidia]\n"
                'device-sharing-strategy = "time-slicing"\n',
            )
        ],
        "EC2NodeClass gpu: is no configuration",
    ),
    "GKE, node pool": (
        [
            _custom(
                "container.cnrm.cloud.google.com/v1beta1",
                "ContainerNodePool",
                nodeConfig={
                    "guestAccelerator": [
                        {
                            "type": "nvidia-l4",
                            "gpuSharingConfig": {
                                "gpuSharingStrategy": "TIME_SHARING",
                                "maxSharedClientsPerGpu": 8,
                            },
                        }
                    ]
                },
            )
        ],
        "ContainerNodePool gpu: is no configuration",
    ),
    "AKS, agent pool": (
        [
            _custom(
                "containerservice.azure.com/v1api20240901",
                "ManagedClustersAgentPool",
                gpuInstanceProfile="MIG1g",
            )
        ],
        "ManagedClustersAgentPool gpu: is no configuration",
    ),
    "tasks of Ansible": (
        [[{"name": "sharing", "kubernetes.core.k8s": {"definition": config_map(a=plugin(4))}}]],
        "is no configuration",
    ),
    "go template": ("{{- if .Values.on }}\nversion: v1\n{{- end }}", "it is a template"),
}

# The operator's own default, by what each of its configurations makes of a whole GPU.
_OF_THE_OPERATOR = (
    "7×1g.5gb 1×1g.5gb+me 3×2g.10gb 2×3g.20gb 1×4g.20gb 1×7g.40gb 4×1g.24gb+gfx "
    "1×1g.24gb+me.all 4×1g.24gb-me 2×2g.48gb 2×2g.48gb+gfx 1×2g.48gb+me.all 2×2g.48gb-me "
    "1×4g.96gb 1×4g.96gb+gfx 1×1g.10gb+me 4×1g.20gb 7×1g.23gb 1×1g.23gb+me 1×1g.24gb+me "
    "3×2g.20gb 2×3g.40gb 1×4g.40gb 1×7g.80gb 4×1g.6gb 1×1g.6gb+me 2×2g.12gb 1×2g.12gb+me "
    "1×4g.24gb 7×1g.12gb 1×1g.12gb+me 4×1g.24gb 4×1g.45gb 4×1g.47gb 3×2g.24gb 3×2g.45gb "
    "3×2g.47gb 2×3g.47gb 1×4g.47gb 1×7g.94gb 2×3g.48gb 2×3g.90gb 2×3g.93gb 2×3g.95gb "
    "1×4g.48gb 1×4g.90gb 1×4g.93gb 1×4g.95gb 1×7g.96gb 1×7g.180gb 1×7g.186gb 1×7g.189gb "
    "7×1g.18gb 1×1g.18gb+me 4×1g.35gb 3×2g.35gb 2×3g.71gb 1×4g.71gb 1×7g.141gb 4×1g.36gb "
    "3×2g.36gb 2×3g.72gb 1×4g.72gb 1×7g.144gb "
)


def _by_model(layouts: dict[str, dict[str, int]]) -> list[dict[str, Any]]:
    return [
        {
            "device-filter": [f"0x{device}10DE" for device in devices.split()],
            "devices": "all",
            "mig-enabled": True,
            "mig-devices": layout,
        }
        for devices, layout in layouts.items()
    ]


def operators_default() -> dict[str, Any]:
    """Return the ConfigMap that the GPU Operator makes where none is named."""
    configs: dict[str, Any] = {
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        "all-enabled": [{"devices": "all", "mig-enabled": True, "mig-devices": {}}],
        "all-1g.10gb": _by_model(
            {
                "2330 2331 2322 20B2 20B5 20F3 20F5 2324": {"1g.10gb": 7},
                "20B0 20B1 20F1 20F6": {"1g.10gb": 4},
            }
        ),
        "all-balanced": _by_model(
            {
                "2941": {"1g.23gb": 2, "2g.47gb": 1, "3g.93gb": 1},
                "2BB5": {"1g.24gb": 2, "2g.48gb": 1},
                "2901": {"1g.23gb": 2, "2g.45gb": 1, "3g.90gb": 1},
                "2348": {"1g.18gb": 2, "2g.36gb": 1, "3g.72gb": 1},
                "2335 233B": {"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1},
                "2321 233A": {"1g.12gb": 2, "2g.24gb": 1, "3g.47gb": 1},
                "2330 2331 2322 20B2 20B5 20F3 20F5 2324": {
                    "1g.10gb": 2,
                    "2g.20gb": 1,
                    "3g.40gb": 1,
                },
                "20B0 20B1 20F1 20F6": {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},
                "20B7": {"1g.6gb": 2, "2g.12gb": 1},
                "2342 233D 20B6 2329": {"1g.12gb": 2, "2g.24gb": 1, "3g.48gb": 1},
            }
        ),
    }
    for entry in _OF_THE_OPERATOR.split():
        count, _, profile = entry.partition("×")
        layout = {profile: int(count)}
        configs[f"all-{profile.replace('+', '.')}"] = [
            {"devices": "all", "mig-enabled": True, "mig-devices": layout}
        ]
    text = yaml.safe_dump({"version": "v1", "mig-configs": configs})
    return config_map("default-mig-parted-config", config__yaml=text)
