"""The last decision about each GPU: it is on the disk before anything is done about it."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import replace

from divvy.agent.checkpoint_file import CheckpointFile
from divvy.agent.gpu.checkpoint import Checkpoint, changing, misleading
from divvy.agent.gpu.desired import DesiredState
from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.gpu.health import Health
from divvy.agent.gpu.holders import Remembered
from divvy.agent.gpu.node import NodeView
from divvy.agent.gpu.owner import Ownership
from divvy.agent.gpu.reconciliation import Observation, decisions, ownerships
from divvy.agent.gpu.transition import Decision
from divvy.model.api_names import State


class DecisionRecord:
    """Decides, and keeps the decisions and the checkpoint that an agent after this one needs.

    ``boot`` is what the kernel calls this boot. What cannot be saved goes into ``problems``.
    """

    def __init__(self, file: CheckpointFile, boot: str, problems: MutableMapping[str, str]) -> None:
        self._file = file
        self._boot = boot
        self._problems = problems
        self.checkpoint = file.saved
        self.decisions: dict[str, Decision] = {}
        self.owners: dict[str, Ownership] = {}

    @property
    def problem(self) -> str:
        """Return a message that what an agent before this one saved cannot be read."""
        return self._file.problem

    def decide(
        self,
        desired: DesiredState,
        observed: Observation,
        node: NodeView,
        health: Health,
        holders: Remembered,
        now: float,
    ) -> bool:
        """Decide, and save it before anything is done about it; return whether it is saved.

        An agent that starts after a crash must not take what is held as the new layout has it for
        something that the old one advertised. So where nothing can be saved, nothing changes.
        ``holders`` are for when the kubelet and this agent end together.
        """
        before, previous = self.checkpoint, self.decisions
        base = Checkpoint(
            config=desired.config,
            labels=dict(node.labels),
            profile=desired.profile,
            assignment=desired.assignment,
            runtime=node.runtime,
            last_seen=before.last_seen,
            faults=health.saved(),
            kubelet=holders.kubelet,
            shown=holders.known,
            forgotten=holders.forgotten,
        )
        decided = decisions(desired, observed, before, previous, now)
        checkpoint = self._after(base, desired.replaced, observed.snapshot, decided)
        saved = self._save(checkpoint)
        if not saved:
            unrecorded = misleading(self._file.saved, decided)
            observed = replace(observed, unrecorded=unrecorded)
            decided = decisions(desired, observed, before, previous, now)
            checkpoint = self._after(base, desired.replaced, observed.snapshot, decided)
        self.decisions, self.checkpoint = decided, checkpoint
        self.owners = ownerships(desired, observed, decided)
        return saved

    def save_health(self, health: Health) -> None:
        """Save why devices are unhealthy."""
        self.checkpoint = replace(self.checkpoint, faults=health.saved())
        self._save(self.checkpoint)

    def forget(self) -> None:
        """Forget the decisions: nothing of the GPUs is advertised."""
        self.decisions, self.owners = {}, {}

    def _after(
        self,
        base: Checkpoint,
        replaced: frozenset[str],
        snapshot: Snapshot,
        decided: Mapping[str, Decision],
    ) -> Checkpoint:
        """Return ``base`` with what follows for it from decisions about a snapshot's GPUs."""
        before = self.checkpoint
        applied = {u: gpu for u, gpu in before.applied.items() if u not in replaced}
        for uuid, decision in decided.items():
            if decision.state is not State.READY or decision.provisional:
                continue
            # One that was added to a node on its way to claims has given up nothing.
            if uuid in applied or not decision.ownership.asks_kubelet:
                applied[uuid] = decision.advertise.layout
        seen = {gpu.uuid: self._boot for gpu in snapshot.gpus if not gpu.lost}
        return replace(
            base,
            applied=applied,
            gpus=tuple(gpu for gpu in snapshot.gpus if gpu.uuid not in replaced),
            last_seen={**before.last_seen, **seen},
            changing=tuple(u for u in changing(before, decided) if u not in replaced),
        )

    def _save(self, checkpoint: Checkpoint) -> bool:
        try:
            self._file.save(checkpoint)
        except OSError as error:
            self._problems["checkpoint"] = f"the agent's state cannot be saved: {error}"
            return False
        self._problems.pop("checkpoint", None)
        return True
