"""The MPS daemons of a node: each GPU that is to have one gets it, and loses it again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from time import monotonic

from divvy.agent.gpu.device_id import physical
from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.gpu.holders import Held
from divvy.agent.gpu.transition import Decision
from divvy.agent.mps.answers import NoAnswer, Refused
from divvy.agent.mps.daemon import MpsDaemon
from divvy.agent.mps.desired_daemons import wanted_daemons
from divvy.agent.mps.processes import daemons
from divvy.agent.mps.record import MpsRecord, Recorded
from divvy.agent.mps.shared_memory import mount_memory, used_part
from divvy.agent.mps.supervision import (
    ASK_SECONDS,
    EXCLUSIVE_PROCESS,
    OUTDATED,
    STARTING,
    Ceiling,
    Life,
    Seen,
    Share,
    Step,
    next_step,
    problem_of,
)
from divvy.agent.nvml.driver import Driver
from divvy.agent.nvml.process import DriverProblem
from divvy.model.enforcement import MPS_V3_SINCE
from divvy.model.versions import is_older

_log = logging.getLogger(__name__)
_STARTING_SECONDS = 0.1
# With the pause between two questions: a daemon that fails is known to within a second.
_SILENCE_SECONDS = 0.5
_MODE_SECONDS = 2.0
_TIDY_SECONDS = 30.0
# Whoever was given a GPU's /dev/shm is shown as its holder long before so many seconds have passed.
_HELD_SECONDS = 60.0
_MEMORY_SECONDS = 5.0
_FULL = 0.9
# A pod that ends has 5 seconds; the driver's answer may take some of them.
_MODE_SECONDS_AT_STOP = 1.0


@dataclass
class _SupervisedGpu:
    """One GPU, as its supervisor knows it."""

    uuid: str
    daemon: MpsDaemon
    woken: asyncio.Event
    life: Life = field(default_factory=Life)
    mode: int | None = None
    mode_at: float = 0.0
    tidied_at: float = 0.0
    patience: float = _SILENCE_SECONDS
    reported: str | None = None
    looked_at: float = 0.0
    full: str = ""


@dataclass(frozen=True)
class MpsFigures:
    """What metrics show of one GPU's daemon, and how much of its /dev/shm is taken (0 to 1)."""

    uuid: str
    ready: bool
    starts: int
    memory_used: float = 0.0


