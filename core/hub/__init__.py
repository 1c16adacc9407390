"""Models from the hub: names, which files of a repository are needed, and their download.

Entry: `fetch.fetch`, from a name such as "Qwen/Qwen2.5-0.5B-Instruct" to a checkpoint folder.
It never knows what the files mean to a model, imports no torch, and never runs a repository's code.
"""
