"""A Python that needs nothing of the machine it runs on but a Linux kernel.

It is the interpreter that runs this, with its standard library, its C library and that library's
own loader. The kernel has no way to name a loader relative to a program, so a small static program
starts the loader, which starts Python; ``sys.executable`` is that program.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

LOADER = "ld-linux-x86-64.so.2"
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
# Neither the kit nor a package of it uses these.
_LEFT_OUT = {
    *("__pycache__", "distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data"),
    *("site-packages", "test", "tests", "tkinter", "turtledemo", "unittest/test", "idle_test"),
}
_MODULES_LEFT_OUT = re.compile(
    r"_(tkinter|test\w*|ctypes_test|crypt|curses\w*|dbm|gdbm|codecs_\w+|xx\w*)\b"
    r"|nis\b|readline\b|ossaudiodev\b|xx\w*\b|audioop\b|spwd\b"
)
_LAUNCHER = Path(__file__).resolve().parent / "python3.c"
_PROGRAM = """\
#!/bin/sh
# A machine with an older C library than the one this was built with runs it, too.
here="${0%/*}"
lib="$here/FOLDER"
exec "$lib/LOADER" --library-path "$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$here/real/NAME" "$@"
"""


def lay_python(folder: Path) -> Path:
    """Copy interpreter and standard library below ``folder``; return its site-packages."""
    library = folder / "lib" / _VERSION
    for part in ("bin", "libexec", "lib"):
        (folder / part).mkdir(parents=True)
    interpreter = Path(sys.executable).resolve()
    shutil.copy(interpreter, folder / "libexec" / _VERSION)
    source = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(source, library, ignore=_left_out)
    command = ["cc", "-static", "-O2", "-D_GNU_SOURCE", f'-DVERSION="{_VERSION}"']
    command += ["-o", str(folder / "bin/python3")]
    subprocess.run([*command, str(_LAUNCHER)], check=True)
    site = library / "site-packages"
    site.mkdir()
    return site


def _left_out(folder: str, names: list[str]) -> set[str]:
    extensions = folder.endswith("lib-dynload")
    return {
        name
        for name in names
        if name in _LEFT_OUT
        or f"{Path(folder).name}/{name}" in _LEFT_OUT
        or name.startswith("config-3")
        or (extensions and _MODULES_LEFT_OUT.match(name))
    }


def lay_libraries(folder: Path, objects: Iterable[Path]) -> None:
    """Copy the loader and every library that ``objects`` need, theirs included, to ``folder``.

    Of the C library all that a driver may ask for, whether one of these objects does or not.
    """
    libraries = {path.name: path for library in objects for path in _needed(library)}
    for path in libraries.values():
        if not (folder / path.name).exists():
            shutil.copy(path, folder / path.name)
    beside = Path(next(path for name, path in libraries.items() if name == "libc.so.6")).parent
    for name in ("libdl.so.2", "libpthread.so.0", "librt.so.1", "libm.so.6"):
        shutil.copy(beside / name, folder / name)
    (folder / LOADER).chmod(0o755)


def _needed(path: Path) -> Iterator[Path]:
    done = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
    if "not found" in done.stdout:
        raise FileNotFoundError(f"{path} needs what this machine has not: {done.stdout}")
    for match in re.finditer(r"(?:=> )?(/\S+) \(0x", done.stdout):
        yield Path(match.group(1))


def lay_launched(program: Path, folder: Path, libraries: str) -> None:
    """Put a program into ``folder``/real, and a script that starts it with the kit's libraries.

    ``libraries`` is the way from ``folder`` to them.
    """
    (folder / "real").mkdir(exist_ok=True)
    shutil.copy(program, folder / "real" / program.name)
    script = folder / program.name
    text = _PROGRAM.replace("FOLDER", libraries).replace("LOADER", LOADER)
    script.write_text(text.replace("NAME", program.name))
    script.chmod(0o755)
