"""The answer as data and as sentences; nothing here looks at evidence for causes."""
