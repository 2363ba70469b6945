"""Wrong stack files: every problem at once, in plain words, and the page that shows them."""

import re

import pytest
import yaml

from divvy.model import InvalidCluster, parse_cluster
from tests.model.wrong_stacks import SEPARATOR, WRONG

JARGON = re.compile(r"value_error|Input should|Extra inputs|type=|pydantic|NoneType|<class")


@pytest.mark.parametrize(("title", "text", "paths"), WRONG, ids=[case[0] for case in WRONG])
def test_names_every_problem_of_a_stack_with_its_path(title, text, paths):
    with pytest.raises(InvalidCluster) as refusal:
        parse_cluster(yaml.safe_load(text))
    problems = refusal.value.problems
    assert sorted({problem.path for problem in problems}) == sorted(paths), title
    for problem in problems:
        assert not JARGON.search(str(problem))
        assert problem.reason
    message = "\n".join(str(problem) for problem in problems)
    for words in title.split(SEPARATOR):
        assert words in message


@pytest.mark.parametrize("value", [None, [], "x", 3])
def test_refuses_anything_but_a_mapping(value):
    with pytest.raises(InvalidCluster, match="a mapping with at least `profiles` and `pools`"):
        parse_cluster(value)


def test_suggests_the_nearest_known_name():
    text = next(text for title, text, _ in WRONG if title.startswith("which does not exist"))
    with pytest.raises(InvalidCluster) as refusal:
        parse_cluster(yaml.safe_load(text))
    by_path = {problem.path: problem.remedy for problem in refusal.value.problems}
    assert by_path["pools.a.profile"] == "did you mean slice-4?"
    assert by_path["pools.c.hardware.model"].startswith("did you mean A100-SXM4-40GB?")


def test_proves_an_infeasible_layout_and_names_the_nearest_that_fit():
    text = next(text for title, text, _ in WRONG if title == "has no placement on")
    with pytest.raises(InvalidCluster) as refusal:
        parse_cluster(yaml.safe_load(text))
    (problem,) = refusal.value.problems
    assert "3g.20gb needs memory slices 0–3 or 4–7; both are taken" in problem.reason
    assert problem.remedy.startswith("nearest that fit: {4g.20gb: 1, 3g.20gb: 1}")


@pytest.mark.parametrize(
    ("toleration", "error"),
    [
        ({"key": "a", "operator": "Exists", "value": "x"}, "has a value, and operator Exists"),
        ({"value": "x"}, "has no key"),
        ({"key": ""}, "has no key"),
        ({"key": "a", "tolerationSeconds": 30}, "has `tolerationSeconds` without effect NoExecute"),
        (
            {"key": "a", "effect": "NoSchedule", "tolerationSeconds": 30},
            "has `tolerationSeconds` without effect NoExecute",
        ),
    ],
)
def test_refuses_a_toleration_that_the_api_server_refuses(toleration, error):
    pools = {"all": {"profile": "whole", "tolerations": [toleration]}}
    with pytest.raises(InvalidCluster) as invalid:
        parse_cluster({"profiles": {"whole": {}}, "pools": pools})
    assert f"pools.all.tolerations[0]: {error}" in str(invalid.value)
