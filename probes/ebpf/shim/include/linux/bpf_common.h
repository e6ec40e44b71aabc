/* Instruction encodings, included by the bpf.h that bcc brings; C programs use none of them. */
