"""Where this machine gets Debian packages from, by its own apt configuration."""

import subprocess
from dataclasses import dataclass, field

from divvy.lab.images.build import ImageBuildFailed


@dataclass(frozen=True)
class Mirror:
    """A Debian mirror and the environment in which it can be reached."""

    uri: str
    environment: dict[str, str] = field(default_factory=dict)


def debian_mirror(release: str) -> Mirror:
    """Return the mirror from which apt itself gets that release."""
    wanted = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(CREATED_BY)"
    listed = _output(["apt-get", "indextargets", "--format", wanted])
    for line in listed.splitlines():
        uri, name, component, kind = line.split("|")
        if (name, component, kind) == (release, "main", "Packages"):
            return Mirror(uri, _proxy())
    raise ImageBuildFailed(f"apt of this machine has no source for Debian {release} main")


def _proxy() -> dict[str, str]:
    # debootstrap fetches with wget, which does not read apt's configuration.
    proxy = _output(["apt-config", "shell", "PROXY", "Acquire::http::Proxy"])
    value = proxy.strip().removeprefix("PROXY=").strip("'")
    return {"http_proxy": value, "https_proxy": value} if value else {}


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
