"""What does a decode step cost beside its bare matrix products, and do GPU kernels compile?"""
