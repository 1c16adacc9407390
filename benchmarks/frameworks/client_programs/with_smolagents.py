"""smolagents: a model called directly and in a stream, a tool-calling agent and a code agent."""

import os

from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool


@tool
def lookup(word: str) -> str:
    """Look up a word.

    Args:
        word: The word.
    """
    return f"{word}: a river of ice"


model = OpenAIServerModel(
    "tiny",
    api_base=os.environ["FORKROOT_URL"] + "/v1",
    api_key="any",
    temperature=0,
    max_tokens=64,
)
message = {"role": "user", "content": [{"type": "text", "text": "What is the capital of France?"}]}
whole = model([message])
assert whole.content and whole.token_usage.input_tokens > 0
events = list(model.generate_stream([message]))
assert "".join(event.content or "" for event in events) == whole.content
schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
assert '"n"' in model([message], response_format=form).content
# Agents: the toy model solves nothing, so what is checked is that every step is answered.
for kind, settings in (
    (ToolCallingAgent, {}),
    (ToolCallingAgent, {"stream_outputs": True}),
    (CodeAgent, {}),
    (CodeAgent, {"use_structured_outputs_internally": True}),
):
    agent = kind(tools=[lookup], model=model, max_steps=2, verbosity_level=0, **settings)
    agent.run("Look up glacier.")
    failed = [
        step.error
        for step in agent.memory.steps
        if type(getattr(step, "error", None)).__name__ == "AgentGenerationError"
    ]
    assert not failed, failed
    print(kind.__name__, settings, len(agent.memory.steps), "steps")
