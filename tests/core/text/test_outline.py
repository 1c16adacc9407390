"""Keys of chats by outlines of their template: the tokens that the template gives."""

import threading

import pytest

from forkroot.core.api.protocol import Chat, InvalidCall, Message, Text, Tokens
from forkroot.core.model.hub.folders import model_folder
from forkroot.core.text.chat_template import ChatTemplate
from forkroot.core.text.outline import OutlineEncoder
from forkroot.core.text.tokenizer import Tokenizer

TEXTS = ("Why is the sky blue?", "", "  blanks \n", "\ufdd20\ufdd3 \ufdd00\ufdd1", "émoji 🙂")


@pytest.fixture(scope="module")
def tiny():
    return Tokenizer.from_folder(model_folder("tiny"), plain_content=True)


def chat(*texts):
    roles = ("system", "user", "assistant")
    return Chat(tuple(Message(roles[i % 3], (Text(it),)) for i, it in enumerate(texts)))


class Counting:
    """A tokenizer with another template, which counts what it renders."""

    def __init__(self, tiny, source):
        self._template, self._tiny = ChatTemplate(source, {}), tiny
        self.num_rendered = 0

    def render(self, given):
        self.num_rendered += 1
        return self._template.render(given)

    def encode(self, text, most=None):
        return self._tiny.encode(text, most)

    def encode_prompt(self, prompt, most=None):
        return self.encode("".join(it.text for it in self.render(prompt)))


PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}>"
TRIMMED = "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}{% endfor %}>"
LAST_ONLY = "{{ messages[-1].content }}>"


@pytest.mark.parametrize("num", [1, 2, 3, 5])
def test_keys_are_the_tokens_of_the_prompt(tiny, num):
    encoder = tiny.key_encoder()
    for text in TEXTS[:3] + TEXTS[4:]:
        given = chat(*[f"{text} {index}" for index in range(num)])
        assert encoder.encode_prompt(given) == tiny.encode_prompt(given)


def test_names_of_special_tokens_stay_text(tiny):
    encoder, name = tiny.key_encoder(), "<|im_end|>"
    encoder.encode_prompt(chat("a"))
    assert encoder.encode_prompt(chat(name)) == tiny.encode_prompt(chat(name))


def test_an_outline_is_looked_up_once_for_many_chats(tiny):
    tokenizer = Counting(tiny, PLAIN)
    encoder = OutlineEncoder(tokenizer)
    for number in range(60):
        given = chat(f"text {number}")
        assert encoder.encode_prompt(given) == tiny.encode(f"[system]text {number}>")
    assert tokenizer.num_rendered == 2
    for number in range(60):
        encoder.encode_prompt(chat(f"text {number}"))
    assert tokenizer.num_rendered == 4


@pytest.mark.parametrize("source", [TRIMMED, LAST_ONLY])
def test_a_template_that_changes_texts_is_rendered(tiny, source):
    tokenizer = Counting(tiny, source)
    encoder = OutlineEncoder(tokenizer)
    for given in (chat(" a ", " b"), chat("c ", "d")):
        assert encoder.encode_prompt(given) == tokenizer.encode_prompt(given)


def test_marks_in_texts_are_texts(tiny):
    encoder = OutlineEncoder(Counting(tiny, PLAIN))
    for text in TEXTS:
        assert encoder.encode_prompt(chat("a", text)) == tiny.encode(f"[system]a[user]{text}>")


@pytest.mark.parametrize(
    "given",
    [
        Chat((Message("user", (Text("a"), Text("b"))),)),
        Chat((Message("user", (Text("a", (1, 2)),)),)),
        Chat((Message("user", (Text("a"),)),), tools=({"name": "f"},)),
        Chat((Message("assistant", (Text("a"),)),), open_last=True),
        (Text("plain"), Tokens((5,))),
    ],
)
def test_other_prompts_are_encoded_as_they_are(given):
    class Whole:
        def encode_prompt(self, prompt, most=None):
            return [1, 2, 3]

    assert OutlineEncoder(Whole()).encode_prompt(given) == [1, 2, 3]


def test_what_a_template_refuses_is_an_error(tiny):
    tokenizer = Counting(tiny, "{{ raise_exception('no') }}")
    with pytest.raises(InvalidCall):
        OutlineEncoder(tokenizer).encode_prompt(chat("a"))


def test_threads_share_an_encoder(tiny):
    encoder, errors = tiny.key_encoder(), []

    def ask(seed):
        for number in range(100):
            given = chat(*[f"{seed}.{number}"] * (1 + number % 5))
            if encoder.encode_prompt(given) != tiny.encode_prompt(given):
                errors.append(given)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not errors
