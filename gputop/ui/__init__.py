"""The screen. ``model`` turns frames into lines of text and knows no Textual; the rest shows them."""
