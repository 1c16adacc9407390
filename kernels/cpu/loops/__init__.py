"""The compiled loops of attention, linear layers and whole layers.

Entry: each loop is named in `kernels.cpu.jit.loops.LOOPS`.
May import `kernels.cpu.jit` and `kernels.cpu.work_items`; loads no torch.
Never knows tensors: loops get addresses and arrays.
"""
