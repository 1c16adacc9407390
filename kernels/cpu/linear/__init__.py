"""Linear layers on a CPU, and row-wise operations: norms, rotary positions, gates.

Entry: `linear.LinearFactory`, which picks the fastest kernel for a weight; `rows.Rows`.
May import `kernels.cpu.jit`, `kernels.cpu.loops` and `kernels.cpu.attention`.
Never knows a model.
"""
