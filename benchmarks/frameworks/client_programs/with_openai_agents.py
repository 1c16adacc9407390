"""openai-agents: text, streams, typed output, tools and a handoff, on both routes."""

import asyncio
import contextlib
import os

import openai
from agents import (
    Agent,
    MaxTurnsExceeded,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from pydantic import BaseModel, Field

set_tracing_disabled(True)
called: list[str] = []


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


@function_tool
def lookup(word: str) -> str:
    """Look up a word."""
    called.append(word)
    return "a river of ice"


async def run(kind: type) -> None:
    """All of it with the model class of one route."""
    client = openai.AsyncOpenAI(
        base_url=os.environ["FORKROOT_URL"] + "/v1", api_key="any", max_retries=0
    )
    model, settings = kind("tiny", client), ModelSettings(temperature=0, max_tokens=200)
    plain = Agent("plain", model=model, model_settings=settings, instructions="Be brief.")
    whole = (await Runner.run(plain, "What is the capital of France?")).final_output
    streamed = Runner.run_streamed(plain, "What is the capital of France?")
    kinds = {event.type async for event in streamed.stream_events()}
    assert streamed.final_output == whole != "", (streamed.final_output, whole)
    assert "raw_response_event" in kinds
    found = (await Runner.run(plain.clone(output_type=Person), "Ada is 36.")).final_output
    assert isinstance(found, Person)
    forced_call = ModelSettings(temperature=0, max_tokens=200, tool_choice="required")
    user = plain.clone(tools=[lookup], model_settings=forced_call)
    before = len(called)
    reply = await Runner.run(user, "Look up glacier.", max_turns=4)
    assert len(called) > before
    with contextlib.suppress(MaxTurnsExceeded):  # the toy model may call for ever
        await Runner.run(user.clone(output_type=Person), "Look up glacier.", max_turns=4)
    follow = [*reply.to_input_list(), {"role": "user", "content": "Thanks."}]
    await Runner.run(plain, follow)
    passing = plain.clone(handoffs=[plain.clone(name="other")], model_settings=forced_call)
    handed = await Runner.run(passing, "Hand this to the other agent.", max_turns=4)
    assert handed.last_agent.name == "other"
    print(kind.__name__, repr(whole), found)


for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
    asyncio.run(run(kind))
