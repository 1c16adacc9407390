"""Who uses the engine, what its steps take, what programs use, and how good their hints are.

Entry: `tenants.Tenants`, `working_sets.WorkingSets`, `step_costs.StepCosts`,
`programs.ProgramCounts`.
May import `core.api` and `core.common`.
Never knows sequences, batches or memory.
"""
