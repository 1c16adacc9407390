"""Guidance: a model whose programs our runtime batches."""
