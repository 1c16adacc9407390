"""Large answers are encoded in pieces, and no other request waits for one."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkroot.adapters.http.requests.large_answers import answer, json_pieces
from forkroot.adapters.http.server.workers import Workers
from forkroot.core.api.protocol import Completion, Output, TokenLogprob

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
JSON = st.recursive(
    LEAVES,
    lambda it: st.lists(it, max_size=8) | st.dictionaries(st.text(), it, max_size=8),
    max_leaves=30,
)


@given(value=JSON)
def test_pieces_are_the_json_of_the_whole(value: Any) -> None:
    assert "".join(json_pieces(value)) == json.dumps(value, separators=(",", ":"))


@pytest.mark.parametrize("count", [1, 255, 256, 257, 5_000])
def test_a_choice_with_many_log_probabilities_is_in_many_small_pieces(count: int) -> None:
    tops = [{f"token {index}": -1.5, "other": -2.0} for index in range(count)]
    logprobs = {"token_logprobs": [-0.25] * count, "top_logprobs": tops, "none": []}
    body = {"choices": [{"text": "a", "logprobs": logprobs}] * 3, "usage": {"total": 1}}
    pieces = list(json_pieces(body))
    assert "".join(pieces) == json.dumps(body, separators=(",", ":"))
    assert max(map(len, pieces)) < 20_000


def scored(count: int) -> Completion:
    return Completion((Output("a"),), prompt_logprobs=(TokenLogprob(1, -0.5),) * count)


@pytest.mark.parametrize(("count", "is_aside"), [(0, False), (100, False), (1_000, True)])
def test_only_large_answers_are_made_in_a_thread(count: int, is_aside: bool) -> None:
    def make() -> dict[str, Any]:
        return {"thread": threading.current_thread() is not threading.main_thread()}

    response = asyncio.run(answer(Workers(), [scored(count)], make))
    assert json.loads(response.body) == {"thread": is_aside}
    assert response.headers["content-type"] == "application/json"


def test_the_event_loop_goes_on_while_a_large_answer_is_made() -> None:
    """The answer is made only once the loop has done something else."""

    async def both() -> int:
        passed = threading.Event()

        def make() -> list[int]:
            return [int(passed.wait(60))]

        making = asyncio.ensure_future(answer(Workers(), [scored(1_000)], make))
        await asyncio.sleep(0)
        passed.set()
        return int(json.loads((await making).body)[0])

    assert asyncio.run(both()) == 1
