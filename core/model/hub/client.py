"""The hub, by way of the library huggingface_hub: what a repository holds, and its files.

The library is imported at the first use. It is always installed, as tokenizers needs it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...api.protocol import InvalidModel
from .errors import translated
from .headers import Tensors, counted
from .names import HubName, hub_name

_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_MAX_SUGGESTIONS = 300  # models of one owner that are looked through for one with a similar name


@dataclass(frozen=True, slots=True)
class Listing:
    """What a repository holds at one commit. sizes: bytes of each file, 0 if not known."""

    commit: str
    sizes: Mapping[str, int]
    is_gated: bool


class Hub:
    """The hub that the environment names: HF_ENDPOINT, HF_HUB_CACHE (or HF_HOME), HF_TOKEN,
    HF_HUB_OFFLINE and HF_HUB_ETAG_TIMEOUT. Every method that queries it raises InvalidModel."""

    def __init__(self) -> None:
        self._library = library = _library()
        constants = library.constants
        self.endpoint = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
        self.cache = Path(os.environ.get("HF_HUB_CACHE") or constants.HF_HUB_CACHE).expanduser()
        self._timeout = constants.HF_HUB_ETAG_TIMEOUT  # seconds for an answer
        self._api = library.HfApi(endpoint=self.endpoint, library_name="forkroot")

    @property
    def offline(self) -> str | None:
        """The variable that forbids requests to the hub, if any is set."""
        is_set = {name: os.environ.get(name, "").upper() in _TRUE for name in _OFFLINE}
        variable = next((name for name in _OFFLINE if is_set[name]), None)
        return variable or (_OFFLINE[0] if self._library.constants.HF_HUB_OFFLINE else None)

    @property
    def has_bars(self) -> bool:
        """Whether the user of the library wants progress bars."""
        return not self._library.utils.are_progress_bars_disabled()

    def cached(self, name: HubName) -> Path | None:
        """The snapshot of this revision in the cache, complete or not; makes no request."""
        location = {"cache_dir": self.cache, "revision": name.revision}
        found = self._library.try_to_load_from_cache(name.repo, "config.json", **location)
        return Path(found).parent if isinstance(found, str) else None

    def listing(self, name: HubName) -> Listing:
        """What the repository holds now."""
        with self._translated(name):
            info = self._api.model_info(
                name.repo, revision=name.revision, files_metadata=True, timeout=self._timeout
            )
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
        return Listing(info.sha, sizes, bool(info.gated))

    def download(self, name: HubName, file: str, bar: type | None = None) -> Path:
        """A file in the cache, downloaded if it is not there. Connections that are cut are taken up
        again. bar: as tqdm, updated with bytes."""
        with self._translated(name):
            path = self._library.hf_hub_download(
                name.repo,
                file,
                revision=name.revision,
                cache_dir=self.cache,
                endpoint=self.endpoint,
                library_name="forkroot",
                tqdm_class=bar or silent_progress_bar(),
            )
        return Path(path)

    def header(self, name: HubName, file: str) -> Tensors:
        """What is stored in a file of weights, by its first bytes."""
        with self._translated(name):
            try:
                found = self._api.parse_safetensors_file_metadata(
                    name.repo, file, revision=name.revision, timeout=self._timeout
                )
            except self._library.errors.SafetensorsParsingError as error:
                raise InvalidModel(f"{name}: {file} is not a safetensors file") from error
        tensors = found.tensors.items()
        return counted((key, it.dtype, it.parameter_count) for key, it in tensors)

    def _translated(self, name: HubName) -> Any:
        def others(of_this: bool) -> list[str]:
            return self._revisions(name) if of_this else self._models_like(name)

        return translated(self._library, name, self.endpoint, self.cache, others)

    def _models_like(self, name: HubName) -> list[str]:
        """Other models of the same owner, and those with the same name."""
        owner, _, own = name.repo.partition("/")
        return [
            *self._names(lambda: self._api.list_models(author=owner, limit=_MAX_SUGGESTIONS)),
            *self._names(lambda: self._api.list_models(search=own, limit=20)),
        ]

    def _revisions(self, name: HubName) -> list[str]:
        def refs() -> list[Any]:
            found = self._api.list_repo_refs(name.repo)
            return [*found.branches, *found.tags]

        return self._names(refs, "name")

    def _names(self, request: Callable[[], Any], key: str = "id") -> list[str]:
        """Names for a suggestion; none where the hub does not answer."""
        with suppress(Exception):
            return [getattr(it, key) for it in request()]
        return []


_TRUE = ("1", "ON", "YES", "TRUE")


def silent_progress_bar() -> type:
    """A tqdm that shows nothing."""
    from tqdm import tqdm

    class Silent(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})

    return Silent


def _library() -> Any:
    import huggingface_hub
    import huggingface_hub.constants
    import huggingface_hub.errors
    import huggingface_hub.utils

    return huggingface_hub


def model_of_page(url: str) -> str | None:
    """The hub model whose page this is, as "org/name"; None for any other URL."""
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    for start in (f"{endpoint.rstrip('/')}/", "https://huggingface.co/", "https://hf.co/"):
        if url.startswith(start):
            parts = url.removeprefix(start).strip("/").split("/")
            found = hub_name("/".join(parts[:2]))
            return None if found is None else found.repo
    return None
