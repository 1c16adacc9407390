"""All measurements that need a GPU, in stages."""
