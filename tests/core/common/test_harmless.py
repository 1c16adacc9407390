"""Errors of hints are harmless to the program and visible to its developer."""

from __future__ import annotations

import logging

import pytest

from forkroot.core.common.harmless import HarmlessErrors

LOG = logging.getLogger("forkroot.tests.harmless")


def fail(errors: HarmlessErrors, what: str, error: BaseException) -> None:
    with errors.suppress(LOG, what):
        raise error


def test_a_kind_of_error_is_logged_once_for_each_place_with_its_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, LOG.name)
    errors = HarmlessErrors()
    for _ in range(3):
        fail(errors, "planting", KeyError("a"))
    fail(errors, "planting", ValueError("b"))
    fail(errors, "keeping", ValueError("c"))
    causes = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert [str(cause) for cause in causes] == ["'a'", "b", "c"]
    assert {record.levelname for record in caplog.records} == {"DEBUG"}
    assert "planting failed" in caplog.messages[0]


def test_every_error_is_counted_by_place_and_type() -> None:
    errors = HarmlessErrors()
    for _ in range(3):
        fail(errors, "planting", KeyError("a"))
    fail(errors, "keeping", ValueError("b"))
    assert errors.total == 4
    assert errors.counts == {
        (LOG.name, "planting", "KeyError"): 3,
        (LOG.name, "keeping", "ValueError"): 1,
    }


def test_a_block_that_succeeds_counts_nothing_and_interrupts_are_raised() -> None:
    errors = HarmlessErrors()
    with errors.suppress(LOG, "planting"):
        pass
    with pytest.raises(KeyboardInterrupt):
        fail(errors, "planting", KeyboardInterrupt())
    assert errors.total == 0
