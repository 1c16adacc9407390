"""Prompts as texts, and the tree of texts: what two share, where they can be cut, what is kept."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from forkroot.adapters.hints.outline import Outline
from forkroot.adapters.hints.seen import NODE_SIZE, Seen, common_len
from forkroot.core.api.protocol import Chat, Image, Message, Prompt, Text, Tokens, Video
from forkroot.core.model.hub.folders import model_folder
from forkroot.core.text.tokenizer import Tokenizer

TINY = Tokenizer.from_folder(model_folder("tiny"))

words = st.lists(st.sampled_from(["a", "word", "and then", "12", "Ü?", "x.y", "\n\n"]), max_size=12)
texts = words.map(" ".join)
ids = st.lists(st.integers(300, 900), max_size=6).map(tuple)
segments = st.one_of(
    texts.map(Text), ids.map(Tokens), texts.map(lambda text: Text(text, tuple(TINY.encode(text))))
)
messages = st.builds(
    Message, st.sampled_from(["system", "user", "assistant"]), st.tuples(texts.map(Text))
)
chats = st.builds(
    Chat,
    st.lists(messages, min_size=1, max_size=4).map(tuple),
    st.booleans(),
    st.sampled_from([(), ({"name": "look", "parameters": {}},)]),
)
prompts: st.SearchStrategy[Prompt] = st.one_of(
    chats, st.lists(segments, min_size=1, max_size=4).map(tuple)
)


@given(prompts, st.integers(0, 400))
def test_what_plants_a_beginning_begins_as_the_prompt_does(prompt: Prompt, length: int) -> None:
    outline = Outline.of(prompt)
    before = outline.before(min(length, len(outline.text)))
    if before is not None:
        start = Outline.of(before).text
        assert outline.text.startswith(start)
        assert len(start) <= max(length, outline.ends[0])


@given(prompts, st.integers(0, 400))
def test_a_cut_wastes_no_tokens_where_words_are_parted(prompt: Prompt, length: int) -> None:
    outline = Outline.of(prompt)
    before = outline.before(outline.cut(min(length, len(outline.text))))
    if before is None or before == prompt:
        return
    planted, whole = TINY.encode_prompt(before), TINY.encode_prompt(prompt)
    shared = next((n for n, i in enumerate(planted) if whole[n : n + 1] != [i]), len(planted))
    assert len(planted) - shared <= 3  # parts of the one token over which a short text is cut


def test_a_long_text_is_cut_where_a_word_ends() -> None:
    text = "The first rule of this house is that nobody may run in the long corridor. "
    outline = Outline.of((Text(text * 8),))
    for length in range(100, 500):
        end = outline.cut(length)
        planted = TINY.encode_prompt((Text(outline.text[1:end]),))
        assert length - 64 <= end <= length
        assert TINY.encode_prompt(outline.prompt)[: len(planted)] == planted


def test_a_text_without_blanks_is_cut_where_it_is_shared() -> None:
    outline = Outline.of((Text("x" * 500),))
    assert outline.cut(300) == 300


def test_a_hint_covers_whole_messages_and_the_opening_of_the_next() -> None:
    chat = Chat((Message("system", (Text("Be brief."),)), Message("user", (Text("Hello"),))))
    other = Chat((chat.messages[0], Message("user", (Text("Bye"),))))
    outline = Outline.of(chat)
    shared = common_len(outline.text, Outline.of(other).text)
    assert outline.num_whole(shared) == 1
    assert outline.hintable_len(shared) == shared
    assert outline.is_hintable(shared)
    assert not outline.is_hintable(shared + 2)
    opened = Chat((chat.messages[0], Message("user", ())), open_last=True)
    assert outline.before(shared) == opened
    assert TINY.encode_prompt(opened) == TINY.encode_prompt(chat)[: len(TINY.encode_prompt(opened))]


def test_messages_of_another_role_share_what_is_before_them() -> None:
    system = Message("system", (Text("Be brief."),))
    first = Outline.of(Chat((system, Message("user", (Text("Hello"),)))))
    second = Outline.of(Chat((system, Message("tool", (Text("Hello"),)))))
    shared = common_len(first.text, second.text)
    assert first.num_whole(shared) == 1
    assert first.before(shared) == Chat((system,), open_last=True)


def test_a_chat_that_goes_on_begins_as_the_one_before_it() -> None:
    chat = Chat((Message("user", (Text("Hello"),)),))
    more = (Message("assistant", (Text("Hi"),)), Message("user", (Text("Why?"),)))
    later = Outline.of(Chat((*chat.messages, *more)))
    assert later.text.startswith(Outline.of(chat).text)
    assert later.num_whole(len(Outline.of(chat).text)) == 1


def test_tools_kinds_and_data_distinguish_prompts() -> None:
    message = (Message("user", (Text("a"),)),)
    tools = ({"name": "look"},)
    different = [
        *(Chat(message), Chat(message, tools=tools), message[0].content),
        *((Tokens((97,)),), (Image(b"a"),), (Image(b"b"),)),
        *((Video(b"a", 4),), (Video(b"a", 8),)),
    ]
    assert len({Outline.of(prompt).text for prompt in different}) == len(different)


def test_pictures_are_shared_whole_or_not_at_all() -> None:
    pictures = [Image(bytes([number])) for number in range(40)]
    first = Outline.of((Text("Look: "), pictures[0], Text("What?")))
    for picture in pictures[1:]:
        other = Outline.of((Text("Look: "), picture, Text("What?")))
        assert first.before(common_len(first.text, other.text)) == (Text("Look: "),)
    same = Outline.of((Text("Look: "), pictures[0], Text("Where?")))
    shared = common_len(first.text, same.text)
    assert first.before(shared) == (Text("Look: "), pictures[0], Text("Wh"))
    assert first.before(first.cut(shared - 2)) == (Text("Look: "), pictures[0])


def test_a_root_has_one_name_for_one_content_in_one_namespace() -> None:
    first, second = Outline.of((Text("abc d"),)), Outline.of((Text("abc"), Text(" e")))
    assert first.name(4, "") == second.name(4, "")
    assert first.name(6, "") != second.name(6, "")
    assert first.name(4, "") != first.name(4, "other")


short = st.text("ab", max_size=12)


@given(st.lists(st.tuples(st.sampled_from(["", "n"]), short), max_size=30))
def test_the_tree_finds_what_a_text_shares_with_any_before_it(added: list[tuple[str, str]]) -> None:
    seen: Seen[int] = Seen(1 << 20)
    for end, (namespace, text) in enumerate(added):
        before = [other for space, other in added[:end] if space == namespace]
        best = max((common_len(text, other) for other in before), default=0)
        assert seen.add(namespace, text).length == best


def test_texts_fork_where_two_go_on_and_not_where_one_continues_the_other() -> None:
    seen: Seen[int] = Seen(1 << 20)
    added = ["root a", "root a", "root a b", "root c", "root a d", "root", "root a b e"]
    found = [seen.add("", text) for text in added]
    assert [known.length for known in found] == [0, 6, 6, 5, 7, 4, 8]
    assert [known.is_fork for known in found] == [False, False, False, True, True, True, False]


@given(st.lists(st.tuples(short, st.integers(0, 12)), max_size=30))
def test_marks_are_found_on_the_way_to_a_text_and_nowhere_else(
    added: list[tuple[str, int]],
) -> None:
    seen: Seen[str] = Seen(1 << 20)
    marked: list[str] = []
    for text, length in added:
        seen.add("", text)
        seen.mark("", text[:length], text[:length])
        marked.append(text[:length])
        expected = sorted({mark for mark in marked if text.startswith(mark)}, key=len, reverse=True)
        assert list(seen.marks("", text)) == expected
        assert list(seen.marks("other", text)) == []


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(["", "n", "m"]), st.text("abc", max_size=400))))
def test_the_tree_keeps_within_its_bound(added: list[tuple[str, str]]) -> None:
    seen: Seen[int] = Seen(3000)
    for namespace, text in added:
        seen.add(namespace, text)
        assert 0 <= seen.size <= 3000 + len(namespace) + NODE_SIZE


def test_what_was_used_last_is_kept_longest() -> None:
    seen: Seen[int] = Seen(4000)
    kept = "k" * 300
    for number in range(200):
        seen.add("", f"{number:03}" * 100)
        assert seen.add("", kept).length == (300 if number else 0)
    assert seen.add("", "000" * 100).length < 300


def test_a_text_too_long_to_keep_is_not_kept() -> None:
    seen: Seen[int] = Seen(4000)
    assert seen.add("", "a" * 1001).length == 0
    assert seen.add("", "a" * 1001).length == 0
    assert seen.size <= NODE_SIZE


@given(short, short)
def test_the_common_beginning_is_as_long_as_it_is(first: str, second: str) -> None:
    length = common_len(first, second)
    assert first[:length] == second[:length]
    assert length == min(len(first), len(second)) or first[length] != second[length]
