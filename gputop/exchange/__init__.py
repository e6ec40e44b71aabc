"""What other tools read: recordings as Perfetto traces, Parquet and CSV tables, speedscope profiles."""
