"""Answers to what `divvy init` cannot see: GPU models and numbers of GPUs, by nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from divvy.model import GpuModel, gpu_model
from divvy.model.phrases import some

MAX_GPUS = 64


@dataclass(frozen=True)
class Answer:
    """The value for nodes whose names match a pattern."""

    kind: Literal["model", "gpus"]
    nodes: str
    value: str


@dataclass(frozen=True)
class Answers:
    """Everything that was told; the first that matches a node counts."""

    given: Sequence[Answer] = ()

    def model(self, node: str) -> GpuModel | None:
        """Return the GPU model of a node; raises UnknownGpuModel."""
        answer = self._answer("model", node)
        return None if answer is None else gpu_model(answer)

    def gpus(self, node: str) -> int | None:
        """Return how many GPUs a node has."""
        answer = self._answer("gpus", node)
        return None if answer is None else int(answer)

    def about(self, node: str) -> bool:
        """Return whether anything is told of a node by name, or by a pattern for some nodes."""
        return any(answer.nodes != "*" and fnmatchcase(node, answer.nodes) for answer in self.given)

    def _answer(self, kind: str, node: str) -> str | None:
        return next(
            (
                answer.value
                for answer in self.given
                if answer.kind == kind and fnmatchcase(node, answer.nodes)
            ),
            None,
        )


@dataclass(frozen=True)
class Question:
    """What has to be known of nodes that are alike; ``guess`` is a number that explains them."""

    kind: Literal["model", "gpus"]
    nodes: tuple[str, ...]
    offers: str
    guess: int | None = None

    @property
    def text(self) -> str:
        """Return the question."""
        if self.kind == "model":
            return f"GPU model of {some(self.nodes)} (they offer {self.offers})"
        return f"GPUs in each of {some(self.nodes)} (they offer {self.offers})"

    @property
    def option(self) -> str:
        """Return the option that answers it without a terminal."""
        value = self.guess or ("MODEL" if self.kind == "model" else "NUMBER")
        return f"--{self.kind} '{self.nodes[0]}={value}'"
