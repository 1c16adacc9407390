"""What DSPy's programs ask again: a prompt's writer, runs that come back, an agent's next turn.

Entry: `running.Running` and `returning.Run`; `adapters.dspy.runtime` makes the hint.
May import `core.api`, `core.common`, `adapters.hints` and `adapters.dspy.patterns`.
Never knows engines or answers.
"""
