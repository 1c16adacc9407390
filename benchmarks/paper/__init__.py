"""The paper's evaluation by one command: rows, charts, and one report.

Entry: `python -m forkroot.benchmarks.paper`, and `run.run`.
May import all of the package and the other benchmarks, whose measurements it calls.
Never knows how a chart is drawn in `figures/`, nor what is measured in `report/`.
"""
