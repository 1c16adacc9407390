"""The engine: admits calls, schedules tokens, runs batches, advances sequences, emits chunks.

Entry: `engine.Engine.step`; `scheduler.Scheduler` picks the tokens of a step.
May import `core.api`, `core.common`, `core.text`, `core.radix`, `core.fsm`,
`core.engine.pictures` and `core.engine.accounting`.
Never knows torch, models or threads: a runner is given to it; `testing` has one without a model.
"""
