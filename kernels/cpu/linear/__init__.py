"""Matrix products on a CPU, and what layers do to rows: norms, rotary positions, gates.

Entry: `products.Products`, which picks the fastest layout of a matrix; `rows.Rows`.
May import `kernels.cpu.jit`, `kernels.cpu.loops` and `kernels.cpu.attention`.
Never knows a model.
"""
