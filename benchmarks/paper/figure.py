"""What a figure is: steps that give rows, and charts of what they measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .rows import Row

if TYPE_CHECKING:
    from .engines import Engines

Mode = Literal["smallest", "quick", "full"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What is run, and how much of it.

    mode: "quick" is minutes on two cores, "full" most of an hour, "smallest" seconds, for tests.
    model: a name or the folder of a checkpoint. peers: other engines by name; a URL where one runs
    already, or "" where it is started here. peers_folder: where they are installed.
    data: the folder of real data sets; None: what is at hand.
    device: that of `LocalBackend`. shares: whether cores are shared with others, so that processor
    time is compared.
    """

    mode: Mode = "quick"
    model: str = "tiny"
    peers: Mapping[str, str] = field(default_factory=dict)
    peers_folder: Path = Path()
    data: Path | None = None
    seed: int = 0
    threads: int = 1
    device: str = "cpu"
    has_gpu: bool = False

    def pick(self, smallest: float, quick: float, full: float) -> float:
        """A size by the mode."""
        return {"smallest": smallest, "quick": quick, "full": full}[self.mode]

    def num(self, smallest: int, quick: int, full: int) -> int:
        """A number by the mode."""
        return int(self.pick(smallest, quick, full))


@dataclass(frozen=True, slots=True)
class Step:
    """The smallest part of a figure that is run again after a kill.

    seconds: how long it takes on two cores, roughly, for the progress bar.
    """

    name: str
    run: Callable[[Engines], list[Row]]
    seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Chart:
    """How one measure of a figure is drawn.

    kind: bars by category, or lines over a logarithmic axis. is_better: which direction is better,
    or neither. is_ratio: whether values below 1 say that ours is slower.
    """

    measure: str
    kind: Literal["bars", "lines"] = "bars"
    unit: str = ""
    better: Literal["higher", "lower", ""] = "higher"
    x_title: str = ""
    is_log: bool = False
    is_ratio: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure or table of the paper.

    paper: where it is in the paper, and what is reported there. text: what is measured here, and
    how. steps: of a run with these settings.
    """

    name: str
    title: str
    paper: str
    text: str
    steps: Callable[[Settings], list[Step]]
    charts: tuple[Chart, ...]
