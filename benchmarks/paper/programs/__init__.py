"""The paper's workloads as programs of the native language, on real text where there is some.

Entry: `catalog.workloads`.
May import the package and `benchmarks.paper.engines`.
Never knows figures or rows.
"""
