"""Faults of processes and threads: what each is, and how programs with an engine survive them."""
