"""Where this machine gets Debian packages from, by its own apt configuration."""

from dataclasses import dataclass, field
from pathlib import Path

from lab.cluster.images.build import ImageBuildFailed, run

# The list's file follows.
_MIRROR_LIST = "mirror+file:"


@dataclass(frozen=True)
class Mirror:
    """A Debian mirror and the environment in which it can be reached."""

    uri: str
    environment: dict[str, str] = field(default_factory=dict)


def debian_mirror(release: str) -> Mirror:
    """Return the mirror from which apt itself gets that release."""
    wanted = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(CREATED_BY)"
    # With information on releases it lists what it has fetched, which may be nothing yet.
    listed = run(["apt-get", "indextargets", "--no-release-info", "--format", wanted])
    for line in listed.splitlines():
        uri, name, component, kind = line.split("|")
        if (name, component, kind) == (release, "main", "Packages"):
            return Mirror(_debootstrap_uri(uri), _proxy())
    raise ImageBuildFailed(
        f"apt of this machine has no source for Debian {release} main: the lab is set up on "
        "Debian 12, whose apt has one"
    )


def _debootstrap_uri(uri: str) -> str:
    """Return the first mirror of a list, which Debian's images for clouds name; else the URI."""
    if not uri.startswith(_MIRROR_LIST):
        return uri
    mirrors = Path(uri.removeprefix(_MIRROR_LIST).rstrip("/"))
    for line in mirrors.read_text().splitlines():
        # What is known of a mirror follows it.
        if line.strip() and not line.startswith("#"):
            return line.split()[0]
    raise ImageBuildFailed(f"{mirrors}, the list that apt of this machine takes, names no mirror")


def _proxy() -> dict[str, str]:
    # debootstrap fetches with wget, which does not read apt's configuration.
    proxy = run(["apt-config", "shell", "PROXY", "Acquire::http::Proxy"])
    value = proxy.strip().removeprefix("PROXY=").strip("'")
    return {"http_proxy": value, "https_proxy": value} if value else {}
