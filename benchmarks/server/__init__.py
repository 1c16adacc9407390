"""The standalone server: what HTTP adds, and servers and clients for other benchmarks."""
