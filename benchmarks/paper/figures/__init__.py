"""One module a figure or table of the paper: what its steps measure, and how it is drawn.

Entry: `registry.FIGURES`.
May import all other benchmarks; a module calls their measurements and turns them into rows.
Never knows SVG, HTML or files.
"""
