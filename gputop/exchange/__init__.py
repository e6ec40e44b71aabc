"""Exports to other tools: Perfetto traces, Parquet and CSV tables, speedscope profiles."""
