"""The table of options in the page about `divvy advise`, as the command has them."""

from collections.abc import Iterator
from pathlib import Path

import typer

from divvy.cli.advise import advise

PAGE = Path(__file__).parent / "advise.md"
_BEGIN, _END = "<!-- options: written by docs.generate -->", "<!-- end of options -->"


def advise_page() -> str:
    """Return the page with its table as the command is now."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    table = "\n".join(_options())
    return f"{before}{_BEGIN}\n{table}\n{_END}{after}"


def _options() -> Iterator[str]:
    app = typer.Typer(add_completion=False)
    app.command()(advise)
    yield "| option | default | does |"
    yield "|---|---|---|"
    for option in typer.main.get_command(app).params:
        default = "–" if option.default in (None, False) else f"`{option.default}`"
        names = ", ".join(f"`{name}`" for name in option.opts)
        yield f"| {names} | {default} | {getattr(option, 'help', '')} |"
