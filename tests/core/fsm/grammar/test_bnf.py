"""GBNF and EBNF: their notation, and that terminals change nothing of what is meant."""

from __future__ import annotations

import pytest

from forkroot.core.api.protocol import InvalidCall
from forkroot.core.fsm.grammar.ending import END
from forkroot.core.fsm.grammar.explore import explore
from forkroot.core.fsm.grammar.grammar import GrammarGuide
from forkroot.core.fsm.grammar.lark import read_grammar
from forkroot.core.fsm.grammar.matcher import Library, Matcher
from forkroot.core.fsm.tokens.vocabulary import Vocabulary

LIBRARY = Library(Vocabulary([bytes([byte]) for byte in range(256)], []))

ARITHMETIC = r"""
root  ::= (expr "=" ws term "\n")+   # the last white space is not the line's end
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
"""
JSON = r"""
root   ::= value
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::=
  "[" ws (
    value ("," ws value)*
  )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""


def matcher_of(source: str, syntax: str = "gbnf") -> Matcher:
    return GrammarGuide(explore(read_grammar(source, syntax), LIBRARY), LIBRARY).byte_matcher(b"")


def accepts(matcher: Matcher, text: str) -> bool:
    data = text.encode()
    return bool(matcher.validate_tokens([*data, END]) == len(data) + 1)


@pytest.mark.parametrize(
    "source, good, bad",
    [
        (ARITHMETIC, ["1=2\n", "(a +b)*3 = 4 \n\n", "x_1=y\n1=1\n"], ["1=2", "1+=2\n", "(1=2)\n"]),
        (JSON, ['{"a":[1,-2.5e3,null]}', '[ "\\u00e9é",{}\n ]', "0 "], ['{"a"}', "[1,]", "01x"]),
        ('root ::= "a"{2} [b-d]{1,} "e"{0,2} .', ["aabx", "aabcdee鱼"], ["abx", "aab", "aaeex"]),
        ('root ::= "\\x41\\u00e9\\U0001F600\\"\\\\"', ['Aé😀"\\'], ["A"]),
        ("root ::= [^a-c\\]] [\\]\\-\\^a]", ["d]", "x-", "鱼^", "za"], ["a]", "]]", "xb"]),
        ('root ::= a-b | A_1\na-b ::= "x" root?\nA_1 ::= ""', ["", "x", "xxx"], ["y"]),
        ('root ::= ("if " name " then " root) | name "=" name\nname ::= [a-z]+', ["a=b"], ["a="]),
    ],
)
def test_gbnf_means_what_it_says(source: str, good: list[str], bad: list[str]) -> None:
    matcher = matcher_of(source)
    assert [text for text in good if not accepts(matcher, text)] == []
    assert [text for text in bad if accepts(matcher, text)] == []


@pytest.mark.parametrize(
    "source, good, bad",
    [
        ("Start ::= '(' Start ')' | [a-z]+ /* or\nmore */ ;", ["a", "((bc))"], ["(a", "A"]),
        ("a ::= #x41 b* b ::= [#x30-#x39]", ["A", "A09"], ["a", "AA"]),
        ('a ::= "don\'t" | \'say "hi"\'  # said', ["don't", 'say "hi"'], ["dont"]),
        ('x ::= "x"\nroot ::= x x', ["xx"], ["x"]),
    ],
)
def test_ebnf_means_what_it_says(source: str, good: list[str], bad: list[str]) -> None:
    matcher = matcher_of(source, "ebnf")
    assert [text for text in good if not accepts(matcher, text)] == []
    assert [text for text in bad if accepts(matcher, text)] == []


@pytest.mark.parametrize(
    "source, syntax, message",
    [
        ("root ::= a", "gbnf", "names of rules that are defined; not 'a' in line 1"),
        ('root ::= "b"\nc ::= [z-a]', "gbnf", "ranges that ascend; not '[z-a]' in line 2"),
        ('root ::= ("a"', "gbnf", "a ) for each (; not '(' in line 1"),
        ('root ::= "a', "gbnf", "the notation of gbnf; not '\"' in line 1"),
        ("root ::= 'a'", "gbnf", "the notation of gbnf; not \"'a'\" in line 1"),
        ('a ::= "b"', "gbnf", "a rule named root"),
        ('root ::= "\\q"', "gbnf", "the escapes"),
        ('root ::= "\\uD800"', "gbnf", "characters of Unicode"),
        ('root ::= "a"{3,1}', "gbnf", "counts that ascend"),
        ('root ::= "a"{1,99999}', "gbnf", "at most 10000"),
        ('root ::= * "a"', "gbnf", "texts in quotes"),
        ('root ::= "a"\nroot ::= "b"', "ebnf", "one definition of each rule; not 'root' in line 2"),
        ('root ::= "a" - "b"', "ebnf", "the notation of ebnf; not '-' in line 1"),
        ("root ::= " + "(" * 70 + '"a"' + ")" * 70, "ebnf", "groups at most 64 deep"),
        ('= "a"', "ebnf", "the notation of ebnf"),
        ("", "ebnf", "a rule named root"),
        ('root ::= "a"', "abnf", "the syntaxes lark, gbnf, ebnf"),
    ],
)
def test_a_bad_grammar_is_refused_with_its_line(source: str, syntax: str, message: str) -> None:
    with pytest.raises(InvalidCall) as caught:
        read_grammar(source, syntax)
    assert caught.value.field == "grammar"
    assert message in caught.value.allowed


def test_parts_without_recursion_are_terminals_where_nothing_after_them_goes_on_with_them() -> None:
    lark = read_grammar(JSON, "gbnf").source
    assert lark.count("true") == 1 and "(?:true|false|null)" in lark
    assert "/[0-9]/" not in lark
    lines = read_grammar(ARITHMETIC, "gbnf").source
    assert "/[0-9]+/" in lines
    assert "/[\\u0009-\\u000a ]/" in lines
