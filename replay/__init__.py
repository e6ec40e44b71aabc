"""Session files: write, read, seek."""

import logging

# else logging prints unrequested lines to standard error
logging.getLogger(__name__).addHandler(logging.NullHandler())
