"""Run small pods on one node and read what came of them."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.cluster.api import Api, is_momentary
from conformance.cluster.image_pull import FOREIGN, ImagePulls
from conformance.cluster.pod_spec import OWN, WORKING, Level, PodRequest, pod_spec
from conformance.cluster.pod_watch import PodWatch
from conformance.skips import not_made
from divvy.kube.errors import FORBIDDEN, INVALID, NOT_FOUND, ApiError, KubeError
from divvy.kube.kind import EVENT, NODE, POD
from divvy.model.conditions import refused_place
from divvy.model.pod_phase import FINISHED

_SHORTEST, _LONGEST = 0.2, 1.0
_LOG_AGE = 0.5
_OWN_NAME = re.compile(r"\bc-[0-9a-f]{8}\b")


@dataclass(frozen=True)
class Outcome:
    """How a pod ended: its phase, exit code (None: it never ran), log, and why it failed."""

    phase: str
    code: int | None
    log: str
    reason: str

    def __str__(self) -> str:
        return (
            f"phase {self.phase}, exit code {self.code}{f', {self.reason}' if self.reason else ''}"
        )


class PodNamespace:
    """A namespace of one run, where pods of one level of Pod Security run."""

    def __init__(
        self,
        api: Api,
        image: str,
        name: str,
        level: Level,
        priority_class: str,
        pull_secrets: Sequence[str] = (),
        pulls: ImagePulls | None = None,
    ) -> None:
        self.api = api
        self._image = image
        self._level = level
        self._priority_class = priority_class
        self._pull_secrets = tuple(pull_secrets)
        self._pulls = pulls or ImagePulls()
        self._watch = PodWatch(api, name)
        self._logs: dict[str, tuple[float, str]] = {}
        self.name = name

    def start(
        self, node: str, command: Sequence[str] | None, resource: str | None = None, **more: Any
    ) -> str:
        """Create a pod that runs a command on a node and return its name.

        ``more`` are further fields of a PodRequest; without a command the image's own program runs.
        """
        request = PodRequest(
            node, **{"image": self._image, "command": command, "resource": resource} | more
        )
        try:
            self._pulls.require(node, request.image, lambda: self._pull(node, request.image))
            return self._create(request)
        except ApiError as problem:
            message = without_names(str(problem))
            if is_of_rules(problem):
                not_made(f"the cluster does not admit our {self._level} pod: {message}")
            if problem.code == NOT_FOUND:
                not_made(f"somebody has removed the namespace of the run: {message}")
            raise

    def _create(self, request: PodRequest) -> str:
        name = f"c-{secrets.token_hex(4)}"
        metadata: Any = {"name": name, "namespace": self.name, "labels": OWN}
        spec = pod_spec(request, self._level, self._priority_class, self._pull_secrets)
        pod = {"metadata": metadata, "spec": spec}
        self._watch.add(name, self.api.create(POD, pod) or pod)
        return name

    def _pull(self, node: str, image: str) -> str:
        """Have a node pull an image, in its own time; return what prevents it, "" if nothing."""
        name = self._create(PodRequest(node, image, ["true"]))
        try:
            why = self._pulls.wait(lambda: self._last(name), lambda: self.log(name))
        finally:
            self.remove(name)
        return self._foreign(node, image) if why == FOREIGN else why

    def _last(self, name: str) -> Mapping[str, Any]:
        self._require_run()
        return self._watch.last(name)

    def _require_run(self) -> None:
        """Skip what the end of the run has overtaken: nobody tells any more of its pods."""
        if self._watch.is_over:
            not_made("the run was stopped")

    def _foreign(self, node: str, image: str) -> str:
        info = self.api.get(NODE, node)["status"].get("nodeInfo") or {}
        architecture = info.get("architecture") or "of unknown architecture"
        return (
            f"the node is {architecture}, and {image} is not for it: give one that is, "
            "or one for several architectures"
        )

    def run(
        self,
        node: str,
        command: Sequence[str] | None,
        resource: str | None = None,
        seconds: float = 60,
        **more: Any,
    ) -> Outcome:
        """Run a command in a pod of its own to its end."""
        name = self.start(node, command, resource, **more)
        try:
            return self.wait(name, seconds)
        finally:
            self.remove(name)

    def wait(self, name: str, seconds: float = 60) -> Outcome:
        """Wait for a pod's end; after ``seconds`` return how far it got.

        A pod that the scheduler moved for another one's sake shows nothing: not made.
        """
        if not self.until(lambda: self._ended(name), seconds):
            self._watch.refresh(name)
        pod = self._watch.last(name)
        if self._watch.pod(name) is None and _is_preempted(pod):
            not_made("a pod of the suite was preempted by one of a higher priority")
        # Not from memory: what was read a moment ago may lack its last words.
        log = self.api.log(name, self.name, WORKING, is_last=True)
        return outcome_of(pod, log, is_there=self._watch.pod(name) is not None)

    def until(self, met: Callable[[], bool], seconds: float) -> bool:
        """Wait for something; tell whether it came true. A server that is away may come back."""
        deadline, pause = time.monotonic() + seconds, _SHORTEST
        while not _is_met(met):
            self._require_run()
            if time.monotonic() > deadline:
                return False
            self._watch.wait(pause)
            pause = min(pause * 1.3, _LONGEST)
        return True

    def phase(self, name: str) -> str:
        """Return the phase of a pod, "Deleted" where somebody else has deleted it."""
        if self._watch.pod(name) is None:
            return "Deleted"
        return str((self._watch.last(name).get("status") or {}).get("phase") or "Pending")

    def log(self, name: str) -> str:
        """Return what a pod has printed, "" if nothing yet."""
        read, text = self._logs.get(name, (0.0, ""))
        if time.monotonic() - read < _LOG_AGE:
            return text
        text = self.api.log(name, self.name, WORKING)
        self._logs[name] = (time.monotonic(), text)
        return text

    def events(self, name: str) -> list[str]:
        """Return "Reason: message" of every event about a pod."""
        fields: Any = {"involvedObject.name": name}
        events = self.api.find(EVENT, namespace=self.name, fields=fields)
        return [f"{event.get('reason')}: {event.get('message')}" for event in events]

    def remove(self, *names: str, at_once: bool = False) -> None:
        """Delete pods and wait until their devices are free; ``at_once`` deletes by force."""
        options = {"grace_period": 0} if at_once else {}
        for name in names:
            self.api.delete(POD, name, namespace=self.name, **options)
        for name in names:
            if not self.until(lambda: self._watch.pod(name) is None, 30):  # noqa: B023
                self._watch.refresh(name)

    def refuse(self, node: str, resources: dict[str, Any]) -> str | None:
        """Return how the API server calls a pod with these resources invalid, None if it does not.

        Any other refusal raises: it says nothing about the resources.
        """
        try:
            name = self.start(node, ["true"], None, resources=resources)
        except ApiError as error:
            if error.code == INVALID:
                return str(error)
            raise
        self.remove(name)
        return None

    def denial(self, node: str, resources: dict[str, Any]) -> str | None:
        """Return how admission refuses a pod with these resources, None if it does not."""
        try:
            name = self._create(
                PodRequest(node, image=self._image, command=["true"], resources=resources)
            )
        except ApiError as error:
            if error.code in (FORBIDDEN, INVALID):
                return without_names(str(error))
            raise
        self.remove(name)
        return None

    def container(self, name: str) -> tuple[str, int]:
        """Return the id of a pod's container ("" before it is known) and how often it restarted."""
        status = self._watch.last(name).get("status") or {}
        container = _working(status)
        return str(container.get("containerID") or ""), int(container.get("restartCount") or 0)

    def unschedulable(self, name: str) -> str:
        """Return why the scheduler finds no node for a pod, "" if it has found one."""
        return str(refused_place(self._watch.last(name)).get("message") or "")

    def end(self) -> None:
        """Stop following the pods."""
        self._watch.end()

    def _ended(self, name: str) -> bool:
        return self.phase(name) in (*FINISHED, "Deleted")


