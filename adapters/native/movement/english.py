"""Words of English that the checks know: verbs of instructions, and words of every text."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


def word_set(text: str) -> frozenset[str]:
    """The words of a list."""
    return frozenset(text.split())


VERBS = word_set(
    """
    act adapt add address adopt aim allow analyse analyze annotate answer append apply argue
    arrange ask assess assign assume attach avoid base be begin break bring build calculate
    categorise categorize change check choose cite clarify classify close code combine comment
    compare compile complete compose compute concentrate conclude condense consider consult
    contain contrast convert copy correct count cover create critique cut decide deduce define
    delete demonstrate derive describe design detect determine develop diagnose differentiate
    discuss display distinguish divide double-check draft draw edit elaborate eliminate
    emphasise emphasize enclose end ensure enumerate estimate evaluate examine exclude execute
    expand explain explore express extract fill find finish fix flag focus follow form format
    formulate generate get give go grade group guess handle have help highlight identify ignore
    illustrate imagine implement improve include indicate infer insert interpret introduce join
    judge justify keep label lead leave limit link list locate look maintain make mark match
    measure mention merge mind modify name normalise normalize note number obey offer omit open
    order organise organize outline output paraphrase parse perform phrase pick place play point
    prefer prepare present preserve pretend print prioritise prioritize produce prompt proofread
    propose prove provide put quote rank rate read recommend record reduce refer reflect refrain
    refuse reject relate rely remember remove render reorder rephrase replace reply report
    represent request resolve respect respond rest restate restrict return reveal review revise
    rewrite round say score search select separate set show simplify skip solve sort speak
    specify spell split start state stay stick stop structure study substitute suggest sum
    summarise summarize support suppose surround tag take talk tell test think tidy touch trace
    transcribe transform translate treat triage try turn understand update use validate verify
    weigh work wrap write
    """
)
STEPS = word_set(
    """
    add subtract multiply divide double triple halve square append prepend insert delete remove
    swap shift rotate reverse increment decrement push pop
    """
)
_LEADING = word_set(
    "please kindly always never do not don't just only simply carefully also then and or but first"
    " instead briefly clearly explicitly exactly"
)
_CONDITIONS = word_set(
    """
    if when whenever where while for in to with without before after unless by using once on at
    because as since from regardless depending based
    """
)
_STATED = re.compile(
    r"^\W*(?:\w+\s+)(?:(?!who\b|what\b|which\b|that\b|whether\b|where\b|how\b|if\b)\w+\s+)?"
    r"(?:is|are|was|were|has|had|lies|lie|will|can|must|should|may|does|did)\b",
    re.IGNORECASE,
)
_FRAGMENT = re.compile(r"^\W*(?!think\b|speak\b)\w+\s+of\b", re.IGNORECASE)
_JUDGED = re.compile(r"\b(?:was|were|wrong|right|correct|incorrect|true|false)\b|\w\s+by\s+the\b")
_DEMANDS = frozenset({"please", "don't", "never", "always"})
_RESULTS = word_set(
    """
    answer answers assistant reply replies response output summary translation report review
    tone style language letter table list explanation query
    """
)
_EXPLETIVE = re.compile(r"^It is (?:\w+ly )?\w+ (?:to|that)\b")
_DEONTIC = re.compile(
    r"\b(must|should|shall|never|always|may (?:not|only|be)|needs? to|ha(?:s|ve) to)\b"
)
_GENERAL = word_set("a an your you each every all any no only both none nothing everything")
_COMMON = word_set(
    """
    the a an and or of to in for with without by on as is are be not no do it you your if from
    that at than then each every all any only one use give write answer please must should this
    into about using name show list return reply keep think
    """
)
KNOWN = VERBS | STEPS | _LEADING | _CONDITIONS | _GENERAL | _COMMON


def words(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return [word.lower() for word in _WORD.findall(text)]


def is_english(text: str) -> bool:
    """Whether a text may be English: of four words or more, a quarter is known; few letters of
    other alphabets."""
    letters = [char for char in text if char.isalpha()]
    if sum(not char.isascii() for char in letters) > 0.2 * len(letters):
        return False
    found = words(text)
    return len(found) < 4 or 4 * sum(word in KNOWN for word in found) >= len(found)


def is_imperative(text: str) -> bool:
    """Whether a sentence asks to do something, at its start or behind a condition."""
    if _is_order(text):
        return True
    clauses = re.split(r"[,;:—–]" if _is_conditional(words(text)) else "[;:]", text)[1:]
    return any(map(_is_order, clauses))


def _is_order(clause: str) -> bool:
    return first_verb(clause) is not None and not (_STATED.match(clause) or _FRAGMENT.match(clause))


def first_verb(clause: str) -> str | None:
    """The first word of a clause behind words such as "please", if it is a verb of instructions:
    one that is known, or any behind "do not"."""
    found = words(clause)
    for place, word in enumerate(found):
        if word in _DEMANDS or found[place : place + 2] == ["do", "not"]:
            rest = [other for other in found[place:] if other not in _LEADING]
            return rest[0] if rest else None
        if word in VERBS or word in STEPS:
            return word
        if word not in _LEADING:
            return None
    return None


def is_rule(text: str) -> bool:
    """Whether a sentence says what must or may be, of things in general and not of a name; or how
    the answer is."""
    found = words(text)
    is_judged = _JUDGED.search(text.lower()) is not None
    if _is_about_answer(found) or (_is_conditional(found) and _tells_of_answer(text)):
        return not is_judged
    if _EXPLETIVE.match(text):
        return True
    if not found or not _DEONTIC.search(text.lower()):
        return False
    return found[0] in _GENERAL or (found[0].endswith("s") and not found[0].endswith("ss"))


def _tells_of_answer(text: str) -> bool:
    return any(_is_about_answer(words(clause)) for clause in text.split(",")[1:])


def _is_about_answer(found: list[str]) -> bool:
    return found[:1] in (["the"], ["your"], ["each"]) and not _RESULTS.isdisjoint(found[1:3])


def _is_conditional(found: list[str]) -> bool:
    return bool(found) and found[0] in _CONDITIONS
