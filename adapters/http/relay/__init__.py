"""Requests that a router sends on as they came, and whose answers it hands on as they are.

Entry: `middleware.RelayPath`.
May import `core.api`, `adapters`, and the packages of `adapters.http` below.
Never knows how a replica is chosen or reached.
"""
