"""Where a model's files are: folders, and models of the Hugging Face hub with their download.

Entry: `folders.model_folder`, from a name such as "Qwen/Qwen2.5-0.5B-Instruct" to a folder.
May import `core.api` and `core.common`; imports no torch.
Never knows what the files mean to a model, and never runs a repository's code.
"""
