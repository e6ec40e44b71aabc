"""Everything that observes the machine: eBPF, NVML, procfs; the event schema."""

import logging

# else logging prints unrequested lines to standard error
logging.getLogger(__name__).addHandler(logging.NullHandler())
