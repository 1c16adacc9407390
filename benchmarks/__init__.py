"""Seeded scripts that measure; each prints one row, and keeps it with `--out`. Not in the wheel."""
