"""The prompt while it grows: merged texts, kept ids, chats, and what does not fit together."""

import pytest

from forkroot.adapters.native.interpreter.transcript import Transcript
from forkroot.adapters.native.language.expressions import RoleBegin, RoleEnd
from forkroot.core.api.protocol import Chat, Image, Message, ProgramError, Text

ANSWER = (Text("yes", (1, 2)),)


def test_adjacent_texts_are_one_segment() -> None:
    transcript = Transcript()
    transcript.add_text("a")
    transcript.add_text("")
    transcript.add_text("b")
    assert transcript.prompt() == (Text("ab"),)


def test_answers_keep_their_own_segments() -> None:
    transcript = Transcript()
    transcript.add_text("q ")
    transcript.add_answer("yes", ANSWER)
    transcript.add_text("a")
    transcript.add_text("b")
    assert transcript.prompt() == (Text("q "), Text("yes", (1, 2)), Text("ab"))
    assert transcript.text() == "q yesab"


def test_an_answer_without_segments_is_kept_as_text() -> None:
    transcript = Transcript()
    transcript.add_answer("yes", ())
    assert transcript.prompt() == (Text("yes"),)


def test_an_open_message_is_to_be_continued_and_a_closed_one_is_not() -> None:
    transcript = Transcript()
    transcript.extend((RoleBegin("user"),))
    transcript.add_text("hi")
    assert transcript.prompt() == Chat((Message("user", (Text("hi"),)),), open_last=True)
    transcript.extend((RoleEnd(),))
    assert transcript.prompt() == Chat((Message("user", (Text("hi"),)),), open_last=False)


def test_an_answer_outside_of_a_message_is_one_of_the_assistant() -> None:
    transcript = Transcript([RoleBegin("user"), RoleEnd()])
    transcript.add_answer("yes", ANSWER)
    messages = (Message("user", ()), Message("assistant", ANSWER))
    assert transcript.prompt() == Chat(messages)
    assert transcript.messages() == [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": "yes"},
    ]


def test_a_message_with_an_image_is_a_list_of_parts() -> None:
    transcript = Transcript([RoleBegin("user")])
    transcript.add_media(Image(b"png"))
    transcript.add_text("what is it?")
    content = [{"type": "image", "data": b"png"}, {"type": "text", "text": "what is it?"}]
    assert transcript.messages() == [{"role": "user", "content": content}]
    assert transcript.has_media()
    assert transcript.text() == "what is it?"


def test_what_was_written_since_a_point_can_be_added_elsewhere() -> None:
    one = Transcript()
    one.add_text("a")
    start = len(one)
    one.add_text("b")
    one.add_answer("yes", ANSWER)
    other = Transcript()
    other.add_text("x")
    other.extend(one.since(start))
    assert other.prompt() == (Text("xb"), Text("yes", (1, 2)))
    assert one.text(start) == "byes"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([RoleBegin("user"), RoleBegin("system")], "'system' begins inside role 'user'"),
        ([RoleEnd()], "none is open"),
    ],
)
def test_roles_do_not_nest(entries, message):
    with pytest.raises(ProgramError, match=message):
        Transcript(entries)


def test_plain_text_does_not_stand_beside_messages() -> None:
    transcript = Transcript([RoleBegin("user"), RoleEnd()])
    with pytest.raises(ProgramError, match="outside of any role in a chat: 'lost'"):
        transcript.add_text("lost")
    plain = Transcript()
    plain.add_text("intro")
    with pytest.raises(ProgramError, match="role 'user' begins after text"):
        plain.extend([RoleBegin("user")])
