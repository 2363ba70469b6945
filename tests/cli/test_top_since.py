"""divvy top --since: what Prometheus answers, as table, CSV, JSON and page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner

from divvy.cli.main import app
from tests.cli.test_top import Api, api, top

__all__ = ["api"]
SERVICE = "monitoring/prometheus-operated:9090"
PATH = "/api/v1/namespaces/monitoring/services/prometheus-operated:9090/proxy/api/v1/query"


def sample(value: str, **labels: str) -> dict[str, object]:
    return {"metric": labels, "value": [0, value]}


@pytest.fixture
def prometheus(api: Api) -> Api:
    """Give a Prometheus behind the API server: first the hours, then the memory."""
    answers = [
        [
            sample("12.5", namespace="team", resource="nvidia.com/gpu"),
            sample("3", namespace="team", resource="nvidia.com/gpu.shared"),
            sample("40", namespace="other", resource="nvidia.com/gpu"),
        ],
        [sample("99.1234", namespace="team")],
    ]
    api.answers[PATH] = lambda: httpx2.Response(200, json={"data": {"result": answers.pop(0)}})
    return api


@pytest.mark.usefixtures("prometheus")
def test_orders_namespaces_by_what_they_held() -> None:
    lines = top("--since", "7d", "--prometheus", SERVICE).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["other", "nvidia.com/gpu", "40.0", "–"],
        ["team", "nvidia.com/gpu", "12.5", "99.1"],
        ["team", "nvidia.com/gpu.shared", "3.0", "–"],
    ]


def test_writes_csv_of_one_namespace_and_the_queries(
    prometheus: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIVVY_PROMETHEUS", SERVICE)
    top("--since", "12h", "-n", "team", "-o", "csv", "--out", "use.csv")
    assert (tmp_path / "use.csv").read_text().splitlines() == [
        "namespace,resource,device_hours,memory_GiB_hours",
        "team,nvidia.com/gpu,12.5,99.123",
        "team,nvidia.com/gpu.shared,3.0,",
    ]
    queries = [httpx2.URL(url).params["query"] for url in prometheus.asked]
    assert all("[12h:5m]" in query for query in queries)


@pytest.mark.usefixtures("prometheus")
def test_writes_json() -> None:
    report = json.loads(top("--since", "7d", "--prometheus", SERVICE, "-o", "json"))
    assert report["since"] == "7d"
    assert report["namespaces"][1] == {
        "namespace": "team",
        "deviceHours": {"nvidia.com/gpu": 12.5, "nvidia.com/gpu.shared": 3.0},
        "memoryGiBHours": 99.123,
    }


@pytest.mark.usefixtures("prometheus")
def test_writes_a_page_with_each_namespaces_part() -> None:
    page = top("--since", "7d", "--prometheus", SERVICE, "-o", "html")
    rows = [
        re.sub(r"<[^>]+>", " ", row).split()
        for row in re.findall(r"<tr>.*?</tr>", page, re.DOTALL)[1:]
    ]
    assert rows == [
        ["other", "nvidia.com/gpu", "40.0", "–"],
        ["team", "nvidia.com/gpu", "12.5", "99.1"],
        ["nvidia.com/gpu.shared", "3.0"],
    ]
    parts = re.findall(r'<meter min="0" max="([^"]+)" value="([^"]+)"', page)
    assert parts == [("55.5", "40.0"), ("55.5", "15.5")]
    assert "The last 7d, from Prometheus" in page


def test_says_on_the_page_that_no_pod_held_a_device(api: Api) -> None:
    api.answers[PATH] = lambda: httpx2.Response(200, json={"data": {"result": []}})
    page = top("--since", "7d", "--prometheus", SERVICE, "-o", "html")
    assert "No pod held a device." in page
    assert "<meter" not in page


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--since", "week"), "--since is 'week': a duration of 5m or more, such as 12h, 7d or"),
        # Between two samples there is none: nothing would count, or more than there was.
        (("--since", "4m"), "--since is '4m': a duration of 5m or more, such as 12h, 7d or 4w, is"),
        (("--since", "9" * 5000 + "m"), "a duration of 5m or more"),
        (("--since", "5m"), "--since needs --prometheus"),
        (("--since", "7d"), "--since needs --prometheus"),
        (("--since", "7d", "--prometheus", "there"), "a URL or NAMESPACE/SERVICE:PORT is expected"),
        (("--since", "7d", "--prometheus", SERVICE), f"{SERVICE} gives no answer: "),
        (("--since", "7d", "--prometheus", "http://127.0.0.1:1"), "gives no answer: "),
        (("-o", "csv"), "-o csv belongs to --since"),
        (("--since", "7d", "--pod", "a"), "--since takes no --node, --pod or --sort"),
        (("--since", "7d", "--node", "a"), "--since takes no --node, --pod or --sort"),
        (("--since", "7d", "--sort", "age"), "--since takes no --node, --pod or --sort"),
    ],
)
def test_reports_each_mistake_in_one_sentence(arguments: tuple[str, ...], words: str) -> None:
    error = top(*arguments, expect=1)
    assert error.startswith("error: ")
    assert words in error


ODD = [
    "[]",
    '{"result": null}',
    '{"result": [5]}',
    '{"result": [{"metric": [], "value": [0, "1"]}]}',
    '{"result": [{"metric": {}, "value": [0]}]}',
    '{"result": [{"metric": {}, "value": [0, "NaN"]}]}',
    '{"result": [{"metric": {}, "value": [0, "+Inf"]}]}',
    '{"result": [{"metric": {}, "values": [[0, "1"]]}]}',
]


@pytest.mark.parametrize("data", ODD)
@pytest.mark.parametrize("view", ["text", "json"])
def test_refuses_an_answer_that_is_no_use(api: Api, data: str, view: str) -> None:
    api.answers[PATH] = lambda: httpx2.Response(200, text=f'{{"data": {data}}}')
    error = top("--since", "7d", "--prometheus", SERVICE, "-o", view, expect=1)
    assert error.startswith(f"error: {SERVICE} gives no answer: ")
    assert "Traceback" not in error


def test_knows_the_pods_namespace_beside_the_agents(api: Api) -> None:
    """A Prometheus without `honor_labels` has put the agents' own in its place."""
    agents = {"namespace": "divvy-system"}
    team, other = ({**agents, "exported_namespace": name} for name in ("team", "other"))
    answers = [
        [
            sample("2", **team, resource="r"),
            sample("3", namespace="team", resource="r"),
            sample("1", **other, resource="r"),
        ],
        [sample("7", **team), sample("1", namespace="team")],
    ]
    api.answers[PATH] = lambda: httpx2.Response(200, json={"data": {"result": answers.pop(0)}})
    csv = top("--since", "7d", "--prometheus", SERVICE, "-o", "csv")
    assert csv.splitlines()[1:] == ["team,r,5.0,8.0", "other,r,1.0,"]
    queries = [httpx2.URL(url).params["query"] for url in api.asked]
    assert all("by (namespace, exported_namespace" in query for query in queries)


def test_passes_on_what_an_answer_warns_of(api: Api) -> None:
    """Part of the stores may have answered: the figures are then too small."""
    warned = {"data": {"result": []}, "warnings": ["no store\x1b[2J for b", 5]}
    api.answers[PATH] = lambda: httpx2.Response(200, json=warned)
    command = ["top", "-s", "a", "--since", "7d", "--prometheus", SERVICE, "-o", "csv"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0
    assert done.stdout == "namespace,resource,device_hours,memory_GiB_hours\n"
    lines = [f"warning: {SERVICE}: no store\ufffd[2J for b", f"warning: {SERVICE}: 5"]
    assert done.stderr.splitlines() == lines * 2


def test_shows_names_as_text_alone(api: Api) -> None:
    name = "[i]a[/i]\x1b[2J"
    odd = [sample("1", namespace=name, resource="<script>")]
    api.answers[PATH] = lambda: httpx2.Response(200, json={"data": {"result": odd}})
    text = top("--since", "7d", "--prometheus", SERVICE)
    assert "[i]a[/i]\ufffd[2J" in text
    page = top("--since", "7d", "--prometheus", SERVICE, "-o", "html")
    assert "<script>" not in page
    assert "\x1b" not in page
