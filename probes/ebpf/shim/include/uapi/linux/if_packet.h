/* Included by bcc, used by no program of ours. */
