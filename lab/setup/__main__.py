"""Set this machine up: `python3 -m lab.setup`.

With `python`, `lab` or `pulumi` (the lab with Pulumi) for less, with `all` for what the tests of
`make test-all` need as well.
"""

import sys


def main(arguments: list[str]) -> int:
    """Run the steps and return the exit code."""
    # Set-up is what an unfit Python is met with first, so it must say so itself.
    if sys.version_info < (3, 11):  # noqa: UP036
        print(f"Python 3.11 or later is needed; this is {sys.version.split()[0]}.", file=sys.stderr)
        return 1
    from lab.cluster.paths import cache
    from lab.setup import machine, parts, python
    from lab.setup.steps import Step, run_steps

    if arguments not in ([], ["lab"], ["pulumi"], ["python"], ["all"]):
        words = "Say python, lab, pulumi, all or nothing."
        print(f"Unknown: {' '.join(arguments)}. {words}", file=sys.stderr)
        return 2
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
    from lab.cluster.images import BASE_ARM64, IMAGES
    from lab.cluster.tools import (
        LAB_TOOLS,
        OTHER_RELEASES,
        PULUMI_TOOLS,
        TEST_TOOLS,
        THOROUGH_TOOLS,
    )

    beside = {"lab": (), "pulumi": PULUMI_TOOLS}.get("".join(arguments), TEST_TOOLS)
    tools = LAB_TOOLS + beside
    built, images, packages = [*tools], [*IMAGES.values()], [*machine.PACKAGES]
    if arguments == ["all"]:
        built += OTHER_RELEASES + THOROUGH_TOOLS
        images.append(BASE_ARM64)
        packages += machine.THOROUGH_PACKAGES
    if not run_steps([Step("Debian packages", lambda: machine.ensure_packages(packages))]):
        return 1
    # Go compiles for minutes on all processors; what the rest waits for is the network.
    compiled = [Step(f"Go tools: {tool.name}", parts.build_tool(tool)) for tool in built]
    rest = [
        *of_python,
        *(Step(f"image: {image.name}", parts.build_image(image)) for image in images),
        Step("simulated driver", parts.build_simulator),
    ]
    if not run_steps(compiled, rest):
        return 1
    linked = [Step("commands in .venv/bin", parts.link_commands(tools))]
    if arguments == ["pulumi"]:
        linked.append(Step("Pulumi in .venv/bin", parts.install_pulumi))
    if not run_steps(linked):
        return 1
    print(f"Set up. The cache {cache()} holds {parts.cache_size(cache())}.")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        again = "Finished steps are not repeated: run make setup again."
        print(f"\ninterrupted. {again}", file=sys.stderr)
        sys.exit(130)
