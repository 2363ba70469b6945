"""Set this machine up: `python3 -m divvy.lab.setup`, or with `python` for unit tests alone."""

import sys


def main(arguments: list[str]) -> int:
    """Run the steps and return the exit code."""
    # Set-up is what an unfit Python is met with first, so it must say so itself.
    if sys.version_info < (3, 11):  # noqa: UP036
        print(f"Python 3.11 or later is needed; this is {sys.version.split()[0]}.", file=sys.stderr)
        return 1
    from divvy.lab.paths import cache
    from divvy.lab.setup import machine, parts, python
    from divvy.lab.setup.steps import Step, run_steps

    of_python = [
        Step("Python packages", python.ensure_environment),
        Step("gRPC stubs", python.ensure_stubs),
    ]
    if arguments == ["python"]:
        return 0 if run_steps(of_python) else 1
    missing = machine.what_is_missing()
    if missing:
        print(missing, "Unit tests and plans need Python alone: make unit.", file=sys.stderr)
        return 1
    from divvy.lab.images import IMAGES
    from divvy.lab.tools import TOOLS

    steps = [
        Step("Debian packages", machine.ensure_packages),
        *of_python,
        *(Step(f"Go tools: {tool.name}", parts.build_tool(tool)) for tool in TOOLS),
        Step("kubectl and helm in .venv/bin", parts.link_commands),
        *(Step(f"image: {image.name}", parts.build_image(image)) for image in IMAGES.values()),
        Step("simulated driver", parts.build_simulator),
    ]
    if not run_steps(steps):
        return 1
    print(f"Set up. The cache {cache()} holds {parts.cache_size(cache())}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
