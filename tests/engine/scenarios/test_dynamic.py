"""Dynamic providers, and values that are not known yet."""

from __future__ import annotations

import pytest

from tests.engine.scenario import scenario
from tests.engine.trial import Trial

DYNAMIC = """from pulumi.dynamic import CreateResult, ReadResult, Resource, ResourceProvider
class P(ResourceProvider):
    def configure(self, req):
        self.who = req.config.get("who")
    def create(self, props):
        return CreateResult("id1", {"who": self.who})
    def read(self, i, props):
        return ReadResult(i, {"who": "live"})
class D(Resource):
    who: Output[str]
    def __init__(self, n, opts=None):
        super().__init__(P(), n, {"who": None}, opts)
"""


@scenario("`configure` of a dynamic provider", "gets the stack's configuration", "equal")
def test_configures_a_dynamic_provider(trial: Trial) -> None:
    trial.configure("config: {who: bob}\n")
    trial.write(DYNAMIC + 'pulumi.export("who", D("d").who)\n')
    trial.up()
    assert '"bob"' in trial.run("stack", "output")


@pytest.mark.lab
def test_moves_a_dynamic_resource_from_an_unreachable_place(trial: Trial) -> None:
    """As the agent's image from a registry that is gone to another one."""
    program = """from pulumi.dynamic import *
class P(ResourceProvider):
    def create(self, props):
        return CreateResult("id1", props)
    def diff(self, i, olds, news):
        return DiffResult(changes=olds["place"] != news["place"])
    def update(self, i, olds, news):
        return UpdateResult(news)
    def read(self, i, props):
        import os  # by name: what the program has imported travels with the provider
        if props["place"] == os.environ.get("DOWN"):
            raise Exception(props["place"] + " does not answer")
        return ReadResult(i, props)
class D(Resource):
    place: Output[str]
pulumi.export("place", D(P(), "d", {"place": PLACE}).place)
"""
    trial.write(program.replace("PLACE", '"first"'))
    trial.up()
    trial.environment["DOWN"] = "first"
    assert "first does not answer" in trial.preview(expect=1)
    trial.write(program.replace("PLACE", '"second"'))
    trial.preview(expect=2)
    trial.up()
    assert '"second"' in trial.run("stack", "output")
    trial.preview(expect=0)


@scenario(
    "Values unknown in a preview: whole `metadata`, whole `data`",
    "previewed as unknown; `up` works",
    "equal",
)
def test_previews_unknown_values(trial: Trial) -> None:
    trial.write(
        DYNAMIC + 'd = D("d")\n'
        'cm("m", metadata=d.id.apply(lambda i: {"name": "m-" + i}))\n'
        'cm("n", metadata={"name": "n"}, data=d.id.apply(lambda i: {"x": i}))\n'
    )
    trial.preview(expect=2)
    trial.up()
    assert trial.names() == {"m-id1", "n"}
    trial.preview(expect=0)


@scenario(
    "A provider whose kubeconfig another resource gives",
    "previewed as unknown; `up` works",
    "refused",
    "in a preview and in `up`",
)
def test_refuses_a_provider_configured_by_another_resource(trial: Trial) -> None:
    trial.write(
        DYNAMIC + 'd = D("d")\n'
        'p = k8s.Provider("p", kubeconfig=d.id.apply(lambda i: E("KUBECONFIG")))\n'
        'cm("o", metadata={"name": "o"}, opts=R(provider=p))\n'
    )
    for output in (trial.preview(expect=1), trial.up(expect=1)):
        assert "p: a provider configured by another resource is not supported" in output
    assert trial.names() == set()
