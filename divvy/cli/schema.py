"""divvy schema: the JSON Schema of stack files, for editors and the chart."""

import json

from divvy.cli.options import OutFile
from divvy.cli.output import write
from divvy.model.schema import cluster_schema, stack_file_schema
from divvy.stack.keys import CLUSTER, LAB, MISPLACED, TOP_LEVEL

# Read by the distribution divvy-lab, which checks it.
_LAB = {"type": "object", "description": "A laboratory on one machine, for `divvy lab`."}


def schema(out: OutFile = None) -> None:
    """Print the JSON Schema of stack files."""
    write(schema_text(), out)


def schema_text() -> str:
    """Return the JSON Schema of stack files."""
    sections = {CLUSTER: cluster_schema(), LAB: _LAB}
    document = stack_file_schema(sections, top_level=TOP_LEVEL, misplaced=MISPLACED)
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
