"""A status counts where the agent answers; what was written before may be of any age."""

import json
from typing import Any

import pytest

from conformance.observe.fresh_status import FreshStatus, answers_of, ask_agent
from conformance.promise import NodePromise
from conformance.skips import CheckSkipped
from divvy.kube.errors import ApiError
from divvy.model.api_names import STATUS_ANNOTATION, VERIFY_ANNOTATION
from tests.conformance.fake_api import refusal
from tests.conformance.promised_nodes import CLUSTER, live, promised

(NODE,) = promised(CLUSTER, live("n1"))


class Target:
    """A cluster with one node, whose agent answers or does not."""

    def __init__(self, *, answers: bool) -> None:
        self.answers = answers
        self.annotations: dict[str, str] = {STATUS_ANNOTATION: '{"time":"yesterday"}'}
        self.api = self
        self.refuses = False

    def live(self, _: str) -> Any:
        return {"metadata": {"annotations": dict(self.annotations)}}

    def patch(self, _kind: Any, _name: str, patch: Any, **_: Any) -> None:
        if self.refuses:
            raise refusal(403, "no such right")
        for name, text in patch["metadata"]["annotations"].items():
            if text is None:
                self.annotations.pop(name, None)
                continue
            self.annotations[name] = text
            if self.answers:
                self.annotations[STATUS_ANNOTATION] = json.dumps({"echo": text})


def test_believes_an_agent_that_answers_and_leaves_nothing_on_the_node() -> None:
    target = Target(answers=True)
    fresh = ask_agent(target, NODE)  # type: ignore[arg-type]
    assert (fresh.answered, fresh.age) == (True, "answers")
    assert VERIFY_ANNOTATION not in target.annotations


def test_distrusts_the_status_of_an_agent_that_cannot_write() -> None:
    target = Target(answers=False)
    fresh = ask_agent(target, NODE, patience=0.5)  # type: ignore[arg-type]
    assert fresh.age == "does not answer (its status is of yesterday)"
    assert VERIFY_ANNOTATION not in target.annotations


def test_judges_nothing_without_the_right_to_annotate_nodes() -> None:
    target = Target(answers=True)
    target.refuses = True
    with pytest.raises(CheckSkipped, match="may not annotate nodes"):
        ask_agent(target, NODE)  # type: ignore[arg-type]


class SharedTarget(Target):
    """A cluster where another run asks, too, each time that this one has asked."""

    def patch(self, kind: Any, name: str, patch: Any, **options: Any) -> None:
        super().patch(kind, name, patch, **options)
        if patch["metadata"]["annotations"][VERIFY_ANNOTATION] is not None:
            other = {"metadata": {"annotations": {VERIFY_ANNOTATION: "other"}}}
            super().patch(kind, name, other)


def test_takes_the_answer_to_another_run_that_has_asked_since() -> None:
    assert ask_agent(SharedTarget(answers=True), NODE, patience=2).answered  # type: ignore[arg-type]
    silent = SharedTarget(answers=False)
    assert not ask_agent(silent, NODE, patience=0.5).answered  # type: ignore[arg-type]


def test_does_not_believe_the_answer_to_a_run_that_asked_before() -> None:
    target = Target(answers=False)
    target.annotations = {VERIFY_ANNOTATION: "old", STATUS_ANNOTATION: '{"echo":"old"}'}
    assert not ask_agent(target, NODE, patience=0.5).answered  # type: ignore[arg-type]


class Life:
    """Knows how one node has ended."""

    def ended(self, name: str, *, wait: bool) -> str:
        return "" if wait or name != "gone" else "gone has left the cluster during the run"


def test_expects_no_answer_of_a_node_that_is_no_more() -> None:
    """A node group shrinks while its agents are asked, also where nothing else is checked."""
    nodes = promised(CLUSTER, *map(live, ("n1", "gone", "silent")))
    problems = {"gone": refusal(404, 'nodes "gone" not found')}

    def answer(node: NodePromise) -> FreshStatus:
        if problem := problems.get(node.name):
            raise problem
        return FreshStatus({}, answered=node.name == "n1")

    for _ in range(2):
        answers, ended = answers_of(nodes, answer, Life())  # type: ignore[arg-type]
        assert {name: status.answered for name, status in answers.items()} == {
            "n1": True, "silent": False,
        }  # fmt: skip
        assert ended == ["gone has left the cluster during the run"]
        # It may be silent before it is gone.
        problems.clear()
    problems["n1"] = refusal(404, "not found")
    with pytest.raises(ApiError):
        answers_of(nodes, answer, Life())  # type: ignore[arg-type]
