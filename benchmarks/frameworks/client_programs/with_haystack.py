"""haystack: chat generators whole, streamed and typed, tools, an agent, and a pipeline."""

import os

from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret
from pydantic import BaseModel, Field

WHERE = {
    "api_key": Secret.from_token("any"),
    "model": "tiny",
    "api_base_url": os.environ["FORKROOT_URL"] + "/v1",
    "max_retries": 0,
}


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


def lookup(word: str) -> str:
    """Look up a word."""
    return "a river of ice"


def generation_settings(limit: str, **more: object) -> dict[str, object]:
    """How answers are sampled. limit: the field that bounds their length."""
    return {"temperature": 0, limit: 100, **more}


question = [ChatMessage.from_user("What is the capital of France?")]
tool = create_tool_from_function(lookup)
for kind, limit, form in (
    (OpenAIChatGenerator, "max_completion_tokens", "response_format"),
    (OpenAIResponsesChatGenerator, "max_output_tokens", "text_format"),
):
    chat = kind(**WHERE, generation_kwargs=generation_settings(limit))
    (whole,) = chat.run(question)["replies"]
    pieces: list[str] = []
    chat.run(question, streaming_callback=lambda piece, to=pieces: to.append(piece.content))
    assert "".join(pieces) == whole.text, (pieces, whole.text)
    typed = kind(**WHERE, generation_kwargs=generation_settings(limit, **{form: Person}))
    (reply,) = typed.run([ChatMessage.from_user("Ada is 36.")])["replies"]
    person = Person.model_validate_json(reply.text)
    forced = kind(
        **WHERE, generation_kwargs=generation_settings(limit, tool_choice="required"), tools=[tool]
    )
    for settings in ({}, {"streaming_callback": lambda piece: None}):
        (reply,) = forced.run([ChatMessage.from_user("Look up glacier.")], **settings)["replies"]
        assert reply.tool_calls[0].tool_name == "lookup"
    agent = Agent(chat_generator=chat, tools=[tool], max_agent_steps=3)
    agent.run([ChatMessage.from_user("Look up glacier.")])
    print(kind.__name__, repr(whole.text), person, reply.tool_calls[0].arguments)

pipeline = Pipeline()
pipeline.add_component("prompt", ChatPromptBuilder([ChatMessage.from_user("{{question}}")]))
pipeline.add_component("llm", OpenAIChatGenerator(**WHERE))
pipeline.connect("prompt.prompt", "llm.messages")
reply = pipeline.run({"prompt": {"question": "What is the capital of Norway?"}})
assert reply["llm"]["replies"][0].text
