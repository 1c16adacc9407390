"""The tables of docs/performance.md, made from the kept rows."""
