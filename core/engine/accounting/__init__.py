"""Who uses the engine, and what its steps take.

Entry: `tenants.Tenants`, `step_costs.StepCosts`.
May import `core.common`.
Never knows sequences, batches or memory.
"""
