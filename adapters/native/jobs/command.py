"""`forkroot run`: the program and all items are checked, then run; progress, and a summary.

Exit codes: 0; 1 if an item has failed. All that stops the job is raised.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from ....core.api.protocol import Backend, InvalidCall
from ...usage import read_settings
from ..compiled import CompiledProgram, load
from ..language.plain import encoded
from ..language.settings import Settings, sampling_fields
from .arguments import checker
from .items import Items
from .job import Job, JobOptions, Summary
from .results import Results


def run_job(options: argparse.Namespace, start: Callable[[], Backend]) -> int:
    """Run the command, and give its exit code. start: gives the backend, once all was checked.
    Raises ForkrootError; KeyboardInterrupt after Ctrl-C, when the results can be used again."""
    program = load(options.program)
    sampling = sampling_fields(read_settings(options.sampling))
    for path in (options.program, options.args):
        if options.out.exists() and path.exists() and options.out.samefile(path):
            raise InvalidCall("out", str(options.out), "another file than those that are read")
    job_options = JobOptions(
        options.concurrency, options.max_retries, options.meta, options.retry_failed
    )
    items = Items(options.args, checker(program.graph.parameters))
    with closing(items), closing(start()) as backend:
        settings = Settings(
            backend=backend,
            sampling=sampling,
            priority=options.priority,
            deadline=options.deadline,
            remote=False if options.call_by_call else None,
        )
        header = _header(program, items, settings)
        with closing(Results(options.out, header)) as results:
            summary = _run(program, items, results, settings, job_options)
    print("\n".join(_lines(summary)))
    return 1 if summary.errors else 0


def _run(
    program: CompiledProgram,
    items: Items,
    results: Results,
    settings: Settings,
    options: JobOptions,
) -> Summary:
    num_left = len(items) - len(results.done)
    if not options.retries_failed:
        num_left -= len(results.failed)
    with _progress(num_left) as advance:

        def begin(arguments: Mapping[str, Any]) -> Any:
            return program.new_run(settings, arguments)

        job = Job(begin, items, results, options, advance)
        try:
            return job.execute()
        except KeyboardInterrupt:
            print(f"\nforkroot: {_interrupted(job.summary)}", file=sys.stderr)
            raise


def _header(program: CompiledProgram, items: Items, settings: Settings) -> dict[str, Any]:
    """What identifies a job."""
    return {
        "program": program.name,
        "graph": program.graph.digest()[:32],
        "model": settings.find().info().model,
        "settings": encoded(dict(sorted(settings.sampling.items())), "settings"),
        "num_items": len(items),
        "arguments": items.digest,
    }


def _interrupted(summary: Summary) -> str:
    num = summary.num_before + summary.num_done + summary.errors.total()
    ended = f"{num:,} of {summary.num_items:,} items have a result"
    return f"interrupted: {ended}; the same command runs only the others"


@contextmanager
def _progress(num: int) -> Iterator[Callable[[Summary], object]]:
    """A bar on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda summary: None
        return
    from tqdm import tqdm

    with tqdm(total=num, unit="item") as bar:

        def advance(summary: Summary) -> None:
            if summary.errors:
                bar.set_postfix(failed=summary.errors.total(), refresh=False)
            bar.update()

        yield advance


def _lines(summary: Summary) -> Iterator[str]:
    """What people read of a job that has ended."""
    num_well = summary.num_before + summary.num_done
    before = f" ({summary.num_before:,} of them before)" if summary.num_before else ""
    yield f"{num_well:,} of {summary.num_items:,} items have ended well{before}"
    if summary.errors:
        kinds = ", ".join(f"{num:,} {kind}" for kind, num in summary.errors.most_common())
        yield f"{summary.errors.total():,} have failed: {kinds} (--retry-failed runs them again)"
    found = summary.totals
    if found["calls"]:
        yield (
            f"{found['calls']:,} calls, {found['prompt_tokens']:,} prompt tokens"
            f" ({found['cached_tokens']:,} cached), {found['completion_tokens']:,} generated,"
            f" in {summary.seconds:.1f} s"
        )