def is_turned_away(outcome: Outcome) -> bool:
    """Return whether the kubelet refused a pod for want of the devices that it asked for."""
    return re.search(r"OutOf|UnexpectedAdmission", outcome.reason) is not None


def is_of_rules(problem: ApiError) -> bool:
    """Return whether the cluster's own rules refuse an object: that says nothing of its GPUs."""
    return problem.code == FORBIDDEN or "denied" in str(problem)


def _is_met(met: Callable[[], bool]) -> bool:
    try:
        return met()
    except KubeError as problem:
        if not is_momentary(problem):
            raise
        return False


def without_names(message: str) -> str:
    """Return a refusal without our pod's random name: the same words for every pod."""
    return _OWN_NAME.sub("c-…", message)


def outcome_of(pod: Mapping[str, Any], log: str, *, is_there: bool = True) -> Outcome:
    """Read from a pod's status how it ended or how far it got."""
    status = pod.get("status") or {}
    state = _working(status).get("state") or {}
    ended, waiting = state.get("terminated") or {}, state.get("waiting") or {}
    reasons = [source.get(key) for source in (status, waiting) for key in ("reason", "message")]
    reason = ": ".join(str(part) for part in reasons if part)
    phase = str(status.get("phase") or "Pending")
    reason = reason or str(refused_place(pod).get("message") or "")
    if not is_there and phase not in FINISHED:
        phase, reason = "Deleted", reason or "somebody else deleted it"
    return Outcome(phase, ended.get("exitCode"), log, reason)


def _working(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the status of our container: a cluster may put others beside it."""
    containers = status.get("containerStatuses") or []
    own = (container for container in containers if container.get("name", WORKING) == WORKING)
    return next(own, next(iter(containers), {}))


def _is_preempted(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(
        str(condition.get("reason", "")).startswith("Preemption") for condition in conditions
    )
