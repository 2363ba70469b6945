"""A random walk of tenants on one GPU: honest ones and liars, killed, stopped and forking.

``python -m tests.limiter.walk SEED STEPS``
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from divvy.model.sharing import DeviceShare, Sharing
from lab.cluster.simulated_driver import build
from lab.driver_clients.driver_root import DriverRoot, eventually
from tests.beside import repeating
from tests.limiter.tenant import Tenant, build_limiter

MIB = 1 << 20
SHARES, PROCESSES, LIMIT_MIB, WEIGHT = 4, 3, 1000, 25
# Beside lies, kills and stops, of what as many honest neighbours would leave it.
LEAST_PART = 0.5
TRIES = 3
BURN_MILLISECONDS = 2000
KINDS = ("plain", "managed", "array", "ordered", "pool", "handle", "module", "context")
_TAKE = [*KINDS, "export", "imported", "heap"]
_OUT_OF_MEMORY = -2


class Broken(Exception):
    """A promise was not kept; the text says which."""


@dataclass
class Process:
    """A process of a share, and what it holds."""

    popen: subprocess.Popen[str]
    held: list[int] = field(default_factory=list)
    exported: list[tuple[int, int]] = field(default_factory=list)  # file, MiB

    def order(self, *words: object) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(" ".join(map(str, words)) + "\n")
        self.popen.stdin.flush()

    def answer(self) -> int:
        """Return what came of an order; one that takes longer than a minute hangs."""
        assert self.popen.stdout is not None
        watch = threading.Timer(60, self.popen.kill)
        watch.start()
        text = self.popen.stdout.readline()
        watch.cancel()
        if text == "":
            raise Broken(f"it hangs or died: {self.popen.communicate()[1][-2000:]}")
        return int(text)

    def does(self, *words: object) -> int:
        self.order(*words)
        return self.answer()


@dataclass
class Share:
    """A tenant with its processes."""

    tenant: Tenant
    processes: list[Process] = field(default_factory=list)
    stopped: Process | None = None
    lies: bool = False

    @property
    def page(self) -> Path:
        return self.tenant.share / self.tenant.root.name

    def start(self) -> Process:
        script = "from tests.limiter.walk_worker import Worker\nWorker(cuda).serve()"
        process = Process(self.tenant.start(script))
        assert process.popen.stdout is not None
        if process.popen.stdout.readline().strip() != "ready":
            error = process.popen.communicate()[1]
            raise Refused(error) if ": 2 " in error else Broken(error)
        self.processes.append(process)
        return process

    def kill(self, process: Process) -> None:
        process.popen.kill()
        process.popen.communicate()
        self.processes.remove(process)
        self.tenant.processes.remove(process.popen)


class Refused(Exception):
    """A process did not start: its share is full."""


@dataclass
class Walk:
    """The walk, step by step."""

    driver: DriverRoot
    shares: list[Share]
    random: random.Random
    count: Counter[str] = field(default_factory=Counter)
    parts: list[float] = field(default_factory=list)

    def step(self) -> None:
        for share in self.shares:
            if share.stopped is not None and self.random.random() < 0.2:
                self._continue(share)
        free = [share for share in self.shares if share.stopped is None]
        if not free:
            return
        share = self.random.choice(free)
        if not share.processes or (
            len(share.processes) < PROCESSES and self.random.random() < 0.05
        ):
            with contextlib.suppress(Refused):
                share.start()
                self.count["processes"] += 1
            return
        process = self.random.choice(share.processes)
        steps = (self._take, self._free, self._launch, self._capture, self._lose, self._fork)
        weights = [40, 30, 10, 6, 1, 3, 2, 2, 2]
        (chosen,) = self.random.choices(
            [*steps, self._kill, self._stop, self._lie], weights[: len(steps) + 3]
        )
        chosen(share, process)

    def _expect(self, code: int, *allowed: int) -> None:
        if code < 0 and code not in allowed:
            raise Broken(f"a call failed with {-code}")

    def _take(self, share: Share, process: Process) -> None:
        kind, mib = self.random.choice(_TAKE), 2 * self.random.randint(1, 25)
        if kind == "heap":
            code = process.does("heap", self.random.choice((8, 108, 508)))
        elif kind == "export":
            code = process.does("export", mib)
            if code > 0:
                process.exported.append((code, mib))
        elif kind == "imported":
            offers = [
                (exporter, *file) for exporter in share.processes for file in exporter.exported
            ]
            if not offers:
                return
            maker, file, mib = self.random.choice(offers)
            code = process.does("imported", maker.popen.pid, file, mib)
        else:
            if kind == "module" and mib > 48:
                mib = 48
            if kind in ("plain", "pool", "handle") and self.random.random() < 0.2:
                mib = 2 * self.random.randint(100, 400)
            code = process.does(kind, mib)
        self._expect(code, _OUT_OF_MEMORY)
        self.count["refused" if code < 0 else f"took {kind}"] += 1
        if code > 0 and kind != "export":
            process.held.append(code)

    def _free(self, _: Share, process: Process) -> None:
        if process.held:
            number = process.held.pop(self.random.randrange(len(process.held)))
            self._expect(process.does("free", number))
            self.count["freed"] += 1

    def _launch(self, _: Share, process: Process) -> None:
        self._expect(process.does("launch", self.random.randint(1, 30)))
        self.count["launches"] += 1

    def _capture(self, _: Share, process: Process) -> None:
        self._expect(process.does("capture"))
        self.count["captures"] += 1

    def _lose(self, _: Share, process: Process) -> None:
        self._expect(process.does("lost_capture"))
        self.count["lost captures"] += 1

    def _fork(self, _: Share, process: Process) -> None:
        if process.does("fork") != 0:
            raise Broken("the child of a fork hangs, or does not answer as the driver does")
        self.count["forks"] += 1

    def _kill(self, share: Share, process: Process) -> None:
        process.order("churn", 100)
        time.sleep(self.random.random() * 0.02)
        share.kill(process)
        self.count["killed"] += 1

    def _stop(self, share: Share, process: Process) -> None:
        process.order("churn", 20)
        time.sleep(self.random.random() * 0.02)
        os.kill(process.popen.pid, signal.SIGSTOP)
        share.stopped = process
        self.count["stopped"] += 1

    def _continue(self, share: Share) -> None:
        assert share.stopped is not None
        os.kill(share.stopped.popen.pid, signal.SIGCONT)
        self._expect(share.stopped.answer())
        share.stopped = None

    def _lie(self, share: Share, _: Process) -> None:
        """Write nonsense into the page; from now on the share is no honest one."""
        share.lies = True
        generator = random.Random(self.random.random())
        with share.page.open("r+b", buffering=0) as page:
            page.seek(4)
            page.write(struct.pack("<I", generator.choice((0, 1, 100, 2**32 - 1))))
            page.write(struct.pack("<6Q", *(generator.choice(_NUMBERS) for _ in range(6))))
            page.seek(64)
            page.write(struct.pack("<32Q", *(generator.choice(_NUMBERS) for _ in range(32))))
        self.count["lies"] += 1

    def check_memory(self) -> None:
        """What the driver says that a share has is within its limit, and within its account."""
        if any(share.stopped is not None for share in self.shares):
            return
        query = ("--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
        rows = [row.split(", ") for row in self.driver.smi(*query).splitlines()]
        used = {int(pid): int(mib) for pid, mib in rows}
        for share in self.shares:
            has = sum(used.get(process.popen.pid, 0) for process in share.processes)
            account = share.tenant.figures.used[0] / MIB
            if not has <= account <= LIMIT_MIB:
                raise Broken(f"the driver says {has} MiB, the account {account}, of {LIMIT_MIB}")
        self.count["memory checks"] += 1

    def check_time(self) -> None:
        """Beside whatever the others do, an honest share gets its part of the GPU's time.

        The machine has other work, too: three times in a row are no chance.
        """
        parts: list[float] = []
        while len(parts) < TRIES and not any(part >= LEAST_PART for part in parts):
            part = self._part_of_time()
            if part is None:
                return
            parts.append(part)
        self.parts.append(max(parts))
        self.count["time checks"] += 1
        self.count["time checks again"] += len(parts) - 1
        if max(parts) < LEAST_PART:
            raise Broken(f"{parts} of its part of the GPU's time")

    def _part_of_time(self) -> float | None:
        running = [share for share in self.shares if share.stopped is None]
        if not running:
            return None
        share = self.random.choice(running)
        if share.lies:
            self._replace(share)
        others = [other for other in self.shares if other is not share and other.stopped is None]
        for tenant in (share, *others):
            if not tenant.processes:
                with contextlib.suppress(Refused):
                    tenant.start()
        if not all(member.processes for member in (share, *others)):
            return None
        alone = share.processes[0].does("burn", BURN_MILLISECONDS // 2) * 2 / 1e6
        # A liar uses nothing, and claims all the time that it does.
        rivals = [other for other in others if other.lies or self.random.random() < 0.6]
        ended = None
        with _lying([rival for rival in rivals if rival.lies]):
            for tenant in rivals:
                if not tenant.lies:
                    tenant.processes[0].order("burn", BURN_MILLISECONDS)
            share.processes[0].order("burn", BURN_MILLISECONDS)
            burning = [rival for rival in rivals if not rival.lies]
            if burning and self.random.random() < 0.4:
                time.sleep(0.3)
                ended = burning[0]
                ended.kill(ended.processes[0])
            got = share.processes[0].answer() / 1e6
        for tenant in rivals:
            if not tenant.lies and tenant is not ended:
                self._expect(tenant.processes[0].answer())
        return got * (1 + len(rivals)) / alone

    def _replace(self, share: Share) -> None:
        """Put an honest share in a liar's place."""
        for process in list(share.processes):
            share.kill(process)
        with share.page.open("r+b", buffering=0) as page:
            page.seek(4)
            page.write(struct.pack("<I", WEIGHT).ljust(4092, b"\0"))
        share.lies = False

    def end(self) -> None:
        """After all have ended nothing is charged, and nothing is held."""
        for share in self.shares:
            for process in list(share.processes):
                share.kill(process)
        for share in self.shares:
            figures = share.tenant.figures
            if figures.slots or figures.used[0]:
                raise Broken(
                    f"after the end there are {len(figures.slots)} slots, {figures.used[0]} bytes"
                )
        if not eventually(lambda: self.driver.used_mib()[0] == 0):
            raise Broken(f"after the end the driver holds {self.driver.used_mib()[0]} MiB")


