"""Build the Go tools of the lab from their pinned modules, once per set of inputs."""

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab.cluster.description import (
    DEFAULT_CONTAINERD,
    DEFAULT_KUBERNETES,
    ContainerdRelease,
    Release,
)
from lab.cluster.paths import LAB, cache
from lab.cluster.turns import put_whole, scratch_folder

# By divvy:lab.kubernetes, in the order in which a cluster is upgraded.
KUBERNETES_VERSIONS: dict[Release, str] = {"1.36": "v1.36.3", "1.37": "v1.37.2"}
# By the version of a node's containerd, in the order in which a node is upgraded.
CONTAINERD_VERSIONS: dict[ContainerdRelease, str] = {"2.3": "v2.3.7", "2.4": "v2.4.2"}
HELM_VERSION = "v4.3.1"
PROMETHEUS_VERSION = "v3.13.5"
NVIDIA_DEVICE_PLUGIN_VERSION = "v0.19.0"
NVIDIA_CONTAINER_TOOLKIT_VERSION = "v1.20.1"
PULUMI_VERSION = "v3.274.1"
PULUMI_KUBERNETES_VERSION = "v4.25.0"
KUEUE_VERSION = "v0.19.1"
NVIDIA_DRA_DRIVER_VERSION = "v0.5.0"

# Debugging information that -s -w drops at the end is not made at all: a sixth of the time.
_FLAGS = ("-gcflags=all=-dwarf=false",)


class ToolBuildFailed(Exception):
    """A Go tool could not be built."""


