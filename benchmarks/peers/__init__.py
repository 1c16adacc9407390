"""Ours beside other engines: the same programs, in turn, in one run."""
