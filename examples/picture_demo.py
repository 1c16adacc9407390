"""The demo behind `forkroot demo --image`: the picture judge on the pictures in the box, with the
cache and without, and what that computes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from .. import CallFailed, ProgramState, UnsupportedCall
from ..core.api.protocol import Image
from ..core.media.limits import MediaLimits
from ..core.media.load import load
from .demo import Engine, is_computed_here
from .picture_judge import ASKED, ASPECTS, picture_judge
from .savings import plain_table

THINGS = ("blue triangle", "red cross", "pink ring")
PICTURES = Path(__file__).parent / "pictures"
_LIMITS = MediaLimits(bytes=1 << 24, pixels=1 << 24, frames=1, seconds=5.0)
_UPPER_HALF = "▀"


@dataclass(frozen=True, slots=True)
class Found:
    """What the program made of one picture: the answers, by what was asked."""

    name: str
    thing: str
    shown: str
    answers: tuple[str, ...] = ()
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Looked:
    """A run over all pictures, and what it took. encoded: pictures that went through the tower.
    cached_tokens: of the prompts, those of pictures too. seconds: as in `demo.Figures`."""

    name: str
    found: tuple[Found, ...]
    calls: int
    encoded: int
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    seconds: float


def show_pictures(start: Callable[[bool], Any], console: Console) -> int:
    """Judge the pictures in the box with the cache and without, and print what was found and what
    it took; 1 if an answer changed. start: an engine with a cache, or without. Raises
    UnsupportedCall for a model that takes no pictures."""
    looks = []
    for name, is_cached in (("cache and hints", True), ("neither", False)):
        with start(is_cached) as engine:
            check_sight(engine)
            pictures = load_pictures()
            looks.append(look(engine, pictures, name))
    for found in worth_showing(looks[0].found):
        show_picture(console, pictures[found.name], found)
    console.print(f"\n[bold]{len(looks[0].found)} questions, {len(pictures)} pictures[/bold]")
    console.print(looks_table(looks))
    is_same = looks[0].found == looks[1].found
    text = "All answers are the same." if is_same else "[bold red]Answers differ![/bold red]"
    console.print(f"\n{text}")
    return 0 if is_same else 1


def check_sight(engine: Engine) -> None:
    """Raise UnsupportedCall for a model that takes no pictures."""
    info = engine.info()
    if "images" not in info.features:
        raise UnsupportedCall("model", info.model, "a model that takes images")


def worth_showing(found: Sequence[Found]) -> list[Found]:
    """Of all that was asked, one picture that shows the thing, and one that does not."""
    kinds = {it.shown: it for it in reversed(found)}
    return [kinds[answer] for answer in (" yes", " no") if answer in kinds]


def load_pictures(folder: Path = PICTURES) -> dict[str, bytes]:
    """The encoded pictures in the box, by name. Raises CallFailed where there are none."""
    found = {path.stem: path.read_bytes() for path in sorted(folder.glob("*.png"))}
    if not found:
        raise CallFailed(f"no pictures in {folder}")
    return found


def look(engine: Engine, pictures: dict[str, bytes], name: str) -> Looked:
    """Run the program for each picture and each of THINGS at once, from an empty cache."""
    items = [{"picture": data, "thing": thing} for data in pictures.values() for thing in THINGS]
    places = [(picture, thing) for picture in pictures for thing in THINGS]
    clock = time.process_time if is_computed_here(engine) else time.perf_counter
    engine.clear_cache()
    engine.reset_counters()
    started = clock()
    states = picture_judge.run_batch(
        items, backend=engine, temperature=0, progress_bar=False, raise_errors=True
    )
    seconds = clock() - started
    counters = engine.info().counters
    return Looked(
        name,
        tuple(_found(*place, state) for place, state in zip(places, states, strict=True)),
        calls=int(counters["calls"]),
        encoded=int(counters["pictures_encoded"]),
        prompt_tokens=int(counters["prompt_tokens"]),
        cached_tokens=int(counters["cached_tokens"]),
        computed_tokens=int(counters["computed_tokens"]),
        seconds=seconds,
    )


def _found(name: str, thing: str, state: ProgramState) -> Found:
    if "verdict" not in state:
        return Found(name, thing, state["shown"])
    return Found(name, thing, state["shown"], tuple(state["answer"]), state["verdict"])


def half_blocks(data: bytes, width: int = 32) -> Text:
    """A picture as characters: each shows two pixels, one above the other, by its colours. Raises
    InvalidCall for data that is no picture."""
    frame = load(Image(data), _LIMITS).frames[0]
    height = max(2, round(width * frame.shape[0] / frame.shape[1]) // 2 * 2)
    rows = [index * frame.shape[0] // height for index in range(height)]
    columns = [index * frame.shape[1] // width for index in range(width)]
    pixels = frame[rows][:, columns].tolist()
    text = Text()
    for above, below in zip(pixels[::2], pixels[1::2], strict=True):
        for upper, lower in zip(above, below, strict=True):
            colours = (f"rgb({red},{green},{blue})" for red, green, blue in (upper, lower))
            text.append(_UPPER_HALF, Style(color=next(colours), bgcolor=next(colours)))
        text.append("\n")
    return text


def show_picture(console: Console, data: bytes, found: Found) -> None:
    """Print a picture, where the console has colours, and what was asked and answered about it."""
    console.print(f"[bold]One picture:[/bold] {found.name}")
    if console.color_system is not None:
        console.print(half_blocks(data, min(32, console.width)), end="")
    asked = [f"Is there a {found.thing}?", *(ASPECTS.values() if found.answers else ())]
    answers = [found.shown, *found.answers]
    for number, (question, answer) in enumerate(zip(asked, answers, strict=True)):
        guide = "" if number == 0 else "└─ " if number == len(asked) - 1 else "├─ "
        line = ASKED.format(question=question).replace("\n", " ")
        console.print(Text.assemble((f"  {guide}", "dim"), line, (answer, "bold green")))
    if found.verdict:
        console.print(Text.assemble("  Verdict as JSON: ", (found.verdict, "bold green")))


def looks_table(looks: Sequence[Looked]) -> Table:
    """What each run took; the last one's time is what the others are measured by."""
    table = plain_table()
    table.add_column("", no_wrap=True)
    for name in ("calls", "pictures\ncomputed", "prompt\ntokens", "of these\ncached"):
        table.add_column(name, justify="right")
    for name in ("tokens\ncomputed", "seconds", "speed"):
        table.add_column(name, justify="right")
    for it in looks:
        counts = it.calls, it.encoded, it.prompt_tokens, it.cached_tokens, it.computed_tokens
        speed = looks[-1].seconds / it.seconds if it.seconds else 1.0
        cells = (*(f"{number:,}" for number in counts), f"{it.seconds:.2f}", f"{speed:.1f}×")
        table.add_row(it.name, *cells)
    return table
