"""Lines of code of a program in a listing: its own and those of all that it uses there.

Blank lines, comments and docstrings do not count; LMQL's queries are docstrings, and do. All
listings are formatted by `ruff format` to 100 columns, without type annotations.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).parent
SYSTEMS = ("forkroot", "openai", "guidance", "dspy", "lmql")
WHY_NOT = {
    "dspy": {
        "best_ending": "no likelihoods of given texts",
        "character": "no regular expressions",
        "town_event": "no prompts of one's own",
    },
    "lmql": {"ask_picture": "no pictures"},
}
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def text_of(system: str) -> str:
    """A listing."""
    return (FOLDER / f"{system}.txt").read_text("utf-8")


def definitions(text: str) -> dict[str, Definition]:
    """The functions and classes of a listing, by name."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name: node for node in ast.parse(text).body if isinstance(node, kinds)}


def lines(system: str, program: str) -> int | None:
    """Lines of a program; None where the listing has none."""
    text = text_of(system)
    known = definitions(text)
    if program not in known:
        return None
    shown = text.splitlines()
    return sum(_count(shown, known[name]) for name in used(known, program))


def used(known: dict[str, Definition], program: str) -> list[str]:
    """The program and all definitions of the listing that it refers to, directly or not."""
    found = [program]
    for name in found:
        names = _free_names(known[name])
        found += [other for other in known if other in names and other not in found]
    return found


def _free_names(definition: Definition) -> set[str]:
    """Names that a definition uses and does not bind."""
    nodes = list(ast.walk(definition))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound = {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return {node.id for node in names} - bound


def _count(shown: list[str], node: Definition) -> int:
    first = min([node.lineno, *(it.lineno for it in node.decorator_list)])
    own = (line.strip() for line in shown[first - 1 : node.end_lineno])
    return sum(bool(line) and not line.startswith("#") for line in own)


def plain(source: str, keeps: Callable[[str], bool]) -> str:
    """Functions of a module without annotations and docstrings, as a listing has them."""
    found = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and keeps(node.name):
            found.append(ast.unparse(_Plain().visit(node)))
    return "\n\n\n".join(found)


class _Plain(ast.NodeTransformer):
    """Takes annotations and docstrings away."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.returns = None
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            node.body = node.body[1:]
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        assert node.value is not None
        return ast.copy_location(ast.Assign([node.target], node.value, lineno=node.lineno), node)
