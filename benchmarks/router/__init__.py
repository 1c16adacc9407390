"""Replicas behind the router: hit rate, balance, faults and the cost of a decision."""
