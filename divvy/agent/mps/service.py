"""The MPS daemons of a node: each GPU that is to have one is brought to it, and back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from divvy.agent.mps.daemon import MpsDaemon, NoAnswer
from divvy.agent.mps.record import MpsRecord, Recorded
from divvy.agent.mps.shared_memory import mount_memory
from divvy.agent.mps.supervision import (
    ASK_SECONDS,
    EXCLUSIVE_PROCESS,
    Ceiling,
    Life,
    Seen,
    Step,
    next_step,
    problem,
)
from divvy.agent.nvml.driver import Driver
from divvy.agent.nvml.process import DriverProblem

_log = logging.getLogger(__name__)
_STARTING_SECONDS = 0.1
# With the pause between two questions: a daemon that fails is known to within a second.
_SILENCE_SECONDS = 0.5
_MODE_SECONDS = 2.0
# A pod that ends has 5 seconds; the driver's answer may take some of them.
_STOP_SECONDS = 1.0


@dataclass
class _Supervised:
    """One GPU, as its supervisor knows it."""

    uuid: str
    daemon: MpsDaemon
    woken: asyncio.Event
    life: Life = field(default_factory=Life)
    mode: int | None = None
    mode_at: float = 0.0
    told: str | None = None
    ended: bool = False


@dataclass(frozen=True)
class MpsFigures:
    """What metrics show of one GPU's daemon."""

    uuid: str
    ready: bool
    starts: int


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
        self._wanted: Mapping[str, Ceiling] = {}
        self._told = False  # what is wanted: before that, what an agent before left stays
        self._supervised: dict[str, _Supervised] = {}
        self._woken = asyncio.Event()

    @property
    def gpus(self) -> frozenset[str]:
        """Return the GPUs that have a daemon, or the compute mode that was set for one."""
        return frozenset(self._record.gpus)

    @property
    def figures(self) -> tuple[MpsFigures, ...]:
        """Return how the daemons are that are wanted."""
        return tuple(
            MpsFigures(uuid, not self.problem(uuid), self._life(uuid).starts)
            for uuid in sorted(self._wanted)
        )

    def pipes(self, uuid: str) -> Path:
        """Return the folder of a GPU's sockets, which has the same path on the host."""
        return self._folder / uuid / "pipe"

    def memory(self, uuid: str) -> Path:
        """Return what is /dev/shm to a GPU's daemon and its clients, mounted; raises OSError."""
        folder = self._memory / uuid
        mount_memory(folder)
        return folder

    def servers(self, uuid: str) -> frozenset[int]:
        """Return the PIDs of a GPU's servers."""
        one = self._supervised.get(uuid)
        return frozenset() if one is None else one.daemon.servers

    def problem(self, uuid: str) -> str:
        """Say why no container can be a client of a GPU's daemon now, "" where it can."""
        one = self._supervised.get(uuid)
        seen = Seen(None, None, alive=False) if one is None else self._seen(one)
        return problem(self._wanted.get(uuid), seen, self._life(uuid))

    def want(self, wanted: Mapping[str, Ceiling]) -> None:
        """Have daemons for these GPUs from now on, and for no other."""
        if wanted == self._wanted and self._told:
            return
        self._wanted, self._told = dict(wanted), True
        self._woken.set()
        for one in self._supervised.values():
            one.woken.set()

    async def run(self) -> None:
        """Supervise every GPU that has a daemon or is to have one; never returns."""
        tasks: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                self._woken.clear()
                for uuid in {*self._wanted, *self._record.gpus} if self._told else ():
                    if uuid not in tasks or tasks[uuid].done():
                        tasks[uuid] = group.create_task(self._supervise(uuid))
                await self._woken.wait()

    async def stop(self) -> None:
        """End all daemons and restore what was set for them."""
        self._wanted = {}
        await asyncio.gather(*(self._undo(self._one(uuid)) for uuid in self._record.gpus))

    async def _undo(self, one: _Supervised) -> None:
        with contextlib.suppress(NoAnswer, TimeoutError):
            if one.daemon.alive:
                async with asyncio.timeout(_STOP_SECONDS):
                    await one.daemon.quit()
        one.daemon.gone()
        recorded = self._record.gpus[one.uuid]
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._set_mode(one, recorded.mode)
            self._record.clear(one.uuid)
        except (DriverProblem, TimeoutError, OSError) as error:
            _log.warning("GPU %s: its compute mode is not restored: %s", one.uuid, error)

    def _daemon(self, uuid: str, on_end: Callable[[], None]) -> MpsDaemon:
        return MpsDaemon(self._root, self._folder / uuid, self._memory / uuid, uuid, on_end)

    def _one(self, uuid: str) -> _Supervised:
        if uuid not in self._supervised:
            woken = asyncio.Event()
            daemon = self._daemon(uuid, woken.set)
            self._supervised[uuid] = _Supervised(uuid, daemon, woken)
            recorded = self._record.gpus.get(uuid)
            if recorded is not None and recorded.pid:
                daemon.adopt(recorded.pid, recorded.started)
        return self._supervised[uuid]

    async def _supervise(self, uuid: str) -> None:
        one = self._one(uuid)
        while True:
            one.woken.clear()
            await self._read_mode(one)
            self._notice_end(one)
            seen = self._seen(one)
            wanted = self._wanted.get(uuid)
            if wanted is None and seen.recorded is None:
                del self._supervised[uuid]
                self._on_change()
                return
            step = next_step(wanted, seen, one.life, monotonic())
            await self._take(one, step)
            self._notice_end(one)
            self._tell(one)
            if step in (Step.ASK, Step.WAIT):
                starting = one.life.answered is None and one.daemon.alive
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_STARTING_SECONDS if starting else ASK_SECONDS):
                        await one.woken.wait()

    def _life(self, uuid: str) -> Life:
        one = self._supervised.get(uuid)
        return Life() if one is None else one.life

    def _seen(self, one: _Supervised) -> Seen:
        return Seen(self._record.gpus.get(one.uuid), one.mode, one.daemon.alive)

    def _tell(self, one: _Supervised) -> None:
        said = self.problem(one.uuid)
        if said != one.told:
            one.told = said
            _log.info("GPU %s: %s", one.uuid, said or "its MPS daemon answers")
            self._on_change()

    def _notice_end(self, one: _Supervised) -> None:
        """Take note of a daemon that ended by itself; one that was asked to has its time."""
        known = one.life.started is not None or one.life.silent is not None
        if one.daemon.alive or not known:
            return
        words = one.daemon.last_words()
        asked = one.life.quit_at is not None
        one.daemon.gone()
        one.life = Life() if asked else one.life.failed(f"it ended: {words}", monotonic())
        self._tell(one)

    async def _read_mode(self, one: _Supervised) -> None:
        now = monotonic()
        if one.mode is not None and now - one.mode_at < _MODE_SECONDS:
            return
        one.mode = None
        snapshot = self._driver.snapshot
        gpu = None if snapshot is None else snapshot.gpu(one.uuid)
        if gpu is None or not gpu.present or self._driver.problem:
            return
        with contextlib.suppress(DriverProblem):
            one.mode, one.mode_at = await self._driver.compute_mode(gpu), now

    async def _set_mode(self, one: _Supervised, mode: int) -> None:
        snapshot = self._driver.snapshot
        gpu = None if snapshot is None else snapshot.gpu(one.uuid)
        if gpu is None:
            raise DriverProblem("the driver does not show the GPU")
        await self._driver.change("set_compute_mode", gpu, mode=mode)
        one.mode, one.mode_at = mode, monotonic()

    async def _take(self, one: _Supervised, step: Step) -> None:
        try:
            match step:
                case Step.RECORD:
                    assert one.mode is not None
                    self._record.note(one.uuid, Recorded(one.mode))
                    self._on_change()
                case Step.EXCLUDE:
                    await self._set_mode(one, EXCLUSIVE_PROCESS)
                case Step.START:
                    self._start(one)
                case Step.ASK | Step.LIMIT | Step.QUIT:
                    await self._talk(one, step)
                case Step.KILL:
                    self._kill(one)
                case Step.RESTORE:
                    one.daemon.gone()
                    await self._set_mode(one, self._record.gpus[one.uuid].mode)
                case Step.FORGET:
                    one.daemon.forget()
                    self._record.clear(one.uuid)
                case Step.WAIT:
                    one.daemon.trim()
        except (DriverProblem, OSError) as error:
            one.life = one.life.failed(str(error), monotonic())

    def _start(self, one: _Supervised) -> None:
        pid, started = one.daemon.start()
        one.life = one.life.begun(monotonic())
        try:
            self._record.process(one.uuid, pid, started)
        except OSError:
            # An agent that starts after a crash of this one would not find it.
            one.daemon.gone()
            raise

    def _kill(self, one: _Supervised) -> None:
        asked = one.life.quit_at is not None
        one.daemon.gone()
        one.life = Life() if asked else one.life.failed("it did not answer", monotonic())

    async def _ask(self, one: _Supervised) -> None:
        """Ask a daemon; raises NoAnswer. Silence is told long before it is no answer any more."""
        asking = asyncio.ensure_future(one.daemon.ask())
        try:
            await asyncio.wait({asking}, timeout=_SILENCE_SECONDS)
            if not asking.done():
                one.life = one.life.unheard(monotonic())
                self._tell(one)
            await asking
        finally:
            asking.cancel()

    async def _talk(self, one: _Supervised, step: Step) -> None:
        wanted = self._wanted.get(one.uuid)
        try:
            if step is Step.QUIT:
                one.life = one.life.quitting(monotonic())
                await one.daemon.quit()
            elif step is Step.LIMIT and wanted is not None:
                await one.daemon.limit(wanted)
                one.life = one.life.limited(wanted)
            else:
                await self._ask(one)
                one.life = one.life.heard(monotonic())
        except NoAnswer as no_answer:
            if step is not Step.QUIT and one.daemon.alive:
                one.life = one.life.unheard(monotonic())
                _log.debug("GPU %s: its MPS daemon: %s", one.uuid, no_answer)
