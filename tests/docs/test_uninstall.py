"""What upgrade-and-uninstall.md says stays in a cluster is what Divvy writes outside its stack."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from divvy.agent.node_runtime import containerd, crio
from divvy.model import contract

PAGE = (Path(__file__).parents[2] / "docs/upgrade-and-uninstall.md").read_text()
STAYS = re.findall(r"^\| .*", PAGE.split("## Uninstall\n")[1], re.MULTILINE)
MAKER = contract.component_labels(contract.Component.CLAIMS)


@pytest.mark.parametrize(
    "named",
    [
        *(contract.STATE_FOLDER, contract.CDI_FOLDER, contract.SHARE_FOLDER, contract.MPS_FOLDER),
        *(contract.PLUGIN_FOLDER, contract.STATUS_ANNOTATION, contract.CONFORMANCE_SUCCESS),
        *(containerd.DROP_IN, containerd.ROOT_FILE, crio.DROP_IN),
        f"`{contract.TEMPLATE_PREFIX}…`",
        ",".join(f"{name}={text}" for name, text in MAKER.items()),
    ],
)
def test_names_what_stays(named: str) -> None:
    assert any(named in row for row in STAYS)
