"""pydantic-ai: text, streams, typed output by tool and by schema, and tools, on both routes."""

import asyncio
import os

from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

QUESTION, SENTENCE = "What is the capital of France?", "Ada is a 36 year old nurse from London."
provider = OpenAIProvider(base_url=os.environ["FORKROOT_URL"] + "/v1", api_key="any")


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


async def run(kind: type) -> None:
    """All of it with the model class of one route."""
    model, settings = kind("tiny", provider=provider), {"temperature": 0, "max_tokens": 200}
    plain = Agent(model, model_settings=settings, system_prompt="Be brief.")
    whole = (await plain.run(QUESTION)).output
    async with plain.run_stream(QUESTION) as reply:
        streamed = "".join([piece async for piece in reply.stream_text(delta=True)])
    assert whole == streamed != "", (whole, streamed)
    for form in (Person, NativeOutput(Person)):
        agent = Agent(model, model_settings=settings, output_type=form)
        assert isinstance((await agent.run(SENTENCE)).output, Person)
    async with Agent(model, model_settings=settings, output_type=Person).run_stream(
        SENTENCE
    ) as reply:
        assert isinstance(await reply.get_output(), Person)

    called: list[str] = []

    def lookup(word: str) -> str:
        """Look up a word."""
        called.append(word)
        return "a river of ice"

    agent = Agent(model, model_settings=settings, tools=[lookup])
    first = await agent.run("Look up glacier.")
    assert called
    await agent.run("And again?", message_history=first.all_messages())
    print(kind.__name__, repr(whole), "tool calls:", len(called))


for kind in (OpenAIChatModel, OpenAIResponsesModel):
    asyncio.run(run(kind))
