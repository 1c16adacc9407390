"""JSON Schema: a document is read, its references are resolved, its keywords become facts.

Entry: `schema.schema_pattern`, from a schema to a pattern; `unfold.Document` reads one.
May import `core.api`, `core.common` and `core.fsm.regex`.
Never knows tokens, nor grammars: what no pattern can say is left to `core.fsm.grammar`.
"""
