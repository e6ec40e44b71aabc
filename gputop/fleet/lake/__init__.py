"""A lake of recordings: its storage, its tables, what is read from them."""
