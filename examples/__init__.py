"""Programs to read and to run; `forkroot demo` shows one of them at work."""
