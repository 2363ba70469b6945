"""The gRPC services the SDK talks to: ResourceMonitor and Engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NoReturn

import grpc
from google.protobuf import empty_pb2

from divvy.engine.deployment import Deployment
from divvy.engine.errors import EngineError, NotAdmitted
from divvy.engine.goal import goal_from
from divvy.engine.state.resource import ResourceState
from divvy.engine.subset import LEADS_ON
from divvy.engine.urn import make_urn, urn_name
from divvy.engine.values import UNKNOWN, from_struct, to_struct, unwrapped
from divvy.engine.wire import engine_pb2, engine_pb2_grpc, resource_pb2, resource_pb2_grpc

# The SDK adapts to what is absent.
FEATURES = {
    "secrets": resource_pb2.RESOURCE_MONITOR_FEATURE_SECRETS,
    "resourceReferences": resource_pb2.RESOURCE_MONITOR_FEATURE_RESOURCE_REFERENCES,
    "aliasSpecs": resource_pb2.RESOURCE_MONITOR_FEATURE_ALIAS_SPECS,
}
_LIMIT = [("grpc.max_receive_message_length", 400 << 20), ("grpc.max_send_message_length", -1)]
_SEVERITY = {0: "debug", 1: "info", 2: "warning", 3: "error"}


class Monitor(resource_pb2_grpc.ResourceMonitorServicer, engine_pb2_grpc.EngineServicer):  # type: ignore[misc]
    """Serves one run of one program."""

    def __init__(
        self,
        deployment: Deployment,
        *,
        project: str,
        stack: str,
        preview: bool,
        parallel: int,
        config: Mapping[str, str],
        secret_keys: tuple[str, ...],
        message: Callable[[str, str, str], None],
    ) -> None:
        self._deployment = deployment
        self._project = project
        self._stack = stack
        self._preview = preview
        self._parallel = parallel
        self._config = config
        self._secret_keys = secret_keys
        self._message = message
        self._root = ""
        self.complete = threading.Event()

    def GetDeploymentInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return project, stack, configuration and supported features."""
        return resource_pb2.DeploymentInfo(
            project=self._project,
            stack=self._stack,
            organization="organization",
            config=self._config,
            configSecretKeys=self._secret_keys,
            dryRun=self._preview,
            parallel=self._parallel,
            supportedFeatures=sorted(FEATURES.values()),
        )

    def SupportsFeature(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return whether a feature is supported."""
        return resource_pb2.SupportsFeatureResponse(hasSupport=request.id in FEATURES)

    def RegisterPackage(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return a package's reference; the engine has its own providers."""
        if request.HasField("parameterization"):
            self._refuse(context, f"the parameterized package {request.name} {LEADS_ON}")
        return resource_pb2.RegisterPackageResponse(ref=f"{request.name}@{request.version}")

    def RegisterResource(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Bring one resource to its desired state."""
        try:
            goal = goal_from(request, self._stack, self._project)
            resource = self._deployment.register(goal)
        except Exception as problem:
            self._failed(context, urn_of(request, self._stack, self._project), problem)
        return self._registered(resource, accept_secrets=request.acceptSecrets)

    def RegisterResourceOutputs(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Record the outputs of a component or of the stack."""
        try:
            self._deployment.register_outputs(request.urn, from_struct(request.outputs))
        except Exception as problem:
            self._failed(context, request.urn, problem)
        return empty_pb2.Empty()

    def ReadResource(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Refuse to read a resource that the stack does not own, by name."""
        self._refuse(context, f"{request.name}: `.get()` {LEADS_ON}")

    def Invoke(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Refuse a function of a provider, by name."""
        self._refuse(context, f"the function {request.tok} {LEADS_ON}")

    StreamInvoke = Invoke

    def Call(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Refuse a method of a component, by name."""
        self._refuse(context, f"the method {request.tok} {LEADS_ON}")

    def RegisterStackTransform(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Refuse a transform of all resources, or of all functions."""
        self._refuse(context, f"a stack transform {LEADS_ON}")

    RegisterStackInvokeTransform = RegisterStackTransform

    def RegisterResourceHook(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Refuse a resource hook, by name."""
        self._refuse(context, f"the resource hook {request.name} {LEADS_ON}")

    def SignalAndWaitForShutdown(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Note that the program ran to its end; there are no hooks to wait for."""
        self.complete.set()
        return empty_pb2.Empty()

    def Log(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Pass a message of the program on."""
        self._message(_SEVERITY.get(request.severity, "info"), request.message, request.urn)
        return empty_pb2.Empty()

    def GetRootResource(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return the stack resource."""
        return engine_pb2.GetRootResourceResponse(urn=self._root)

    def SetRootResource(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Remember the stack resource."""
        self._root = request.urn
        return engine_pb2.SetRootResourceResponse()

    def RequirePulumiVersion(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Accept any range, and say so: the engine is not a release of Pulumi."""
        wanted = request.pulumi_version_range
        text = f"the program requires Pulumi {wanted}; Divvy's engine ignores that"
        self._message("info", text, "")
        return engine_pb2.RequirePulumiVersionResponse()

    def _registered(self, resource: ResourceState, *, accept_secrets: bool) -> Any:
        outputs = dict(resource.outputs) if resource.custom else {}
        identity = resource.id
        if resource.custom and not identity and self._preview:
            identity = UNKNOWN
        if not accept_secrets:
            outputs = unwrapped(outputs)
        return resource_pb2.RegisterResourceResponse(
            urn=resource.urn,
            id="" if identity == UNKNOWN else identity,
            object=to_struct(outputs),
            result=resource_pb2.SUCCESS,
        )

    def _failed(self, context: Any, urn: str, problem: Exception) -> NoReturn:
        text = str(problem)
        if not isinstance(problem, EngineError):
            text = f"the engine failed: {type(problem).__name__}: {problem}"
        if not isinstance(problem, NotAdmitted):  # the reasons are reported already
            self._deployment.failed(urn, text)
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{urn_name(urn)}: {text}")
        raise AssertionError  # abort has raised

    def _refuse(self, context: Any, text: str) -> None:
        self._deployment.failed("program", text)
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)


def urn_of(request: Any, stack: str, project: str) -> str:
    """Return the URN of the resource that a request is about."""
    return make_urn(stack, project, request.parent, request.type, request.name)


@contextmanager
def serving(monitor: Monitor, workers: int) -> Iterator[str]:
    """Serve on a loopback port and yield the address; every handler has ended afterwards.

    Steps that are under way when the program ends, or is interrupted, are waited for, so that
    they are recorded.
    """
    pool = ThreadPoolExecutor(max_workers=workers)
    server = grpc.server(pool, options=_LIMIT)
    resource_pb2_grpc.add_ResourceMonitorServicer_to_server(monitor, server)
    engine_pb2_grpc.add_EngineServicer_to_server(monitor, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        stopped, ended = server.stop(None), threading.Event()

        def end() -> None:
            stopped.wait()
            pool.shutdown(wait=True)
            ended.set()

        # In a thread, as an interrupted join takes a thread that still runs for one that has ended.
        threading.Thread(target=end).start()
        try:
            ended.wait()
        except KeyboardInterrupt:
            ended.wait()
            raise
