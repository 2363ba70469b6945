"""divvy init: a stack file and a project out of a cluster that is there."""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

from divvy.cli.chart_images import require_digest
from divvy.cli.cluster_survey import Survey, survey
from divvy.cli.nvidia_files import operator_profiles
from divvy.cli.schema import schema_text
from divvy.errors import fail
from divvy.init.answers import MAX_GPUS, Answer, Answers, Question
from divvy.init.draft import Draft, draft
from divvy.init.gpu_node import GpuNode, gpu_node
from divvy.init.image_platforms import image_platforms
from divvy.init.project import (
    GITIGNORE,
    OWN_FILES,
    SCHEMA,
    Ci,
    not_ignored,
    project_files,
    stack_file,
)
from divvy.init.stack_text import NO_IMAGE, remarks, stack_text
from divvy.model import UnknownGpuModel, gpu_model, gpu_models
from divvy.model.nvidia import ImportResult
from divvy.model.phrases import some
from divvy.stack.file import StackFile
from divvy.stack.sections import read_cluster
from divvy.version_info import NAME, is_installed_from_a_path, requirement, version

_Name = Annotated[str, typer.Argument(help="The stack's name: the cluster's.")]
_Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--file",
        help="Take profiles from a device-plugin or mig-parted configuration (repeatable).",
    ),
]
_Models = Annotated[
    list[str] | None,
    typer.Option("--model", help="GPU model: MODEL, or NODES=MODEL with a pattern (repeatable)."),
]
_Gpus = Annotated[
    list[str] | None,
    typer.Option("--gpus", help="GPUs of each node: NUMBER, or NODES=NUMBER (repeatable)."),
]
_Image = Annotated[str | None, typer.Option("--image", help="The agent's image, by digest.")]
_Registry = Annotated[
    str | None, typer.Option("--registry", help="Where to push the agent's image.")
]
_Base = Annotated[str | None, typer.Option("--base", help="Base image of the agent's image.")]
_Kubeconfig = Annotated[
    str | None, typer.Option("--kubeconfig", help="Default: KUBECONFIG, then ~/.kube/config.")
]
_Context = Annotated[str | None, typer.Option("--context", help="Context in the kubeconfig.")]
_Ci = Annotated[
    Ci | None,
    typer.Option("--ci", help="CI system to write files for; default: by the git remote."),
]
_StackOnly = Annotated[
    bool, typer.Option("--stack-only", help="Write the stack file alone, no project around it.")
]
# So many nodes are named in an error.
_MAX_NODES = 12


def init(
    name: _Name,
    *,
    file: _Files = None,
    model: _Models = None,
    gpus: _Gpus = None,
    image: _Image = None,
    registry: _Registry = None,
    base: _Base = None,
    kubeconfig: _Kubeconfig = None,
    context: _Context = None,
    ci: _Ci = None,
    stack_only: _StackOnly = False,
) -> None:
    """Write a stack file whose plan is what the cluster offers today, and a project around it.

    It reads the cluster and changes nothing there. What it cannot see it asks; without a terminal,
    the options answer, for all nodes or for those whose names match a pattern:
    --model 'gpu-a*=A100-SXM4-40GB' --gpus 'gpu-a*=4'. Nothing is overwritten.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        fail(f"{name!r} is not a stack's name; letters, digits, '-', '_' and '.' are expected")
    answers = Answers((*_answers("model", model), *_answers("gpus", gpus)))
    imported = operator_profiles(file) if file else ImportResult()
    shared = {} if stack_only else _project_files(ci)
    _refuse_existing(
        {stack_file(name): None}
        | {path: content for path, content in shared.items() if path not in OWN_FILES}
    )
    given = _image(image, registry, base)
    surveyed = survey(kubeconfig, context)
    result = _complete(surveyed, answers, imported.profiles)
    known = {*result.cluster["profiles"], *result.renamed}
    unused = [name for name in imported.profiles if name not in known]
    reasons = [*imported.left_out]
    if unused:
        reasons.append(f"{', '.join(unused)}: not for the GPUs of these pools")
    chosen: dict[str, Any] = {**(given or _ask_image())}
    platforms = image_platforms(result.nodes, surveyed.nodes)
    if "registry" in chosen and platforms:
        chosen["platforms"] = list(platforms)
    connection = {"kubeconfig": kubeconfig, "context": context or surveyed.context}
    text = stack_text(
        result,
        surveyed.others,
        {key: value for key, value in connection.items() if value},
        chosen,
        "" if stack_only else SCHEMA,
    )
    # Nothing is written that the next command would refuse.
    read_cluster(StackFile(stack_file(name), text, name))
    written = _write({stack_file(name): text, **shared})
    _tell(written, result, surveyed, reasons)
    if is_installed_from_a_path():
        _tell_of_wheel({path: shared[path] for path in written if path in shared})
    _tell_next(name, text, lacking=() if stack_only else not_ignored(Path(GITIGNORE).read_text()))


def _project_files(ci: Ci | None) -> Mapping[str, str]:
    return project_files(_project_name(), ci or _ci_of_remote(), requirement, schema_text())


def _project_name() -> str:
    """Return the name of the project that is here, as in a clone of any name, or its folder's."""
    project = Path("Pulumi.yaml")
    text = project.read_text(errors="replace") if project.is_file() else ""
    name = re.match(r"name: (\S+)\n", text)
    return name[1].strip("'\"") if name else Path.cwd().name


