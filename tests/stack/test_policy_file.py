"""Policy files that are none: they are refused, and allow nothing by a slip."""

from __future__ import annotations

from pathlib import Path

import pytest

from divvy.stack.errors import StackError
from divvy.stack.policy_file import read_policy


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "is not a mapping"),
        ("{}", "has no rule"),
        ("advisory: []", "has no rule"),
        ("sharing: none\nsharing: tenants-apart", "line 2: sharing: is defined twice"),
        ("sharing: none\n---\nmemory: hard", "another document"),
        ("1: sharing", "policy: has a key that is 1\n      keys are text"),
        ("~: sharing", "policy: has a key that is empty\n      keys are text"),
    ],
)
def test_refuses_a_file_that_is_no_policy(text: str, error: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(StackError) as refused:
        read_policy(file)
    assert error in str(refused.value)


def test_reads_a_file_that_begins_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_bytes(b"\xef\xbb\xbfsharing: none\n")
    assert read_policy(file).sharing == "none"
