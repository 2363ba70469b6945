"""Who was given what, and of whom the agent must know it though the kubelet has forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lab.fakes.agent import AgentNode
from lab.fakes.device_manager import Pod

# The agent looks a second after each Allocate, and each second until it sees who has the device.
_SEEN_SECONDS = 5.0


@dataclass
class Memory:
    """What pods of a node were given, whether the kubelet still knows of it or not.

    A kubelet without its checkpoint forgets; containers keep what they have. ``given`` maps the
    UIDs of pods to (resource, device ID).
    """

    node: AgentNode
    given: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    _since: dict[tuple[str, str], float] = field(default_factory=dict)
    _seen: set[tuple[str, str]] = field(default_factory=set)
    _undisturbed: float = 0.0

    def disturb(self, now: float) -> None:
        """The agent cannot see who holds what, or not for certain."""
        self._undisturbed = now

    def forget(self) -> None:
        """The agent's state is gone; it knows what it sees."""
        self._since, self._seen = {}, set()

    def look(self, now: float) -> None:
        """Take this instant into account."""
        kubelet, agent = self.node.kubelet, self.node.agent
        pods = {pod.uid: pod for pod in kubelet.pods.values()}
        self.given = {uid: given for uid, given in self.given.items() if uid in pods}
        present = set()
        for pod, resource, device in kubelet.holders():
            self.given.setdefault(pod.uid, set()).add((resource, device))
            present.add((pod.uid, device))
        at_work = agent is not None and agent.returncode is None
        quiet = kubelet.alive and kubelet.ready and not kubelet.frozen and at_work
        # On a full disk it cannot save what it sees.
        full = (self.node.folder / "state/.state.json.new").is_dir()
        if not quiet or kubelet.answer_seconds or full:
            self.disturb(now)
        self._since = {key: self._since.get(key, now) for key in present}
        sure = now - self._undisturbed > _SEEN_SECONDS
        self._seen |= {key for key, at in self._since.items() if sure and now - at > _SEEN_SECONDS}
        self._seen = {key for key in self._seen if key[0] in pods}

    def forgotten(self) -> Iterator[tuple[Pod, str]]:
        """Yield the pods that run, and the devices of theirs that the agent alone knows of.

        Ordinary init containers are not among them: the kubelet never listed those.
        """
        kubelet = self.node.kubelet
        present = {(pod.uid, device) for pod, _, device in kubelet.holders()}
        for pod in kubelet.pods.values():
            if pod.running and not any(container.init for container in pod.containers):
                for uid, device in self._seen - present:
                    if uid == pod.uid:
                        yield pod, device
