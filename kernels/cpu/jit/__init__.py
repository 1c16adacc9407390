"""How loops are compiled, cached for later processes, and what they all use: vectors, tiles, norms.

Entry: `jit.compiled`, from a function to machine code; `loops.LOOPS` lists what is compiled ahead.
May import numpy and numba; loads no torch.
Never knows which layer calls a loop.
"""
