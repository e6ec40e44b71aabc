"""The screen: ``model`` turns frames into lines of text without Textual; the rest shows them."""
