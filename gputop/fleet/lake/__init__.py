"""A lake of recordings: storage, tables, queries."""
