"""`forkroot run`: a compiled program over a file of items, into a file of results.

Entry: `options.add_run_options`, the command; `job.Job`, one run of it.
May import `core.api`, `core.common`, `adapters` and `adapters.native`.
Never knows who answers, nor how a program is run.
"""
