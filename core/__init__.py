"""The runtime: everything behind the protocol. The modules here are its composition roots.

Entry: `local.LocalBackend`, a runtime in this process (`child` runs one in a process of its own,
`rank` a part of a model). They join the packages below and hold no logic. May import everything in
`core` and `kernels`; never knows an adapter. Importing the package loads nothing.
`protocol`, `calls`, `prompts`, `errors` and `config` are older names of modules in `api`.
"""
