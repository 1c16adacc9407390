"""Linear layers on a CPU, and row-wise operations: norms, rotary positions, gates.

Entry: `linear.linear_kernel`, which picks the fastest kernel for a weight; `rows.PlainRows`.
May import `kernels.backend`, `kernels.cpu.jit` and `kernels.cpu.loops`.
Never knows a model.
"""
