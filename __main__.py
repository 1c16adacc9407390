"""The command line: `forkroot demo`, `chat`, `run`, `serve`, `route`, `report` and others.

Each command is one function. Exit codes: 0; 1 if the answer is no (a model that cannot be run, an
item that failed); 2 for a usage error or a failure; 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.text import Text

from . import __version__
from .adapters.common.console import console
from .adapters.common.surrogates import check_text
from .adapters.connection import (
    check_name,
    check_settings,
    connect,
    introduce_embedded,
    is_fetched,
    is_known,
    is_url,
    located,
)
from .adapters.http.bench.options import add_bench_options
from .adapters.http.options import (
    access_settings,
    add_drain_options,
    add_route_options,
    add_serve_options,
    replica_key,
    server_limits,
)
from .adapters.http.report import add_report_options
from .adapters.native.jobs.options import add_run_options
from .adapters.plugin_table import add_plugins_options
from .adapters.usage import (
    Parser,
    check_chat_model,
    no_server,
    number,
    read_settings,
    settle_model,
)
from .check_command import check
from .core.api.config import EngineConfig
from .core.api.media import with_pictures
from .core.api.protocol import (
    ForkrootError,
    InvalidCall,
    InvalidModel,
    Sampling,
)
from .core.model.hub.folders import model_folder, model_name, pinned, texts_folder
from .core.radix.picture import Line, tree_lines, tree_svg
from .examples.chat import Conversation, answer, talk, visible

SHELLS = ("bash", "zsh", "tcsh")
_STARTING = "starting …"
_LINE = 96  # characters of a line


def main(argv: list[str] | None = None) -> int:
    """Run a command line (the process's own if None) and give its exit code. Raises SystemExit
    where argparse does: for usage errors, `--help` and `--version`."""
    parser = _parser()
    if not (sys.argv[1:] if argv is None else argv):
        parser.print_help(sys.stderr)
        parser.exit(2)
    options = parser.parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        if "dummy" in options:
            settle_model(options)
            check_settings(options.model, read_settings(options.set))
        return int(options.run(options))
    except (ForkrootError, OSError) as error:
        if isinstance(error, BrokenPipeError):  # the reader, as `head`, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        print(f"forkroot: {visible(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def demo(options: argparse.Namespace) -> int:
    """Judge essays with and without cache, hints and jump-forward; 1 if any answer changed."""
    from .examples import demo as tour
    from .examples import demo_report as report
    from .examples.picture_demo import show_pictures

    out, err = console(highlight=False), console(stderr=True)
    if options.image:
        return show_pictures(lambda is_cached: load(options, cache=is_cached), out)
    essays = tour.load_essays()
    if not 1 <= options.essays <= len(essays):
        raise InvalidCall("essays", options.essays, f"1 to {len(essays)}")
    _locate(options)
    model_folder(options.model)  # it looks into an engine of ours
    essays = essays[: options.essays]
    many = f"{len(essays)} essays at once"
    with load(options) as engine:
        report.show_verdict(out, essays[0], tour.judge(engine, essays[0]))
        jumping = tour.judge_alone(engine, essays[0])
        batches = [tour.judge_all(engine, essays, "cache and hints", err)]
        views, tokens = engine.snapshot(), engine.tokenizer
        label = partial(with_pictures, tokens.decode, vocabulary_size=len(tokens.token_bytes))
        batches.append(tour.judge_all(engine, essays, "cache only", err, hints=False))
    out.print(f"\n[bold]{many}[/bold]")
    out.print(report.grades_table(essays, batches[0].verdicts))
    out.print("(✗: not what the rubric asks for; –: not about the topic)\n", style="dim")
    with load(options, cache=False) as engine:
        batches.append(tour.judge_all(engine, essays, "neither", err, hints=False))
    with load(options, jumps=False) as engine:
        plain = tour.judge_alone(engine, essays[0])
        plain.append(tour.judge_all(engine, essays, "cache and hints, no jumps", err))
    jumping.append(replace(batches[0], name=many))
    pairs = list(zip(jumping, plain, strict=False))
    is_same = all(batch.verdicts == batches[0].verdicts for batch in batches)
    is_same = is_same and [it.verdicts for it in jumping] == [it.verdicts for it in plain]
    out.print("[bold]What the cache saves[/bold]")
    out.print(report.figures_table(batches))
    out.print(report.HINTS_NOTE, style="dim", width=min(out.width, _LINE))
    out.print("\n[bold]What jumps over forced text save[/bold]")
    out.print(report.passes_table(pairs))
    if tour.is_computed_here(engine):
        out.print("(CPU seconds, best of several runs)", style="dim")
    out.print("\nAll answers are the same." if is_same else "[bold red]Answers differ![/bold red]")
    out.print("\n[bold]What is cached after the first of these[/bold]")
    for line in tree_lines(views, label, width=min(out.width, 120)):
        out.print(_painted(line), no_wrap=True, crop=True)
    if options.svg is not None:
        options.svg.write_text(tree_svg(views, label), "utf-8")
        out.print(f"\nThe tree is drawn in {options.svg}", markup=False)
    return 0 if is_same else 1


def chat(options: argparse.Namespace) -> int:
    """Answer one message, or talk to a model, line by line; 2 if a line of a pipe or a file was
    not answered."""
    sampling = Sampling(max_tokens=options.max_tokens, temperature=options.temperature)
    sampling.check()
    check_text(options.system, "system")
    if options.message is not None:
        check_text(options.message, "message")
        if not options.message.strip():
            allowed = "a text that is not empty, or no message: then each line that you type"
            raise InvalidCall("message", options.message, allowed)
    else:
        check_chat_model(options.model)
    with closing(load(options)) as backend:
        conversation = Conversation(backend, sampling, options.system)
        if options.message is not None:
            answer(conversation, options.message)
            return 0
        is_well = talk(conversation)
    return 0 if is_well or sys.stdin.isatty() else 2


def run(options: argparse.Namespace) -> int:
    """Run a compiled program for many items; 1 if one has failed."""
    from .adapters.native.jobs.command import run_job

    return run_job(options, partial(load, options))


def serve(options: argparse.Namespace) -> int:
    """Serve a model over HTTP until SIGTERM or Ctrl-C; 1 if the engine died before."""
    from .adapters.http.serve import check_address, obeyed_once
    from .adapters.http.serve import serve as serve_http
    from .adapters.http.server.audit import audited
    from .adapters.http.server.runtime import Runtime
    from .adapters.http.server.settings import tokenizer_info
    from .core.model.keys import Keys

    check_name(options.model)
    if is_known(options.model):
        Keys.read(model_folder(options.model) / "config.json")
    is_restarted = options.on_engine_death == "restart"
    if is_restarted and options.in_process:
        raise InvalidCall("on_engine_death", "restart", "exit, with --in-process")
    is_ours = is_known(options.model) or is_fetched(options.model)
    if is_restarted and not is_ours:
        raise InvalidCall("on_engine_death", "restart", "exit, for a model that a plugin loads")
    if options.replicas > 1 and (options.in_process or not is_ours):
        allowed = "1, with --in-process and for a model that a plugin loads"
        raise InvalidCall("replicas", options.replicas, allowed)
    how = {"process": not options.in_process, "restart": is_restarted}
    if options.replicas > 1:
        how |= {"replicas": options.replicas, "policy": options.policy}
    settings, limits = access_settings(options), server_limits(options)
    with obeyed_once(), audited(options.audit_log):
        if is_fetched(options.model):  # whether the hub has it; its weights may take minutes
            texts_folder(pinned(options.model, read_settings(options.set).get("revision")))
        check_address(options.host, options.port)
        _locate(options)
        folder = model_folder(options.model) if is_ours else None
        if folder is not None:
            settings = replace(settings, tokenizer_info=tokenizer_info(folder))
        own_name = options.model if options.dummy or folder is None else model_name(folder)
        names = tuple(options.served_name or [own_name])
        with closing(load(options, **how)) as backend:
            if not hasattr(backend, "tokenizer"):
                raise InvalidModel(f"the plugin that loads {options.model!r} gives no `tokenizer`")
            runtime = Runtime(backend, backend.tokenizer, names, limits, version=__version__)
            return serve_http(runtime, settings, options.host, options.port)


def route(options: argparse.Namespace) -> int:
    """Serve the model of running servers over one address until SIGTERM or Ctrl-C; 1 if all of them
    have ended for good."""
    from .adapters.http.serve import check_address, obeyed_once
    from .adapters.http.serve import serve as serve_http
    from .adapters.http.server.audit import audited
    from .adapters.http.server.runtime import Runtime
    from .adapters.http.server.settings import tokenizer_info
    from .adapters.router.joining import over_servers
    from .core.process.client import read_tokenizer

    for url in options.replica:
        if not is_url(url):
            raise InvalidCall("replica", url, "the URL of a server, as http://127.0.0.1:30001")
    settings, limits = access_settings(options), server_limits(options)
    key = replica_key(options)
    keys: dict[str, Any] = {} if key is None else {"api_key": key}
    with obeyed_once(), audited(options.audit_log):
        if options.tokenizer is not None:
            texts_folder(options.tokenizer)
        check_address(options.host, options.port)
        with closing(over_servers(options.replica, options.policy, **keys)) as backend:
            info = backend.info()
            folder = _folder_of_texts(options.tokenizer, info.model)
            texts = read_tokenizer(folder, EngineConfig(), info.vocabulary_size)
            backend.tokenizer = texts
            settings = replace(settings, tokenizer_info=tokenizer_info(folder))
            names = tuple(options.served_name or [info.model])
            runtime = Runtime(backend, texts, names, limits, version=__version__)
            return serve_http(runtime, settings, options.host, options.port)


def _folder_of_texts(tokenizer: str | None, model: str) -> Path:
    """The folder with the tokenizer of replicas; no weights are downloaded."""
    if tokenizer is not None:
        return texts_folder(tokenizer)
    try:
        return texts_folder(model)
    except InvalidModel as error:
        allowed = f"a model or folder with the tokenizer of the replicas' {model!r} ({error})"
        raise InvalidCall("tokenizer", None, allowed) from error


def drain(options: argparse.Namespace) -> int:
    """Let a server take no new requests; 1 if some are open at the end of the wait."""
    from .adapters.http.drain import run

    return run(options)


def completion(shell: str, parser: argparse.ArgumentParser) -> int:
    """Print the script that completes commands and options in a shell."""
    import shtab

    print(shtab.complete(parser, shell))
    return 0


def load(options: argparse.Namespace, **fixed: Any) -> Any:
    """The backend that the options describe. A missing hub model is downloaded, with a progress
    bar."""
    _locate(options)
    introduce_embedded(options.model)  # on a line of its own, before the one of `_starting`
    with _starting():
        return connect(options.model, **{**read_settings(options.set), **fixed})


def _locate(options: argparse.Namespace) -> None:
    """Replace the name of a hub model by its folder, so that all starts use the same files. A model
    that is not in the cache is downloaded."""
    options.model = located(options.model, read_settings(options.set).get("revision"))
    options.set = [item for item in options.set if not item.startswith("revision=")]


@contextmanager
def _starting() -> Iterator[None]:
    """A line on a terminal while torch is imported and a model loaded. Progress bars, those of
    child processes too, write over it."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    if is_terminal:
        print(_STARTING, end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if is_terminal:
            blank = " " * len(_STARTING)  # where a terminal takes no escape sequences, too
            print(f"\r{blank}\r\x1b[K", end="", file=sys.stderr, flush=True)


def _painted(line: Line) -> Text:
    heat = "bold red" if line.heat > 0.5 else "yellow" if line.heat > 0.1 else "default"
    return Text.assemble((line.guide, "dim"), (line.text, heat), (f" ({line.notes})", "dim"))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "forkroot", description="Run, serve and measure models for LM programs that share prefixes."
    )
    parser.add_argument("--version", action="version", version=f"forkroot {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    model = "a checkpoint folder, a hub model ('org/name'), or 'tiny' (the embedded model)"
    model_source = f"the URL of a server, {model}"

    tour = commands.add_parser("demo", help="judge essays with and without prefix sharing")
    tour.set_defaults(run=demo)
    name = no_server("is a server, and the demo looks into engines that it starts itself")
    text = f"{model}; default: tiny"
    tour.add_argument("model", nargs="?", type=name, help=text)
    text, many = "the number of essays to judge (default 12)", number(int)
    tour.add_argument("--essays", type=many, default=12, metavar="N", help=text)
    text = "judge pictures in place of essays (default model: tiny-vision)"
    tour.add_argument("--image", action="store_true", help=text)
    tour.add_argument("--svg", type=_new_file, metavar="FILE", help="draw the radix tree in FILE")

    talking = commands.add_parser("chat", help="talk to a model")
    _add_chat_options(talking, model_source)

    running = commands.add_parser("run", help="run a compiled program for many items")
    running.set_defaults(run=run)
    add_run_options(running, model_source)

    text = "serve a model over HTTP to OpenAI and SGLang clients"
    serving = commands.add_parser("serve", help=text)
    serving.set_defaults(run=serve)
    add_serve_options(serving, model)

    text = "serve the model of several servers at one address"
    add_route_options(commands.add_parser("route", help=text), route)

    draining = commands.add_parser("drain", help="let a server take no new requests")
    draining.set_defaults(run=drain)
    add_drain_options(draining)
    add_report_options(commands.add_parser("report", help="show what programs and hints saved"))

    benching = commands.add_parser("bench", help="measure an OpenAI-compatible server under load")
    add_bench_options(benching, _new_file)

    add_plugins_options(commands.add_parser("plugins", help="list the plugins that are installed"))

    checking = commands.add_parser("check", help="check that a model runs here, and what it needs")
    checking.set_defaults(run=lambda options: check(options, load, _starting))
    checking.add_argument("model", nargs="?", help=f"{model_source}; default: tiny")
    checking.add_argument("--json", action="store_true", help="print JSON instead of a table")

    completing = commands.add_parser("completion", help="print the shell completion script")
    completing.set_defaults(run=lambda options: completion(options.shell, parser))
    completing.add_argument("shell", choices=SHELLS, help="the shell that will source the script")

    for command in (tour, talking, running, serving, checking):
        text = "random weights in a published shape, such as llama-2-7b, for benchmarks"
        command.add_argument("--dummy", metavar="SHAPE", help=text)
        text = "an engine setting, such as chunk_tokens=256 (may be repeated; see docs/settings.md)"
        command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=text)
    return parser


def _add_chat_options(parser: argparse.ArgumentParser, models: str) -> None:
    parser.set_defaults(run=chat)
    parser.add_argument("model", nargs="?", help=f"{models}; default: tiny")
    text = "the message to answer; without it, each line that you type is answered"
    parser.add_argument("message", nargs="?", help=text)
    parser.add_argument("--system", default="", metavar="TEXT", help="the system message")
    text, heat = "the sampling temperature; 0 (the default) is greedy", number(float, 0.0)
    parser.add_argument("--temperature", type=heat, default=0.0, metavar="T", help=text)
    text, count = "the maximum tokens of an answer (default 512)", number(int, 1)
    parser.add_argument("--max-tokens", type=count, default=512, metavar="N", help=text)


def _new_file(name: str) -> Path:
    path = Path(name)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{name!r} is not a file in a folder that exists")
    return path


if __name__ == "__main__":
    sys.exit(main())
