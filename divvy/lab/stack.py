"""Read the lab's description from its stack file."""

from pathlib import Path

import yaml

from divvy.lab.description import InvalidDescription, Lab, parse_lab
from divvy.lab.paths import REPOSITORY
from divvy.model.gpu_models import UnknownGpuModel, gpu_model


def stack_file(stack: str) -> Path:
    """Return the file of a stack: below here, else of this work tree; a path is itself."""
    if stack.endswith((".yaml", ".yml")):
        return Path(stack)
    name = Path("stacks") / f"Pulumi.{stack}.yaml"
    return name if name.is_file() else REPOSITORY / name


def read_lab(file: Path) -> Lab:
    """Return the lab that a stack file describes; raise InvalidDescription with all errors."""
    try:
        document = yaml.safe_load(file.read_text())
    except OSError as error:
        raise InvalidDescription((f"{file}: {error.strerror}",)) from None
    except yaml.YAMLError as error:
        raise InvalidDescription((f"{file}: not YAML: {' '.join(str(error).split())}",)) from None
    config = document.get("config") if isinstance(document, dict) else None
    if not isinstance(config, dict) or "divvy:lab" not in config:
        raise InvalidDescription((f"{file}: has no config.divvy:lab, which describes the lab",))
    return parse_lab(config["divvy:lab"], model_problem=_model_problem)


def _model_problem(name: str) -> str | None:
    try:
        gpu_model(name)
    except UnknownGpuModel as error:
        return str(error)
    return None
