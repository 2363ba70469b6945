"""What upgrade-and-uninstall.md says stays in a cluster is what Divvy writes outside its stack."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from divvy.agent.node_runtime import containerd, crio
from divvy.model import api_names

PAGE = (Path(__file__).parents[2] / "docs/upgrade-and-uninstall.md").read_text()
STAYS = re.findall(r"^\| .*", PAGE.split("## Uninstall\n")[1], re.MULTILINE)
MAKER = api_names.component_labels(api_names.Component.CLAIMS)


@pytest.mark.parametrize(
    "named",
    [
        *(
            api_names.STATE_FOLDER,
            api_names.CDI_FOLDER,
            api_names.SHARE_FOLDER,
            api_names.MPS_FOLDER,
        ),
        *(api_names.PLUGIN_FOLDER, api_names.STATUS_ANNOTATION, api_names.CONFORMANCE_SUCCESS),
        *(containerd.DROP_IN, containerd.ROOT_FILE, crio.DROP_IN),
        f"`{api_names.TEMPLATE_PREFIX}…`",
        ",".join(f"{name}={text}" for name, text in MAKER.items()),
    ],
)
def test_names_what_stays(named: str) -> None:
    assert any(named in row for row in STAYS)
