"""From the name of a hub model to a checkpoint folder: what is missing is downloaded, once.

Small files come first, so that a model that cannot be run is refused before its weights come.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...api.files import CONFIG_BYTES, read_object
from ...api.protocol import InvalidModel
from .client import Hub, Listing, silent_progress_bar
from .errors import HubUnreachable, NotOnHub, disk_full, download_command
from .files import (
    CONFIG,
    TEXT,
    TOKENIZER,
    check_files,
    first_files,
    missing_files,
    other_files,
    weight_names,
)
from .headers import Tensors, joined, read_header
from .names import HubName

_log = logging.getLogger(__name__)
_WORKERS = 8


def fetch(name: HubName, judge: Callable[[Path], object]) -> Path:
    """The folder of a hub model, in the cache of huggingface_hub. Asks the hub whether a branch or
    tag has moved; if it cannot be reached, the cached commit is used.

    judge: raises InvalidModel for what cannot be run; called before weights are downloaded, with a
      folder that holds config.json.
    Raises InvalidModel: the model or revision is not there, is gated, cannot be run, does not fit
    on the disk, or the hub cannot be reached and files are missing.
    """
    hub = Hub()
    cached = whole_snapshot(hub, name)
    if cached is not None and (hub.offline or name.is_pinned):
        return cached
    if hub.offline:
        raise _offline(hub, name)
    try:
        return _updated(hub, name, judge)
    except HubUnreachable as error:
        if cached is None:
            raise NotOnHub(f"{error}; {_offline_help(hub, name)}") from error
        _log.warning("forkroot: %s; using the cached %s of %s", error, cached.name[:12], name)
        return cached


def fetch_texts(name: HubName) -> Path:
    """The folder of a hub model's config, tokenizer and chat template, in the cache; no weights are
    downloaded. Raises as `fetch`."""
    hub = Hub()
    cached = hub.cached(name)
    if cached is not None and not (cached / TOKENIZER).is_file():
        cached = None
    if hub.offline and cached is None:
        raise _offline(hub, name)
    if cached is not None and (hub.offline or (name.is_pinned and not missing_files(cached))):
        return cached
    try:
        listing = hub.listing(name)
        folder = _first(hub, name, listing)
        _download_texts(hub, name, listing, folder)
    except HubUnreachable as error:
        if cached is None:
            raise NotOnHub(f"{error}; {_offline_help(hub, name)}") from error
        _log.warning("forkroot: %s; using the cached %s of %s", error, cached.name[:12], name)
        return cached
    return folder


def _download_texts(hub: Hub, name: HubName, listing: Listing, folder: Path) -> None:
    pinned = replace(name, revision=folder.name)
    for file in TEXT:
        if file in listing.sizes and not (folder / file).is_file():
            hub.download(pinned, file)


@dataclass(frozen=True, slots=True)
class Preview:
    """What can be known of a hub model without its weights.

    folder: holds its small files, and all of them if is_whole. sizes: bytes of each file that a
    download takes, and which of them are missing; empty if the hub was not queried.
    """

    folder: Path
    tensors: Tensors
    is_whole: bool
    is_gated: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def preview(name: HubName) -> Preview:
    """What a hub model is, from its small files and the headers of its weights, of which nothing
    else is downloaded. Raises as `fetch`."""
    hub = Hub()
    cached = whole_snapshot(hub, name)
    if cached is not None and (hub.offline or name.is_pinned):
        return _local(cached)
    if hub.offline:
        raise _offline(hub, name)
    try:
        return _query_hub(hub, name)
    except HubUnreachable as error:
        if cached is None:
            raise NotOnHub(f"{error}; {_offline_help(hub, name)}") from error
        return _local(cached)


def _local(folder: Path) -> Preview:
    headers = [read_header(folder / file) for file in weight_names(folder)]
    return Preview(folder, joined(headers), is_whole=True)


def _query_hub(hub: Hub, name: HubName) -> Preview:
    listing = hub.listing(name)
    folder = _first(hub, name, listing)
    pinned = replace(name, revision=folder.name)
    files = [*first_files(listing.sizes), *other_files(listing.sizes, folder)]
    templates = {"tokenizer_config.json", "chat_template.jinja", "chat_template.json"}
    for file in set(files) & templates:
        hub.download(pinned, file)
    missing = tuple(file for file in files if not (folder / file).is_file())
    sizes = {file: listing.sizes[file] for file in files}
    if not missing:
        return replace(_local(folder), is_gated=listing.is_gated, sizes=sizes)
    with ThreadPoolExecutor(_WORKERS, "forkroot-headers") as pool:
        headers = list(pool.map(lambda file: hub.header(pinned, file), weight_names(folder)))
    return Preview(folder, joined(headers), False, listing.is_gated, sizes, missing)


def whole_snapshot(hub: Hub, name: HubName) -> Path | None:
    """The cached folder of this revision if it is complete; makes no request."""
    folder = hub.cached(name)
    return folder if folder is not None and not missing_files(folder) else None


def _updated(hub: Hub, name: HubName, judge: Callable[[Path], object]) -> Path:
    """The folder of the commit that the hub has now."""
    listing = hub.listing(name)
    pinned = replace(name, revision=listing.commit)
    if (cached := whole_snapshot(hub, pinned)) is not None:
        _first(hub, name, listing)  # the cache learns that the revision is this commit
        return cached
    folder = _first(hub, name, listing)
    with explained(name, folder):
        judge(folder)
    names = [file for file in other_files(listing.sizes, folder) if not (folder / file).is_file()]
    needed = sum(listing.sizes[file] for file in names)
    _check_room(hub, name, needed)
    with _bar(hub, name, needed) as bar:
        _download(hub, pinned, names, bar)
    return folder


def _first(hub: Hub, name: HubName, listing: Listing) -> Path:
    """Download the small files; the folder of the snapshot."""
    check_files(str(name), listing.sizes)
    folder = hub.download(name, CONFIG).parent  # by its name: what it means is kept in the cache
    for file in first_files(listing.sizes):
        if not (folder / file).is_file():
            hub.download(replace(name, revision=folder.name), file)
    return folder


@contextmanager
def explained(model: object, folder: Path) -> Iterator[None]:
    """Errors of a model that brings code along say that this code is never run."""
    try:
        yield
    except InvalidModel as error:
        if not has_own_code(folder):
            raise
        message = "needs code of its own repository (`auto_map` in config.json), which is never run"
        raise InvalidModel(f"{model} {message} ({error})") from error


def has_own_code(folder: Path) -> bool:
    """Whether a repository brings code along that its config.json refers to."""
    with suppress(OSError, InvalidModel):  # reported by its own error
        return bool(read_object(folder / CONFIG, CONFIG_BYTES).get("auto_map"))
    return False


def _check_room(hub: Hub, name: HubName, needed: int) -> None:
    existing = next(path for path in (hub.cache, *hub.cache.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise disk_full(name, _gib(needed), _gib(free), hub.cache)


def _gib(size: int) -> str:
    return f"{size / 2**30:,.2f} GiB"


def _download(hub: Hub, name: HubName, files: Sequence[str], bar: Any) -> None:
    """Download files side by side. The first error, or Ctrl-C, stops them all; those that are whole
    stay in the cache."""
    stop = threading.Event()
    part = _part_of(bar, stop)
    with ThreadPoolExecutor(_WORKERS, "forkroot-download") as pool:
        done = [pool.submit(hub.download, name, file, part) for file in files]
        try:
            for future in as_completed(done):
                future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


class _Stopped(Exception):
    """Ends a download whose result nobody wants."""


def _part_of(bar: Any, stop: threading.Event) -> type:
    """What the library takes for the bar of one file: it moves the one of all, and stops."""
    lock = threading.Lock()

    class Part(silent_progress_bar()):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)
            super().__init__(*args, **kwargs)

        def update(self, n: float | None = 1) -> None:
            if stop.is_set():
                raise _Stopped
            with lock:
                bar.update(n)

    return Part


def _bar(hub: Hub, name: HubName, size: int) -> Any:
    """A bar on a terminal; nothing elsewhere, or with HF_HUB_DISABLE_PROGRESS_BARS."""
    from tqdm import tqdm

    is_disabled = None if hub.has_bars else True  # None: on a terminal only
    bar_options = {
        "unit": "B",
        "unit_scale": True,
        "unit_divisor": 1024,
        "desc": f"downloading {name}",
    }
    return tqdm(total=size, disable=is_disabled, dynamic_ncols=True, **bar_options)


def _offline(hub: Hub, name: HubName) -> NotOnHub:
    return NotOnHub(f"{hub.offline} is set, so the hub is not queried; {_offline_help(hub, name)}")


def _offline_help(hub: Hub, name: HubName) -> str:
    """What is missing in the cache, and what to do about it."""
    folder = hub.cached(name)
    absence = "has nothing" if folder is None else f"lacks {', '.join(missing_files(folder))}"
    message = f"the cache ({hub.cache}) {absence} of {name}"
    return f"{message}: run {download_command(name)} where there is a network"
