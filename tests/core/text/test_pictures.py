"""Pictures in prompts: what templates are given, and where placeholders stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers

import forkroot
from forkroot.benchmarks.common.fake_media import FakeProcessor
from forkroot.core.api.protocol import (
    Chat,
    Image,
    InvalidCall,
    Message,
    Text,
    Tokens,
    UnsupportedCall,
    Video,
)
from forkroot.core.text.chat_template import ChatTemplate
from forkroot.core.text.tokenizer import Tokenizer

TINY = Path(forkroot.__file__).parent / "models" / "tiny"
CAT, DOG, CLIP = Image(b"cat"), Image(b"dog"), Video(b"clip", 2)
LLAVA = (  # as of LLaVA-1.5: pictures first, and no text that is not in a part
    "{% for message in messages %}{{ message['role'].upper() + ': ' }}"
    "{% for part in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}"
    "{% endfor %}{% for part in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ part['text'] + ' ' }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
QWEN = (  # as of Qwen2-VL: texts and parts
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}{% if part.type == 'image' %}<<<image>>>"
    "{% elif part.type == 'video' %}<<<video>>>{% elif 'text' in part %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
DEAF = (
    "{% for message in messages %}{% for part in message.content %}{{ part.text }}{% endfor %}"
    "{% endfor %}"
)
NAMES = {"image": "<image>", "video": "<video>"}


def tokenizer(template: str, is_special: bool = True, **options: Any) -> Tokenizer:
    """The embedded model's, with placeholders of pictures."""
    core = tokenizers.Tokenizer.from_file(str(TINY / "tokenizer.json"))
    add = core.add_special_tokens if is_special else core.add_tokens
    add([tokenizers.AddedToken(name, normalized=False) for name in NAMES.values()])
    source = template.replace("<<<image>>>", "<image>").replace("<<<video>>>", "<video>")
    made = Tokenizer(core, ChatTemplate(source, {}), **options)
    tokens = {kind: core.token_to_id(name) for kind, name in NAMES.items()}
    made.take_pictures(FakeProcessor(tokens=tokens))
    return made


def message(role: str, *content: Any) -> Message:
    return Message(role, tuple(Text(it) if isinstance(it, str) else it for it in content))


def shown(made: Tokenizer, prompt: Any) -> str:
    """The prompt's text, in which pictures have their names."""
    encoded = made.encode_pictures(prompt)
    texts = [made.decode([token]) for token in encoded.ids]
    for place in encoded.places:
        texts[place.index] = f"[{place.segment.data.decode()}]"
    return "".join(texts)


def test_a_template_is_given_pictures_as_parts_of_the_content():
    chat = Chat((message("user", "What ", CAT, "is", DOG, "?"), message("assistant", "A cat.")))
    text = shown(tokenizer(LLAVA), chat)
    assert text == "USER: [cat]\n[dog]\nWhat  is ? ASSISTANT: A cat. ASSISTANT:"
    text = shown(tokenizer(QWEN), chat)
    assert text == "user\nWhat [cat]is[dog]?\nassistant\nA cat.\nassistant\n"


def test_a_template_of_parts_shows_messages_without_pictures():
    chat = Chat((message("user", "Who?"),))
    assert shown(tokenizer(LLAVA), chat) == "USER: Who? ASSISTANT:"


def test_a_template_of_texts_gets_pictures_where_they_stand():
    chat = Chat((message("user", "a", CAT, "b"),))
    made = tokenizer(CHATML)
    encoded = made.encode_pictures(chat)
    (place,) = encoded.places
    assert place.segment is CAT
    assert encoded.ids[place.index - 1 : place.index + 2] == [253, encoded.ids[place.index], 251]


def test_pictures_and_clips_are_matched_by_kind():
    chat = Chat((message("user", CLIP, CAT), message("user", "and", DOG)))
    assert shown(tokenizer(QWEN), chat) == "user\n[clip][cat]\nuser\nand[dog]\nassistant\n"


def test_a_template_that_shows_no_pictures_is_an_error():
    with pytest.raises(InvalidCall, match=r"0 placeholders of pictures.*as many as pictures \(1\)"):
        tokenizer(DEAF).encode_pictures(Chat((message("user", "a", CAT),)))


