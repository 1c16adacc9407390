"""What of a Guidance grammar can be asked in one call, and as which pattern.

Entry: `plan.Plan`.
May import `core.api`, and `core.fsm` up to `core.fsm.json_schema`.
Never knows engines or states.
"""
