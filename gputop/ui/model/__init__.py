"""View-models: pure functions from frames to lines of (text, style token), without Textual."""
