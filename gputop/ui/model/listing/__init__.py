"""The list of processes: filter, groups, tree, columns."""
