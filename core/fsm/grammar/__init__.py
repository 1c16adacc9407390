"""Context-free constraints: Lark, GBNF, EBNF and recursive schemas, run by llguidance's matchers.

Entry: `grammar.GrammarGuide`; `rules.schema_grammar` writes a schema as a grammar.
May import `core.api`, `core.fsm.regex`, `core.fsm.tokens` and `core.fsm.json_schema`.
Never knows calls or sequences.
"""
