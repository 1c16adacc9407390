"""LangChain's own standard tests, on the embedded model, with every flag that applies.

It reads text only: tests of images, audio and PDFs say of themselves that they do not apply.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain_core", reason="needs langchain-core")
pytest.importorskip("langchain_tests", reason="needs langchain-tests")

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

import forkroot
from forkroot.adapters.langchain import ChatForkroot

TINY = str(Path(forkroot.__file__).parent / "models" / "tiny")

for _, function in inspect.getmembers(ChatModelIntegrationTests, inspect.iscoroutinefunction):
    pytest.mark.asyncio(function)  # the suite leaves it to the mode that pytest-asyncio is in


class Flags:
    """What the adapter and this model can do."""

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatForkroot

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "tiny", "settings": {"dtype": "float32"}, "temperature": 0}

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def supports_anthropic_inputs(self) -> bool:
        return True

    @property
    def model_override_value(self) -> str:
        return TINY

    @property
    def enable_vcr_tests(self) -> bool:
        return True

    @property
    def supported_usage_metadata_details(self) -> dict[str, list[str]]:
        return {"invoke": ["cache_read_input"], "stream": ["cache_read_input"]}


class TestUnits(Flags, ChatModelUnitTests):
    @pytest.fixture(autouse=True)
    def listed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """`test_serdes` loads only what LangChain's own list names; users name the class instead
        (`load(..., allowed_objects=[ChatForkroot])`)."""
        load, path = import_module("langchain_core.load.load"), tuple(ChatForkroot.lc_id())
        monkeypatch.setitem(load.ALL_SERIALIZABLE_MAPPINGS, path, path)
        monkeypatch.setattr(load, "_default_class_paths_cache", {})

    @property
    def init_from_env_params(self) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
        return {"FORKROOT_API_KEY": "secret"}, self.chat_model_params, {"api_key": "secret"}


@pytest.mark.filterwarnings(
    "ignore:.*beta:langchain_core._api.LangChainBetaWarning",
    "ignore:Benchmark fixture was not used:pytest_benchmark.logger.PytestBenchmarkWarning",
)
class TestIntegration(Flags, ChatModelIntegrationTests):
    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {**super().chat_model_params, "max_tokens": 80, "min_tokens": 1}

    def invoke_with_cache_read_input(self, *, stream: bool = False) -> AIMessage:
        model = self.chat_model_class(**self.chat_model_params)
        if not stream:
            return model.invoke("Hello, how are you?")
        first, *rest = model.stream("Hello, how are you?")
        for chunk in rest:
            first += chunk
        return first