def _complete(surveyed: Survey, answers: Answers, profiles: Mapping[str, Any]) -> Draft:
    """Describe the cluster, and ask until nothing is open."""
    labels = {
        node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in surveyed.nodes
    }
    _refuse_unmatched(answers, list(labels))
    while True:
        nodes = [gpus for node in surveyed.nodes if (gpus := _gpu_node(node, surveyed, answers))]
        result = draft(nodes, labels, answers, profiles, surveyed.claimed, surveyed.unread_nodes)
        if not result.questions:
            break
        if not _is_terminal():
            options = "\n".join(
                f"  {question.text}: {question.option}" for question in result.questions
            )
            fail(f"these options must supply what the cluster does not reveal:\n{options}")
        more = [answer for question in result.questions for answer in _ask(question)]
        answers = Answers((*answers.given, *more))
    if not result.cluster:
        _refuse_empty(list(labels), result)
    return result


def _gpu_node(node: Mapping[str, Any], surveyed: Survey, answers: Answers) -> GpuNode | None:
    name = node["metadata"]["name"]
    return gpu_node(node, surveyed.claimed.get(name), has_gpus=answers.about(name))


def _refuse_unmatched(answers: Answers, nodes: Sequence[str]) -> None:
    """Fail where an option's pattern matches no node."""
    wrong = [
        f"--{answer.kind} '{answer.nodes}={answer.value}' matches no node"
        for answer in answers.given
        if not any(fnmatchcase(node, answer.nodes) for node in nodes)
    ]
    if wrong:
        listed = "\n  ".join(wrong)
        fail(
            f"{listed}\nleft of = is the name of a node, or a pattern of names such as "
            f"'gpu-*'. Nodes: {some(nodes, _MAX_NODES) or 'none'}"
        )


def _refuse_empty(nodes: Sequence[str], result: Draft) -> NoReturn:
    reasons = "".join(
        f"\n  {', '.join(left_out.nodes)}: {left_out.reason}" for left_out in result.left_out
    )
    if reasons:
        fail(f"no node has GPUs that a stack file can describe:{reasons}")
    fail(
        "no node shows a GPU, by nvidia.com/… resources or by labels "
        f"({some(nodes, _MAX_NODES) or 'none'}); say which have some, by name or pattern: "
        "--gpus 'gpu-*=2' --model 'gpu-*=T4'"
    )


def _answers(kind: Literal["model", "gpus"], given: Sequence[str] | None) -> list[Answer]:
    return [_answer(kind, text) for text in given or ()]


def _answer(kind: Literal["model", "gpus"], text: str) -> Answer:
    nodes, equals, value = text.rpartition("=")
    error = _error(kind, value)
    if error or (equals and not nodes):
        fail(f"--{kind} {text}: {error or 'names no nodes before ='}")
    return Answer(kind, nodes or "*", value)


def _error(kind: str, value: str) -> str | None:
    if kind == "model":
        try:
            gpu_model(value)
        except UnknownGpuModel as unknown:
            return str(unknown)
        return None
    if value.isdecimal() and 1 <= int(value) <= MAX_GPUS:
        return None
    return f"{value!r} is not a number of GPUs from 1 to {MAX_GPUS}"


def _ask(question: Question) -> list[Answer]:
    if question.kind == "model":
        typer.echo(f"Models that Divvy knows: {', '.join(gpu_models())}")
    while True:
        value = str(typer.prompt(question.text, default=question.guess)).strip()
        error = _error(question.kind, value)
        if error is None:
            return [Answer(question.kind, _literal(node), value) for node in question.nodes]
        typer.echo(error)


