"""Queries of recordings: SQL over their tables, tools of an assistant (MCP); all read-only."""
