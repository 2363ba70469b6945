"""Which pages of other shares the limiter looks at, under the sanitizers."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from divvy.agent.inject.time_share_page import create_page
from divvy.model.profile import MAX_GATED_REPLICAS
from tests.limiter.tenant import LIMITER, line, tell


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("peers") / "peers"
    sources = [Path(__file__).with_name("peers.c"), LIMITER / "cuda/peers.c"]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    subprocess.run(["cc", *flags, *sanitizers, "-o", built, *sources], check=True)
    return built


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """Give the folder of a GPU's pages, and a share's own page beside it."""
    folder = tmp_path / "GPU"
    folder.mkdir()
    create_page(tmp_path / "own", 50)
    return folder


@contextlib.contextmanager
def looking(program: Path, pages: Path) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [program, pages.parent, pages.name, "own"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
        _, errors = started.communicate(timeout=60)
        assert started.returncode == 0, errors
    finally:
        started.kill()
        started.communicate()


def known(process: subprocess.Popen[str]) -> set[str]:
    """Let it look, and return the shares that it knows."""
    tell(process)
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 60)[0], "it hangs"
    return set(line(process).split())


def open_files(process: subprocess.Popen[str]) -> int:
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


def test_frees_slots_of_ended_shares_for_new_ones(program: Path, pages: Path) -> None:
    """A process of weeks sees hundreds of neighbours come and go."""
    with looking(program, pages) as process:
        assert known(process) == set()  # a program that still loads its libraries has them open
        before = open_files(process)
        for generation in range(3):
            names = {f"{generation}-{number}" for number in range(MAX_GATED_REPLICAS)}
            for name in names:
                create_page(pages / name, 50)
            assert known(process) == names
            for name in names:
                (pages / name).unlink()
        assert known(process) == set()
        assert open_files(process) == before


def test_ends_an_ended_share_without_affecting_others(program: Path, pages: Path) -> None:
    for name in ("a", "b", "c"):
        create_page(pages / name, 50)
    with looking(program, pages) as process:
        assert known(process) == {"a", "b", "c"}
        (pages / "a").unlink()
        assert known(process) == {"b", "c"}
        create_page(pages / "a", 50)
        assert known(process) == {"a", "b", "c"}


def test_skips_a_fifo_in_place_of_a_page(program: Path, pages: Path) -> None:
    """To open it would wait for a writer, and with it every launch of the program."""
    os.mkfifo(pages / "fifo")
    create_page(pages / "other", 50)
    with looking(program, pages) as process:
        assert known(process) == {"other"}


def test_leaves_files_open_that_a_program_opens_after_closing_all(
    program: Path, pages: Path
) -> None:
    """A daemon closes all numbers; what has ours then is the program's own."""
    for name in ("a", "b"):
        create_page(pages / name, 50)
    with looking(program, pages) as process:
        assert known(process) == {"a", "b"}
        before = open_files(process)
        tell(process, "its own")
        assert known(process) == {"a", "b"}
        assert open_files(process) == before + 2


def test_looks_at_as_many_neighbours_as_a_share_can_have():
    header = (LIMITER / "cuda/peers.h").read_text()
    assert f"#define MAX_PEERS {MAX_GATED_REPLICAS}\n" in header
