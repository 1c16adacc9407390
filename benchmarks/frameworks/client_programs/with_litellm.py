"""litellm: chats whole, streamed and async, text completions, schemas, tools, responses."""

import asyncio
import json
import os
from typing import Any

import litellm
from pydantic import BaseModel, Field

CHAT: dict[str, Any] = {
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


whole = litellm.completion(**CHAT)
text = whole.choices[0].message.content
assert text and whole.usage.prompt_tokens > 0
print("chat", repr(text))

events = list(litellm.completion(**CHAT, stream=True, stream_options={"include_usage": True}))
assert "".join(it.choices[0].delta.content or "" for it in events if it.choices) == text
assert litellm.stream_chunk_builder(events).usage.completion_tokens > 0


async def several() -> list[str]:
    answers = await asyncio.gather(*(litellm.acompletion(**CHAT) for _ in range(4)))
    return [it.choices[0].message.content for it in answers]


assert set(asyncio.run(several())) == {text}

reply = litellm.completion(**CHAT, logprobs=True, top_logprobs=2)
assert len(reply.choices[0].logprobs.content[0].top_logprobs) == 2

reply = litellm.completion(**CHAT, response_format=Person)
print("schema", Person.model_validate_json(reply.choices[0].message.content))

tools = [{"type": "function", "function": LOOKUP}]
reply = litellm.completion(**CHAT, tools=tools, tool_choice="required")
(call, *_) = reply.choices[0].message.tool_calls
print("tool", json.loads(call.function.arguments))

plain = {**CHAT, "model": "text-completion-openai/tiny"}
del plain["messages"]
reply = litellm.text_completion(**plain, prompt="The capital of France is", logprobs=1)
assert reply.choices[0].text
print("completion", repr(reply.choices[0].text))

chat = dict(CHAT)
messages = chat.pop("messages")
reply = litellm.responses(**{k: v for k, v in chat.items() if k != "max_tokens"}, input=messages)
assert reply.output
print("responses", reply.output[0].type)

try:
    litellm.completion(**{**CHAT, "model": "openai/gpt-9"})
except litellm.NotFoundError as error:
    print("error", type(error).__name__)
else:
    raise AssertionError("an unknown model was answered")
