"""The steps of a run, in their order; each is a module here with a function ``run``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A step of the catalogue: its limit in seconds, and what it needs.

    ``needs_idle``: a GPU that nobody uses; ``needs_mig``: the switch ``--mig``.
    """

    name: str
    title: str
    seconds: int
    needs_idle: bool = False
    needs_mig: bool = False

    @property
    def module(self) -> str:
        """Return the module that has it."""
        return f"hardware_kit.steps.{self.name.replace('-', '_')}"


CATALOGUE = (
    Entry("discovery", "the agent's discovery lists what nvidia-smi lists", 30),
    Entry("labels", "the node's labels say what nvidia-smi -q says", 30),
    Entry("cdi", "the CDI specification names files that exist", 40),
    Entry("hook", "a container finds the driver by its loader alone", 60, needs_idle=True),
    Entry("health", "the agent hears of a program that breaks", 60, needs_idle=True),
    Entry("agent", "the agent registers, lists, allocates and watches health", 90),
    Entry("bare", "divvy verify --bare --exclusive", 160, needs_idle=True),
    Entry("limiter-memory", "a share's limit holds in races and kills", 120, needs_idle=True),
    Entry("limiter-shares", "shares of 30 and 70 get their parts", 60, needs_idle=True),
    Entry("limiter-costs", "what the limiter adds to a call", 100, needs_idle=True),
    Entry("time-slicing", "replicas of a GPU all advance", 60, needs_idle=True),
    Entry("training", "a framework trains within its share", 160, needs_idle=True),
    Entry("differences", "the simulated driver's answers beside this one's", 120, needs_idle=True),
    Entry("mig", "a MIG layout is made and unmade", 90, needs_idle=True, needs_mig=True),
    Entry("mig-neighbours", "MIG devices keep theirs", 120, needs_idle=True, needs_mig=True),
)
