"""The standalone server against its bars: overhead, streams, isolation, crashes, odd requests."""
