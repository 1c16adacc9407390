"""aider: a question, and edits in each of its formats; the toy model edits nothing well, so what is
checked is that every request is answered and aider ends well."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

AIDER = str(Path(sys.executable).with_name("aider"))
OPTIONS = [
    "--model=openai/tiny",
    f"--openai-api-base={os.environ['FORKROOT_URL']}/v1",
    "--openai-api-key=any",
    "--no-git",
    "--yes-always",
    "--no-check-update",
    "--no-show-release-notes",
    "--no-show-model-warnings",
    "--analytics-disable",
    "--no-auto-lint",
    "--no-pretty",
    "--no-suggest-shell-commands",
    "--no-detect-urls",
    "--map-tokens=0",
    "--model-settings-file=settings.yml",
]
SETTINGS = "- name: openai/tiny\n  max_tokens: 64\n  extra_params: {max_tokens: 64}\n"


def run(*more: str) -> None:
    """One run of aider on one file. Raises where the server did not answer."""
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder)
        (repository / "greet.py").write_text('def greet():\n    print("hello")\n')
        (repository / "settings.yml").write_text(SETTINGS)
        command = [AIDER, *OPTIONS, *more, "greet.py"]
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env=os.environ | {"HOME": folder},
        )
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        assert "litellm." not in output and "Tokens:" in output, output  # no error, an answer
        print(more[0], next(line for line in output.splitlines() if line.startswith("Tokens:")))


run("--edit-format=ask", "--message=What is the capital of France?")
run("--edit-format=whole", "--message=Say goodbye instead.")
run("--edit-format=diff", "--no-stream", "--message=Say goodbye instead.")
