"""litellm: chats whole, streamed and async, text completions, schemas, tools, responses."""

import asyncio
import json
import os
from typing import Any

import litellm
from pydantic import BaseModel, Field

ASKED: dict[str, Any] = {
    "model": "openai/tiny",
    "api_base": os.environ["FORKROOT_URL"] + "/v1",
    "api_key": "any",
    "temperature": 0,
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
}
LOOKUP = {
    "name": "lookup",
    "description": "Look up a word.",
    "parameters": {
        "type": "object",
        "properties": {"word": {"type": "string", "maxLength": 12}},
        "required": ["word"],
    },
}


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


whole = litellm.completion(**ASKED)
text = whole.choices[0].message.content
assert text and whole.usage.prompt_tokens > 0
print("chat", repr(text))

events = list(litellm.completion(**ASKED, stream=True, stream_options={"include_usage": True}))
assert "".join(it.choices[0].delta.content or "" for it in events if it.choices) == text
assert litellm.stream_chunk_builder(events).usage.completion_tokens > 0


async def several() -> list[str]:
    answers = await asyncio.gather(*(litellm.acompletion(**ASKED) for _ in range(4)))
    return [it.choices[0].message.content for it in answers]


assert set(asyncio.run(several())) == {text}

told = litellm.completion(**ASKED, logprobs=True, top_logprobs=2)
assert len(told.choices[0].logprobs.content[0].top_logprobs) == 2

told = litellm.completion(**ASKED, response_format=Person)
print("schema", Person.model_validate_json(told.choices[0].message.content))

tools = [{"type": "function", "function": LOOKUP}]
told = litellm.completion(**ASKED, tools=tools, tool_choice="required")
(call, *_) = told.choices[0].message.tool_calls
print("tool", json.loads(call.function.arguments))

plain = {**ASKED, "model": "text-completion-openai/tiny"}
del plain["messages"]
told = litellm.text_completion(**plain, prompt="The capital of France is", logprobs=1)
assert told.choices[0].text
print("completion", repr(told.choices[0].text))

chat = dict(ASKED)
asked = chat.pop("messages")
told = litellm.responses(**{k: v for k, v in chat.items() if k != "max_tokens"}, input=asked)
assert told.output
print("responses", told.output[0].type)

try:
    litellm.completion(**{**ASKED, "model": "openai/gpt-9"})
except litellm.NotFoundError as error:
    print("error", type(error).__name__)
else:
    raise AssertionError("an unknown model was answered")
