"""Settings are checked one by one, by name."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import InvalidCall


def test_an_unknown_setting_is_refused_with_all_that_are_known():
    with pytest.raises(InvalidCall) as caught:
        EngineConfig.from_settings({"colour": 3})
    error = caught.value
    assert (error.field, error.value) == ("colour", 3)
    for field in dataclasses.fields(EngineConfig):
        assert field.name in error.allowed


def test_a_misspelled_setting_is_refused_with_the_one_that_was_meant_and_no_list():
    with pytest.raises(InvalidCall) as caught:
        EngineConfig.from_settings({"max_runing": 3})
    expected = "a setting of the engine (see docs/settings.md); did you mean max_running?"
    assert str(caught.value) == f"invalid max_runing=3: expected {expected}"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("num_slots", 0, "an integer from 1 to 2**31-1, or None"),
        ("num_slots", 2.5, "an integer from 1 to 2**31-1, or None"),
        ("num_slots", 2**31, "an integer from 1 to 2**31-1, or None"),
        ("max_running", True, "an integer from 1 to 65536, or None"),
        ("max_running", 0, "an integer from 1 to 65536, or None"),
        ("ageing", None, "an integer from 1 to 2**31-1"),
        ("max_waiting", 0, "an integer from 1 to 2**31-1"),
        ("chunk_tokens", "64", "an integer from 1 to 2**31-1, or None"),
        ("context_len", 1, "an integer from 2 to 2**31-1, or None"),
        ("ageing", 0, "an integer from 1 to 2**31-1"),
        ("hold_min", -1, "an integer from 1 to 2**31-1"),
        ("host_slots", int, "an integer from 0 to 2**31-1"),
        ("seed", -1, "an integer from 0 to 2**63-1"),
        ("seed", 2**63, "an integer from 0 to 2**63-1"),
        ("order", "lifo", "lpm, dfs, fcfs, random"),
        ("order", "lmp", "lpm, dfs, fcfs, random; did you mean lpm?"),
        ("order", "best", "lpm, dfs, fcfs, random"),
        ("order", "rand", "lpm, dfs, fcfs, random; did you mean random?"),
        ("order", ["lpm"], "lpm, dfs, fcfs, random"),
        ("host_policy", "trough", "back, through; did you mean through?"),
        ("dtype", "int8", "auto, float32, bfloat16, float16"),
        ("dtype", int, "auto, float32, bfloat16, float16"),
        ("dtype", "BFloat16", "auto, float32, bfloat16, float16; did you mean 'bfloat16'?"),
        ("attention", "module:", "auto, triton, flashinfer, plain, cpu, 'module:Factory'"),
        ("device", 0, "the name of a device, such as cpu or cuda:0"),
        ("device", " ", "the name of a device, such as cpu or cuda:0"),
        ("cache", 1, "True or False"),
        ("hints", "no", "True or False"),
        ("overlap", "yes", "True, False or auto"),
        ("host_file", 3, "the name of a new file, or None"),
        ("root_timeout", 0, "a finite number of seconds > 0"),
        ("root_timeout", True, "a finite number of seconds > 0"),
        ("root_timeout", math.nan, "a finite number of seconds > 0"),
        ("root_timeout", math.inf, "a finite number of seconds > 0"),
        ("root_timeout", "10", "a finite number of seconds > 0"),
        ("hang_timeout", True, "a number of seconds > 0, or None"),
        ("hang_timeout", -1, "a number of seconds > 0, or None"),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_what_is(name, value, allowed):
    with pytest.raises(InvalidCall) as caught:
        EngineConfig.from_settings({name: value})
    error = caught.value
    assert (error.field, error.value, error.allowed) == (name, value, allowed) or value != value
    assert str(error) == f"invalid {name}={value!r}: expected {allowed}"


@pytest.mark.parametrize(
    ("value", "suggested"),
    [
        ("bf16", "bfloat16"),
        ("fp16", "float16"),
        ("half", "float16"),
        ("fp32", "float32"),
        ("float", "float32"),
        ("torch.bfloat16", "bfloat16"),
        (torch.bfloat16, "bfloat16"),
    ],
)
def test_other_names_of_a_dtype_are_refused_with_ours(value, suggested):
    with pytest.raises(InvalidCall) as caught:
        EngineConfig(dtype=value).check()
    assert str(caught.value).endswith(f"; did you mean '{suggested}'?")


def test_settings_are_frozen_and_the_defaults_are_allowed():
    config = EngineConfig.from_settings({})
    assert config == EngineConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 3  # type: ignore[misc]


def test_resolving_fills_in_what_is_unset():
    config = EngineConfig(max_running=4)
    resolved = config.resolve(model_context=100, kv_bytes_per_token=8, memory=8 * 250)
    assert (resolved.context_len, resolved.num_slots) == (100, 250)
    assert (resolved.max_running, resolved.chunk_tokens) == (4, 1024)
    assert (config.context_len, config.num_slots) == (None, None)
    assert EngineConfig().resolve(100, 8, 8 * 250).max_running == 128
    assert EngineConfig().resolve(100, 8, 0).max_running == 100  # a slot for each


def test_no_more_slots_are_taken_than_can_be_used_and_no_fewer_than_one_sequence_needs():
    config = EngineConfig(max_running=4)
    assert config.resolve(100, 8, 8 * 10**9).num_slots == 400
    assert config.resolve(100, 8, 0).num_slots == 100


def test_what_is_set_stays():
    sizes = {"num_slots": 7, "max_running": 3, "chunk_tokens": 9, "tower_tokens": 5}
    config = EngineConfig(context_len=500, **sizes)
    assert config.resolve(1000, 8, 10**9) == config
    assert config.resolve(500, 8, 10**9) == config


def test_a_context_that_the_model_does_not_have_is_refused_with_the_one_that_it_has():
    with pytest.raises(InvalidCall) as caught:
        EngineConfig(context_len=500).resolve(499, 8, 10**9)
    allowed = "an integer from 2 to 499, which is what the model has, or None"
    assert str(caught.value) == f"invalid context_len=500: expected {allowed}"


@pytest.mark.parametrize("field", dataclasses.fields(EngineConfig), ids=lambda field: field.name)
def test_every_setting_is_checked(field):
    with pytest.raises(InvalidCall, match=f"^invalid {field.name}="):
        EngineConfig.from_settings({field.name: object()})


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        *(("num_slot", "num_slots"), ("proces", "process"), ("hang_timout", "hang_timeout")),
        ("polcy", "policy"),
    ],
)
def test_a_misspelled_setting_is_refused_with_a_suggestion(name: str, suggested: str) -> None:
    with pytest.raises(InvalidCall, match=rf"{name}=1: .*did you mean {suggested}\?"):
        EngineConfig.from_settings({name: 1})


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        *(("schedule_policy", "order"), ("schedule_polcy", "order"), ("tp_size", "ranks")),
        *(("mem_fraction_static", "num_slots"), ("gpu_memory_utilization", "num_slots")),
        *(("max_model_len", "context_len"), ("context_length", "context_len")),
        *(("chunked_prefill_size", "chunk_tokens"), ("max_num_seqs", "max_running")),
        *(("disable_radix_cache", "cache"), ("grammar_backend", "constraint")),
    ],
)
def test_a_setting_by_its_name_in_sglang_or_vllm_gets_ours_suggested(
    name: str, suggested: str
) -> None:
    with pytest.raises(InvalidCall, match=rf"{name}=1: .*; did you mean {suggested}\?$"):
        EngineConfig.from_settings({name: 1})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("temperature", r"it is of a call, as in gen\(..., temperature=...\)"),
        ("settings", "each is given by its own name"),
        ("api_key", "for the URL of a server"),
    ],
)
def test_a_keyword_that_belongs_elsewhere_is_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(InvalidCall, match=hint):
        EngineConfig.from_settings({name: 1})
