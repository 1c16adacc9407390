"""promptfoo: prompts and assertions on its OpenAI providers for chats, completions and responses.

Runs under any Python: promptfoo itself is a program of Node.js, named by FORKROOT_PROMPTFOO.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
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
FORM = {"type": "json_schema", "json_schema": {"name": "p", "strict": True, "schema": SCHEMA}}
TOOLS = {"tools": [{"type": "function", "function": LOOKUP}], "tool_choice": "required"}
IS_CALL = {"type": "is-valid-openai-tools-call"}
IS_PARIS = {"type": "contains", "value": "Paris"}


def provider(kind: str, label: str, **config: Any) -> dict[str, Any]:
    """A provider of promptfoo on this server."""
    where = {"apiBaseUrl": os.environ["FORKROOT_URL"] + "/v1", "apiKey": "any"}
    sampling = {"temperature": 0, "max_tokens": 60}
    return {"id": f"openai:{kind}:tiny", "label": label, "config": {**where, **sampling, **config}}


def test(label: str, question: str, *asserts: dict[str, Any]) -> dict[str, Any]:
    """A question to one provider."""
    return {"vars": {"question": question}, "providers": [label], "assert": list(asserts)}


CAPITAL, ADA = "What is the capital of France?", "Ada is a 36 year old nurse from London."
CONFIG = {
    "prompts": ["{{question}}"],
    "providers": [
        provider("chat", "chat"),
        provider("chat", "schema", response_format=FORM),
        provider("chat", "tools", **TOOLS),
        provider("completion", "completion"),
        provider("responses", "responses"),
    ],
    "tests": [
        test("chat", CAPITAL, IS_PARIS, {"type": "latency", "threshold": 60_000}),
        test("schema", ADA, {"type": "is-json", "value": SCHEMA}),
        test("tools", "Look up glacier.", IS_CALL),
        test("completion", "The capital of France is", IS_PARIS),
        test("responses", CAPITAL, IS_PARIS),
    ],
}
with tempfile.TemporaryDirectory() as folder:
    config, out = Path(folder) / "promptfooconfig.json", Path(folder) / "out.json"
    config.write_text(json.dumps(CONFIG))
    environment = os.environ | {
        "PROMPTFOO_CONFIG_DIR": folder,
        "PROMPTFOO_DISABLE_TELEMETRY": "1",
        "PROMPTFOO_DISABLE_UPDATE": "1",
        "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
    }
    command = [os.environ["FORKROOT_PROMPTFOO"], "eval", "-c", str(config), "-o", str(out)]
    options = ["--no-cache", "--no-table", "--no-write", "--no-progress-bar"]
    done = subprocess.run([*command, *options], env=environment, capture_output=True, text=True)
    assert out.exists(), done.stdout + done.stderr
    rows = json.loads(out.read_text())["results"]["results"]
    for row in rows:
        assert row["success"], (row["provider"]["label"], row.get("error"), row.get("response"))
        print(row["provider"]["label"], repr(row["response"]["output"]))
    assert len(rows) == len(CONFIG["tests"]), len(rows)
