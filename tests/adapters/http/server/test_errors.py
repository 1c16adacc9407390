"""What the server says of errors, to clients and in its log."""

from __future__ import annotations

import logging

import pytest

from forkroot.adapters.http.server.errors import failed_body
from forkroot.core.api.protocol import CallFailed, InvalidCall


def test_why_a_call_failed_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "forkroot.http"):
        body = failed_body(CallFailed("the runtime failed: ValueError('of this')"))
    assert body["error"]["message"] == "the server failed on this request"
    assert "ValueError('of this')" in caplog.text


def test_an_error_of_the_caller_is_told_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "forkroot.http"):
        body = failed_body(InvalidCall("n", 0, "at least 1"))
    assert body["error"]["message"] == "invalid n=0: expected at least 1"
    assert not caplog.text
