"""Which models run, with the same tokens as transformers, in how much memory?"""
