"""Session files: write, read, seek."""

import logging

# else logging prints what nobody asked for to standard error
logging.getLogger(__name__).addHandler(logging.NullHandler())
