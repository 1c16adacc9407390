"""Pictures and clips drawn from a seed with numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]  # [height, width, 3] RGB


def picture(seed: int, size: int = 128, num_shapes: int = 4) -> Pixels:
    """Discs and squares of random colours before a shaded background."""
    return clip(seed, 1, size, num_shapes)[0]


def clip(seed: int, num_frames: int, size: int = 128, num_shapes: int = 4) -> list[Pixels]:
    """Frames in which such shapes move, each along its line; no two frames are equal."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(0.2, 0.8, (num_shapes, 2))
    moves = rng.uniform(-0.3, 0.3, (num_shapes, 2))
    radii, colours = rng.uniform(0.06, 0.16, num_shapes), rng.uniform(0, 255, (num_shapes, 3))
    corners = rng.uniform(60, 200, (2, 3))
    y, x = np.mgrid[0:size, 0:size] / size
    frames = []
    for time in np.arange(num_frames) / max(1, num_frames):
        frame = corners[0] + (corners[1] - corners[0]) * ((x + y) / 2)[..., None]
        for index in range(num_shapes):
            across, down = np.abs([x, y] - (places[index] + time * moves[index])[:, None, None])
            distance = np.hypot(across, down) if index % 2 else np.maximum(across, down)
            frame[distance < radii[index]] = colours[index]
        frames.append(frame.clip(0, 255).astype(np.uint8))
    return frames