class Mps:
    """Keeps the daemons that are wanted; ``on_change`` is called when one comes, fails or goes."""

    def __init__(
        self,
        root: Path,
        state_folder: Path,
        memory_folder: Path,
        driver: Driver,
        on_change: Callable[[], None],
    ) -> None:
        self._root = root
        self._folder = state_folder / "mps"
        self._memory = memory_folder
        self._driver = driver
        self._on_change = on_change
        self._record = MpsRecord(state_folder)
        folders = (self._folder, self._memory)
        self._record.add_leftovers(daemons(self._folder), chain(*map(_gpus_below, folders)))
        self._wanted: Mapping[str, Ceiling] = {}
        self._knows_wanted = False  # before that, what an agent before left stays
        self._holders_known = False
        self._began = monotonic()
        self._held: frozenset[str] | None = None  # GPUs that somebody holds; None: not known
        self._given: dict[str, float] = {}  # when a container was given a GPU's memory last
        self._gpus: dict[str, _SupervisedGpu] = {}
        self._woken = asyncio.Event()

    @property
    def gpus(self) -> frozenset[str]:
        """Return the GPUs that have a daemon, or the compute mode that was set for one."""
        return frozenset(self._record.gpus)

    @property
    def started(self) -> frozenset[str]:
        """Return the GPUs for which a daemon was started that has not been ended in order."""
        return frozenset(uuid for uuid, gpu in self._record.gpus.items() if gpu.pid)

    @property
    def figures(self) -> tuple[MpsFigures, ...]:
        """Return how the daemons are that are wanted."""
        return tuple(
            MpsFigures(
                uuid,
                not self.problem(uuid),
                self._life(uuid).starts,
                used_part(self._memory / uuid),
            )
            for uuid in sorted(self._wanted)
        )

    def pipes(self, uuid: str, share: str) -> Path:
        """Return the folder of the socket of a GPU's share; it has the same path on the host."""
        return self._supervised_gpu(uuid).daemon.pipes_of(share)

    def serves(self, uuid: str, pipes: Path) -> bool:
        """Return whether a container that was given this folder of sockets reaches the daemon."""
        return self._supervised_gpu(uuid).daemon.serves(pipes)

    def memory(self, uuid: str) -> Path:
        """Return what is /dev/shm to a GPU's daemon and its clients, mounted; raises OSError."""
        self._given[uuid] = monotonic()
        folder = self._memory / uuid
        mount_memory(folder)
        return folder

    def full(self, uuid: str) -> str:
        """Return that a GPU's /dev/shm has no room left for long, "" if it has."""
        supervised = self._gpus.get(uuid)
        return "" if supervised is None else supervised.full

    def servers(self, uuid: str) -> frozenset[int]:
        """Return the PIDs of a GPU's servers."""
        supervised = self._gpus.get(uuid)
        return frozenset() if supervised is None else supervised.daemon.servers

    def as_started(self, uuid: str, share: Share) -> Share:
        """Return a share with the limits that its last container was started with."""
        return self._supervised_gpu(uuid).daemon.as_started(share)

    async def prepare(self, uuid: str, share: Share, *, alone: bool) -> None:
        """Make a GPU's daemon ready for a container that starts with a share; raises NoAnswer.

        It is ``alone`` if no other container holds a share of the GPU.
        """
        supervised = self._gpus[uuid]
        ceiling = self._wanted_of(supervised)
        if ceiling is None:
            raise NoAnswer(self.problem(uuid))
        try:
            await supervised.daemon.prepare(share, ceiling, alone=alone)
        except NoAnswer:
            # It may have started a server, and not yet made the namespaces of other containers.
            supervised.life = supervised.life.unlimited()
            supervised.woken.set()
            raise
        self._keep_limits(supervised)
        if alone:
            # What others have left is not this container's to read, and would take its room.
            supervised.daemon.remove_left()

    async def terminate(self, uuid: str, client: int) -> None:
        """End what a client of a GPU's daemon has on it, before its process is ended."""
        supervised = self._gpus.get(uuid)
        if supervised is None:
            return
        try:
            await supervised.daemon.terminate(client)
        except NoAnswer as no_answer:
            _log.warning("GPU %s: client %s is not terminated: %s", uuid, client, no_answer)

    def problem(self, uuid: str) -> str:
        """Return why no container can be a client of a GPU's daemon now, "" if it can."""
        if not self._knows_wanted:
            return STARTING
        supervised = self._gpus.get(uuid)
        seen = Seen(None, None, alive=False) if supervised is None else self._seen(supervised)
        return problem_of(self._wanted.get(uuid), seen, self._life(uuid))

    def _wanted_of(self, supervised: _SupervisedGpu) -> Ceiling | None:
        """Return what is wanted of a daemon: it has namespaces for shares, or knows of none."""
        wanted = self._wanted.get(supervised.uuid)
        if wanted is None or supervised.daemon.has_namespaces:
            return wanted
        return replace(wanted, shares=())

    def consider(
        self, decisions: Mapping[str, Decision], snapshot: Snapshot, held: Held | None
    ) -> None:
        """Have the daemons that decisions and holders ask for; ``held`` None: not known."""
        self._held = None if held is None else frozenset(map(physical, held))
        wanted = wanted_daemons(decisions, snapshot, held, self.started)
        self.want(wanted, holders_known=held is not None)

    def want(self, wanted: Mapping[str, Ceiling], *, holders_known: bool = True) -> None:
        """Have daemons for these GPUs from now on, and for no other.

        While it is not known who holds what, the folders of others stay: containers have them.
        """
        last = self._wanted, self._holders_known
        if (wanted, holders_known) == last and self._knows_wanted:
            return
        self._wanted, self._knows_wanted = dict(wanted), True
        self._holders_known = holders_known
        self._woken.set()
        for supervised in self._gpus.values():
            supervised.woken.set()

    async def run(self) -> None:
        """Supervise every GPU that has a daemon or is to have one; never returns."""
        tasks: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                self._woken.clear()
                for uuid in {*self._wanted, *self._record.gpus} if self._knows_wanted else ():
                    if uuid not in tasks or tasks[uuid].done():
                        tasks[uuid] = group.create_task(self._supervise(uuid))
                await self._woken.wait()

    async def stop(self) -> None:
        """End all daemons and restore what was set for them."""
        self._wanted = {}
        await asyncio.gather(
            *(self._undo(self._supervised_gpu(uuid)) for uuid in self._record.gpus)
        )

    async def _undo(self, supervised: _SupervisedGpu) -> None:
        with contextlib.suppress(NoAnswer):
            if supervised.daemon.alive:
                await supervised.daemon.quit()
        supervised.daemon.gone()
        recorded = self._record.gpus[supervised.uuid]
        try:
            async with asyncio.timeout(_MODE_SECONDS_AT_STOP):
                await self._set_mode(supervised, recorded.mode)
            # It stays recorded: containers still have the daemon's folders.
            self._record.set_process(supervised.uuid, None)
        except (DriverProblem, TimeoutError, OSError) as error:
            _log.warning("GPU %s: its compute mode is not restored: %s", supervised.uuid, error)

    def _daemon(self, uuid: str, on_end: Callable[[], None]) -> MpsDaemon:
        return MpsDaemon(self._root, self._folder / uuid, self._memory / uuid, uuid, on_end)

    def _supervised_gpu(self, uuid: str) -> _SupervisedGpu:
        if uuid not in self._gpus:
            woken = asyncio.Event()
            daemon = self._daemon(uuid, woken.set)
            self._gpus[uuid] = _SupervisedGpu(uuid, daemon, woken)
            recorded = self._record.gpus.get(uuid)
            if recorded is not None:
                daemon.remember(recorded.limits)
            if recorded is not None and recorded.pid:
                daemon.adopt(recorded.process)
        return self._gpus[uuid]

    async def _supervise(self, uuid: str) -> None:
        supervised = self._supervised_gpu(uuid)
        while True:
            supervised.woken.clear()
            await self._read_mode(supervised)
            self._notice_end(supervised)
            seen = self._seen(supervised)
            wanted = self._wanted_of(supervised)
            if wanted is None and seen.recorded is None:
                del self._gpus[uuid]
                self._on_change()
                return
            step = next_step(wanted, seen, supervised.life, monotonic())
            await self._take(supervised, step)
            self._notice_end(supervised)
            self._look_at_memory(supervised)
            self._report(supervised)
            if step in (Step.ASK, Step.WAIT):
                starting = supervised.life.answered is None and supervised.daemon.alive
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_STARTING_SECONDS if starting else ASK_SECONDS):
                        await supervised.woken.wait()

    def _look_at_memory(self, supervised: _SupervisedGpu) -> None:
        """Remove what containers have left where none holds a share, and notice if it fills up."""
        now, uuid = monotonic(), supervised.uuid
        if now - supervised.looked_at < _MEMORY_SECONDS:
            return
        supervised.looked_at = now
        is_given = now - self._given.get(uuid, self._began) < _HELD_SECONDS
        is_free = self._held is not None and uuid not in self._held and not is_given
        try:
            if is_free and supervised.daemon.remove_left():
                _log.info("GPU %s: what containers left in its /dev/shm is removed", uuid)
        except NoAnswer as no_answer:
            _log.warning("GPU %s: %s", uuid, no_answer)
        used = supervised.daemon.memory_used
        full = (
            f"the /dev/shm of its containers, {self._memory / uuid}, is {100 * _FULL:.0f} % full "
            "or more: without room no further container becomes a client of MPS"
            if used >= _FULL
            else ""
        )
        if full != supervised.full:
            supervised.full = full
            self._on_change()

    def _life(self, uuid: str) -> Life:
        supervised = self._gpus.get(uuid)
        return Life() if supervised is None else supervised.life

    def _seen(self, supervised: _SupervisedGpu) -> Seen:
        recorded = self._record.gpus.get(supervised.uuid)
        return Seen(
            recorded,
            supervised.mode,
            supervised.daemon.alive,
            self._driver_version,
            self._holders_known,
        )

    @property
    def _driver_version(self) -> str:
        snapshot = self._driver.snapshot
        return "" if snapshot is None or self._driver.problem else snapshot.driver_version

    def _report(self, supervised: _SupervisedGpu) -> None:
        problem = self.problem(supervised.uuid)
        if problem != supervised.reported:
            supervised.reported = problem
            _log.info("GPU %s: %s", supervised.uuid, problem or "its MPS daemon answers")
            self._on_change()

    def _notice_end(self, supervised: _SupervisedGpu) -> None:
        """Take note of a daemon that ended by itself; one that was asked to has its time."""
        life = supervised.life
        has_run = life.started is not None or life.silent is not None
        if supervised.daemon.alive or not has_run:
            return
        words = supervised.daemon.last_words()
        supervised.daemon.gone()
        ended = life.failed(f"it ended: {words}", monotonic())
        supervised.life = ended if life.quit_at is None else Life()
        self._report(supervised)

    async def _read_mode(self, supervised: _SupervisedGpu) -> None:
        now = monotonic()
        if supervised.mode is not None and now - supervised.mode_at < _MODE_SECONDS:
            return
        supervised.mode = None
        snapshot = self._driver.snapshot
        gpu = None if snapshot is None else snapshot.gpu(supervised.uuid)
        if gpu is None or not gpu.present or self._driver.problem:
            return
        with contextlib.suppress(DriverProblem):
            supervised.mode, supervised.mode_at = await self._driver.compute_mode(gpu), now

    async def _set_mode(self, supervised: _SupervisedGpu, mode: int) -> None:
        snapshot = self._driver.snapshot
        gpu = None if snapshot is None else snapshot.gpu(supervised.uuid)
        if gpu is None:
            raise DriverProblem("the driver does not show the GPU")
        await self._driver.change("set_compute_mode", gpu, mode=mode)
        supervised.mode, supervised.mode_at = mode, monotonic()

    async def _take(self, supervised: _SupervisedGpu, step: Step) -> None:
        try:
            match step:
                case Step.RECORD:
                    assert supervised.mode is not None
                    self._record.note(supervised.uuid, Recorded(supervised.mode))
                    self._on_change()
                case Step.EXCLUDE:
                    await self._set_mode(supervised, EXCLUSIVE_PROCESS)
                case Step.START:
                    self._start(supervised)
                case Step.ASK | Step.LIMIT | Step.QUIT:
                    await self._talk(supervised, step)
                case Step.KILL:
                    self._kill(supervised)
                case Step.RESTORE:
                    supervised.daemon.gone()
                    await self._set_mode(supervised, self._record.gpus[supervised.uuid].mode)
                case Step.FORGET:
                    supervised.daemon.forget()
                    self._record.clear(supervised.uuid)
                case Step.WAIT:
                    supervised.daemon.trim()
        except (DriverProblem, OSError) as error:
            supervised.life = supervised.life.failed(str(error), monotonic())

    def _start(self, supervised: _SupervisedGpu) -> None:
        driver = self._driver_version
        version_3 = bool(driver) and not is_older(driver, MPS_V3_SINCE)
        process = supervised.daemon.start(version_3=version_3)
        supervised.life = supervised.life.starting(monotonic())
        try:
            self._record.set_process(supervised.uuid, process, driver)
        except OSError:
            # An agent that starts after a crash of this one would not find it.
            supervised.daemon.gone()
            raise

    def _kill(self, supervised: _SupervisedGpu) -> None:
        life = supervised.life
        why = OUTDATED if self._seen(supervised).outdated else "it did not answer"
        supervised.daemon.gone()
        killed = life.failed(why, monotonic())
        supervised.life = killed if life.quit_at is None else Life()

    async def _ask(self, supervised: _SupervisedGpu) -> None:
        """Ask a daemon; raises NoAnswer. Silence is reported long before it counts as no answer."""
        asking, began = asyncio.ensure_future(supervised.daemon.ask()), monotonic()
        try:
            await asyncio.wait({asking}, timeout=supervised.patience)
            if not asking.done():
                supervised.life = supervised.life.unheard(monotonic())
                self._report(supervised)
            await asking
        finally:
            asking.cancel()
            # A daemon that always answers slowly has not become slower.
            supervised.patience = max(_SILENCE_SECONDS, 2 * (monotonic() - began))

    async def _tidy(self, supervised: _SupervisedGpu, wanted: Ceiling) -> None:
        now = monotonic()
        if now - supervised.tidied_at >= _TIDY_SECONDS:
            supervised.tidied_at = now
            await supervised.daemon.tidy(wanted)
            self._keep_limits(supervised)

    def _keep_limits(self, supervised: _SupervisedGpu) -> None:
        """Write with which limits clients were started: they get the same where all has ended."""
        recorded, limits = self._record.gpus.get(supervised.uuid), supervised.daemon.limits
        if recorded is None or recorded.limits == limits:
            return
        try:
            self._record.set_limits(supervised.uuid, limits)
        except OSError as error:  # as long as this agent runs, it knows them
            _log.warning("GPU %s: its limits are not recorded: %s", supervised.uuid, error)

    async def _talk(self, supervised: _SupervisedGpu, step: Step) -> None:
        wanted = self._wanted_of(supervised)
        try:
            if step is Step.QUIT:
                supervised.life = supervised.life.quitting(monotonic())
                await supervised.daemon.quit()
            elif step is Step.LIMIT and wanted is not None:
                await supervised.daemon.limit(wanted)
                self._keep_limits(supervised)
                supervised.life = supervised.life.limited(wanted)
            else:
                await self._ask(supervised)
                supervised.life = supervised.life.heard(monotonic())
                if supervised.daemon.lacks_server:
                    supervised.life = supervised.life.unlimited()
                elif wanted is not None:
                    await self._tidy(supervised, wanted)
        except NoAnswer as no_answer:
            if step is Step.LIMIT and isinstance(no_answer, Refused):
                has_server = not supervised.daemon.lacks_server
                supervised.life = supervised.life.refusing(
                    str(no_answer), monotonic(), has_server=has_server
                )
            elif step is not Step.QUIT and supervised.daemon.alive:
                supervised.life = supervised.life.unheard(monotonic())
                _log.debug("GPU %s: its MPS daemon: %s", supervised.uuid, no_answer)


def _gpus_below(folder: Path) -> Iterator[str]:
    """Yield the GPUs that have a folder there, by UUID; of an unreadable one none."""
    with contextlib.suppress(OSError):
        yield from (entry.name for entry in folder.iterdir() if entry.name.startswith("GPU-"))
