"""`/metrics` under load: what it reports of an engine in a child process is what clients saw."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from forkroot.adapters.http.server.runtime import Runtime
from forkroot.core.model.hub.folders import model_folder
from forkroot.core.process.client import ProcessBackend
from forkroot.core.text.tokenizer import Tokenizer

from ..conftest import serving

pytestmark = pytest.mark.usefixtures("preloaded")
SIZES = {"num_slots": 400, "context_len": 256, "max_running": 4, "hold_min": 1000}
STREAM = {"stream": True, "temperature": 0, "stream_options": {"include_usage": True}}
Metrics = dict[str, float]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server with a small engine in a child process."""
    with ProcessBackend("tiny", **SIZES) as backend:
        texts = Tokenizer.from_folder(model_folder("tiny"))
        with serving(Runtime(backend, texts, ("tiny",))) as url:
            yield url


class Streamed(NamedTuple):
    """One stream as its client saw it. first: seconds to its first text."""

    first: float
    num_pieces: int
    usage: dict[str, Any]


def metrics(url: str) -> Metrics:
    """Every number, by its name and labels."""
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics").text)
    samples = (sample for family in families for sample in family.samples)
    return {
        it.name + "".join(f" {key}={value}" for key, value in it.labels.items()): it.value
        for it in samples
        if not it.name.endswith("_created")
    }


def growth(before: Metrics, now: Metrics) -> Metrics:
    """The same, but counters count from `before` on."""
    kinds = ("_total", "_count", "_sum", "_bucket")
    return {
        name: value - before.get(name, 0.0) * name.partition(" ")[0].endswith(kinds)
        for name, value in now.items()
    }


def streamed(url: str, prompt: list[int], max_tokens: int) -> Streamed:
    body = {"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, **STREAM}
    start, first, events = time.perf_counter(), 0.0, []
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=120) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                first = first or time.perf_counter() - start
                events.append(json.loads(line[6:]))
    pieces = [event for event in events if event["choices"]]
    return Streamed(first, len(pieces), events[-1]["usage"])


def until(seen: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_they_are_what_clients_saw(url: str) -> None:
    before = metrics(url)
    prompts = [[300 + number, *range(400, 460)] for number in range(10)] * 2
    with ThreadPoolExecutor(len(prompts)) as pool:
        outcome = [pool.submit(streamed, url, prompt, 100) for prompt in prompts]
        busiest: Metrics = {}

        def is_busy() -> bool:
            busiest.update(metrics(url))
            return busiest["forkroot_waiting"] > 0 < busiest["forkroot_running"]

        until(lambda: is_busy() or all(it.done() for it in outcome))
        streams = [it.result() for it in outcome]
    assert busiest["forkroot_running"] <= SIZES["max_running"]
    assert busiest["forkroot_calls_open"] <= len(prompts)
    now = metrics(url)
    found = growth(before, now)

    usages = [it.usage for it in streams]
    cached = sum(it["prompt_tokens_details"]["cached_tokens"] for it in usages)
    num_prompt, written = (
        sum(it[f"{kind}_tokens"] for it in usages) for kind in ("prompt", "completion")
    )
    assert written == 100 * len(prompts)
    assert found["forkroot_prompt_tokens_total"] == num_prompt
    assert found["forkroot_cached_tokens_total"] == cached
    assert found["forkroot_completion_tokens_total"] == written
    in_all = now["forkroot_cached_tokens_total"] / now["forkroot_prompt_tokens_total"]
    assert found["forkroot_cache_hit_rate"] == pytest.approx(in_all)
    assert found["forkroot_retracted_total"] > 0
    assert found["forkroot_evicted_tokens_total"] > 0
    assert found["forkroot_cached_slots"] + found["forkroot_free_slots"] == SIZES["num_slots"]
    assert (
        found["forkroot_running"] == found["forkroot_waiting"] == found["forkroot_calls_open"] == 0
    )

    num, firsts = len(prompts), sum(it.first for it in streams)
    assert found["forkroot_time_to_first_token_seconds_count"] == num
    assert 0 < found["forkroot_time_to_first_token_seconds_sum"] <= firsts
    pieces = sum(it.num_pieces for it in streams)
    assert num < found["forkroot_inter_token_latency_seconds_count"] <= pieces
    assert found["forkroot_queue_seconds_count"] == num
    assert found["forkroot_queue_seconds_bucket le=+Inf"] == num
    queued = found["forkroot_queue_seconds_sum"]
    assert 0 < queued <= found["forkroot_time_to_first_token_seconds_sum"]
    steps = [
        value for key, value in found.items() if key.startswith("forkroot_queue_seconds_bucket")
    ]
    assert steps == sorted(steps)
    assert steps[0] < num  # those beyond the first four had to wait


def test_each_constraint_counts_one_compilation(url: str) -> None:
    before, start = metrics(url), time.perf_counter()
    for pattern in ("[a-c]{3}", "[a-c]{3}", "[d-f]+", "[a-c]{3}", "("):
        body = {"prompt": "x", "max_tokens": 4, "regex": pattern}
        httpx.post(f"{url}/v1/completions", json=body, timeout=60)
    seconds = time.perf_counter() - start
    found = growth(before, metrics(url))
    assert found["forkroot_compile_seconds_count"] == 3
    assert 0 < found["forkroot_compile_seconds_sum"] < seconds
    assert found["forkroot_refused_total reason=invalid_value"] == 1


def test_calls_that_are_ended_early_are_counted(url: str) -> None:
    before = metrics(url)["forkroot_aborted_calls_total"]
    body = {"prompt": [7, 8, 9], "max_tokens": 250, "ignore_eos": True, "stream": True}

    def is_counted() -> bool:  # a short answer may end before its client is missed
        with httpx.stream("POST", f"{url}/v1/completions", json=body) as response:
            next(response.iter_lines())
        return metrics(url)["forkroot_aborted_calls_total"] > before

    until(is_counted)
    until(lambda: metrics(url)["forkroot_running"] == 0)
    found = metrics(url)
    assert found["forkroot_running"] == found["forkroot_locked_slots"] == 0
