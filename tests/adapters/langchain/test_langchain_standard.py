"""LangChain's own standard tests, on the embedded model, with every flag that applies.

It reads text only: tests of audio and PDFs say of themselves that they do not apply, and those of
images run on a scripted backend.
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
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
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import Image

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
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


@pytest.fixture
def benchmark() -> Callable[[Callable[[], None]], None]:
    """Runs what is to be measured, once. Its plugin is off: it costs every other test some time."""
    return lambda run: run()


@pytest.fixture
def vcr() -> SimpleNamespace:
    """A cassette on which nothing is recorded: nothing is sent. Its plugin is off, too."""
    return SimpleNamespace(responses=[])


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


@pytest.mark.filterwarnings("ignore:.*beta:langchain_core._api.LangChainBetaWarning")
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


class TestImages(Flags):
    """Those of the standard tests that show images; what they would download is one pixel."""

    supports_image_inputs = True
    supports_image_tool_message = True
    supports_image_urls = False  # nothing is fetched

    @pytest.fixture(autouse=True)
    def pixel(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("httpx.get", lambda *_, **__: SimpleNamespace(content=PIXEL))

    @pytest.fixture
    def backend(self) -> ScriptedBackend:
        return ScriptedBackend("A pixel.")

    @pytest.fixture
    def model(self, backend: ScriptedBackend) -> ChatForkroot:
        return ChatForkroot(model=backend)

    @pytest.fixture(autouse=True)
    def seen(self, backend: ScriptedBackend) -> Iterator[None]:
        """The model has been shown the pixel wherever there was an image."""
        yield
        prompts = [call.prompt for call in backend.calls if call.sampling.max_tokens != 0]
        shown = [it for p in prompts for m in p.messages for it in m.content]  # type: ignore[union-attr]
        assert {it.data for it in shown if isinstance(it, Image)} == {PIXEL}

    test_image_inputs = ChatModelIntegrationTests.test_image_inputs
    test_image_tool_message = ChatModelIntegrationTests.test_image_tool_message
    test_anthropic_inputs = ChatModelIntegrationTests.test_anthropic_inputs
