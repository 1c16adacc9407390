"""`forkroot check`: what a model is and needs, and whether it runs here."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.table import Table
from rich.text import Text

from . import __version__
from .adapters.common.console import console
from .adapters.names import is_known, is_url
from .adapters.usage import read_settings
from .core.api.config import EngineConfig
from .core.api.protocol import Backend, BackendInfo, Call, CallFailed, InvalidModel, Sampling
from .core.api.protocol import Text as Words
from .core.model.hub.errors import NotOnHub
from .core.model.hub.folders import is_dummy, is_hub_model, pinned
from .examples.chat import visible

if TYPE_CHECKING:
    from .adapters.registry import Registry

Load: TypeAlias = Callable[[argparse.Namespace], Any]
Starting: TypeAlias = Callable[[], AbstractContextManager[None]]


def check(options: argparse.Namespace, load: Load, starting: Starting) -> int:
    """Print what a model is and needs, and whether it runs here; 1 if it does not, or if nothing
    is known of it. No weights of a hub model are downloaded. load: the backend of the options;
    starting: shows that it starts."""
    from .adapters.registry import registry

    out, report = console(highlight=False), dict[str, Any](model=options.model)
    table = Table.grid(padding=(0, 3))
    table.add_column(style="cyan", no_wrap=True)
    try:
        for label, text, values in _checked(options, registry(), load, starting):
            table.add_row(label, text)
            report |= values
    except (InvalidModel, CallFailed) as error:
        is_found = not isinstance(error.__cause__, NotOnHub)
        report |= {"runs": False if is_found else None, "reason": str(error)}
        reason = "A call failed: " if isinstance(error, CallFailed) else ""
        reason += visible(str(error))
        answer = "It cannot be run. " if is_found else "It was not found. "
        verdict = Text.assemble((answer, "bold red"), reason)
    else:
        report |= {"runs": True, "reason": None}
        verdict = Text("It answers." if is_url(options.model) else "It can be run.", "bold green")
        if report.get("download_bytes"):
            verdict += Text(f" To get it and ask it: forkroot chat {options.model} 'Who are you?'")
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        out.print(table)
        out.print(verdict, soft_wrap=True)
    return 0 if report["runs"] else 1


_Row: TypeAlias = tuple[str, str, Mapping[str, Any]]  # label, text, and values for programs


def _checked(
    options: argparse.Namespace, plugins: Registry, load: Load, starting: Starting
) -> Iterator[_Row]:
    """What is known of a model, row by row. Raises InvalidModel, CallFailed."""
    model, settings = options.model, read_settings(options.set)
    if not is_known(model) and (
        is_url(model) or plugins.may_load(model) or not is_hub_model(model)
    ):
        with closing(load(options)) as backend:
            yield from _info_rows(backend.info())
            yield _trial(backend)
        return
    with starting():
        from .core.requirements import facts, find
    source, of_hub = find(str(pinned(model, settings.pop("revision", None))))
    config = EngineConfig.from_settings(plugins.resolved(settings))
    yield from chain(of_hub, facts(source, config))
    if source.is_whole and not is_dummy(model):  # a dummy would say nothing of a model
        with closing(load(options)) as backend:
            yield _trial(backend)


def _info_rows(info: BackendInfo) -> Iterator[_Row]:
    """The rows of a backend whose files are elsewhere, such as a server."""
    yield "model", info.model, {"served_model": info.model}
    for label, name in (("context length", "context_len"), ("vocabulary", "vocabulary_size")):
        if size := getattr(info, name):  # unknown of an API
            yield label, f"{size:,} tokens", {name: size}
    features = sorted(info.features)
    yield "takes", ", ".join(features), {"features": features}
    if "slots" in info.load:  # reported to admins, or to everybody if there are no keys
        slots, free = info.load["slots"], info.load["free_slots"]
        yield "KV cache", f"{slots:,} tokens, {free:,} of them free", {"num_slots": slots}
        running, waiting = info.load["running"], info.load["waiting"]
        text = f"running {running}, waiting {waiting}"
        yield "requests", text, {"running": running, "waiting": waiting}
    if info.version:
        report = f"{info.version} (here: {__version__})"
        yield "forkroot", report, {"version": info.version}


def _trial(backend: Backend) -> _Row:
    """The row of a trial run of a loaded checkpoint."""
    start = time.perf_counter()
    is_ours = "tokens" in backend.info().features  # an API ends its answers itself
    sampling = Sampling(max_tokens=8, temperature=0 if is_ours else 1.0, ignore_eos=is_ours)
    usage = backend.submit(Call((Words("Hello"),), sampling)).result().usage
    seconds = time.perf_counter() - start
    text = f"{usage.completion_tokens} tokens generated in {seconds:.2f} s"
    return "trial run", text, {"trial_tokens": usage.completion_tokens, "trial_s": seconds}
