"""What a sentence refers to outside of itself: by pronouns, by place, or as the next of a row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from .english import first_verb, word_set, words
from .parts import PLACEHOLDER


class Direction(Enum):
    """Where what is meant stands. JOINED: right before; the sentence goes on from there."""

    BACK = "back"
    AHEAD = "ahead"
    JOINED = "joined"


@dataclass(frozen=True, slots=True)
class Reference:
    """A phrase, and where what it means stands."""

    phrase: str
    direction: Direction


_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|`[^`]*`")
_PAST = "read|seen|heard|discussed|covered|learned|learnt|given|sent|shown|pasted|provided|told"
_BACK = re.compile(
    r"""\b(
    above (?!\s*(?:all\b|zero\b|\d))
    | aforementioned | aforesaid | foregoing | preceding | previous | previously | hitherto
    | earlier (?!\s+(?:in|than|on)\b) | prior (?!\s+to\b)
    | so\ far | again | remaining | others
    | (?:one|two|three|some|few|many|several|\d+)\ other
    | another | ditto | likewise | thereof | therein | thereby
    | the\ (?:former|latter|said|remainder|other|others|opposite|reverse|converse|contrary|inverse)
        (?!\s+than\b)
    | (?<!or\ ) (?:more|less|fewer|further|longer|shorter|better|worse|simpler|additional|extra)
        (?! [^.;]*\bthan\b)
    | a\ (?:second|third|different)
    | both (?!\s+(?:\w+\s+)?\w+s\b) (?! [^.;]*\band\b)
    | (?:keep|carry|goes|go|read|move)\ (?:going|on) (?=\s*(?:[.,;:!?]|$))
    | the\ last\ (?:two|three|four|five|few|\d+) | remains | left\ over
    | the\ (?:result|results|outcome|rest) (?!\s+(?:of|for|that|which|as|in)\b)
    | the\ same (?! [^.;]*\bas\b | \s+time\b)
    | (?:do|did|does|doing|done|if|why|when)\ so (?!\s+(?:that|many|much)\b)
    | (?:as|like|than|said|stated|given|mentioned)\ (?:before|earlier)
    | as\ (?:stated|mentioned|described|explained|noted|defined|discussed|shown|seen)
    | (?:the|just|already|last)\ mentioned | mentioned\ here
    | (?:have|has|had|just|already|ve)\ (?:just\ |already\ )?(?:"""
    + _PAST
    + r""")
    | just\ \w+(?:ed|en|wn|un|id|aid|ught|old|ent|eft|ade|one)
    | (?:you|i|we)\ (?:just\ )?(?!need|feed|proceed|succeed|exceed)\w+ed
    | the\ (?:\w+\ )?ones? (?!\s+(?:that|which|who|whose|with|of|in|from|for|to|on)\b)
    | the\ (?:first|second|third|last) (?=\s*(?:[.,;:!?]|$) | \s+(?:is|are|was|were|has|must)\b)
    | (?:you|i|we)\ (?:were|was)\ (?:just\ )?(?:"""
    + _PAST
    + r""")
    | i\ (?:gave|sent|showed|pasted|provided|told|wrote)
    | the\ last\ (?:message|turn|question|text|passage|paragraph|example|section|item|one)
    | (?:top|beginning|start|head)\ of\ (?:this|the)\ (?:prompt|message|page|conversation|document)
    | here (?!\s+(?:is|are)\b) (?!\s*:)
    | there (?!\s+(?:is|are|was|were|isn't|aren't|may|must|will|should|can|might|has|have)\b)
    | now
    | (?:both|neither|either|each)
        (?=\s*(?:[.,;!?]|$) | \s+(?:is|are|was|were|has|have|must|should|may|can)\b)
    | such (?!\s+as\b) | (?:as\ well|too) (?=\s*(?:[.!?]|$))
    )(?!\w)""",
    re.VERBOSE,
)
_AHEAD = re.compile(
    r"\b(below (?!\s*(?:zero\b|\d))|following|as\ follows|what\ follows|underneath|hereafter"
    r"|next\ (?:text|passage|section|paragraph|message|question))(?!\w)",
    re.VERBOSE,
)
_PRONOUN = re.compile(
    r"\b(it|its|it's|itself|they|them|their|theirs|themselves|he|him|his|himself|she|her|hers"
    r"|herself)\b"
)
_POSSESSIVE = frozenset({"its", "their"})
_PLURALS = frozenset({"they", "them", "their"})
_LISTED = re.compile(  # "name the known quantities and set up an equation for them"
    r"^\W*(?:please )?(?:list|name|write|find|give|identify|pick|choose|quote|extract|mark|select"
    r"|generate|create|propose)\s+(?:[\w'-]+\s+){0,4}?[\w'-]{2,}s\b.*(?:\b(?:and|then)\b|[,;])"
)
_QUANTIFIERS = frozenset({"each", "every", "any", "all"})
_BOUND = re.compile(r"\b(?:each|every|any|no|all)\s+(?:[\w'-]+\s+){1,7}?$")
_WITH = re.compile(r"(?:\w+\s+){3,}with\s+$")
_EXPLETIVE = re.compile(
    r"(?:is|'s|was|may be|might be|would be|will be|can be|must be)\s+(?:\w+ly\s+)?\w+\s+"
    r"(?:to|that|whether|if)\b"
)
_MADE = re.compile(r"\b(?:make|makes|making|find|keep)\s+$")
_AS_IT_IS = re.compile(r"\bas\s+$")
_BEING = re.compile(r"\s+(?:is|are|was|were|appears?|stands?|stood)\b")
_POINTING = re.compile(r"\b(this|these|those|that)\b")
_WIDE = re.compile(r"\s+(?:task|conversation|chat|session|exercise|game|role|job|assignment)\b")
_WHOSE = re.compile(
    r"\s+(?:who|whom|whose|that|which|of|in|with|from|where|not|mentioned|listed|named)\b"
)
_CLAUSE_TAKERS = word_set(
    """
    say says ensure sure note notes state states assume mention check remember know think thinks
    show shows so see it provided explain claim claims suggest suggests mean means imply implies
    believe find conclude decide argue argues indicate indicates clear important likely require
    requires guarantee confirm verify prove fact than feel hope suppose imagine certain
    """
)
_PREPOSITIONS = word_set(
    """
    do use from with of on for to in after before at by like about into without within is be given
    whether if why how because when unless while
    """
)
_START = re.compile(
    r"""^\W*(
    also | moreover | furthermore | additionally | besides | however | but | and | or | so
    | therefore | thus | hence | consequently | otherwise | instead | else | then | next
    | afterwards? | later | finally | lastly | second | secondly | third | thirdly | fourth
    | similarly | conversely | nevertheless | still | yet | meanwhile | in\ addition
    | in\ (?:return|turn|reply|response) | only\ then
    | in\ that\ case | if\ (?:so|not) | after\ (?:that|doing) | before\ (?:that|doing)
    | for\ (?:example|instance) | that\ is | in\ other\ words | specifically | in\ particular
    | in\ short | on\ the\ other\ hand | by\ contrast | as\ a\ result | even\ (?:so|then)
    | once\ (?:done|finished) | when\ (?:done|finished|ready)
    | (?:once|when)\ you\ (?:are|have) | to\ (?:do|achieve|that) | because | except | unless\ not
    | thanks | thank\ you | good\ luck | (?:best|kind)\ regards | (?:yes|no)(?=\s*[,.!])
    )\b""",
    re.VERBOSE,
)


def references(text: str) -> list[Reference]:
    """What a sentence refers to outside of itself; quoted texts refer to nothing."""
    plain = re.sub(r"\s+", " ", _QUOTED.sub(' "" ', text).replace("’", "'")).lower().strip()
    found = [Reference(hit[1].strip(), Direction.BACK) for hit in _BACK.finditer(plain)]
    found += [Reference(phrase, Direction.BACK) for phrase in _pronouns(plain)]
    found += list(_pointing(plain))
    found += [Reference(hit[1].strip(), Direction.AHEAD) for hit in _AHEAD.finditer(plain)]
    if hit := _START.match(plain):
        found.append(Reference(hit[1].strip(), Direction.JOINED))
    elif _is_elliptic(plain):
        found.append(Reference(plain.strip(), Direction.BACK))
    return found


def is_referring(text: str) -> bool:
    """Whether the beginning of a text refers to what stands before it."""
    start = re.split(r"(?<=[.!?])\s|\n", text.strip(), maxsplit=1)[0]
    return any(found.direction is not Direction.AHEAD for found in references(start))


def _pronouns(plain: str) -> Iterator[str]:
    """Pronouns whose noun is not in their own clause."""
    for hit in _PRONOUN.finditer(plain):
        before, after = plain[: hit.start()], plain[hit.end() :]
        word = hit[1]
        if word in ("it", "it's") and _is_expletive(before, after, word):
            continue
        if word in _POSSESSIVE and _is_bound(before):
            continue
        if word in _PLURALS and _LISTED.match(before):
            continue
        if word in ("it", "they") and _is_as_it_is(before, after):
            continue
        yield word


def _is_bound(before: str) -> bool:
    """Whether a possessive belongs to a noun of its sentence: "each word with its meaning"."""
    if _WITH.search(before) or _BOUND.search(re.split(r"[.,;:]", before)[-1]):
        return True
    found = words(before)[:3]
    return any(
        quantifier in _QUANTIFIERS and first_verb(" ".join(found[:place])) is not None
        for place, quantifier in enumerate(found)
    )


def _is_expletive(before: str, after: str, word: str) -> bool:
    """Whether "it" stands for a clause that follows: "it is important to", "make it easy to"."""
    rest = after.lstrip() if word == "it" else "is " + after.lstrip()
    if _EXPLETIVE.match(rest):
        return True
    return bool(_MADE.search(before) and re.match(r"\s+\w+\s+(?:to|for|that)\b", after))


def _is_as_it_is(before: str, after: str) -> bool:
    """Whether a pronoun stands for the object of its own sentence: "copy names as they are"."""
    found = _AS_IT_IS.search(before)
    return bool(found and _BEING.match(after) and len(before.split()) > 2)


def _pointing(plain: str) -> Iterator[Reference]:
    """ "this", "these", "those", "that" where they point to something."""
    ending = plain.endswith(":")
    for hit in _POINTING.finditer(plain):
        word, before, after = hit[1], plain[: hit.start()], plain[hit.end() :]
        if ending and len(after.rstrip(":").split()) <= 3 and word in ("this", "these"):
            yield Reference(word, Direction.AHEAD)
        elif not _is_local(word, before, after):
            yield Reference(word, Direction.BACK)


def _is_local(word: str, before: str, after: str) -> bool:
    """Whether what a pointing word means is in its sentence, or is the conversation."""
    if word == "that":
        return not _is_pronoun_that(before, after)
    if word == "those":
        return _WHOSE.match(after) is not None
    return _WIDE.match(after) is not None or _is_introduced(after)


def _is_introduced(after: str) -> bool:
    """Whether what "this" means comes right behind a colon in the same part."""
    return re.match(rf"(?:\s+\w+){{1,3}}\s*:\s*\W*{PLACEHOLDER}", after) is not None


def _is_pronoun_that(before: str, after: str) -> bool:
    found = re.findall(r"[\w']+", before)
    if not found or re.match(r"\s*(?:[.,;:!?)]|$)", after):
        return True
    if found[-1] in _CLAUSE_TAKERS:
        return False
    return len(found) == 1 or found[-1] in _PREPOSITIONS


def _is_elliptic(plain: str) -> bool:
    """Whether a sentence is too short to say what it is about."""
    found = re.findall(r"[\w']+", plain)
    if plain.endswith("?"):
        return len(found) < 4
    return bool(found) and len(found) < 4 and found[-1] in ("why", "how", "when", "where", "who")
