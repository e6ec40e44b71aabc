"""Figures of the daemon: counts since its start, /metrics, OpenTelemetry, alerts."""
