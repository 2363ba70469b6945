"""A node's container runtime configuration: short, as an administrator would leave it."""

from lab.cluster.description import Containerd

_VERSION_2 = """\
version = 2

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = {restrict}
  enable_cdi = {cdi}

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"

  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/etc/containerd/certs.d"
"""

_VERSION_3_AND_4 = """\
version = {version}
{imports}
[plugins."io.containerd.cri.v1.images"]

  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{pause}"

  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "/etc/containerd/certs.d"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = {restrict}
  enable_cdi = {cdi}

  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{cni}"]
"""


def config_toml(containerd: Containerd, pause: str, cni: str, may_lower_oom_score: bool) -> str:
    """Return /etc/containerd/config.toml in the version that the node is described with."""
    template = _VERSION_2 if containerd.config_version == 2 else _VERSION_3_AND_4
    # Version 4 is what containerd 2.3 writes by default, and that imports conf.d.
    imports = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'
    return template.format(
        version=containerd.config_version,
        imports=imports if containerd.config_version == 4 else "",
        pause=pause,
        cni=cni,
        cdi=str(containerd.cdi).lower(),
        # runc cannot start pods' containers with a negative score where CAP_SYS_RESOURCE lacks.
        restrict=str(not may_lower_oom_score).lower(),
    )


def hosts_toml(registry: str) -> str:
    """Return the certs.d/<registry>/hosts.toml that allows plain HTTP to the lab's registry."""
    return (
        f'server = "http://{registry}"\n\n'
        f'[host."http://{registry}"]\n  capabilities = ["pull", "resolve"]\n'
    )
