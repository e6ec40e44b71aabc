"""A recording asked in other words: SQL over its tables, tools of an assistant (MCP); none changes it."""
