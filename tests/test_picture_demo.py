"""`forkroot demo --image` and its programs, without a model: what they ask, share and show."""

from __future__ import annotations

import io
import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from forkroot.__main__ import main
from forkroot.adapters.testing import ScriptedBackend
from forkroot.adapters.usage import settle_model
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import (
    BackendInfo,
    Call,
    CallFailed,
    Completion,
    Image,
    JsonSchema,
    Output,
    Text,
    UnsupportedCall,
    Video,
)
from forkroot.core.media.encode import png
from forkroot.examples.picture_demo import (
    THINGS,
    Found,
    Looked,
    check_sight,
    half_blocks,
    load_pictures,
    look,
    looks_table,
    show_picture,
    worth_showing,
)
from forkroot.examples.picture_judge import (
    ASPECTS,
    VERDICT,
    clip_judge,
    frame_judge,
    picture_judge,
)

RED, BLUE = (255, 0, 0), (0, 0, 255)
PICTURE = png([np.array([[RED, RED], [BLUE, BLUE]], np.uint8)])
COUNTERS = ("calls", "pictures_encoded", "prompt_tokens", "cached_tokens", "computed_tokens")


class Seeing(ScriptedBackend):
    """Says of one picture that it shows the thing, and of any other that it does not."""

    config = EngineConfig()

    def __init__(self, **settings: object) -> None:
        super().__init__(self.answer, **settings)  # type: ignore[arg-type]

    def answer(self, call: Call) -> Completion | str:
        if call.options:
            is_shown = isinstance(call.prompt, tuple) and Image(PICTURE) in call.prompt
            return " yes" if is_shown else " no"
        if isinstance(call.constraint, JsonSchema):
            return Completion((Output('{"count": 2}', segments=(Text('{"count": 2}'),)),))
        return " two"

    def info(self) -> BackendInfo:
        counters = {name: index + 1 for index, name in enumerate(COUNTERS)}
        return replace(super().info(), counters=counters)

    def reset_counters(self) -> None:
        pass

    def clear_cache(self) -> int:
        return 0


def test_the_branches_of_the_judge_share_the_picture() -> None:
    backend = Seeing()
    state = picture_judge.run(picture=PICTURE, thing="red star", backend=backend)
    assert state["answer"] == [" two"] * len(ASPECTS)
    assert json.loads(state["verdict"]) == {"count": 2}
    assert {call.prompt[0] for call in backend.calls} == {Image(PICTURE)}  # type: ignore[index]
    schemas = [
        it.constraint.schema for it in backend.calls if isinstance(it.constraint, JsonSchema)
    ]
    assert schemas == [VERDICT]
    planted = [call for call in backend.calls if call.sampling.max_tokens == 0 and call.hint]
    assert len(planted) == 1


def test_a_picture_that_does_not_show_the_thing_is_not_looked_at_further() -> None:
    backend = Seeing()
    state = picture_judge.run(picture=b"other", thing="red star", backend=backend)
    assert "verdict" not in state
    assert state.text().endswith("The picture does not show it.\n")
    assert len(backend.calls) == 1


def test_questions_about_a_clip_share_its_frames() -> None:
    backend = Seeing()
    state = clip_judge.run(b"clip", 8, ["What moves?", "Where to?"], backend=backend)
    assert state["answer"] == [" two", " two"]
    assert {call.prompt[0] for call in backend.calls} == {Video(b"clip", 8)}  # type: ignore[index]
    assert len({call.hint.root for call in backend.calls if call.hint}) == 1


def test_each_frame_of_a_clip_is_seen_by_its_own_branch() -> None:
    backend = Seeing()
    frames = [b"one", b"two", b"three"]
    state = frame_judge.run(frames=frames, question="What is it?", backend=backend)
    assert (state["seen"], state["change"]) == ([" two"] * 3, " no")
    seen = [it for call in backend.calls for it in call.prompt if isinstance(it, Image)]
    assert sorted(it.data for it in seen) == sorted(frames)
    assert "Frame 3: two\n" in state.text()


def test_all_pictures_are_judged_about_all_things() -> None:
    looked = look(Seeing(), {"first": PICTURE, "second": b"other"}, "cache")
    asked = [(it.name, it.thing, it.shown) for it in looked.found]
    assert asked == [
        *(("first", thing, " yes") for thing in THINGS),
        *(("second", thing, " no") for thing in THINGS),
    ]
    assert (looked.calls, looked.encoded, looked.prompt_tokens) == (1, 2, 3)
    assert [it.name for it in worth_showing(looked.found)] == ["first", "second"]


def test_a_picture_is_shown_by_half_blocks_in_its_colours() -> None:
    pytest.importorskip("PIL", reason="pictures are decoded with Pillow")
    text = half_blocks(PICTURE, width=4)
    assert text.plain == "▀▀▀▀\n" * 2
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=80)
    console.print(half_blocks(PICTURE, width=2), end="")
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().startswith("\x1b[38;2;255;0;0;48;2;0;0;255m▀\x1b[0m")


def test_questions_and_answers_stand_below_the_picture() -> None:
    out = io.StringIO()
    found = Found("two", "red cross", " yes", (" 2", " cross", " red cross"), '{"count": 2}')
    show_picture(Console(file=out, width=100), PICTURE, found)
    assert out.getvalue().splitlines() == [
        "One picture: two",
        "  Question: Is there a red cross? Answer: yes",
        "  ├─ Question: How many shapes are there? Answer: 2",
        "  ├─ Question: Which shape is on the left? Answer: cross",
        "  └─ Question: Describe the picture. Answer: red cross",
        '  Verdict as JSON: {"count": 2}',
    ]


def test_the_table_compares_each_run_with_the_last() -> None:
    console = Console(file=io.StringIO(), width=120)
    runs = [
        Looked("cache", (), 30, 4, 3000, 2500, 500, 0.5),
        Looked("neither", (), 30, 12, 3000, 0, 3000, 2.0),
    ]
    console.print(looks_table(runs))
    assert isinstance(console.file, io.StringIO)
    rows = [" ".join(line.split()) for line in console.file.getvalue().splitlines()[-2:]]
    assert rows == ["cache 30 4 3,000 2,500 500 0.50 4.0×", "neither 30 12 3,000 0 3,000 2.00 1.0×"]


def test_no_pictures_and_no_sight_are_typed_errors(tmp_path: Path) -> None:
    with pytest.raises(CallFailed, match="no pictures in"):
        load_pictures(tmp_path)
    (tmp_path / "a.png").write_bytes(PICTURE)
    assert load_pictures(tmp_path) == {"a": PICTURE}
    check_sight(Seeing())
    with pytest.raises(UnsupportedCall, match="a model that takes images"):
        check_sight(Seeing(features=frozenset({"tokens"})))


def test_the_command_refuses_a_model_of_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "tiny", "--image"]) == 2
    assert "a model that takes images" in capsys.readouterr().err


def test_without_a_model_the_command_takes_the_one_that_sees() -> None:
    options = Namespace(model=None, dummy=None, image=True)
    settle_model(options)
    assert options.model == "tiny-vision"
    options = Namespace(model=None, dummy=None, image=False)
    settle_model(options)
    assert options.model == "tiny"
