"""The programs as text in five languages, and how many lines each takes.

Entry: `counting.lines`. The texts are not run: they are there to be read and counted.
May import the standard library.
Never knows figures or rows.
"""
