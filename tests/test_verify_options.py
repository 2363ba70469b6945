"""The options of `divvy verify`: which go together, and where each one ends up."""

from __future__ import annotations

from typing import Any

import pytest

from divvy.verify_options import OF_SUITE, OPTIONS, command_line, given, misuse


def values(**given_values: Any) -> dict[str, Any]:
    return {option.parameter: option.unset for option in OPTIONS} | given_values


def test_gives_nothing_where_nothing_is_typed() -> None:
    assert [*given(values())] == []
    assert misuse(values()) is None
    assert misuse(values(bare=True)) is None


def test_gives_an_empty_value_too() -> None:
    assert [option.name for option in given(values(pool=""))] == ["pool"]


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ({"bare": True, "pool": "p"}, "--pool is for a cluster"),
        (
            {"bare": True, "disruptive": True, "no_exec": True, "pool": "p"},
            "--pool, --disruptive and --no-exec are for a cluster",
        ),
        ({"host": "ssh://x", "mig": True}, "--host and --mig are for --bare"),
        ({"seed": "x"}, "--seed needs --sample"),
        ({"changed": True}, "--changed needs --compare"),
        ({"runner_image": "x"}, "--runner-image needs --in-cluster"),
        ({"bare": True, "in_cluster": True}, "--in-cluster is for a cluster"),
    ],
)
def test_refuses_what_does_not_go_together(typed: dict[str, Any], words: str) -> None:
    assert misuse(values(**typed)) == words


def test_needs_only_what_there_is() -> None:
    names = {f"--{option.name}" for option in OPTIONS}
    assert {option.needs for option in OPTIONS} <= {"", *names}


def test_gives_the_suite_each_option_once() -> None:
    names = [option.suite for option in OF_SUITE]
    assert len(names) == len(set(names))
    pool = next(option for option in OPTIONS if option.name == "pool")
    assert command_line(pool, "a", pool.suite) == "--divvy-pool=a"
    bare = next(option for option in OPTIONS if option.name == "bare")
    assert command_line(bare, True) == "--bare"
