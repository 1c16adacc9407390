"""The hostile campaign: faults, abuse and load on real servers; each scenario ends in a verdict."""
