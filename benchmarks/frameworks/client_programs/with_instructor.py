"""instructor: a pydantic model in each mode, partial and several models, and `/v1/responses`."""

import os
from collections.abc import Iterable
from typing import Any

import instructor
import openai
from instructor.core.exceptions import InstructorRetryException
from pydantic import BaseModel, Field

CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Ada is a 36 year old nurse from London."}],
    "temperature": 0,
    "max_tokens": 200,
    "max_retries": 0,
}
WHERE = {"base_url": os.environ["FORKROOT_URL"] + "/v1", "api_key": "any"}


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


plain = openai.OpenAI(**WHERE, max_retries=0)
for mode in ("TOOLS", "TOOLS_STRICT", "JSON_SCHEMA"):
    client = instructor.from_openai(plain, mode=instructor.Mode[mode])
    person = client.chat.completions.create(model="tiny", response_model=Person, **CHAT)
    assert isinstance(person, Person), person
    print(mode, person)

client = instructor.from_openai(plain, mode=instructor.Mode.JSON)  # any JSON: no schema is sent
reply = client.chat.completions.create(model="tiny", response_model=None, **CHAT)
assert reply.choices[0].message.content

client = instructor.from_openai(plain, mode=instructor.Mode.TOOLS)
parts = list(client.chat.completions.create_partial(model="tiny", response_model=Person, **CHAT))
assert isinstance(Person.model_validate(parts[-1].model_dump()), Person)
print("partial", len(parts), parts[-1])

people: Any = Iterable[Person]
client = instructor.from_openai(plain, mode=instructor.Mode.PARALLEL_TOOLS)
try:
    found = list(client.chat.completions.create(model="tiny", response_model=people, **CHAT))
    print("parallel tools", len(found))
except InstructorRetryException as error:  # "auto" and not strict: what a call says is up to tiny
    assert "validation error for Person" in str(error), error
    print("parallel tools: a call that lacks a field")

client = instructor.from_provider("openai/tiny", mode=instructor.Mode.RESPONSES_TOOLS, **WHERE)
person = client.chat.completions.create(response_model=Person, **CHAT)
assert isinstance(person, Person), person
print("responses", person)