@dataclass(frozen=True)
class Tool:
    """A Go module under tools/ and how its commands are built."""

    name: str
    packages: tuple[str, ...]
    ldflags: str
    tags: str = ""
    cgo: bool = False

    @property
    def module(self) -> Path:
        """Return the directory with the tool's go.mod and go.sum."""
        return LAB / "tools" / self.name

    @property
    def fingerprint(self) -> str:
        """Return the digest of everything that decides what the binaries will be."""
        digest = hashlib.sha256()
        # What needs no C compiler keeps the digest, and with it the build, that it has had.
        of_c = ("cgo",) if self.cgo else ()
        for part in (*self.packages, *_FLAGS, self.ldflags, self.tags, *of_c):
            digest.update(part.encode() + b"\0")
        # Beside the module there may be stand-ins for modules that no proxy serves.
        sums = (self.module / "go.mod", self.module / "go.sum")
        for file in (*sums, *sorted(self.module.rglob("*.go"))):
            digest.update(file.read_bytes())
        return digest.hexdigest()[:16]

    @property
    def bin(self) -> Path:
        """Return the directory with the built commands; it exists once they are built."""
        return cache() / "tools" / f"{self.name}-{self.fingerprint}"

    def build(self) -> bool:
        """Build the commands unless they are there; say whether there was anything to do."""
        if self.bin.is_dir():
            return False
        if shutil.which("go") is None:
            raise ToolBuildFailed(f"{self.name}: Go is not installed")
        with scratch_folder(self.bin.parent, f".unfinished-{self.name}-") as scratch:
            unfinished = scratch / "bin"
            unfinished.mkdir()
            self._compile(unfinished)
            put_whole(unfinished, self.bin)
        return True

    def _compile(self, target: Path) -> None:
        environment = {
            **os.environ,
            "CGO_ENABLED": "1" if self.cgo else "0",
            # A compiler lives for seconds: memory is cheaper than collecting its garbage.
            "GOGC": "400",
            "GOTOOLCHAIN": "local",
            "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
        }
        # What it builds is of no use once this process has been killed.
        end_with_this = ["setpriv", "--pdeathsig", "TERM"]
        command = [*end_with_this, "nice", "go", "build", "-o", f"{target}/", *_FLAGS]
        command += ["-ldflags", f"-s -w {self.ldflags}"]
        if self.tags:
            command += ["-tags", self.tags]
        done = subprocess.run(
            [*command, *self.packages],
            cwd=self.module,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ToolBuildFailed(f"{self.name}: go build failed:\n{done.stdout.strip()}")


def _stamp(variables: dict[str, str]) -> str:
    return " ".join(f"-X {name}={value}" for name, value in variables.items())


def _kubernetes_stamp(version: str) -> str:
    # Without the stamp a node reports v0.0.0; kubectl reads its own copy of the variables.
    major, minor, _ = version.removeprefix("v").split(".")
    package = "k8s.io/component-base/version"
    return _stamp(
        {
            f"{package}.gitVersion": version,
            f"{package}.gitMajor": major,
            f"{package}.gitMinor": minor,
            f"{package}.gitTreeState": "clean",
        }
    )


def kubernetes(release: Release) -> Tool:
    """Return the commands of a Kubernetes release that the lab runs."""
    return Tool(
        name=f"kubernetes-{release}",
        packages=tuple(
            f"k8s.io/kubernetes/cmd/{command}"
            for command in (
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kubelet",
                "kube-proxy",
                "kubectl",
            )
        ),
        ldflags=_kubernetes_stamp(KUBERNETES_VERSIONS[release]),
    )


def containerd(release: ContainerdRelease) -> Tool:
    """Return the commands of a containerd release that a node runs."""
    version = CONTAINERD_VERSIONS[release]
    return Tool(
        name=f"containerd-{release}",
        packages=tuple(
            f"github.com/containerd/containerd/v2/cmd/{command}"
            for command in ("containerd", "containerd-shim-runc-v2", "ctr")
        ),
        ldflags=_stamp({"github.com/containerd/containerd/v2/version.Version": version}),
        tags="no_btrfs no_zfs no_devmapper",
    )


KUBERNETES = kubernetes(DEFAULT_KUBERNETES)
CONTAINERD = containerd(DEFAULT_CONTAINERD)
HELM = Tool(
    name="helm",
    packages=("helm.sh/helm/v4/cmd/helm",),
    ldflags=_stamp({"helm.sh/helm/v4/internal/version.version": HELM_VERSION}),
)
PROMETHEUS = Tool(
    name="prometheus",
    packages=tuple(
        f"github.com/prometheus/prometheus/cmd/{command}" for command in ("prometheus", "promtool")
    ),
    ldflags=_stamp({"github.com/prometheus/common/version.Version": PROMETHEUS_VERSION[1:]}),
    # Of all that it can discover targets with, Kubernetes alone.
    tags="netgo remove_all_sd enable_kubernetes_sd",
)
NVIDIA_DEVICE_PLUGIN = Tool(
    name="nvidia-device-plugin",
    packages=tuple(
        f"github.com/NVIDIA/k8s-device-plugin/cmd/{command}"
        for command in (
            "nvidia-device-plugin",
            "gpu-feature-discovery",
            "mps-control-daemon",
            "config-manager",
        )
    ),
    ldflags=_stamp(
        {"github.com/NVIDIA/k8s-device-plugin/internal/info.version": NVIDIA_DEVICE_PLUGIN_VERSION}
    ),
    # NVML's bindings are C.
    cgo=True,
)
NVIDIA_CONTAINER_TOOLKIT = Tool(
    name="nvidia-container-toolkit",
    packages=("github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook",),
    ldflags=_stamp(
        {
            "github.com/NVIDIA/nvidia-container-toolkit/internal/info.version": (
                NVIDIA_CONTAINER_TOOLKIT_VERSION.removeprefix("v")
            )
        }
    ),
    cgo=True,
)
PULUMI = Tool(
    name="pulumi",
    packages=("github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",),
    ldflags=_stamp({"github.com/pulumi/pulumi/sdk/v3/go/common/version.Version": PULUMI_VERSION}),
)
# The last release whose language hosts are part of the SDK's module.
PULUMI_LANGUAGES = Tool(
    name="pulumi-languages",
    packages=tuple(
        f"github.com/pulumi/pulumi/sdk/v3/{host}"
        for host in (
            "nodejs/cmd/pulumi-language-nodejs",
            "python/cmd/pulumi-language-python",
        )
    ),
    ldflags="",
)
PULUMI_LANGUAGE_YAML = Tool(
    name="pulumi-language-yaml",
    packages=("github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml",),
    ldflags="",
)
PULUMI_RESOURCE_KUBERNETES = Tool(
    name="pulumi-resource-kubernetes",
    packages=(".",),
    ldflags=_stamp(
        {
            "github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version.Version": (
                PULUMI_KUBERNETES_VERSION.removeprefix("v")
            )
        }
    ),
)
PULUMI_SDK_GENERATOR = Tool(name="pulumi-sdk-generator", packages=(".",), ldflags="")
KUEUE = Tool(
    name="kueue",
    packages=("sigs.k8s.io/kueue/cmd/kueue",),
    ldflags=_stamp({"sigs.k8s.io/kueue/pkg/version.GitVersion": KUEUE_VERSION}),
)
GITOPS_DIFF = Tool(name="gitops-diff", packages=(".",), ldflags="")
NVIDIA_DRA_DRIVER = Tool(
    name="nvidia-dra-driver",
    packages=("sigs.k8s.io/dra-driver-nvidia-gpu/cmd/gpu-kubelet-plugin",),
    ldflags=_stamp(
        {"sigs.k8s.io/dra-driver-nvidia-gpu/internal/info.version": NVIDIA_DRA_DRIVER_VERSION}
    ),
    cgo=True,
)
# What a lab runs unless it chooses another Kubernetes, with what `divvy up` deploys to it; Pulumi,
# as Python programs need it; what tests need beside the lab; and what `make field` proves.
LAB_TOOLS = (KUBERNETES, CONTAINERD, HELM)
PULUMI_TOOLS = (PULUMI, PULUMI_LANGUAGES, PULUMI_RESOURCE_KUBERNETES)
TEST_TOOLS = (PROMETHEUS, *PULUMI_TOOLS)
FIELD_TOOLS = (NVIDIA_DEVICE_PLUGIN, NVIDIA_DRA_DRIVER, NVIDIA_CONTAINER_TOOLKIT, HELM)
# What only `make test-all` needs, beside the other releases.
THOROUGH_TOOLS = (KUEUE, GITOPS_DIFF, PULUMI_LANGUAGE_YAML, PULUMI_SDK_GENERATOR)
# What a lab can be upgraded to, or chooses instead.
OTHER_RELEASES = (
    *(kubernetes(release) for release in KUBERNETES_VERSIONS if release != DEFAULT_KUBERNETES),
    *(containerd(release) for release in CONTAINERD_VERSIONS if release != DEFAULT_CONTAINERD),
)
