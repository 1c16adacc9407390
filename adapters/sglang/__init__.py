"""SGLang's frontend on the native language: `import forkroot.sglang as sgl`.

Entry: every public name of SGLang's frontend, which does what it does there or raises a typed error
that names what forkroot has instead. May import `core.api`, `core.common`, `adapters` and
`adapters.native`. Never knows a runtime.
"""

from .backends import (
    Anthropic,
    Crusoe,
    GlobalConfig,
    LiteLLM,
    OpenAI,
    ServerArgs,
    Shortfin,
    VertexAI,
    flush_cache,
    get_server_info,
    global_config,
    set_default_backend,
)
from .choices import (
    ChoicesDecision,
    ChoicesSamplingMethod,
    greedy_token_selection,
    token_length_normalized,
    unconditional_likelihood_normalized,
)
from .endpoints import Runtime, RuntimeEndpoint
from .engine import Engine
from .primitives import (
    assistant,
    assistant_begin,
    assistant_end,
    gen,
    gen_int,
    gen_string,
    image,
    role,
    select,
    separate_reasoning,
    system,
    system_begin,
    system_end,
    user,
    user_begin,
    user_end,
    video,
)
from .program import SglFunction, function
from .state import Group, State

__all__ = [
    "Anthropic",
    "ChoicesDecision",
    "ChoicesSamplingMethod",
    "Crusoe",
    "Engine",
    "GlobalConfig",
    "Group",
    "LiteLLM",
    "OpenAI",
    "Runtime",
    "RuntimeEndpoint",
    "ServerArgs",
    "SglFunction",
    "Shortfin",
    "State",
    "VertexAI",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "flush_cache",
    "function",
    "gen",
    "gen_int",
    "gen_string",
    "get_server_info",
    "global_config",
    "greedy_token_selection",
    "image",
    "role",
    "select",
    "separate_reasoning",
    "set_default_backend",
    "system",
    "system_begin",
    "system_end",
    "token_length_normalized",
    "unconditional_likelihood_normalized",
    "user",
    "user_begin",
    "user_end",
    "video",
]
