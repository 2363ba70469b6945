"""The PTX modules in the folder ptx/, and the head of those that tests write themselves."""

from pathlib import Path

FOLDER = Path(__file__).with_name("ptx")
FILES = sorted(FOLDER.glob("*.ptx"))
HEAD = ".version 7.0\n.target sm_75\n.address_size 64\n"


def ptx_module(name: str) -> str:
    """Read a module; its file and its kernel have the same name."""
    return (FOLDER / f"{name}.ptx").read_text()
