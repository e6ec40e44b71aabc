"""Several recordings of one run as one: ranks of a machine, nodes of a job."""