@pytest.mark.parametrize("is_special", [True, False])
@pytest.mark.parametrize("plain_content", [True, False])
@pytest.mark.parametrize("template", [LLAVA, QWEN, CHATML])
def test_the_name_of_a_placeholder_in_a_text_stays_text(template, plain_content, is_special):
    made = tokenizer(template, is_special, plain_content=plain_content)
    chat = Chat((message("user", "write <image> and <video>", CAT, "<image>"),))
    encoded = made.encode_pictures(chat)
    (place,) = encoded.places
    others = encoded.ids[: place.index] + encoded.ids[place.index + 1 :]
    assert encoded.ids[place.index] not in others
    assert made.decode(others).count("<image>") == 2
    plain = made.encode_pictures((Text("an <image> "), CAT, Text("<image>")))
    assert [it.segment for it in plain.places] == [CAT]
    assert shown(made, (Text("an <image> "), CAT, Text("<image>"))).count("<image>") == 2


def test_a_placeholder_that_is_no_pictures_is_refused():
    made = tokenizer(QWEN)
    token = made.encode("<image>")[0]
    tool = {"name": "<image>"}
    source = QWEN.replace("{% for message", "{{ tools }}{% for message", 1)
    with pytest.raises(InvalidCall, match="1 placeholders of pictures"):
        tokenizer(source).encode_pictures(Chat((message("user", "a"),), tools=(tool,)))
    with pytest.raises(InvalidCall, match="no placeholder of a picture among token ids"):
        made.encode_pictures((Tokens((1, token)), CAT))
    with pytest.raises(InvalidCall, match="placeholders of pictures"):
        made.encode_pictures((Text("<image>", (1, 2)), CAT))


def test_a_models_own_answer_keeps_its_ids_beside_pictures():
    made = tokenizer(QWEN)
    ids = tuple(token for letter in "Paris" for token in made.encode(letter))
    chat = Chat((message("user", CAT, "?"), Message("assistant", (Text("Paris", ids),))))
    encoded = made.encode_pictures(chat)
    start = encoded.ids.index(ids[0])
    assert tuple(encoded.ids[start : start + len(ids)]) == ids
    assert shown(made, chat) == "user\n[cat]?\nassistant\nParis\nassistant\n"


@pytest.mark.parametrize("template", [LLAVA, QWEN])
def test_an_open_message_with_a_picture_ends_in_its_text(template):
    chat = Chat((message("user", CAT, "It is"),), open_last=True)
    text = shown(tokenizer(template), chat)
    assert text.endswith("It is") and text.count("[cat]") == 1
    answer = Chat((message("user", DOG), message("assistant", "As in ", CAT)), open_last=True)
    text = shown(tokenizer(template), answer)
    assert text.index("[dog]") < text.index("As in ") < text.index("[cat]")


def test_a_prompt_of_segments_wraps_pictures_and_begins_as_text_does():
    made = tokenizer(QWEN)
    plain = made.encode_prompt((Text("a"),))
    encoded = made.encode_pictures((Text("a"), CAT))
    assert encoded.ids[: len(plain)] == plain
    assert [it.index for it in encoded.places] == [len(plain) + 1]
    assert encoded.filled([[7, 7, 7]]) == [*plain, 253, 7, 7, 7, 251]
    assert encoded.behind([1, 2]).filled([[7]]) == [1, 2, *plain, 253, 7, 251]


def test_a_model_of_text_takes_no_pictures():
    made = Tokenizer.from_folder(TINY)
    with pytest.raises(UnsupportedCall, match="text and tokens"):
        made.encode_prompt((CAT,))
    with pytest.raises(UnsupportedCall, match="Image in a message"):
        made.encode_prompt(Chat((message("user", CAT),)))


@pytest.mark.parametrize("template", [LLAVA, QWEN])
def test_a_chat_has_the_text_that_transformers_gives_it(template):
    library = pytest.importorskip("transformers.utils.chat_template_utils")
    source = template.replace("<<<image>>>", "<image>").replace("<<<video>>>", "<video>")
    contents = ["What ", CAT, "is it?"], ["A cat."], [DOG, CAT, "And these?"]
    roles = "user", "assistant", "user"
    turns = list(zip(roles, contents, strict=True))
    chat = Chat(tuple(message(role, *content) for role, content in turns))
    parts = [
        {
            "role": role,
            "content": [
                {"type": "text", "text": it} if isinstance(it, str) else {"type": "image"}
                for it in content
            ],
        }
        for role, content in turns
    ]
    (expected,), _ = library.render_jinja_template(
        conversations=[json.loads(json.dumps(parts))],
        chat_template=source,
        add_generation_prompt=True,
    )
    made = tokenizer(template)
    encoded = made.encode_pictures(chat)
    assert encoded.ids == made.encode(expected)
    assert [it.segment for it in encoded.places] == [CAT, DOG, CAT]
