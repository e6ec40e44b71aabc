"""Work on parts of recordings that merges, in several processes."""
