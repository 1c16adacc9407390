"""llama-index: complete, chat, streams, async, structured prediction and tool calls."""

import asyncio
import os

from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, Field


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


def lookup(word: str) -> str:
    """Look up a word."""
    return "a river of ice"


def model(**settings: object) -> OpenAILike:
    """The model on this server."""
    return OpenAILike(
        model="tiny",
        api_base=os.environ["FORKROOT_URL"] + "/v1",
        api_key="any",
        temperature=0,
        max_tokens=100,
        max_retries=0,
        **settings,
    )


chat, plain = model(is_chat_model=True, is_function_calling_model=True), model()
message = ChatMessage(role="user", content="What is the capital of France?")
whole = chat.chat([ChatMessage(role="system", content="Be brief."), message])
assert whole.message.content
pieces = list(chat.stream_chat([ChatMessage(role="system", content="Be brief."), message]))
assert pieces[-1].message.content == whole.message.content
reply = plain.complete("The capital of France is")
assert reply.text
assert list(plain.stream_complete("The capital of France is"))[-1].text == reply.text
assert asyncio.run(plain.acomplete("The capital of France is")).text == reply.text
assert asyncio.run(chat.achat([message])).message.content
print("chat", repr(whole.message.content), "completion", repr(reply.text[:30]))

scored = model(is_chat_model=True, logprobs=True, top_logprobs=2).chat([message])
assert scored.logprobs

prompt = PromptTemplate("Ada is a {age} year old nurse from London.")
for settings in (
    {"is_function_calling_model": True},
    {"is_function_calling_model": False, "should_use_structured_outputs": True},
):
    typed = model(is_chat_model=True, **settings)
    person = typed.structured_predict(Person, prompt, {"tool_choice": "required"}, age=36)
    assert isinstance(person, Person), person
    print("structured", settings, person)

tool = FunctionTool.from_defaults(lookup)
answer = chat.chat_with_tools([tool], user_msg="Look up glacier.", tool_required=True)
calls = chat.get_tool_calls_from_response(answer)
assert calls and calls[0].tool_name == "lookup"
print("tool", calls[0].tool_kwargs)
