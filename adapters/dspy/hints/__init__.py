"""Prompts that DSPy's programs repeat: who wrote a prompt, runs, an agent's next turn.

Entry: `running.Running` and `returning.Run`; `adapters.dspy.runtime` makes the hint.
May import `core.api`, `core.common`, `adapters.hints` and `adapters.dspy.patterns`.
Never knows engines or answers.
"""
