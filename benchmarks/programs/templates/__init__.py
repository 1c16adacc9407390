"""Prompt templates, written for this benchmark, with what may move in each as judged by hand.

They are material of a measurement and not examples to start from, so they are not in the wheel.
`shipped.toml`: the twenty that the rules were made with. `held_out.toml`: written afterwards.
"""
