"""divvy schema: the JSON Schema of stack files, for editors and the chart."""

import json

from divvy.cli.options import OutFile
from divvy.cli.output import write
from divvy.lab.section import LabSection
from divvy.model.schema import cluster_schema, described_schema, stack_file_schema
from divvy.stack.file import CLUSTER, LAB


def schema(out: OutFile = None) -> None:
    """Print the JSON Schema of stack files."""
    document = stack_file_schema({CLUSTER: cluster_schema(), LAB: described_schema(LabSection)})
    write(json.dumps(document, indent=2, ensure_ascii=False) + "\n", out)
