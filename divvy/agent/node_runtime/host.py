"""The host as a privileged pod in the host's PID namespace reaches it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path


class HostFailed(Exception):
    """Something on the host did not work; the text carries its last words."""


# Distributions with a layout of their own: (path on the host, name).
_FOREIGN = (
    ("/var/lib/rancher/rke2", "RKE2"),
    ("/var/lib/rancher/k3s", "k3s"),
    ("/var/lib/k0s", "k0s"),
    ("/home/kubernetes/bin/gke", "GKE"),
    ("/etc/google_instance_id", "GKE"),
)


@dataclass(frozen=True)
class Host:
    """The host's root, as seen through its first process."""

    root: Path = Path("/proc/1/root")

    def foreign(self) -> str | None:
        """Return the name of a distribution that manages its runtime itself."""
        for path, name in _FOREIGN:
            if self._path(path).exists():
                return name
        return None

    def read(self, path: str) -> str | None:
        """Return a file's text, None where there is none."""
        try:
            return self._path(path).read_text()
        except FileNotFoundError:
            return None

    def write(self, path: str, text: str | None) -> None:
        """Replace a file atomically; None removes it."""
        place = self._path(path)
        if text is None:
            place.unlink(missing_ok=True)
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        scratch = place.with_name(f".{place.name}.new")
        scratch.write_text(text)
        scratch.replace(place)

    def run(self, *command: str) -> str:
        """Run a command in the host's namespaces; raises HostFailed."""
        enter = ("nsenter", "--target=1", "--mount", "--uts", "--ipc", "--net", "--pid", "--")
        done = subprocess.run(
            [*enter, *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = " / ".join(done.stderr.strip().splitlines()[-3:])
            raise HostFailed(f"{' '.join(command)} failed on the host: {last}")
        return done.stdout

    def containerd(self) -> int:
        """Return the process id of the host's containerd; raises HostFailed."""
        for found in Path("/proc").iterdir():
            if not found.name.isdigit():
                continue
            try:
                if (found / "comm").read_text().strip() == "containerd":
                    return int(found.name)
            except OSError:
                continue
        raise HostFailed("no containerd runs on this node")

    def containerd_program(self) -> str:
        """Return the path of the running containerd as the host knows it."""
        return str(Path(f"/proc/{self.containerd()}/exe").readlink()).removesuffix(" (deleted)")

    def restart_containerd(self, deadline: float = 30.0) -> None:
        """Restart containerd and wait until it answers; pods keep running under their shims."""
        if self._path("/run/systemd/system").exists():
            self.run("systemctl", "restart", "containerd")
        else:
            with contextlib.suppress(HostFailed):  # one that does not start, is started again too
                os.kill(self.containerd(), signal.SIGTERM)
        until = time.monotonic() + deadline
        last = HostFailed("containerd did not come back")
        time.sleep(1)
        while time.monotonic() < until:
            try:
                folder = Path(self.containerd_program()).parent
                self.run(str(folder / "ctr"), "--connect-timeout=2s", "plugins", "ls")
            except HostFailed as failure:
                last = failure
                time.sleep(0.5)
            else:
                return
        raise last

    def _path(self, path: str) -> Path:
        return self.root / path.lstrip("/")
