"""What pyproject.toml cannot say of the build: gRPC stubs are generated into the wheel."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

API = Path("divvy/agent/kubelet/api")


class BuildWithStubs(build_py):
    """Generates the stubs of the kubelet's interfaces; in a checkout, set-up has done so."""

    def run(self) -> None:
        """Copy the packages, and put the stubs beside them."""
        super().run()
        if self.editable_mode:
            return
        from grpc_tools import protoc  # noqa: PLC0415 (only a wheel needs it)

        outputs = [
            f"--{kind}={self.build_lib}" for kind in ("python_out", "pyi_out", "grpc_python_out")
        ]
        protos = [str(path) for path in sorted(API.glob("*.proto"))]
        # Paths from the root make the stubs import each other as divvy.agent.kubelet.api.….
        if protoc.main(["protoc", "-I.", *outputs, *protos]):
            raise SystemExit(f"the gRPC stubs of {API} cannot be generated")


setup(cmdclass={"build_py": BuildWithStubs})
