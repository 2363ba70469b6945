"""Output of the field's well-known workloads is read rightly: typed lines, one difference each."""

import pytest

from conformance.load.known_images import gpu_burn, vector_add

ADDED = """\
[Vector addition of 50000 elements]
Copy input data from the host memory to the CUDA device
CUDA kernel launch with 196 blocks of 256 threads
Copy output data from the CUDA device to the host memory
Test PASSED
Done
"""
BURNT = """\
Using compare file: compare.fatbin
Burning for 10 seconds.
GPU 0: A card (UUID: GPU-0)
Initialized device 0 with 16384 MB of memory (16000 MB available, using 1024 MB of it), using FLOATS
Results are 268435456 bytes each, thus performing 2 iterations
\r50.0%  proc'd: 20 (9003 Gflop/s)   errors: 0   temps: 42 C \
\r100.0%  proc'd: 40 (9001 Gflop/s)   errors: {errors}   temps: 44 C
\tSummary at:   Sat Nov 21 10:00:00 UTC 2026

Killing processes with SIGTERM (soft kill)
done

Tested 1 GPUs:
\tGPU 0: {result}
"""
TWO = BURNT.replace("errors: {errors}", "errors: 0 - 7 (WARNING!)").replace(
    "\tGPU 0: {result}", "\tGPU 0: OK\n\tGPU 1: FAULTY"
)


@pytest.mark.parametrize(
    ("code", "log", "passed", "words"),
    [
        (0, ADDED, True, "Test PASSED"),
        (0, "Vector Addition (Driver API)\nResult = PASS\n", True, "Result = PASS"),
        (1, ADDED, False, "exit code 1"),
        (0, "", False, "no result"),
        (None, ADDED, False, "exit code None"),
        (1, "Failed to allocate device vector A (error code out of memory)!\n", False, "Failed to"),
        (0, "Vector Addition (Driver API)\nResult = FAIL\n", False, "Result = FAIL"),
        (0, ADDED.replace("Test PASSED", "Test PASSED?"), False, "no result"),
    ],
)
def test_judges_vector_add_by_code_and_output(
    code: int | None, log: str, passed: bool, words: str
) -> None:
    verdict = vector_add(code, log)
    assert verdict.passed is passed
    assert words in verdict.words


@pytest.mark.parametrize(
    ("code", "log", "passed", "words"),
    [
        (0, BURNT.format(errors=0, result="OK"), True, "GPU 0: OK, errors: 0"),
        # The well-known tool ends with 0 here.
        (0, BURNT.format(errors=0, result="FAULTY"), False, "GPU 0: FAULTY"),
        (0, BURNT.format(errors="7 (WARNING!)", result="OK"), False, "errors: 7, (WARNING!)"),
        (0, BURNT.format(errors="0 (DIED!)", result="OK"), False, "(DIED!)"),
        (0, TWO, False, "GPU 0: OK, GPU 1: FAULTY, errors: 7"),
        (123, "No clients are alive!  Aborting\n", False, "no GPU tested, No clients are alive"),
        (0, "", False, "no GPU tested"),
    ],
)
def test_judges_gpu_burn_by_code_and_output(code: int, log: str, passed: bool, words: str) -> None:
    verdict = gpu_burn(code, log)
    assert verdict.passed is passed
    assert words in verdict.words
