"""What is the cache worth, and how near does it come to the best hit rate?"""
