"""The public API: recordings opened, added up, explained and compared."""
