"""Questions about pictures and clips: programs per second of ours, and of transformers.

    python benchmarks/media/programs.py [--only image] [--tower 24] [--share 0.2] [--sample 12]

The paper's table of multi-modal models (section 6.2) in form: several questions about each picture
(60 about 12 of 336 x 336 pixels) and each clip (40 about 8, of 8 frames), answered by LLaVA-1.5 and
LLaVA-NeXT-Video with random weights: a 56M language model, and a tower of CLIP-L's width with
`--tower` layers (24 in CLIP-L). Ours runs with the cache, from an empty one each time; without it,
where the features of a picture that several calls show are still shared; and with nothing shared,
each program in a namespace of its own. The rival is `generate` of transformers, one question after
the other, with the same pixels and the same tokens. What shares nothing takes as long for each
question, so `--sample` of them suffice there. Prints one JSON row: programs per second, the
ratios to "cache", what was computed, and how many answers are equal.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch

from forkroot.adapters.native import function, gen, image, video
from forkroot.benchmarks.common.pictures import clip
from forkroot.benchmarks.common.report import parser, report
from forkroot.benchmarks.media.checkpoint import KINDS, LANGUAGES, make
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.media import FEATURE
from forkroot.core.api.protocol import Image, InvalidModel, Text, UnsupportedCall, Video
from forkroot.core.local import LocalBackend
from forkroot.core.media.encode import png
from forkroot.core.media.limits import MediaLimits
from forkroot.core.media.load import load as decode
from forkroot.core.model import vision
from forkroot.core.text.tokenizer import Tokenizer

BARS = {  # times as many programs a second: than transformers, and than with nothing shared
    "image": {"transformers": 5.0, "nothing": 4.0},
    "video": {"transformers": 3.0, "nothing": 4.0},
}
COUNTED = ("pictures_encoded", "tower_tokens", "computed_tokens", "cached_tokens", "prompt_tokens")
MODES = {  # whether there is a cache, and whether programs are in one namespace
    "cache": (True, True),
    "features": (False, True),
    "nothing": (False, False),
}
THINGS = ("dog", "sign", "street", "book", "lamp", "wall", "hand", "door", "tree", "window")
Now = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Question:
    """A question about an encoded picture or clip."""

    media: Image | Video
    question: str


@dataclass(frozen=True, slots=True)
class Size:
    """How much is requested. media: pictures or clips. questions: in all. edge: of pictures, in
    pixels. frames: of a clip. answer_len: tokens."""

    media: int
    questions: int
    edge: int
    frames: int
    answer_len: int


SIZES = {"image": Size(12, 60, 336, 1, 16), "video": Size(8, 40, 336, 8, 16)}


@function
def ask(s: Any, media: Image | Video, question: str, answer_len: int) -> None:
    """One program: a picture or a clip, a question, an answer."""
    shown = image(media.data) if isinstance(media, Image) else video(media.data, media.num_frames)
    s += shown + question + gen("answer", max_tokens=answer_len, temperature=0, ignore_eos=True)


def questions(kind: str, size: Size, seed: int) -> list[Question]:
    """The questions, those about one picture next to each other."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(size.media):
        frames = clip(seed * 1000 + number, size.frames, size.edge)
        data = png(frames)
        media = Image(data) if kind == "image" else Video(data, size.frames)
        for _ in range(size.questions // size.media):
            first, second = rng.choice(THINGS, 2, replace=False)
            text = f"\nQuestion: is the {first} near the {second}, and what else is there?\nAnswer:"
            found.append(Question(media, text))
    return found


def sampled(requests: Sequence[Question], most: int | None) -> Sequence[Question]:
    """`most` of the questions, evenly spaced; all of them for None."""
    if most is None or most >= len(requests):
        return requests
    return [requests[index * len(requests) // most] for index in range(most)]


def run_ours(
    folder: Path, requests: Sequence[Question], size: Size, args: Any, now: Now
) -> Iterator[tuple[str, list[float], list[str], dict[str, int]]]:
    """Each of MODES: seconds of each round, the answers, and what was counted in the last round.
    Raises UnsupportedCall for a runtime that takes no pictures."""
    for mode, (is_cached, is_shared) in MODES.items():
        chosen = requests if is_shared else sampled(requests, args.sample)
        backend = LocalBackend.from_folder(folder, cache=is_cached, dtype=args.dtype)

        def answer(
            number: int,
            backend: LocalBackend = backend,
            chosen: Sequence[Question] = chosen,
            own: bool = not is_shared,
        ) -> str:
            it, namespace = chosen[number], str(number) if own else ""
            given = {"media": it.media, "question": it.question, "answer_len": size.answer_len}
            return str(ask.run(**given, backend=backend, namespace=namespace)["answer"])

        try:
            taken = []
            answer(0)  # what is loaded or compiled by the first
            for _ in range(args.repeats):
                backend.clear_cache()
                backend.reset_counters()
                started = now()
                with ThreadPoolExecutor(len(chosen)) as threads:
                    answers = list(threads.map(answer, range(len(chosen))))
                taken.append(now() - started)
            counters = backend.info().counters
            yield mode, taken, answers, {name: int(counters.get(name, 0)) for name in COUNTED}
        finally:
            backend.close()


@torch.inference_mode()
def run_transformers(
    folder: Path, requests: Sequence[Question], size: Size, dtype: str, now: Now
) -> tuple[float, list[str]]:
    """Seconds in all, and the answers: one question at a time, its picture prepared as ours is."""
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    model.generation_config.eos_token_id = None  # answers have one length
    tokenizer, processor = Tokenizer.from_folder(folder), vision.load(folder)
    if processor is None:
        raise InvalidModel(f"{folder} has no processor of pictures")
    tokenizer.take_pictures(processor)
    limits, answers, started = MediaLimits.of(EngineConfig()), [], now()
    for it in requests:
        pixels = processor.pixels(decode(it.media, limits))
        prompt = tokenizer.encode_pictures((it.media, Text(it.question)))
        ids = np.array(prompt.filled([pixels.layout.ids.tolist()]))
        kind = "image" if isinstance(it.media, Image) else "video"
        ids = np.where(ids == FEATURE, processor.placeholder(kind), ids)
        tiles = torch.from_numpy(pixels.arrays["tiles"]).to(model.dtype)
        given = {"pixel_values": tiles} if kind == "image" else {"pixel_values_videos": tiles[None]}
        shown = torch.from_numpy(ids)[None].long()
        written = model.generate(
            input_ids=shown,
            attention_mask=torch.ones_like(shown),
            max_new_tokens=size.answer_len,
            do_sample=False,
            **given,
        )
        answers.append(tokenizer.decode(written[0, len(ids) :].tolist()))
    return now() - started, answers


def measure(folder: Path, kind: str, size: Size, args: Any, now: Now) -> dict[str, Any]:
    """The figures of one kind."""
    requests = questions(kind, size, args.seed)
    some = sampled(requests, args.sample)
    figures: dict[str, Any] = {"programs": len(requests), f"{kind}s": size.media}
    answers: dict[str, list[str]] = {}
    seconds: dict[str, float] = {}
    try:
        for mode, taken, found, counted in run_ours(folder, requests, size, args, now):
            seconds[mode], answers[mode] = median(taken) / len(found), found
            figures[mode] = {"programs_per_second": round(1 / seconds[mode], 3), **counted}
    except UnsupportedCall as error:
        figures["skipped"] = f"ours: {error}"
    if not args.no_rival:
        total, found = run_transformers(folder, some, size, args.dtype, now)
        seconds["transformers"], answers["transformers"] = total / len(found), found
        figures["transformers"] = {"programs_per_second": round(len(found) / total, 3)}
    if "cache" in seconds:
        for other in seconds.keys() - {"cache"}:
            own = dict(zip(requests, answers["cache"], strict=True))
            chosen = requests if len(answers[other]) == len(requests) else some
            pairs = zip((own[it] for it in chosen), answers[other], strict=True)
            figures[other] |= {
                "ratio": round(seconds[other] / seconds["cache"], 2),
                "bar": BARS[kind].get(other),
                "asked": len(chosen),
                "same_answers": sum(ours == theirs for ours, theirs in pairs),
            }
    return figures


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--only", choices=tuple(KINDS), help="pictures, or clips")
    options.add_argument("--language", choices=LANGUAGES, default="56m", help="tiny: to try it out")
    options.add_argument("--tower", type=int, default=3, help="layers of the tower; 24 in CLIP-L")
    options.add_argument("--share", type=float, default=1.0, help="of the pictures and clips")
    options.add_argument("--sample", type=int, help="questions to ask where nothing is shared")
    options.add_argument("--answer", type=int, default=16, help="tokens of an answer")
    options.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    options.add_argument("--repeats", type=int, default=1, help="rounds of ours")
    options.add_argument("--threads", type=int, default=1, help="the number of torch's threads")
    options.add_argument("--no-rival", action="store_true", help="ours alone")
    options.add_argument("--folder", type=Path, help="where checkpoints are kept")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    now = process_time if args.busy else perf_counter
    figures = {}
    with tempfile.TemporaryDirectory() as scratch:
        for kind in [args.only] if args.only else KINDS:
            whole = SIZES[kind]
            media = max(1, round(whole.media * args.share))
            each = whole.questions // whole.media
            edge = whole.edge if args.language == "56m" else 28
            size = Size(media, media * each, edge, whole.frames, args.answer)
            folder = (args.folder or Path(scratch)) / f"{kind}-{args.language}-{args.tower}"
            make(kind, args.language, args.tower, folder)
            figures[kind] = measure(folder, kind, size, args, now)
    fields = {
        name: getattr(args, name)
        for name in ("language", "tower", "share", "sample", "answer", "dtype", "threads")
    }
    report("media_programs", figures, args.out, **fields, seed=args.seed, clock=now.__name__)


if __name__ == "__main__":
    main()
