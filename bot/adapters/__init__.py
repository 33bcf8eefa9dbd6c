"""One module or package for each external product; each implements one port."""
