"""divvy chart --operator: the stack for NVIDIA's GPU Operator, or why that cannot be."""

from collections.abc import Mapping, Sequence

import typer

from divvy.errors import fail
from divvy.model import Cluster
from divvy.model.phrases import plural
from divvy.render.exports.operator.files import Site, operator_files
from divvy.render.exports.operator.translation import translate


def operator(
    cluster: Cluster, site: Site, pools: Sequence[str], without: Sequence[str]
) -> Mapping[str, str]:
    """Return the files; fail with every refusal that was not accepted by ``without``."""
    unknown = [name for name in pools if name not in cluster.pools]
    if unknown:
        fail(f"there is no pool {', '.join(unknown)}; the pools are: {', '.join(cluster.pools)}")
    translation = translate(cluster, pools)
    droppable = {refusal.key for refusal in translation.refusals if refusal.droppable}
    for key in without:
        if key not in droppable:
            known = ", ".join(sorted(droppable)) or "nothing here"
            fail(f"--without {key}: what can be done without is {known}")
    refused = [refusal for refusal in translation.refusals if refusal.key not in without]
    if refused:
        lines = [f"{plural(len(refused), 'thing')} the GPU Operator cannot do for {site.stack}:"]
        lines += [f"  {refusal}" for refusal in refused]
        lines.append(
            _way_out({refusal.key for refusal in refused if refusal.droppable}, cluster, pools)
        )
        fail("\n".join(lines))
    for note in (*translation.notes, *(f"left out: {refusal}" for refusal in translation.refusals)):
        typer.echo(f"note: {note}", err=True)
    return operator_files(cluster, translation, site)


def _way_out(droppable: set[str], cluster: Cluster, pools: Sequence[str]) -> str:
    ways = [f"--without {key} does without it" for key in sorted(droppable)]
    if len(pools) != 1 and len(cluster.pools) > 1:
        ways.append("--pool names the pools that the operator is to serve")
    return "  " + "; ".join(ways) if ways else "  deploy Divvy's own agent instead"
