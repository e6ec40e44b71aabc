"""Commands over session files: other formats, inspection, repair, cutting, merging, redaction."""
