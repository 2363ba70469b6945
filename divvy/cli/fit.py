"""divvy fit: would pods fit the plan, where, and what is in the way."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from divvy.cli.exit_codes import CHANGES
from divvy.cli.options import OutFile, Stack
from divvy.cli.output import TextOrJson, write
from divvy.errors import fail
from divvy.live.cluster_reader import reading
from divvy.live.fit_reader import FitReader
from divvy.model import Cluster, InvalidValue
from divvy.plan import plan as predict
from divvy.plan.fit import Fit, FitNode, PodToFit, nodes_of_plan, read_manifests
from divvy.plan.fit import fit as put
from divvy.plan.fit.manifest_kinds import Document
from divvy.plan.fit.pods import Around
from divvy.render.views.fit import fit_json, fit_text
from divvy.stack.file import read_path, stack_path
from divvy.stack.sections import read_cluster
from divvy.stack.yaml_documents import yaml_documents
from divvy.stack.yaml_text import read_text, text_of

_STDIN = "-"


def fit(
    stack: Stack,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PODS.yaml", help="Manifests of pods or workloads; -: stdin."),
    ] = None,
    pending: Annotated[
        bool, typer.Option("--pending", help="Check the cluster's pending pods.")
    ] = False,
    live: Annotated[
        bool,
        typer.Option("--live", help="Use the live nodes, less what is held now."),
    ] = False,
    output: TextOrJson = "text",
    out: OutFile = None,
) -> None:
    """Check whether pods would fit; exit code 0: all of them, 2: not all, 1: an error."""
    if bool(files) == pending:
        fail("name files with pods, or use --pending for the cluster's pending pods; not both")
    source = read_path(stack_path(stack))
    cluster = read_cluster(source)
    documents = [document for file in files or () for document in _documents(file)]
    if pending or live:
        with reading(cluster.kubeconfig, cluster.context) as reader:
            result = _with_cluster(FitReader(reader, cluster), documents, source.name, live=live)
    else:
        pods, notes = _read(documents, cluster)
        result = _against_plan(cluster, source.name, pods, notes)
    write(fit_json(result) if output == "json" else fit_text(result), out)
    raise typer.Exit(0 if result else CHANGES)


def _with_cluster(reader: FitReader, documents: list[Document], name: str, *, live: bool) -> Fit:
    if documents:
        pods, notes = _read(documents, reader.cluster, reader.around)
    else:
        pods, notes = reader.pending(), ()
    if not live:
        return _against_plan(reader.cluster, name, pods, notes)
    nodes: tuple[FitNode, ...] = reader.nodes(name)
    result = put(reader.cluster, name, nodes, pods, reader.quotas, reader.unread())
    return replace(result, is_live=True, notes=(*notes, *reader.differences(name)))


def _read(
    documents: list[Document], cluster: Cluster, around: Around | None = None
) -> tuple[tuple[PodToFit, ...], tuple[str, ...]]:
    try:
        read = read_manifests(documents, cluster, around)
    except InvalidValue as invalid:
        fail(str(invalid))
    return read.pods, read.notes


def _against_plan(
    cluster: Cluster, name: str, pods: tuple[PodToFit, ...], notes: tuple[str, ...]
) -> Fit:
    predicted = predict(cluster, name)
    unknown = tuple(
        f"pool {pool.name} is left out: the stack file does not say which hardware it has"
        for pool in predicted.pools
        if pool.node is None
    )
    result = put(cluster, name, nodes_of_plan(cluster, predicted), pods)
    return replace(result, notes=(*notes, *unknown))


def _documents(file: Path) -> list[Document]:
    """Return the documents of a file, each with its place, for errors."""
    name = "standard input" if str(file) == _STDIN else str(file)
    text = text_of(sys.stdin, name) if str(file) == _STDIN else read_text(file)
    return [
        Document(f"{name}: document {number}", value)
        for number, value in enumerate(yaml_documents(name, text), start=1)
    ]
