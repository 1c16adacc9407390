"""Everything that only a GPU can tell, in stages."""