_NUMBERS = (0, 1, 5_000_000, 1 << 30, 1 << 60, 1 << 63, 2**64 - 1)


@contextlib.contextmanager
def _lying(shares: list[Share]) -> Iterator[None]:
    """Beat in the pages of liars, with a time that is always just less than the others'."""
    beats = itertools.count(time.monotonic_ns())

    def lie() -> None:
        for share in shares:
            folder = share.page.resolve().parent
            others = (share.tenant.root.parent / "pages").glob("*/*")
            times = [_time(page) for page in others if page.name != share.page.name]
            last = max(0, max(times) - 1)
            with share.page.open("r+b", buffering=0) as page:
                page.seek(4)
                page.write(struct.pack("<IQQQ", 100, next(beats), last, 1 << 30))
                page.seek(64)
                page.write(struct.pack("<Q", time.monotonic_ns() + 10**9))
            assert folder.exists()

    with repeating(lie, 0.001):
        yield


def _time(page: Path) -> int:
    (used,) = struct.unpack_from("<Q", page.read_bytes(), 16)
    return int(used)


def walk(driver: DriverRoot, folder: Path, limiter: Path, seed: int, steps: int) -> Walk:
    """Walk so many steps; raises Broken at the first promise that is not kept."""
    uuid = driver.smi("--query-gpu=uuid", "--format=csv,noheader").split()[0]
    shares = []
    for number in range(SHARES):
        tenant = Tenant(driver, folder / f"walker{number}", limiter)
        sharing = Sharing(memory_mib=LIMIT_MIB, action="prevent", compute="share", weight=WEIGHT)
        tenant.install([DeviceShare(uuid, sharing, tenant.root.name)])
        shares.append(Share(tenant))
    walked = Walk(driver, shares, random.Random(seed))
    try:
        for number in range(steps):
            try:
                walked.step()
                if number % 10 == 9:
                    walked.check_memory()
                if number % 250 == 249:
                    walked.check_time()
            except Broken as broken:
                raise Broken(f"seed {seed}, step {number}: {broken}") from broken
        walked.end()
    finally:
        for share in shares:
            share.tenant.stop()
    return walked


def main() -> None:
    seed, steps = map(int, sys.argv[1:])
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        driver = DriverRoot(folder / "driver", build())
        driver.install("T4", 1)
        try:
            walked = walk(driver, folder, build_limiter(folder / "limiter"), seed, steps)
        except Broken as broken:
            sys.exit(f"broken after {time.monotonic() - began:.0f} s: {broken}")
        finally:
            driver.stop()
    print(f"seed {seed}: {steps} steps, {time.monotonic() - began:.0f} s: nothing broken")
    print(", ".join(f"{name} {number}" for name, number in sorted(walked.count.items())))
    if walked.parts:
        print(
            f"part of the time: least {min(walked.parts):.2f}, median "
            f"{statistics.median(walked.parts):.2f} of what honest neighbours leave"
        )


if __name__ == "__main__":
    main()
