"""What the scripts share: options and rows (`report`), programs, workloads, checkpoints."""