def _literal(node: str) -> str:
    """Return a pattern that matches this name alone."""
    return re.sub(r"([*?[])", r"[\1]", node)


def _image(reference: str | None, registry: str | None, base: str | None) -> dict[str, str]:
    if reference and (registry or base):
        fail("--image names an image that exists, --registry and --base are to build one")
    if bool(registry) != bool(base):
        fail("--registry and --base go together: where to push the image, and its base image")
    if reference:
        require_digest(reference)
        return {"reference": reference}
    return {"registry": registry, "base": base} if registry and base else {}


def _ask_image() -> dict[str, str]:
    if not _is_terminal():
        return {}
    registry = typer.prompt("Registry to push the agent's image to (empty: later)", default="")
    if not registry:
        return {}
    base = typer.prompt("Image to build it on: Debian 12 with the package python3")
    return {"registry": registry, "base": base}


def _ci_of_remote() -> Ci:
    command = ["git", "config", "--get", "remote.origin.url"]
    try:
        remote = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        remote = ""
    return "gitlab" if "gitlab" in remote else "github"


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _refuse_existing(files: Mapping[str, str | None]) -> None:
    """Fail where a file exists with another content; what a second stack shares may be there."""
    existing = [path for path, text in files.items() if _differs(Path(path), text)]
    if existing:
        way = "--stack-only leaves the project's files alone"
        own = next(iter(files))
        fail(
            f"{', '.join(existing)} exist{'s' if len(existing) == 1 else ''} already; nothing is "
            f"overwritten. {'Choose another name' if own in existing else way}"
        )


def _differs(path: Path, text: str | None) -> bool:
    if not path.exists():
        return False
    return text is None or not path.is_file() or path.read_bytes() != text.encode()


def _write(files: Mapping[str, str]) -> list[str]:
    """Write the files that are not there, all of them or none."""
    written: list[str] = []
    for name, text in files.items():
        path = Path(name)
        if path.exists():
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                written.append(name)
                file.write(text)
        except OSError as error:
            for file_name in written:
                Path(file_name).unlink(missing_ok=True)
            fail(f"cannot write {path}: {error.strerror}")
    return written


def _tell(written: Sequence[str], result: Draft, surveyed: Survey, left_out: Sequence[str]) -> None:
    typer.echo(f"written: {', '.join(written)}")
    for remark in (
        *remarks(result, surveyed.others),
        *(f"Not imported: {reason}." for reason in left_out),
        *_of_leftovers(surveyed.left),
        *(f"You may not list {what}: there may be more at work." for what in surveyed.unseen),
    ):
        typer.echo(f"  {remark}")


def _of_leftovers(nodes: Sequence[str]) -> list[str]:
    if not nodes:
        return []
    return [
        f"A Divvy that is gone left labels and a status on {some(nodes, _MAX_NODES)}; they do not "
        "count here. `divvy up` and then `divvy destroy` clean these nodes."
    ]


def _tell_of_wheel(files: Mapping[str, str]) -> None:
    """Print in which lines of a new file CI installs what its index may not have."""
    for path, text in files.items():
        numbered = enumerate(text.splitlines(), 1)
        lines = [str(number) for number, line in numbered if f"pip install '{NAME}" in line]
        if lines:
            typer.echo(
                f"  CI installs {NAME} {version()} from the package index; until it is there, put "
                f"the wheel where CI finds it: lines {' and '.join(lines)} of {path}"
            )


def _tell_next(name: str, text: str, lacking: Sequence[str]) -> None:
    """Print what to do now; ``text`` is the stack file's, ``lacking`` what git does not ignore."""
    if lacking:
        typer.echo(f"  add to {GITIGNORE}: {', '.join(lacking)}")
    typer.echo("next:")
    typer.echo(
        f"  divvy plan -s {name}        # what each node advertises: as today, where it offers GPUs"
    )
    lines = text.splitlines()
    if NO_IMAGE in lines:
        first = lines.index(NO_IMAGE) + 1
        typer.echo(
            f"then say where the agent's image comes from: uncomment line {first} and line "
            f"{first + 1} or {first + 2} of {stack_file(name)}"
        )
    typer.echo(f"  divvy preview -s {name}     # what would be made")
    typer.echo(f"  divvy up -s {name}")
