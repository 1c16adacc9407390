"""inspect-ai: evaluations by its providers for OpenAI, compatible servers, vLLM and SGLang."""

import os
import tempfile

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, ResponseSchema, get_model
from inspect_ai.scorer import choice, includes
from inspect_ai.solver import generate, multiple_choice, use_tools
from inspect_ai.tool import tool
from inspect_ai.util import json_schema
from pydantic import BaseModel

URL = os.environ["FORKROOT_URL"] + "/v1"
os.environ.update(
    FORKROOT_API_KEY="any", VLLM_API_KEY="any", SGLANG_API_KEY="any", FORKROOT_BASE_URL=URL
)


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool
def lookup():
    async def execute(word: str):
        """Look up a word.

        Args:
            word: The word.
        """
        return "a river of ice"

    return execute


CAPITALS = [
    Sample("What is the capital of France?", target="Paris"),
    Sample("What is the capital of Norway?", target="Oslo"),
]
OPTIONS = [Sample("The capital of France is?", choices=["Oslo", "Paris"], target="B")]
schema = ResponseSchema(name="person", json_schema=json_schema(Person))
TASKS = [
    Task(CAPITALS, name="capitals", solver=generate(), scorer=includes()),
    Task(OPTIONS, name="options", solver=multiple_choice(), scorer=choice()),
    Task(
        [Sample("Look up glacier.", target="ice")],
        name="tools",
        solver=[use_tools(lookup(), tool_choice="any"), generate(tool_calls="single")],
        scorer=includes(),
    ),
    Task(
        [Sample("Ada is a 36 year old nurse from London.", target="36")],
        name="schema",
        solver=generate(),
        scorer=includes(),
        config=GenerateConfig(response_schema=schema),
    ),
    Task(
        CAPITALS,
        name="logprobs",
        solver=generate(),
        scorer=includes(),
        config=GenerateConfig(logprobs=True, top_logprobs=2, num_choices=2, seed=1),
    ),
]
MODELS = {
    "openai-api/forkroot/tiny": {},
    "openai/tiny": {"responses_api": False},
    "openai/tiny ": {"responses_api": True},
    "vllm/tiny": {},
    "sglang/tiny": {},
}
with tempfile.TemporaryDirectory() as folder:
    for name, settings in MODELS.items():
        model = get_model(name.strip(), base_url=URL, api_key="any", memoize=False, **settings)
        tasks = TASKS[:-1] if settings.get("responses_api") else TASKS  # which has no logprobs
        logs = eval(
            tasks, model=model, log_dir=folder, display="none", temperature=0, max_tokens=100
        )
        for log in logs:
            assert log.status == "success", (name, log.eval.task, log.error)
        scores = [log.results.scores[0].metrics["accuracy"].value for log in logs]
        print(name, settings, dict(zip([log.eval.task for log in logs], scores, strict=True)))
