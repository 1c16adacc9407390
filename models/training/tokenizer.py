"""Build the tokenizer of the embedded model: byte-level BPE over the world's text, single digits,
ChatML turns.

Policy for BOS: plain encoding adds it (the post-processor does); the chat template writes it into
its text, so encode a rendered template with `add_special_tokens=False`.
"""

import itertools
import json
import random
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
    trainers,
)

from .tasks.world import documents
from .world.document import BOS, END_TURN, EOS, TURN
from .world.facts import SCRIPTS

PAD, IMAGE = "<|pad|>", "<|image|>"
SPECIAL = (PAD, BOS, EOS, TURN, END_TURN, IMAGE, *(f"<|reserved_{i}|>" for i in range(10)))
VOCABULARY_SIZE, CONTEXT_LEN = 4096, 2048
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = """\
{{- bos_token }}
{%- if tools %}
{{- '<|im_start|>system\\nYou are a helpful assistant.\\nTools:\\n' }}
{%- for tool in tools %}
{%- set f = tool.function if tool.function is defined else tool %}
{{- {'name': f.name, 'parameters': f.parameters} | tojson }}{{ '\\n' }}
{%- endfor %}
{{- 'To use a tool, answer with <tool_call>{...}</tool_call>.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.content is string %}{{ message.content }}
{%- elif message.content %}
{%- for part in message.content %}
{{- part.text if part.type == 'text' else '<|image|>' }}
{%- endfor %}
{%- endif %}
{%- for call in message.tool_calls or [] %}
{%- set f = call.function if call.function is defined else call %}
{{- '<tool_call>{"name": "' + f.name + '", "arguments": ' }}
{{- f.arguments if f.arguments is string else f.arguments | tojson }}{{ '}</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

LANGUAGES = """
В начале был лес, и река бежала между старыми деревьями. Она читает книгу, а он пишет письмо \
другу в большом городе.
Ο ήλιος ανατέλλει πάνω από τη θάλασσα και τα παιδιά παίζουν στον κήπο. Η γάτα κοιμάται κάτω από \
το τραπέζι.
むかしむかし、あるところに、おじいさんとおばあさんが住んでいました。東京は日本の首都です。カタカナもあります。
كان يا ما كان في قديم الزمان رجل يعيش في قرية صغيرة قرب النهر. القطة تنام تحت الطاولة والولد يقرأ \
الكتاب.
옛날 옛적에 작은 마을에 할머니와 할아버지가 살았습니다. 고양이가 책상 아래에서 잡니다.
एक समय की बात है, एक छोटे गाँव में एक बूढ़ा किसान रहता था। बिल्ली मेज़ के नीचे सोती है।
从前有一个小村庄，村里住着一位老人和他的猫。今天天气很好，我们去公园散步。
L'été dernier, la fille a mangé une pêche près de l'église. Das Mädchen läuft über die grüne \
Straße. ¿Dónde está el niño?
היה היה פעם איש זקן שגר בכפר קטן ליד הנהר. กาลครั้งหนึ่งนานมาแล้ว มีชายชราคนหนึ่งอาศัยอยู่ในหมู่บ้าน
😀😃😄😁😆😅😂🤣😊😇🙂😉😌😍😘🎉🎈🎁🏠🌳🌞🌈🔥⭐🍕🍎🍌🚗✈️⚽🎵❤️👍🙏
"""


def corpus(num_documents: int = 30_000) -> list[str]:
    """Text to learn merges from: the world's documents, and a spread of other scripts in real and
    made-up words.
    """
    rng = random.Random(0)
    world = [doc.text for doc in itertools.islice(documents(0, held_out=False), num_documents)]
    made_up = [
        "".join(map(rng.choice, rng.choice(tuple(SCRIPTS.values())))) for _ in range(num_documents)
    ]
    return world + made_up + [f" {word}" for word in made_up] + [LANGUAGES] * 12


def build_tokenizer(texts: list[str]) -> Tokenizer:
    """Train the merges on `texts`; special tokens take the first ids, in the order of `SPECIAL`."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    bpe.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, SPECIAL.index(BOS))]
    )
    return bpe


def tokenizer_config() -> dict[str, object]:
    """The settings that transformers reads, in the words of its versions 4 and 5."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "additional_special_tokens": [TURN, END_TURN, IMAGE],
        "add_bos_token": True,
        "model_max_length": CONTEXT_LEN,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


def save_tokenizer(folder: Path) -> None:
    """Build the tokenizer and write tokenizer.json and tokenizer_config.json to `folder`."""
    build_tokenizer(corpus()).save(str(folder / "tokenizer.json"))
    config = json.dumps(tokenizer_config(), indent=2)
    (folder / "tokenizer_config.json").write_text(config + "\n", encoding="utf-8")
