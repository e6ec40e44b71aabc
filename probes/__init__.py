"""Everything that observes the machine: eBPF, NVML, procfs; the event schema."""

import logging

# else logging prints what nobody asked for to standard error
logging.getLogger(__name__).addHandler(logging.NullHandler())
