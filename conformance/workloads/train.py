#!/usr/bin/python3
"""Train a small network with tinygrad on the GPU, and say once a second how it goes.

usage: train [--seconds N] [--ask MIB]

Trains the same network twice from the same numbers, at least 200 steps each and `--seconds` the
first time, counted from the first step: the loss must fall to a tenth, and what the GPU computes
must be the same again. `--ask` then asks for so much memory more, and trains one step after it. The
lines are for people and for the suite; the exit code is 0 if the network learns, 1 if it does
not, where a loss is no number or where the GPU computes differently.
"""

import argparse
import ctypes
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path

STEPS = 200
SAMPLES, HIDDEN = 64, 16
FALLS_TO = 0.1
# Where the workloads' image has tinygrad; elsewhere it is among Python's own packages.
LIBRARY = Path("/usr/local/lib/divvy-training")


def prepare() -> None:
    """Tell tinygrad which library is libcuda, and what code to make."""
    ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    # By the loader's own rules, which tinygrad does not follow.
    mapped = (line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines())
    os.environ["CUDA_PATH"] = next(
        path for path in mapped if Path(path).name.startswith("libcuda.so")
    )
    # PTX that every driver since 495 takes, for every GPU since T4; it needs no compiler.
    os.environ["DEV"] = "CUDA:PTX:sm_75"
    os.environ.update(CACHELEVEL="0", TRAINING="1")
    sys.path.insert(0, str(LIBRARY))


class Training:
    """One network, its data and its optimizer: the same numbers each time."""

    def __init__(self) -> None:
        from tinygrad import Tensor, TinyJit, nn

        Tensor.manual_seed(1)
        self._first, self._second = nn.Linear(2, HIDDEN), nn.Linear(HIDDEN, 1)
        self._points = (Tensor.rand(SAMPLES, 2) * 2 - 1).realize()
        # Whether a point's coordinates have the same sign: no straight line tells.
        product = self._points[:, 0] * self._points[:, 1]
        self._signs = product.sign().reshape(SAMPLES, 1).realize()
        parameters = [*nn.state.get_parameters(self._first), *nn.state.get_parameters(self._second)]
        self._optimizer = nn.optim.Adam(parameters, lr=0.05)
        self._step = TinyJit(self._train_step)
        self.losses: list[float] = []

    def _train_step(self):  # type: ignore[no-untyped-def]
        self._optimizer.zero_grad()
        guess = self._second(self._first(self._points).tanh())
        loss = ((guess - self._signs) ** 2).mean().backward()
        return loss.realize(*self._optimizer.schedule_step())

    def step(self) -> None:
        """Train one step."""
        self.losses.append(self._step().item())


def memory() -> tuple[int, int]:
    """Return what the GPU has and what of it is used, in whole MiB, as CUDA tells."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda = ctypes.CDLL("libcuda.so.1")
    if cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) != 0:
        sys.exit("cuMemGetInfo failed")
    return total.value >> 20, math.ceil((total.value - free.value) / (1 << 20))


def train(seconds: float) -> list[float]:
    """Train, with a line each second; return the loss of each step."""
    training = Training()
    training.step()  # before it the kernels are made, and others may not train yet
    began, since = time.monotonic(), time.time()
    reported = 0
    while len(training.losses) < STEPS or time.monotonic() - began < seconds:
        training.step()
        passed = int(time.monotonic() - began)
        if passed > reported:
            reported = passed
            total, used = memory()
            print(
                f"{passed:4} s   step {len(training.losses):5}   loss {training.losses[-1]:.6f}   "
                f"memory {used} of {total} MiB",
                flush=True,
            )
    print(f"trained from {since:.1f} to {time.time():.1f}", flush=True)
    return training.losses


def ask(mib: int) -> None:
    """Ask for memory as a framework does, and say what came of it."""
    from tinygrad import Device, dtypes
    from tinygrad.device import Buffer

    try:
        Buffer(Device.DEFAULT, mib << 20, dtypes.uint8).allocate()
    except (MemoryError, RuntimeError) as refused:
        print(f"{mib} MiB more: refused with {cuda_code(refused)}, {refused}")
    else:
        print(f"{mib} MiB more: granted")


def cuda_code(error: BaseException | None) -> str:
    """Return the code of CUDA's that an error, or one behind it, tells."""
    while error is not None:
        match = re.search(r"CUDA Error (\d+)", str(error))
        if match:
            return f"CUDA's code {match[1]}"
        error = error.__cause__ or error.__context__
    return "no code of CUDA's"


def main() -> int:
    """Train twice, compare, ask; return the exit code."""
    parser = argparse.ArgumentParser(description="Train a small network with tinygrad on the GPU.")
    parser.add_argument("--seconds", type=float, default=0, help="train so long at least")
    parser.add_argument("--ask", type=int, metavar="MIB", help="then request this much more memory")
    arguments = parser.parse_args()
    prepare()
    losses = train(arguments.seconds)
    subprocess.run(["nvidia-smi"], check=False)
    learns = losses[-1] < losses[0] * FALLS_TO
    print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f} in {len(losses)} steps", flush=True)
    again = Training()
    while len(again.losses) < STEPS:
        again.step()
    differing = [n for n in range(STEPS) if again.losses[n] != losses[n]]
    print(f"the same again: {f'differs from step {differing[0]} on' if differing else 'equal'}")
    total, used = memory()
    print(f"memory {used} of {total} MiB")
    if arguments.ask:
        ask(arguments.ask)
        again.step()
        print(f"one step more: loss {again.losses[-1]:.6f}")
    finite = all(map(math.isfinite, [*losses, *again.losses]))
    print(f"losses: {'all finite' if finite else 'not all finite'}")
    return 0 if learns and finite and not differing else 1


if __name__ == "__main__":
    sys.exit(main())
