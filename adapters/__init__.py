"""Adapters: how frameworks reach the door. They know only `core.protocol`."""
