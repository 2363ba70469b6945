"""Our record of Allocate calls bridges what the kubelet does not show yet, whatever the clock."""

from __future__ import annotations

from divvy.agent.gpu.holders import Holder, Ledger, forgotten

KEY = ("nvidia.com/mig-1g.5gb", "MIG-0")
HELD = (Holder("", "", *KEY),)
OLD, NEW = (1, 100), (2, 50)  # the clock was set back in between


def test_holds_an_allocation_until_the_kubelet_has_written_without_it() -> None:
    ledger = Ledger()
    ledger.record(KEY[0], [KEY[1]], OLD, 0.0)
    for nothing_written in (1000.0, 2000.0):
        assert ledger.pending((), OLD, nothing_written) == HELD
    assert ledger.pending((), NEW, 2001.0) == HELD
    assert ledger.pending((), NEW, 2008.0) == ()


def test_gives_a_stopped_kubelet_time_to_write_again() -> None:
    """It writes on a list before it takes the answer, and the allocation the next time."""
    ledger = Ledger()
    ledger.record(KEY[0], [KEY[1]], OLD, 0.0)
    assert ledger.pending((), NEW, 60.0) == HELD
    assert ledger.pending((), NEW, 65.0) == HELD


def test_gives_a_kubelet_time_until_it_writes_the_container_down() -> None:
    """It does when the container's other devices are allocated, and may write for others before."""
    ledger = Ledger()
    ledger.record(KEY[0], [KEY[1]], OLD, 0.0)
    assert ledger.pending((), NEW, 1.0) == HELD
    assert ledger.pending((), NEW, 9.0) == HELD
    assert ledger.pending((), NEW, 10.0) == ()


def test_leaves_an_ended_pods_device_to_no_other_holder() -> None:
    ledger = Ledger()
    ledger.record(KEY[0], [KEY[1]], OLD, 0.0)
    ended = Holder("", "main", *KEY, "uid-of-one-that-ended")
    assert ledger.pending((ended,), OLD, 1.0) == ()
    assert ledger.pending((), NEW, 2.0) == HELD


def test_keeps_a_device_whose_pod_is_listed_without_it() -> None:
    before = Holder("team/notebook", "main", *KEY, "uid-1")
    assert forgotten([before], [], {"team/notebook"}, settled=True) == (before,)
    assert forgotten([before], [], [], settled=False) == (before,)
    assert forgotten([before], [], {"team/other"}, settled=True) == ()


def test_keeps_the_device_of_an_init_container_whose_pod_is_known() -> None:
    """The kubelet lists the pod without its ordinary init containers."""
    before = Holder("team/notebook", "init", *KEY, "uid-1")
    assert forgotten([before], [], {"team/notebook"}, settled=True) == (before,)
    assert forgotten([before], [], {"team/other"}, settled=True) == ()


def test_keeps_a_holder_that_is_shown_again() -> None:
    before = Holder("team/notebook", "main", *KEY, "uid-1")
    listed = {"team/notebook"}
    by_checkpoint = Holder("", "main", *KEY, "uid-1")
    by_list = Holder("team/notebook", "main", KEY[0], "MIG-1")  # allocated again
    for known in (by_checkpoint, by_list):
        assert forgotten([before], [known], listed, settled=True) == ()
