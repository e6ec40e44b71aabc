"""Many recordings as one lake: each explained once by worker processes, then asked together."""
