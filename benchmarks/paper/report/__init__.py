"""One report of all rows: charts as SVG, tables, and where others are faster, first.

Entry: `page.html` and `markdown.markdown`.
May import `benchmarks.paper.rows` and `benchmarks.paper.figure`.
Never measures anything: every number is that of a row.
"""
