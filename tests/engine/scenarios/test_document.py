"""The table of scenarios in the documentation."""

from tests.engine.scenario import DOCUMENT, load, with_table


def test_matches_the_table_in_the_documentation() -> None:
    load()
    text = DOCUMENT.read_text()
    assert text == with_table(text), "write it with: python -m tests.engine.scenario"
