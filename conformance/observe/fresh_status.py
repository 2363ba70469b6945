"""A status that the agent has written for this run: what it wrote before may be of any age."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.cluster.node_life import NodeLife
from conformance.promise import NodePromise
from conformance.skips import not_made
from divvy.kube.errors import FORBIDDEN, NOT_FOUND, ApiError
from divvy.kube.kind import NODE
from divvy.live.live_diff import node_status
from divvy.model.api_names import VERIFY_ANNOTATION

_PATIENCE = 60.0


@dataclass(frozen=True)
class FreshStatus:
    """What stands on the node; ``answered`` says whether the agent wrote it when it was asked."""

    status: Mapping[str, Any]
    answered: bool

    @property
    def age(self) -> str:
        """Describe how old the status is."""
        if self.answered:
            return "answers"
        return f"does not answer (its status is of {self.status.get('time', 'an unknown time')})"


def answers_of(
    nodes: Iterable[NodePromise],
    answer: Callable[[NodePromise], FreshStatus],
    life: NodeLife,
) -> tuple[dict[str, FreshStatus], list[str]]:
    """Return what the agents of nodes answer, by name, and how nodes have left or died meanwhile.

    An agent that does not answer on a node that is no more shows nothing.
    """
    answers: dict[str, FreshStatus] = {}
    ended: list[str] = []
    for node in nodes:
        try:
            status = answer(node)
        except ApiError as problem:
            if problem.code != NOT_FOUND or not (why := life.ended(node.name, wait=False)):
                raise
            ended.append(why)
            continue
        if not status.answered and (why := life.ended(node.name, wait=False)):
            ended.append(why)
        else:
            answers[node.name] = status
    return answers, ended


def ask_agent(
    target: ClusterUnderTest, node: NodePromise, patience: float = _PATIENCE
) -> FreshStatus:
    """Have the agent of a node repeat a word in its status, and read that status.

    The word is an annotation of the node: the answer shows that the agent watches its node,
    reconciles, and may write. Skips the check where this account may not annotate nodes.
    """
    word = secrets.token_hex(6)
    deadline = time.monotonic() + patience
    _annotate(target, node.name, word)
    # What another run has asked since this one did is answered as lately. Two runs that
    # repeated their words in turn would leave a busy agent no time to answer either.
    words = {word}
    try:
        while True:
            live = target.live(node.name)
            annotations = live["metadata"].get("annotations") or {}
            words.add(annotations.get(VERIFY_ANNOTATION, word))
            status = node_status(annotations)
            if status.get("echo") in words:
                return FreshStatus(status, answered=True)
            if time.monotonic() > deadline:
                return FreshStatus(status, answered=False)
            # Another run may have taken it away with its own.
            if VERIFY_ANNOTATION not in annotations:
                _annotate(target, node.name, word)
            time.sleep(0.5)
    finally:
        _annotate(target, node.name, None)


def _annotate(target: ClusterUnderTest, node: str, word: str | None) -> None:
    patch = {"metadata": {"annotations": {VERIFY_ANNOTATION: word}}}
    try:
        target.api.patch(NODE, node, patch)
    except ApiError as problem:
        if problem.code == FORBIDDEN:
            not_made(f"this account may not annotate nodes: {problem}")
        raise
